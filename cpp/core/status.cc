// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <cstdarg>
#include <cstdio>

#include "core/check.h"

namespace lmn {

Status error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string message(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(message.data(), message.size() + 1, format, again);
  va_end(again);
  return Status(code, std::move(message));
}

void check_failed(const char* condition, const char* file, int line) {
  throw BrokenInvariant(std::string("broken invariant: ") + condition + " at " + file + ":" +
                        std::to_string(line));
}

}  // namespace lmn
