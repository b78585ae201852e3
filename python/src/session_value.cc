// SPDX-License-Identifier: Apache-2.0
#include "session_value.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "model.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

using npy = py::detail::npy_api;

constexpr int kMaxDims = 8;

struct ElementType {
  const char* name;  // the library's
  int number;        // numpy's type number
  DLDataType type;
};
// Types that both have. Numbers of equal width stand for the same elements.
constexpr ElementType kElementTypes[] = {
    {"f32", npy::NPY_FLOAT_, {kDLFloat, 32, 1}},  {"i64", npy::NPY_LONG_, {kDLInt, 64, 1}},
    {"bool", npy::NPY_BOOL_, {kDLBool, 8, 1}},    {"i32", npy::NPY_INT_, {kDLInt, 32, 1}},
    {"f64", npy::NPY_DOUBLE_, {kDLFloat, 64, 1}}, {"f16", 23, {kDLFloat, 16, 1}},
    {"u8", npy::NPY_UBYTE_, {kDLUInt, 8, 1}},     {"i8", npy::NPY_BYTE_, {kDLInt, 8, 1}},
    {"i16", npy::NPY_SHORT_, {kDLInt, 16, 1}},    {"u16", npy::NPY_USHORT_, {kDLUInt, 16, 1}},
    {"u32", npy::NPY_UINT_, {kDLUInt, 32, 1}},    {"u64", npy::NPY_ULONG_, {kDLUInt, 64, 1}},
    {"i64", npy::NPY_LONGLONG_, {kDLInt, 64, 1}}, {"u64", npy::NPY_ULONGLONG_, {kDLUInt, 64, 1}},
};

// A numpy array as a DLPack tensor that holds a reference to it.
struct LentArray {
  DLManagedTensorVersioned managed{};
  PyObject* array;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];
};

// Any thread may be the one that lets go.
void delete_lent_array(DLManagedTensorVersioned* self) {
  auto* lent = static_cast<LentArray*>(self->manager_ctx);
  if (Py_IsInitialized() != 0) {
    py::gil_scoped_acquire gil;
    Py_DECREF(lent->array);
  }
  delete lent;
}

DLManagedTensorVersioned* lend_array(const py::handle& source, const ElementType& element,
                                     bool writable) {
  const auto* array = py::detail::array_proxy(source.ptr());
  const int bytes = element.type.bits / 8;
  if (array->nd > kMaxDims || (writable && (array->flags & npy::NPY_ARRAY_WRITEABLE_) == 0))
    return nullptr;
  auto lent = std::make_unique<LentArray>();
  for (int i = 0; i < array->nd; ++i) {
    if (array->strides[i] % bytes != 0) return nullptr;
    lent->shape[i] = array->dimensions[i];
    lent->strides[i] = array->strides[i] / bytes;
  }
  lent->array = source.ptr();
  Py_INCREF(lent->array);
  DLManagedTensorVersioned& managed = lent->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.manager_ctx = lent.get();
  managed.deleter = &delete_lent_array;
  managed.flags = writable ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
  managed.dl_tensor = {array->data, {kDLCPU, 0},   array->nd, element.type,
                       lent->shape, lent->strides, 0};
  return &lent.release()->managed;
}

// Takes `tensor` over.
SessionValuePtr value_of_tensor(DLManagedTensorVersioned* tensor, const char* dtype) {
  lmn_session_value* value = nullptr;
  ErrorSlot error;
  check(lmn_session_value_create(tensor, dtype, &value, error.out()), error);
  return SessionValuePtr(value);
}

lmn_session_value_info info_of(const lmn_session_value* value) {
  auto info = sized<lmn_session_value_info>();
  ErrorSlot error;
  check(lmn_session_value_info_get(value, &info, error.out()), error);
  return info;
}

OwnedTensor tensor_of(const lmn_session_value* value) {
  DLManagedTensorVersioned* tensor = nullptr;
  ErrorSlot error;
  check(lmn_session_value_tensor_get(value, &tensor, error.out()), error);
  return OwnedTensor(tensor);
}

py::object array_of_tensor(OwnedTensor tensor, int number) {
  const DLTensor& view = tensor->dl_tensor;
  const std::vector<py::ssize_t> shape(view.shape, view.shape + view.ndim);
  const void* data = static_cast<const char*>(view.data) + view.byte_offset;
  const py::capsule keeper(tensor.get(), [](void* self) {
    lmn_tensor_destroy(static_cast<DLManagedTensorVersioned*>(self));
  });
  (void)tensor.release();
  return py::array(py::dtype(number), shape, std::vector<py::ssize_t>(), data, keeper);
}

// A DLPack producer's tensor; `dtype` as in lmn_session_value_create.
SessionValue value_of(const py::object& source, const py::object& dtype, const std::string& what) {
  const std::string name = dtype.is_none() ? "" : dtype.cast<std::string>();
  OwnedTensor tensor = take_dlpack(source, what);
  return SessionValue(value_of_tensor(tensor.release(), name.empty() ? nullptr : name.c_str()));
}

SessionValue value_of_strings(const std::vector<int64_t>& shape, const py::list& items) {
  std::vector<const char*> strings(items.size());
  std::vector<size_t> lengths(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string_view text = utf8_view(items[i], "item " + std::to_string(i));
    strings[i] = text.data();
    lengths[i] = text.size();
  }
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  if (count != static_cast<int64_t>(items.size())) throw py::value_error("strings and shape");
  lmn_session_value* value = nullptr;
  ErrorSlot error;
  check(lmn_session_value_strings_create(static_cast<int32_t>(shape.size()), shape.data(),
                                         strings.data(), lengths.data(), &value, error.out()),
        error);
  return SessionValue(SessionValuePtr(value));
}

SessionValue value_of_items(int32_t kind, const std::string& dtype, const py::list& items) {
  std::vector<const lmn_session_value*> handles;
  for (const py::handle item : items) handles.push_back(item.cast<const SessionValue&>().get());
  lmn_session_value* value = nullptr;
  ErrorSlot error;
  check(lmn_session_value_items_create(kind, dtype.c_str(), handles.data(), handles.size(), &value,
                                       error.out()),
        error);
  return SessionValue(SessionValuePtr(value));
}

py::tuple shape_of(const SessionValue& self) {
  const lmn_session_value_info info = info_of(self.get());
  py::tuple shape(info.ndim);
  for (int i = 0; i < info.ndim; ++i) shape[i] = info.shape[i];
  return shape;
}

py::list strings_of(const SessionValue& self) {
  const lmn_session_value_info info = info_of(self.get());
  uint64_t count = 1;
  for (int i = 0; i < info.ndim; ++i) count *= static_cast<uint64_t>(info.shape[i]);
  py::list out(count);
  for (uint64_t i = 0; i < count; ++i) {
    const char* text = nullptr;
    size_t length = 0;
    ErrorSlot error;
    check(lmn_session_value_string_get(self.get(), i, &text, &length, error.out()), error);
    PyObject* item =
        PyUnicode_DecodeUTF8(text, static_cast<py::ssize_t>(length), "surrogateescape");
    if (item == nullptr) throw py::error_already_set();
    out[i] = py::reinterpret_steal<py::object>(item);
  }
  return out;
}

SessionValue item_of(const SessionValue& self, uint64_t index) {
  lmn_session_value* item = nullptr;
  ErrorSlot error;
  check(lmn_session_value_item_get(self.get(), index, &item, error.out()), error);
  return SessionValue(SessionValuePtr(item));
}

// The same memory with elements of another type, as wide.
SessionValue retyped(const SessionValue& self, const std::string& dtype) {
  return SessionValue(value_of_tensor(tensor_of(self.get()).release(), dtype.c_str()));
}

// The elements as they are stored: narrow types as uint8 or int8, bf16 as uint16.
py::object storage_of(const SessionValue& self) {
  OwnedTensor tensor = tensor_of(self.get());
  DLDataType type = tensor->dl_tensor.dtype;
  if (type.code == kDLBfloat) type.code = kDLUInt;
  for (const ElementType& element : kElementTypes) {
    if (element.type.code == type.code && element.type.bits == type.bits)
      return array_of_tensor(std::move(tensor), element.number);
  }
  throw py::type_error("the elements have no numpy type");
}

}  // namespace

SessionValuePtr value_of_array(const py::handle& source, const char* dtype, bool writable) {
  if (!npy::get().PyArray_Check_(source.ptr())) return nullptr;
  const auto* descr =
      py::detail::array_descriptor_proxy(py::detail::array_proxy(source.ptr())->descr);
  if (descr->byteorder == '>') return nullptr;
  for (const ElementType& element : kElementTypes) {
    if (element.number != descr->type_num || std::strcmp(element.name, dtype) != 0) continue;
    DLManagedTensorVersioned* lent = lend_array(source, element, writable);
    return lent == nullptr ? nullptr : value_of_tensor(lent, nullptr);
  }
  return nullptr;
}

py::object array_of_value(const lmn_session_value* value) {
  const lmn_session_value_info info = info_of(value);
  if (info.kind != LMN_SESSION_VALUE_TENSOR) return {};
  for (const ElementType& element : kElementTypes) {
    if (std::strcmp(element.name, info.dtype) == 0)
      return array_of_tensor(tensor_of(value), element.number);
  }
  return {};
}

void bind_session_value(py::module_& module) {
  py::class_<SessionValue>(module, "SessionValue")
      .def_static("array",
                  [](const py::object& array, const std::string& dtype, bool writable) {
                    SessionValuePtr value = value_of_array(array, dtype.c_str(), writable);
                    return value ? std::optional(SessionValue(std::move(value))) : std::nullopt;
                  })
      .def_static("tensor", &value_of)
      .def_static("strings", &value_of_strings)
      .def_static("items", &value_of_items)
      .def_property_readonly("kind",
                             [](const SessionValue& self) { return info_of(self.get()).kind; })
      .def_property_readonly("dtype",
                             [](const SessionValue& self) { return info_of(self.get()).dtype; })
      .def_property_readonly("shape", &shape_of)
      .def("__len__", [](const SessionValue& self) { return info_of(self.get()).item_count; })
      .def("item", &item_of)
      .def("retyped", &retyped)
      .def("text", &strings_of)
      .def("storage", &storage_of);
}

}  // namespace lmn::python
