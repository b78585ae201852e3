// SPDX-License-Identifier: Apache-2.0
#include "memory/size_class.h"

#include <random>

#include "testing.h"

using namespace lmn::memory;  // NOLINT: tests

// Written by hand: powers of two with four steps between, multiples of 64.
constexpr size_t kTable[] = {
    64,     128,     192,     256,     320,     384,     448,     512,     640,     768,
    896,    1024,    1280,    1536,    1792,    2048,    2560,    3072,    3584,    4096,
    5120,   6144,    7168,    8192,    10240,   12288,   14336,   16384,   20480,   24576,
    28672,  32768,   40960,   49152,   57344,   65536,   81920,   98304,   114688,  131072,
    163840, 196608,  229376,  262144,  327680,  393216,  458752,  524288,  655360,  786432,
    917504, 1048576, 1310720, 1572864, 1835008, 2097152, 2621440, 3145728, 3670016, 4194304};

TEST(classes_are_those_of_the_hand_table) {
  EXPECT_EQ(std::size(kTable), size_t{kClassCount});
  for (size_t c = 0; c < std::size(kTable); ++c) {
    EXPECT_EQ(class_bytes(static_cast<int>(c)), kTable[c]);
    EXPECT_EQ(class_of(kTable[c]), static_cast<int>(c));
    EXPECT_EQ(class_of(c == 0 ? 1 : kTable[c - 1] + 1), static_cast<int>(c));
  }
}

TEST(every_size_gets_the_smallest_class_that_holds_it) {
  size_t c = 0;
  for (size_t bytes = 1; bytes <= kLargestClass; ++bytes) {
    while (kTable[c] < bytes) ++c;
    if (class_of(bytes) != static_cast<int>(c)) {
      EXPECT_EQ(bytes, size_t{0});
      return;
    }
  }
}

TEST(a_request_wastes_at_most_a_fifth_from_256_bytes_on) {
  for (size_t bytes = 257; bytes <= kLargestClass; bytes += bytes / 200 + 1) {
    const size_t granted = class_bytes(class_of(bytes));
    EXPECT(5 * (granted - bytes) <= granted);
  }
}

TEST(spans_waste_little_and_hold_what_they_promise) {
  for (int c = 0; c < kClassCount; ++c) {
    const size_t size = class_bytes(c), bytes = span_pages(c) * kPageBytes;
    EXPECT(span_capacity(c) >= 1 && span_capacity(c) <= 1024);
    EXPECT(bytes <= size_t{8} << 20);
    EXPECT((bytes - span_capacity(c) * size) * 16 <= bytes);
    EXPECT(size > 512 * 1024 || span_capacity(c) >= 16);
  }
}

TEST(reciprocals_divide_exactly_at_every_offset_of_a_span) {
  std::mt19937_64 random(1);
  for (int c = 0; c < kClassCount; ++c) {
    const size_t size = class_bytes(c), bytes = span_pages(c) * kPageBytes;
    for (size_t offset = 0; offset < bytes; offset += kAlignment) {
      const size_t at = offset + random() % kAlignment;
      if ((at / kAlignment * reciprocal(size)) >> kReciprocalShift == at / size) continue;
      EXPECT_EQ(at, size_t{0});
      return;
    }
  }
}
