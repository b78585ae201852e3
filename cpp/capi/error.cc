// SPDX-License-Identifier: Apache-2.0
#include <unwind.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "capi/guard.h"
#include "core/check.h"
#include "formats/bytes.h"

// Allocated with its message behind it in one block, or one of kStaticErrors.
struct lmn_error {
  lmn_status status;
  const char* message;
};

namespace lmn::capi {
namespace {

#define LMN_STATUSES(X)                     \
  X(LMN_OK, kOk)                            \
  X(LMN_INVALID_ARGUMENT, kInvalidArgument) \
  X(LMN_NOT_FOUND, kNotFound)               \
  X(LMN_IO_ERROR, kIo)                      \
  X(LMN_CORRUPT, kCorrupt)                  \
  X(LMN_UNSUPPORTED, kUnsupported)          \
  X(LMN_OUT_OF_MEMORY, kOutOfMemory)        \
  X(LMN_QUEUE_FULL, kQueueFull)             \
  X(LMN_TIMEOUT, kTimeout)                  \
  X(LMN_CANCELLED, kCancelled)              \
  X(LMN_BUFFER_TOO_SMALL, kBufferTooSmall)  \
  X(LMN_CLOSED, kClosed)                    \
  X(LMN_INTERNAL, kInternal)

#define X(status, code) static_assert(status == static_cast<lmn_status>(Code::code));
LMN_STATUSES(X)
#undef X

constexpr const char* kStatusNames[] = {
#define X(status, code) #status,
    LMN_STATUSES(X)
#undef X
};
constexpr lmn_status kStatusCount = static_cast<lmn_status>(std::size(kStatusNames));

// Handed out when the memory for a real one is refused; behind them the everyday answers. Never
// written to: lmn_error is immutable.
lmn_error kStaticErrors[] = {
#define X(status, code) {status, #status " (and no memory was left for the message)"},
    LMN_STATUSES(X)
#undef X
        {LMN_TIMEOUT, "the request has no news yet"},
    {LMN_CLOSED, "the request's last chunk was handed out before"},
};

// The library carries its own copy of libgcc's unwinder, which sets up its table of register sizes
// when the first exception is thrown in here. One that comes from outside (a C++ callback throws)
// arrives by the host's copy, lands in our handlers and finds that table: while it is empty, libgcc
// aborts the process. So it is filled when the library is loaded.
[[gnu::constructor]] void prepare_unwinder() {
  (void)_Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

bool is_static(const lmn_error* error) {
  return error >= std::begin(kStaticErrors) && error < std::end(kStaticErrors);
}

lmn_error* make_error(Code code, std::string_view message) noexcept {
  const lmn_status status = static_cast<lmn_status>(code);
  void* block = std::malloc(sizeof(lmn_error) + message.size() + 1);
  if (block == nullptr) return &kStaticErrors[status];
  char* text = static_cast<char*>(block) + sizeof(lmn_error);
  std::memcpy(text, message.data(), message.size());
  formats::make_utf8_without_nul({text, message.size()});  // it may quote a file, and cut it short
  text[message.size()] = '\0';
  return new (block) lmn_error{status, text};
}

}  // namespace

lmn_error* const kNoNews = &kStaticErrors[kStatusCount];
lmn_error* const kNoMoreNews = &kStaticErrors[kStatusCount + 1];

lmn_status report(Code code, std::string_view message, lmn_error** err) noexcept {
  if (err != nullptr && !message.empty()) *err = make_error(code, message);
  return static_cast<lmn_status>(code);
}

lmn_status report_exception(lmn_error** err) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return report(Code::kOutOfMemory, "the system refused memory", err);
  } catch (const std::exception& e) {  // BrokenInvariant among them
    return report(Code::kInternal, e.what(), err);
  } catch (...) {
    return report(Code::kInternal, "an exception of unknown type", err);
  }
}

}  // namespace lmn::capi

using lmn::capi::kStatusCount;
using lmn::capi::kStatusNames;

extern "C" {

const char* lmn_status_name(lmn_status status) {
  return status >= 0 && status < kStatusCount ? kStatusNames[status] : "LMN_UNKNOWN";
}

lmn_status lmn_error_status(const lmn_error* error) {
  return error == nullptr ? LMN_OK : error->status;
}

const char* lmn_error_message(const lmn_error* error) {
  return error == nullptr ? "" : error->message;
}

void lmn_error_destroy(lmn_error* error) {
  if (error != nullptr && !lmn::capi::is_static(error)) std::free(error);
}

}  // extern "C"
