// SPDX-License-Identifier: Apache-2.0
//
// How long C calls stay interruptible. Python's signal handlers run only when somebody asks, on the
// main thread, with the GIL: so a wait is cut into slices, and a call that reports progress asks
// from its progress callback.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <optional>

namespace lmn::python {

namespace py = pybind11;

// The longest that a wait goes without looking for Ctrl-C: below what a person notices, and rare
// enough to cost nothing.
constexpr std::chrono::milliseconds kSignalSlice{50};

// Runs pending signal handlers. Throws what they raise (KeyboardInterrupt). Needs the GIL.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Lets other Python threads run while this one is in the library. The destructor may be the last
// that this thread does: at the interpreter's end, a daemon thread that asks for the GIL is ended
// by unwinding its stack (before Python 3.14), which must be allowed to pass.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() noexcept(false) { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* state_;
};

// The lmn_progress_fn of one call: hands progress to a Python callable (or to nobody, if it is
// None) and stops the call when the callable or a signal handler raises. After the call, with the
// GIL held, `rethrow` raises that.
class Progress {
 public:
  explicit Progress(py::object callable) : callable_(std::move(callable)) {}

  lmn_progress_fn function() const { return &Progress::call; }
  void* user() { return this; }
  void rethrow();

 private:
  static int32_t call(void* user, const char* what, uint64_t done, uint64_t total);

  py::object callable_;
  std::chrono::steady_clock::time_point last_{};
  std::optional<py::error_already_set> raised_;
};

}  // namespace lmn::python
