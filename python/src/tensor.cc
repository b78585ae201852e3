// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <cstring>

#include "status.h"

namespace lmn::python {
namespace {

constexpr const char* kVersionedName = "dltensor_versioned";
constexpr const char* kUsedVersionedName = "used_dltensor_versioned";
constexpr const char* kLegacyName = "dltensor";
constexpr const char* kUsedLegacyName = "used_dltensor";

// What a capsule lends: a tensor struct of either generation, and the shared ownership of the
// memory.
template <typename Managed>
struct Lent {
  Managed managed{};
  std::shared_ptr<DLManagedTensorVersioned> owner;
};

template <typename Managed>
void delete_lent(Managed* managed) {
  delete static_cast<Lent<Managed>*>(managed->manager_ctx);
}

template <typename Managed>
Managed* lend(const std::shared_ptr<DLManagedTensorVersioned>& owner) {
  auto* lent = new Lent<Managed>;
  lent->owner = owner;
  lent->managed.dl_tensor = owner->dl_tensor;
  lent->managed.manager_ctx = lent;
  lent->managed.deleter = &delete_lent<Managed>;
  return &lent->managed;
}

// Destructor of a capsule that nobody consumed (a consumer renames it).
template <typename Managed>
void delete_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}
void delete_versioned_capsule(PyObject* capsule) {
  delete_capsule<DLManagedTensorVersioned>(capsule, kVersionedName);
}
void delete_legacy_capsule(PyObject* capsule) {
  delete_capsule<DLManagedTensor>(capsule, kLegacyName);
}

[[noreturn]] void buffer_error(const std::string& message) {
  PyErr_SetString(PyExc_BufferError, message.c_str());
  throw py::error_already_set();
}

OwnedTensor create_tensor(DLDataType dtype, int32_t ndim, const int64_t* shape) {
  DLManagedTensorVersioned* tensor = nullptr;
  ErrorSlot error;
  check(lmn_tensor_create(dtype.code, dtype.bits, ndim, shape, &tensor, error.out()), error);
  return OwnedTensor(tensor);
}

// Format character of the struct module; "" for what Python's buffers cannot say.
std::string buffer_format(DLDataType dtype) {
  if (dtype.lanes != 1) return "";
  const int bytes_log2 = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : 3;
  switch (dtype.code) {
    case kDLInt:
      return std::string(1, "bhiq"[bytes_log2]);
    case kDLUInt:
      return std::string(1, "BHIQ"[bytes_log2]);
    case kDLFloat:
      return dtype.bits == 8 ? "" : std::string(1, " efd"[bytes_log2]);
    case kDLBool:
      return "?";
    default:
      return "";
  }
}

}  // namespace

int64_t Tensor::bytes() const {
  int64_t count = 1;
  for (int i = 0; i < view().ndim; ++i) count *= view().shape[i];
  return count * (view().dtype.bits / 8);
}

py::tuple Tensor::shape() const {
  py::tuple result(view().ndim);
  for (int i = 0; i < view().ndim; ++i) result[i] = view().shape[i];
  return result;
}

std::string Tensor::dtype() const {
  const DLDataType type = view().dtype;
  switch (type.code) {
    case kDLInt:
      return "int" + std::to_string(type.bits);
    case kDLUInt:
      return "uint" + std::to_string(type.bits);
    case kDLFloat:
      return "float" + std::to_string(type.bits);
    case kDLBfloat:
      return "bfloat" + std::to_string(type.bits);
    case kDLBool:
      return "bool";
    default:
      return "opaque" + std::to_string(type.bits);
  }
}

py::buffer_info Tensor::buffer() const {
  const std::string format = buffer_format(view().dtype);
  if (format.empty()) {
    buffer_error("a " + dtype() +
                 " tensor has no Python buffer format; use DLPack (torch.from_dlpack)");
  }
  const py::ssize_t item_bytes = view().dtype.bits / 8;
  std::vector<py::ssize_t> shape(view().shape, view().shape + view().ndim);
  std::vector<py::ssize_t> strides(shape.size());
  py::ssize_t compact = item_bytes;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = view().strides != nullptr ? view().strides[i] * item_bytes : compact;
    compact *= shape[i];
  }
  return py::buffer_info(data(), item_bytes, format, view().ndim, std::move(shape),
                         std::move(strides), read_only());
}

py::object Tensor::dlpack(const py::object& stream, const py::object& max_version,
                          const py::object& device, const py::object& copy) const {
  if (!stream.is_none()) buffer_error("stream must be None: the tensor is in CPU memory");
  if (!device.is_none() && !device.equal(py::make_tuple(static_cast<int>(kDLCPU), 0))) {
    buffer_error("dl_device must be (1, 0): the tensor is in CPU memory");
  }
  const bool versioned =
      !max_version.is_none() && max_version.cast<py::tuple>()[0].cast<int>() >= 1;
  const bool want_copy = !copy.is_none() && copy.cast<bool>();
  std::shared_ptr<DLManagedTensorVersioned> owner = tensor_;
  if (want_copy) {
    owner = create_tensor(view().dtype, view().ndim, view().shape);
    std::memcpy(owner->dl_tensor.data, data(), static_cast<size_t>(bytes()));
  }
  if (versioned) {
    auto* lent = lend<DLManagedTensorVersioned>(owner);
    lent->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    lent->flags = want_copy ? DLPACK_FLAG_BITMASK_IS_COPIED : owner->flags;
    return py::reinterpret_steal<py::object>(
        PyCapsule_New(lent, kVersionedName, &delete_versioned_capsule));
  }
  if (read_only() && !want_copy) {
    buffer_error("a read-only tensor needs a consumer of DLPack 1.0 or newer, or copy=True");
  }
  return py::reinterpret_steal<py::object>(
      PyCapsule_New(lend<DLManagedTensor>(owner), kLegacyName, &delete_legacy_capsule));
}

Tensor copy_of_floats(const float* data, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  OwnedTensor tensor = create_tensor({kDLFloat, 32, 1}, 2, shape);
  std::memcpy(tensor->dl_tensor.data, data, static_cast<size_t>(rows * columns) * sizeof(float));
  return Tensor(std::move(tensor));
}

void bind_tensor(py::module_& module) {
  py::class_<Tensor>(
      module, "Tensor", py::buffer_protocol(),
      "An array in CPU memory of the library.\n\n"
      "numpy.asarray(t), numpy.from_dlpack(t), torch.from_dlpack(t) and memoryview(t) share its "
      "memory\n"
      "and keep it alive; t[...] indexes it as numpy would. Tensors of a model file are read-only.")
      .def_buffer(&Tensor::buffer)
      .def_property_readonly("shape", &Tensor::shape, "Sizes, outermost first.")
      .def_property_readonly("dtype", &Tensor::dtype,
                             "Element type by numpy's name, such as 'float32'.")
      .def_property_readonly(
          "ndim", [](const Tensor& self) { return self.view().ndim; }, "Number of dimensions.")
      .def_property_readonly("nbytes", &Tensor::bytes, "Bytes of all elements.")
      .def_property_readonly("readonly", &Tensor::read_only, "True if writing is not allowed.")
      .def_property_readonly(
          "data_ptr", [](const Tensor& self) { return reinterpret_cast<uintptr_t>(self.data()); },
          "Address of the first element.")
      .def("__len__", [](const Tensor& self) { return self.view().shape[0]; })
      .def("__dlpack__", &Tensor::dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none(),
           "DLPack capsule: versioned for a consumer of DLPack 1.0 or newer, else the older kind.")
      .def("__dlpack_device__",
           [](const Tensor&) { return py::make_tuple(static_cast<int>(kDLCPU), 0); })
      .def(
          "numpy",
          [](const py::object& self) {
            return py::module_::import("numpy").attr("asarray")(
                py::memoryview(self.cast<py::buffer>()));
          },
          "A numpy array that shares the memory.")
      .def(
          "__array__",
          [](const py::object& self, const py::object& dtype, const py::object& copy) {
            py::object array = self.attr("numpy")();
            if (!dtype.is_none() &&
                !py::object(array.attr("dtype"))
                     .equal(py::module_::import("numpy").attr("dtype")(dtype))) {
              if (!copy.is_none() && !copy.cast<bool>())
                throw py::value_error("another dtype needs a copy");
              return py::object(array.attr("astype")(dtype));
            }
            if (!copy.is_none() && copy.cast<bool>()) return py::object(array.attr("copy")());
            return array;
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("__getitem__",
           [](const py::object& self, const py::object& key) {
             return py::object(self.attr("numpy")()[key]);
           })
      .def("__repr__", [](const Tensor& self) {
        return "<lmnative.Tensor " + self.dtype() + " " +
               py::repr(self.shape()).cast<std::string>() + ">";
      });
}

}  // namespace lmn::python
