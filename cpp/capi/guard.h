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

// Everyday answers that callers may get a million times a second: their error objects are static.
extern lmn_error* const kNoNews;      // LMN_TIMEOUT
extern lmn_error* const kNoMoreNews;  // LMN_CLOSED

// What a body returns: a Status, or an answer that allocates nothing.
class Outcome {
 public:
  Outcome() = default;
  Outcome(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design
  // `error` has static storage; null: no error object at all.
  static Outcome answer(Code code, lmn_error* error) {
    Outcome outcome;
    outcome.code_ = code;
    outcome.error_ = error;
    return outcome;
  }

  const Status& status() const { return status_; }
  Code code() const { return status_.ok() ? code_ : status_.code(); }
  lmn_error* error() const { return error_; }

 private:
  Status status_;
  Code code_ = Code::kOk;
  lmn_error* error_ = nullptr;
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
    if (!outcome.status().ok()) return report(outcome.code(), outcome.status().message(), err);
    if (err != nullptr) *err = outcome.error();
    return static_cast<lmn_status>(outcome.code());
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
