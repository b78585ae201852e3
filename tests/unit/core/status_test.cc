// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "testing.h"

namespace {

using lmn::Code;
using lmn::error;
using lmn::Result;
using lmn::Status;

TEST(ok_is_one_null_pointer) {
  static_assert(sizeof(Status) == sizeof(void*));
  const Status status;
  EXPECT(status.ok());
  EXPECT(status.code() == Code::kOk);
  EXPECT_EQ(status.message(), "");
}

TEST(error_formats_its_message) {
  const Status status = error(Code::kNotFound, "%s: part %d of %u", "file", 2, 3u);
  EXPECT(!status.ok());
  EXPECT(status.code() == Code::kNotFound);
  EXPECT_EQ(status.message(), "file: part 2 of 3");
  const std::string long_text(100000, 'x');
  EXPECT_EQ(error(Code::kIo, "<%s>", long_text.c_str()).message().size(), 100002u);
  EXPECT_EQ(error(Code::kIo, "100%%").message(), "100%");
}

TEST(copies_are_independent) {
  Status first = error(Code::kCorrupt, "a");
  Status copy = first;
  first = Status();
  EXPECT(first.ok());
  EXPECT_EQ(copy.message(), "a");
  first = copy;
  EXPECT_EQ(first.message(), "a");
  const Status& self = first;
  first = self;
  EXPECT_EQ(first.message(), "a");
  const Status moved = std::move(first);
  EXPECT_EQ(moved.message(), "a");
}

TEST(context_goes_in_front) {
  EXPECT_EQ(error(Code::kCorrupt, "bad").with_context("key 'k'").with_context("file").message(),
            "file: key 'k': bad");
  EXPECT(Status().with_context("file").ok());
}

TEST(result_holds_a_value_or_a_status) {
  const Result<int> value = 7;
  EXPECT(value.ok());
  EXPECT(value.status().ok());
  EXPECT_EQ(*value, 7);
  const Result<int> failure = error(Code::kTimeout, "late");
  EXPECT(!failure.ok());
  EXPECT(failure.status().code() == Code::kTimeout);
  Result<std::unique_ptr<int>> owner = std::make_unique<int>(3);  // move-only
  const std::unique_ptr<int> taken = std::move(owner).value();
  EXPECT_EQ(*taken, 3);
}

Result<std::vector<int>> numbers() { return std::vector<int>{1, 2, 3}; }

TEST(iterating_over_a_temporary_result) {
  int sum = 0;
  for (const int n : *numbers()) sum += n;  // AddressSanitizer sees a dangling one
  EXPECT_EQ(sum, 6);
}

Status check_positive(int n) {
  if (n > 0) return {};
  return error(Code::kInvalidArgument, "%d is not positive", n);
}
Result<int> half(int n) {
  LMN_RETURN_IF_ERROR(check_positive(n));
  if (n % 2 != 0) return error(Code::kInvalidArgument, "%d is odd", n);
  return n / 2;
}
Result<int> quarter(int n) {
  LMN_ASSIGN_OR_RETURN(const int first, half(n));
  LMN_ASSIGN_OR_RETURN(const int second, half(first));
  return second;
}

TEST(macros_hand_errors_on) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(10).status().message(), "5 is odd");
  EXPECT_EQ(quarter(-4).status().message(), "-4 is not positive");
}

TEST(broken_invariants_throw_with_their_place) {
  LMN_CHECK(1 + 1 == 2);
  std::string what;
  try {
    LMN_CHECK(1 + 1 == 3);
  } catch (const lmn::BrokenInvariant& e) {
    what = e.what();
  }
  EXPECT(what.find("broken invariant: 1 + 1 == 3 at ") == 0);
  EXPECT(what.find("status_test.cc:") != std::string::npos);
}

}  // namespace
