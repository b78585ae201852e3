// SPDX-License-Identifier: Apache-2.0
#include "capi/options.h"

#include <cstring>

#include "testing.h"

using lmn::Code;
using namespace lmn::capi;  // NOLINT: tests

namespace {

// Three versions of one struct.
struct First {
  uint32_t struct_size, a;
};
struct Second {
  uint32_t struct_size, a;
  uint64_t b;
};
struct Third {
  uint32_t struct_size, a;
  uint64_t b, c;
};

}  // namespace

TEST(null_options_are_all_defaults) {
  Second out;
  std::memset(&out, 0xFF, sizeof out);
  ASSERT_OK(read_options<Second>(nullptr, "second", &out));
  EXPECT_EQ(out.struct_size, uint32_t{sizeof(Second)});
  EXPECT_EQ(out.a, 0u);
  EXPECT_EQ(out.b, 0u);
}

TEST(a_smaller_struct_is_extended_with_zeros) {
  const First old{sizeof(First), 7};
  Second out;
  std::memset(&out, 0xFF, sizeof out);
  ASSERT_OK(read_options(reinterpret_cast<const Second*>(&old), "second", &out));
  EXPECT_EQ(out.a, 7u);
  EXPECT_EQ(out.b, 0u);
}

TEST(a_larger_struct_passes_while_its_tail_is_zero) {
  Third newer{sizeof(Third), 7, 8, 0};
  Second out;
  ASSERT_OK(read_options(reinterpret_cast<const Second*>(&newer), "second", &out));
  EXPECT_EQ(out.b, 8u);
  newer.c = uint64_t{1} << 63;
  const lmn::Status status = read_options(reinterpret_cast<const Second*>(&newer), "second", &out);
  EXPECT(status.code() == Code::kUnsupported);
  EXPECT(status.message().find("byte 23") !=
         std::string_view::npos);  // little endian: the last one
}

TEST(sizes_that_no_version_has) {
  for (const uint32_t size : {0u, 1u, 4u, 9u, 20u, 4097u, 4104u, ~0u}) {
    Second given{size, 0, 0}, out;
    EXPECT(read_options(&given, "second", &out).code() == Code::kInvalidArgument);
    EXPECT(check_output(&given, "out", "second").code() == Code::kInvalidArgument);
  }
  EXPECT(check_output<Second>(nullptr, "out", "second").code() == Code::kInvalidArgument);
}

TEST(outputs_are_written_as_far_as_they_go) {
  const Second value{0, 5, 6};
  Third larger;
  std::memset(&larger, 0xFF, sizeof larger);
  larger.struct_size = sizeof larger;
  write_output(value, reinterpret_cast<Second*>(&larger));
  EXPECT_EQ(larger.struct_size, uint32_t{sizeof larger});
  EXPECT_EQ(larger.a, 5u);
  EXPECT_EQ(larger.b, 6u);
  EXPECT_EQ(larger.c, 0u);
  Second smaller;
  std::memset(&smaller, 0xFF, sizeof smaller);
  smaller.struct_size = sizeof(First);
  write_output(value, &smaller);
  EXPECT_EQ(smaller.struct_size, uint32_t{sizeof(First)});
  EXPECT_EQ(smaller.a, 5u);
  EXPECT_EQ(smaller.b, ~uint64_t{0});
}

TEST(items_go_into_a_buffer_or_their_number_is_told) {
  size_t count = 0;
  const auto fill = [](int* out) { out[0] = 1, out[1] = 2; };
  const Outcome question = write_items<int>(nullptr, 0, 2, &count, fill);
  EXPECT(question.code() == Code::kBufferTooSmall && question.status().ok() &&
         question.error() == nullptr);
  EXPECT_EQ(count, 2u);
  int buffer[2] = {9, 9};
  const Outcome small = write_items(buffer, 1, 2, &count, fill);
  EXPECT(small.code() == Code::kBufferTooSmall && !small.status().message().empty());
  EXPECT_EQ(buffer[0], 9);
  EXPECT(write_items(buffer, 2, 2, &count, fill).code() == Code::kOk);
  EXPECT_EQ(buffer[1], 2);
  EXPECT(write_items<int>(nullptr, 0, 0, &count, fill).code() == Code::kOk);
}
