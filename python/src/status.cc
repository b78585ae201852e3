// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <string_view>

namespace lmn::python {
namespace {

// Options are keywords here: "lmn_request_options.top_p is 2" becomes "top_p is 2".
std::string in_python_words(std::string message) {
  for (const std::string_view name :
       {"lmn_request_options.", "lmn_engine_options.", "lmn_score_options.", "lmn_model_options.",
        "lmn_session_options.", "lmn_server_options.", "lmn_served_options.",
        "lmn_embedding_options."}) {
    for (size_t at = message.find(name); at != std::string::npos; at = message.find(name, at))
      message.erase(at, name.size());
  }
  return message;
}

}  // namespace

py::object exception_of(lmn_status status, const std::string& message) {
  return py::module_::import("lmnative.errors")
      .attr("from_status")(status, in_python_words(message));
}

void raise(lmn_status status, const std::string& message) {
  const py::object exception = exception_of(status, message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

void raise(lmn_status status, const ErrorSlot& error) {
  const char* message = error.message();
  raise(status, std::string(message != nullptr ? message : lmn_status_name(status)));
}

void check(lmn_status status, const ErrorSlot& error) {
  if (status != LMN_OK) raise(status, error);
}

}  // namespace lmn::python
