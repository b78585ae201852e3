// SPDX-License-Identifier: Apache-2.0
//
// Size classes: which size a request is rounded up to, and how many of them share a span. Pure
// arithmetic; what is said here is all that the rest of the room knows about sizes.
//
// Classes are the powers of two with four steps between, in multiples of 64 bytes: 64, 128, 192,
// 256, 320, 384, 448, 512, 640, 768, 896, 1024, … 4 MiB. From 256 bytes on a request wastes at most
// a fifth (one byte more than a power of two), and a tenth on average over uniform sizes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lmn::memory {

inline constexpr size_t kAlignment = 64;  // bytes: a cache line, and the widest vector register
inline constexpr int kPageShift = 16;
inline constexpr size_t kPageBytes = size_t{1} << kPageShift;  // the unit that spans are made of
inline constexpr size_t kLargestClass = size_t{4} << 20;       // larger: from the block source
inline constexpr int kClassCount = 60;

// The class that serves `bytes`, 1 to kLargestClass.
constexpr int class_of(size_t bytes) {
  const size_t last = bytes - 1;
  const int exponent = 63 ^ std::countl_zero(last | 256);  // of 256 for what is below
  return (exponent - 8) * 4 + static_cast<int>(last >> (exponent - 2));
}

constexpr size_t class_bytes(int size_class) {
  const auto c = static_cast<size_t>(size_class);
  return c < 4 ? (c + 1) * kAlignment : (5 + c % 4) << (c / 4 + 5);
}

static_assert(class_of(kLargestClass) == kClassCount - 1);
static_assert(class_bytes(kClassCount - 1) == kLargestClass);

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Pages of one span of a class: room for 16 objects, since that many of a kind are often alive
// together (layers in flight), but no more than 8 MiB; at least one page, and one object.
constexpr size_t span_pages(int size_class) {
  const size_t size = class_bytes(size_class);
  const size_t wanted = std::clamp(16 * size, kPageBytes, 2 * kLargestClass);
  return round_up(wanted / size * size, kPageBytes) / kPageBytes;
}

constexpr uint32_t span_capacity(int size_class) {
  return static_cast<uint32_t>(span_pages(size_class) * kPageBytes / class_bytes(size_class));
}

// offset / size without a division: (offset / 64 * reciprocal(size)) >> 40. Exact for offsets in a
// span: offset / 64 < 2^17 and size / 64 <= 2^16, so the rounding error stays below 2^33 < 2^40.
inline constexpr int kReciprocalShift = 40;
constexpr uint64_t reciprocal(size_t size) {
  const uint64_t units = size / kAlignment;
  return ((uint64_t{1} << kReciprocalShift) + units - 1) / units;
}

}  // namespace lmn::memory
