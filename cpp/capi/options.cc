// SPDX-License-Identifier: Apache-2.0
#include "capi/options.h"

namespace lmn::capi {
namespace detail {

Status check_struct_size(uint32_t size, size_t known, const char* type) {
  if (size >= 8 && size % 8 == 0 && size <= kMaxStructBytes) return {};
  return error(Code::kInvalidArgument,
               "%s.struct_size is %u; set it to sizeof(%s), which is %zu in this version", type,
               size, type, known);
}

Status check_unknown_tail(const void* given, uint32_t size, size_t known, const char* type) {
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return error(Code::kUnsupported,
                 "%s has %u bytes, of which this version knows %zu, and byte %zu is set: it asks "
                 "for something newer than "
                 "lmnative " LMN_PACKAGE_VERSION,
                 type, size, known, i);
  }
  return {};
}

}  // namespace detail

Status check_flags(uint32_t flags, uint32_t known, const char* field) {
  if ((flags & ~known) == 0) return {};
  return error(Code::kUnsupported, "%s has bits that this version does not know: 0x%x", field,
               flags & ~known);
}

Status check_reserved(uint32_t value, const char* field) {
  if (value == 0) return {};
  return error(Code::kUnsupported, "%s is %u; reserved fields must be 0", field, value);
}

Status check_bool(uint32_t value, const char* field) {
  if (value <= 1) return {};
  return error(Code::kInvalidArgument, "%s is %u; it is 0 or 1", field, value);
}

Status check_buffer(const void* buffer, size_t capacity, const char* buffer_argument,
                    const void* count, const char* count_argument) {
  LMN_RETURN_IF_ERROR(require(count, count_argument));
  if (buffer == nullptr && capacity > 0) {
    return error(Code::kInvalidArgument, "argument '%s' is NULL and its capacity is %zu",
                 buffer_argument, capacity);
  }
  return {};
}

}  // namespace lmn::capi
