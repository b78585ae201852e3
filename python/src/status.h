// SPDX-License-Identifier: Apache-2.0
//
// From an lmn_status to a Python exception: the only place where the two meet. The exception
// classes live in lmnative/errors.py, which is asked for one when something has failed. Functions
// here need the GIL.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <string>

namespace lmn::python {

namespace py = pybind11;

// Receives the error object of one C call, and frees it. `lmn_x_y(…, error.out())`, then
// `check(status, error)`.
class ErrorSlot {
 public:
  ErrorSlot() = default;
  ErrorSlot(const ErrorSlot&) = delete;
  ErrorSlot& operator=(const ErrorSlot&) = delete;
  ~ErrorSlot() { lmn_error_destroy(error_); }

  lmn_error** out() { return &error_; }
  // Before another call with the same slot.
  void reset() {
    lmn_error_destroy(error_);
    error_ = nullptr;
  }
  const char* message() const { return error_ != nullptr ? lmn_error_message(error_) : nullptr; }

 private:
  lmn_error* error_ = nullptr;
};

// A zeroed struct of the ABI with its struct_size set.
template <typename T>
T sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

// The Python exception for `status`, not thrown. The message names options as Python does.
py::object exception_of(lmn_status status, const std::string& message);

// Throws it.
[[noreturn]] void raise(lmn_status status, const std::string& message);
[[noreturn]] void raise(lmn_status status, const ErrorSlot& error);

// Throws unless `status` is LMN_OK.
void check(lmn_status status, const ErrorSlot& error);

}  // namespace lmn::python
