// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include "interrupt.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

// Text of a file may be anything: what is not UTF-8 becomes U+FFFD.
py::str text_of(const char* data, uint64_t bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(data, static_cast<py::ssize_t>(bytes), "replace");
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}
py::str text_of(const char* data) {
  return text_of(data, data != nullptr ? std::char_traits<char>::length(data) : 0);
}

py::object scalar(const lmn_value& value) {
  switch (value.kind) {
    case LMN_VALUE_UINT:
      return py::int_(value.u64);
    case LMN_VALUE_INT:
      return py::int_(value.i64);
    case LMN_VALUE_FLOAT:
      return py::float_(value.f64);
    case LMN_VALUE_BOOL:
      return py::bool_(value.u64 != 0);
    default:
      return text_of(value.text, value.text_bytes);
  }
}

py::object value_of(const lmn_model* model, uint64_t index, const lmn_value& value) {
  if (value.kind != LMN_VALUE_ARRAY) return scalar(value);
  if (value.array_kind == LMN_VALUE_ARRAY) {  // whose elements the library does not read
    return py::str("[array of " + std::to_string(value.array_count) + " arrays]");
  }
  py::list items;
  for (uint64_t i = 0; i < value.array_count; ++i) {
    auto element = sized<lmn_value>();
    ErrorSlot error;
    check(lmn_model_metadata_element_get(model, index, i, &element, error.out()), error);
    items.append(scalar(element));
  }
  return items;
}

lmn_value metadata_at(const lmn_model* model, uint64_t index) {
  auto value = sized<lmn_value>();
  ErrorSlot error;
  check(lmn_model_metadata_get(model, index, &value, error.out()), error);
  return value;
}

py::dict info_of(const Model& self) {
  auto info = sized<lmn_model_info>();
  ErrorSlot error;
  check(lmn_model_info_get(self.get(), &info, error.out()), error);
  py::dict result;
  result["path"] = text_of(info.path);
  result["architecture"] = text_of(info.architecture);
  result["name"] = text_of(info.name);
  result["format_version"] = info.format_version;
  result["file_bytes"] = info.file_bytes;
  result["file_count"] = info.file_count;
  result["tensor_count"] = info.tensor_count;
  result["metadata_count"] = info.metadata_count;
  result["parameter_count"] = info.parameter_count;
  result["vocab_size"] = info.vocab_size;
  result["context_length"] = info.context_length;
  result["embedding_length"] = info.embedding_length;
  result["layer_count"] = info.layer_count;
  result["head_count"] = info.head_count;
  result["head_count_kv"] = info.head_count_kv;
  result["head_dim"] = info.head_dim;
  return result;
}

// Keys in the file's order, each with its index, so that values are only converted when asked for.
py::dict metadata_index(const Model& self) {
  const auto count = info_of(self)["metadata_count"].cast<uint64_t>();
  py::dict result;
  for (uint64_t i = 0; i < count; ++i) {
    const lmn_value value = metadata_at(self.get(), i);
    result[text_of(value.key, value.key_bytes)] = i;
  }
  return result;
}

py::list tensors_of(const Model& self) {
  const auto count = info_of(self)["tensor_count"].cast<uint64_t>();
  py::list result;
  for (uint64_t i = 0; i < count; ++i) {
    auto info = sized<lmn_tensor_info>();
    ErrorSlot error;
    check(lmn_model_tensor_get(self.get(), i, &info, error.out()), error);
    py::tuple shape(info.ndim);
    for (uint32_t d = 0; d < info.ndim; ++d) shape[d] = info.shape[d];
    result.append(py::make_tuple(text_of(info.name, info.name_bytes), text_of(info.type), shape,
                                 info.bytes, info.offset, info.file_index, info.supported != 0));
  }
  return result;
}

Tensor export_tensor(const Model& self, const std::string& name) {
  DLManagedTensorVersioned* tensor = nullptr;
  ErrorSlot error;
  check(lmn_model_tensor_export(self.get(), name.c_str(), &tensor, error.out()), error);
  return Tensor(OwnedTensor(tensor));
}

}  // namespace

Model::Model(const std::string& path, uint32_t read_mode, const py::object& progress) {
  Progress reporter(progress);
  auto options = sized<lmn_model_options>();
  options.read_mode = read_mode;
  options.progress = reporter.function();
  options.progress_user = reporter.user();
  lmn_model* model = nullptr;
  ErrorSlot error;
  lmn_status status = LMN_OK;
  {
    const WithoutGil nogil;
    status = lmn_model_open(path.c_str(), &options, &model, error.out());
  }
  model_.reset(model);
  reporter.rethrow();
  check(status, error);
}

std::string_view utf8_view(const py::handle& text, const std::string& what) {
  py::ssize_t size = 0;
  if (PyUnicode_Check(text.ptr())) {
    const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (data != nullptr) return {data, static_cast<size_t>(size)};
    const py::error_already_set error;  // takes the UnicodeEncodeError
    raise(LMN_INVALID_ARGUMENT,
          what + " is not valid Unicode text: lone surrogate at character " +
              py::str(py::object(error.value().attr("start"))).cast<std::string>());
  }
  if (PyBytes_Check(text.ptr())) {
    return {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))};
  }
  throw py::type_error(what + " must be str, not " + Py_TYPE(text.ptr())->tp_name);
}

void bind_model(py::module_& module) {
  py::class_<Model>(module, "Model")
      .def(py::init<const std::string&, uint32_t, const py::object&>())
      .def("info", &info_of)
      .def("metadata_index", &metadata_index)
      .def("metadata_value",
           [](const Model& self, uint64_t index) {
             return value_of(self.get(), index, metadata_at(self.get(), index));
           })
      .def("tensors", &tensors_of)
      .def("tensor", &export_tensor);
}

}  // namespace lmn::python
