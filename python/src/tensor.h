// SPDX-License-Identifier: Apache-2.0
//
// Tensors between Python and the C ABI, both as DLPack. Out: `Tensor` owns one tensor of the
// library and lends its memory through DLPack, the buffer protocol and numpy; every borrower keeps
// it alive. In: take_dlpack() borrows from any DLPack producer, and `Ids` a 1-D integer array from
// producers and buffers, without a copy where the layout allows it. Deleters that other libraries
// may call touch no Python state, unless they guard a Python buffer; so they also survive the
// interpreter's end.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmn::python {

namespace py = pybind11;

struct TensorDeleter {
  void operator()(DLManagedTensorVersioned* tensor) const { lmn_tensor_destroy(tensor); }
};
using OwnedTensor = std::unique_ptr<DLManagedTensorVersioned, TensorDeleter>;

// A CPU tensor in memory of the library. Immutable handle; what it points to is the caller's.
class Tensor {
 public:
  explicit Tensor(OwnedTensor tensor) : tensor_(std::move(tensor)) {}

  const DLTensor& view() const { return tensor_->dl_tensor; }
  bool read_only() const { return (tensor_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }
  void* data() const { return static_cast<char*>(view().data) + view().byte_offset; }
  int64_t bytes() const;
  py::tuple shape() const;
  std::string dtype() const;  // numpy's name: "float32"
  py::buffer_info buffer() const;
  py::object dlpack(const py::object& stream, const py::object& max_version,
                    const py::object& device, const py::object& copy) const;

 private:
  std::shared_ptr<DLManagedTensorVersioned> tensor_;
};

// A float32 tensor [rows, columns] with a copy of `data`.
Tensor copy_of_floats(const float* data, int64_t rows, int64_t columns);

// The tensor that a DLPack producer, old or new, lends; `what` names it in errors: TypeError for
// one that is not in CPU memory or not of DLPack after all, what the producer raises otherwise.
OwnedTensor take_dlpack(const py::object& source, const std::string& what);

// Token ids that Python code gave: as a 1-D DLPack tensor of int32 or int64, valid as long as this
// object. The destructor needs no GIL of its own accord and may run on any thread.
class Ids {
 public:
  // `source`: DLPack producer, buffer, or iterable of integers. Throws TypeError or ValueError,
  // naming `what`.
  Ids(const py::object& source, const std::string& what);

  const DLManagedTensorVersioned* tensor() const { return tensor_.get(); }
  uint64_t count() const { return static_cast<uint64_t>(tensor_->dl_tensor.shape[0]); }
  // The same as compact int32, copied if they were not; throws where one does not fit.
  const int32_t* as_int32();

 private:
  OwnedTensor tensor_;
  std::vector<int32_t> copy_;
  std::string what_;
};

void bind_tensor(py::module_& module);

}  // namespace lmn::python
