// SPDX-License-Identifier: Apache-2.0
#include "status.h"

namespace lmn::python {

void raise(lmn_status status, const std::string& message) {
  py::object error = py::module_::import("lmnative.errors").attr("from_status")(status, message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

void check(lmn_status status, const ErrorSlot& error) {
  if (status == LMN_OK) return;
  const char* message = error.message();
  raise(status, message != nullptr ? message : lmn_status_name(status));
}

}  // namespace lmn::python
