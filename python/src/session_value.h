// SPDX-License-Identifier: Apache-2.0
//
// Values of sessions in Python. Arrays of numpy cross without a copy and without a Python call;
// everything else goes through the package's converters (lmnative/session_values.py).
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <memory>

namespace lmn::python {

namespace py = pybind11;

struct SessionValueDeleter {
  void operator()(lmn_session_value* value) const { lmn_session_value_destroy(value); }
};
using SessionValuePtr = std::unique_ptr<lmn_session_value, SessionValueDeleter>;

// The handle of one value. Immutable.
class SessionValue {
 public:
  explicit SessionValue(SessionValuePtr value) : value_(std::move(value)) {}
  const lmn_session_value* get() const { return value_.get(); }

 private:
  SessionValuePtr value_;
};

// A value over a numpy array whose elements are of the library's type `dtype`; null if `source` is
// anything else. With `writable`, null for what is not writable, too.
SessionValuePtr value_of_array(const py::handle& source, const char* dtype, bool writable);

// A numpy array over a tensor value's memory, which it keeps alive; null for other kinds and for
// element types that numpy lacks.
py::object array_of_value(const lmn_session_value* value);

void bind_session_value(py::module_& module);

}  // namespace lmn::python
