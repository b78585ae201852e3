// SPDX-License-Identifier: Apache-2.0
//
// LMN_CHECK(condition): an invariant of this library, never a property of input. A failure throws
// BrokenInvariant, which the engine's step loop turns into a failed engine and capi/guard.h into
// LMN_INTERNAL: the process lives. LMN_DCHECK is the same in builds without NDEBUG and nothing
// otherwise (hot loops).
#pragma once

#include <stdexcept>
#include <string>

namespace lmn {

class BrokenInvariant : public std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace lmn

#define LMN_CHECK(condition)                    \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::lmn::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define LMN_DCHECK(condition) ((void)0)
#else
#define LMN_DCHECK(condition) LMN_CHECK(condition)
#endif
