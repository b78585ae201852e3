// SPDX-License-Identifier: Apache-2.0
//
// Ids: token ids from whatever Python code holds them in.
#include <limits>

#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

// A tensor struct whose memory someone else holds; `release` lets go of it.
template <typename Keeper>
struct Borrowed {
  DLManagedTensorVersioned managed{};
  Keeper keeper;
  int64_t shape = 0;
  int64_t stride = 1;
};

template <typename Keeper>
OwnedTensor borrow(Keeper keeper, void* data, DLDataType dtype, int64_t count, int64_t stride) {
  auto* borrowed = new Borrowed<Keeper>{{}, std::move(keeper), count, stride};
  DLManagedTensorVersioned& managed = borrowed->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.manager_ctx = borrowed;
  managed.deleter = [](DLManagedTensorVersioned* self) {
    delete static_cast<Borrowed<Keeper>*>(self->manager_ctx);
  };
  managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  managed.dl_tensor = {data, {kDLCPU, 0}, 1, dtype, &borrowed->shape, &borrowed->stride, 0};
  return OwnedTensor(&managed);
}

// Holds a Python buffer; letting go of it needs the GIL, which this takes itself.
struct BufferKeeper {
  struct Release {
    void operator()(Py_buffer* view) const {
      if (Py_IsInitialized() != 0) {
        py::gil_scoped_acquire gil;
        PyBuffer_Release(view);
      }
      delete view;
    }
  };
  std::unique_ptr<Py_buffer, Release> view;
};

[[noreturn]] void type_error(const std::string& message) { throw py::type_error(message); }

[[noreturn]] void out_of_range(const std::string& what, const std::string& value, size_t position) {
  raise(LMN_INVALID_ARGUMENT, what + ": token id " + value + " at position " +
                                  std::to_string(position) + " is out of range");
}

OwnedTensor of_values(std::vector<int64_t> values) {
  int64_t* data = values.data();
  const auto count = static_cast<int64_t>(values.size());
  return borrow(std::move(values), data, {kDLInt, 64, 1}, count, 1);
}

OwnedTensor from_iterable(const py::object& source, const std::string& what) {
  std::vector<int64_t> values;
  for (py::handle item : py::iter(source)) {
    const py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(item.ptr()));
    if (!number) {
      PyErr_Clear();
      type_error(what + ": token ids must be integers, item " + std::to_string(values.size()) +
                 " is " + std::string(Py_TYPE(item.ptr())->tp_name));
    }
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0) {
      // Python refuses to print integers of thousands of digits.
      const auto bits = number.attr("bit_length")().cast<size_t>();
      out_of_range(what,
                   bits <= 128 ? py::str(number).cast<std::string>()
                               : "of " + std::to_string(bits) + " bits",
                   values.size());
    }
    values.push_back(value);
  }
  return of_values(std::move(values));
}

OwnedTensor from_dlpack(const py::object& source, const std::string& what) {
  try {
    return take_dlpack(source, what + ": token ids");
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_BufferError)) throw;
    type_error(what + ": token ids must be integers in native byte order");
  }
}

// Type of a struct-module format of one native integer; bits 0 for anything else.
DLDataType integer_type(const char* format, py::ssize_t item_bytes) {
  std::string code = format != nullptr ? format : "B";
  if (code.size() == 2 && std::string("@=<").find(code[0]) != std::string::npos) code.erase(0, 1);
  const auto bits = static_cast<uint8_t>(item_bytes * 8);
  if (code.size() != 1) return {kDLInt, 0, 1};
  if (std::string("bhilqn").find(code[0]) != std::string::npos) return {kDLInt, bits, 1};
  if (std::string("BHILQN").find(code[0]) != std::string::npos) return {kDLUInt, bits, 1};
  return {kDLInt, 0, 1};
}

OwnedTensor from_buffer(const py::object& source, const std::string& what) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(source.ptr(), view.get(), PyBUF_STRIDES | PyBUF_FORMAT) != 0)
    throw py::error_already_set();
  BufferKeeper keeper{std::unique_ptr<Py_buffer, BufferKeeper::Release>(view.release())};
  const Py_buffer& buffer = *keeper.view;
  const DLDataType dtype = integer_type(buffer.format, buffer.itemsize);
  if (buffer.ndim != 1)
    type_error(what + ": token ids must have one dimension, not " + std::to_string(buffer.ndim));
  if (dtype.bits == 0 || buffer.strides[0] % buffer.itemsize != 0)
    type_error(what + ": token ids must be integers");
  void* data = buffer.buf;
  const int64_t count = buffer.shape[0];
  const int64_t stride = buffer.strides[0] / buffer.itemsize;
  return borrow(std::move(keeper), data, dtype, count, stride);
}

int64_t element(const DLTensor& view, int64_t index) {
  const int64_t stride = view.strides != nullptr ? view.strides[0] : 1;
  const char* at = static_cast<const char*>(view.data) + view.byte_offset +
                   index * stride * (view.dtype.bits / 8);
  const auto load = [at]<typename T>(T value) {
    __builtin_memcpy(&value, at, sizeof value);
    return static_cast<int64_t>(value);
  };
  const bool is_signed = view.dtype.code == kDLInt;
  switch (view.dtype.bits) {
    case 8:
      return is_signed ? load(int8_t{}) : load(uint8_t{});
    case 16:
      return is_signed ? load(int16_t{}) : load(uint16_t{});
    case 32:
      return is_signed ? load(int32_t{}) : load(uint32_t{});
    default:
      return load(int64_t{});
  }
}

// What can be iterated over, or read as numbers, and is hardly meant as token ids.
void refuse_other_kinds(const py::object& source, const std::string& what) {
  const PyObject* object = source.ptr();
  const bool bytes = PyUnicode_Check(object) || PyBytes_Check(object) ||
                     PyByteArray_Check(object) ||
                     (PyMemoryView_Check(object) && PyMemoryView_GET_BUFFER(object)->itemsize == 1);
  if (bytes || PyDict_Check(object) || PyAnySet_Check(object)) {
    type_error(what + " must be token ids (a list or an array of integers), not " +
               std::string(Py_TYPE(object)->tp_name));
  }
}

}  // namespace

Ids::Ids(const py::object& source, const std::string& what) : what_(what) {
  refuse_other_kinds(source, what);
  if (py::isinstance<py::list>(source) || py::isinstance<py::tuple>(source)) {
    tensor_ = from_iterable(source, what);
  } else if (py::hasattr(source, "__dlpack__") && py::hasattr(source, "__dlpack_device__")) {
    tensor_ = from_dlpack(source, what);
  } else if (PyObject_CheckBuffer(source.ptr()) != 0) {
    tensor_ = from_buffer(source, what);
  } else {
    tensor_ = from_iterable(source, what);
  }
  const DLTensor& view = tensor_->dl_tensor;
  if (view.ndim != 1)
    type_error(what + ": token ids must have one dimension, not " + std::to_string(view.ndim));
  if ((view.dtype.code != kDLInt && view.dtype.code != kDLUInt) || view.dtype.lanes != 1) {
    type_error(what + ": token ids must be integers");
  }
  if (view.dtype.code == kDLInt && (view.dtype.bits == 32 || view.dtype.bits == 64)) return;
  std::vector<int64_t> values(static_cast<size_t>(view.shape[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = element(view, static_cast<int64_t>(i));
    if (view.dtype.code == kDLUInt && values[i] < 0)  // of 64 bits, from 2^63 on
      out_of_range(what, std::to_string(static_cast<uint64_t>(values[i])), i);
  }
  tensor_ = of_values(std::move(values));
}

const int32_t* Ids::as_int32() {
  const DLTensor& view = tensor_->dl_tensor;
  const bool compact = view.strides == nullptr || view.strides[0] == 1 || view.shape[0] <= 1;
  if (view.dtype.bits == 32 && compact) {
    return reinterpret_cast<const int32_t*>(static_cast<const char*>(view.data) + view.byte_offset);
  }
  copy_.resize(count());
  for (size_t i = 0; i < copy_.size(); ++i) {
    const int64_t value = element(view, static_cast<int64_t>(i));
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      out_of_range(what_, std::to_string(value), i);
    }
    copy_[i] = static_cast<int32_t>(value);
  }
  return copy_.data();
}

}  // namespace lmn::python
