// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

namespace lmn::python {

int32_t Progress::call(void* user, const char* what, uint64_t done, uint64_t total) {
  auto* self = static_cast<Progress*>(user);
  const auto now = std::chrono::steady_clock::now();
  if (done < total && now - self->last_ < kSignalSlice) return 0;
  self->last_ = now;
  py::gil_scoped_acquire gil;
  try {
    check_signals();
    if (!self->callable_.is_none()) self->callable_(what, done, total);
  } catch (py::error_already_set& error) {
    self->raised_.emplace(std::move(error));
    return 1;
  }
  return 0;
}

void Progress::rethrow() {
  if (!raised_) return;
  py::error_already_set error = std::move(*raised_);
  raised_.reset();
  throw error;
}

}  // namespace lmn::python
