// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how every room reports what input, files or the machine can cause. A Status
// is one pointer; OK allocates nothing. Codes have the same numbers as LMN_* in
// include/lmnative/common.h (capi asserts it). A message names the input and the remedy. Broken
// invariants are not a Status: see check.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lmn {

enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // the caller passed something no state could make valid
  kNotFound = 2,         // a file, name, key or index that does not exist
  kIo = 3,               // the operating system refused a read, map or write
  kCorrupt = 4,          // bytes contradict their format or each other
  kUnsupported = 5,      // well formed, but this build or version does not do it
  kOutOfMemory = 6,      // an allocation or a memory budget was refused
  kQueueFull = 7,        // back-pressure: try again later
  kTimeout = 8,          // the wait ended before anything arrived
  kCancelled = 9,        // ended by cancel or destroy
  kBufferTooSmall = 10,  // the needed size was written where the caller can read it
  kClosed = 11,          // the object is shutting down, or was inherited through fork
  kInternal = 12,        // a device that failed or cannot be used; else a broken invariant of this
                         // library: please report it
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : rep_(std::make_unique<Rep>(Rep{code, std::move(message)})) {}
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) rep_ = Status(other).rep_;
    return *this;
  }

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : ""; }

  // The same status with "context: " in front of the message, for a caller that knows the name of
  // the input.
  Status with_context(std::string_view context) && {
    if (rep_) rep_->message.insert(0, std::string(context) + ": ");
    return std::move(*this);
  }

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

// printf-style constructor of an error. [[gnu::format]] checks the arguments.
[[gnu::format(printf, 2, 3)]] Status error(Code code, const char* format, ...);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T operator*() && { return std::move(*value_); }  // by value: `for (x : *f())` must not dangle
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace lmn

#define LMN_CONCAT_INNER(a, b) a##b
#define LMN_CONCAT(a, b) LMN_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is an error.
#define LMN_RETURN_IF_ERROR(expr)              \
  do {                                         \
    ::lmn::Status lmn_status_ = (expr);        \
    if (!lmn_status_.ok()) return lmn_status_; \
  } while (0)

// LMN_ASSIGN_OR_RETURN(auto x, f()): declares x from a Result, or returns its Status.
#define LMN_ASSIGN_OR_RETURN(decl, expr) \
  LMN_ASSIGN_OR_RETURN_INNER(LMN_CONCAT(lmn_result_, __LINE__), decl, expr)
#define LMN_ASSIGN_OR_RETURN_INNER(result, decl, expr) \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  decl = std::move(result).value()
