// SPDX-License-Identifier: Apache-2.0
//
// The fence around every export: guard(err, body) runs `body`, lets no exception out and no
// pthread_cancel in, and turns what happened into an lmn_status and, where the caller asked for
// one, an lmn_error. Reporting cannot fail: when even the error object cannot be allocated, the
// caller gets one with static storage and the right status.
#pragma once

#include <pthread.h>

#include <string_view>
#include <utility>

#include "core/status.h"
#include "lmnative/common.h"

namespace lmn::capi {

// What a body returns: a Status, or a code that is an everyday answer ("nothing yet") and allocates
// nothing unless the caller wants an error object.
class Outcome {
 public:
  Outcome() = default;
  Outcome(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design
  // `message` has static storage; empty: no error object at all.
  static Outcome answer(Code code, std::string_view message) {
    Outcome outcome;
    outcome.code_ = code;
    outcome.message_ = message;
    return outcome;
  }

  const Status& status() const { return status_; }
  Code code() const { return status_.ok() ? code_ : status_.code(); }
  std::string_view message() const { return status_.ok() ? message_ : status_.message(); }

 private:
  Status status_;
  Code code_ = Code::kOk;
  std::string_view message_;
};

// Sets *err (when err is not null and there is a message) and returns the status.
lmn_status report(Code code, std::string_view message, lmn_error** err) noexcept;
// The same for the exception that is being handled.
lmn_status report_exception(lmn_error** err) noexcept;

// No pthread_cancel acts while one of these lives; it is taken up by the host's next cancellation
// point. Its unwinding would otherwise start in the middle of a destructor, which ends the process.
class NoCancellation {
 public:
  NoCancellation() { (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { (void)pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

template <typename Body>
lmn_status guard(lmn_error** err, Body&& body) {
  const NoCancellation whole_call;
  if (err != nullptr) *err = nullptr;
  try {
    const Outcome outcome = body();
    if (outcome.code() == Code::kOk) return LMN_OK;
    return report(outcome.code(), outcome.message(), err);
  } catch (...) {
    return report_exception(err);
  }
}

// The same for exports that cannot report (destroy): whatever is thrown ends here.
template <typename Body>
void guard_destroy(Body&& body) {
  (void)guard(nullptr, [&]() -> Outcome {
    body();
    return {};
  });
}

// INVALID_ARGUMENT when `pointer` is null.
inline Status require(const void* pointer, const char* argument) {
  if (pointer != nullptr) return {};
  return error(Code::kInvalidArgument, "argument '%s' is NULL", argument);
}

}  // namespace lmn::capi

// LMN_REQUIRE_ONE(path): returns from the body when that argument is NULL.
#define LMN_REQUIRE_ONE(argument) LMN_RETURN_IF_ERROR(::lmn::capi::require(argument, #argument))
