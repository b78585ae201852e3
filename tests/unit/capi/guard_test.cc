// SPDX-License-Identifier: Apache-2.0
#include "capi/guard.h"

#include <new>
#include <stdexcept>
#include <string>

#include "core/check.h"
#include "testing.h"

using lmn::Code;
using lmn::capi::guard;
using lmn::capi::Outcome;

namespace {

struct Got {
  lmn_status status = LMN_OK;
  std::string message;
  bool has_error = false;
};

template <typename Body>
Got run(Body&& body) {
  lmn_error* err = reinterpret_cast<lmn_error*>(uintptr_t{1});  // must be overwritten
  Got got;
  got.status = guard(&err, body);
  got.has_error = err != nullptr;
  if (err != nullptr) {
    got.message = lmn_error_message(err);
    EXPECT_EQ(lmn_error_status(err), got.status);
    lmn_error_destroy(err);
  }
  EXPECT_EQ(guard(nullptr, body), got.status);
  return got;
}

}  // namespace

TEST(success_clears_the_error) {
  const Got got = run([]() -> Outcome { return {}; });
  EXPECT_EQ(got.status, LMN_OK);
  EXPECT(!got.has_error);
}

TEST(a_status_becomes_an_error) {
  const Got got = run([]() -> Outcome { return lmn::error(Code::kNotFound, "no %s", "thing"); });
  EXPECT_EQ(got.status, LMN_NOT_FOUND);
  EXPECT_EQ(got.message, "no thing");
}

TEST(messages_are_utf8_whatever_they_quote) {
  const auto message = [](const char* text) {
    return run([=]() -> Outcome { return lmn::error(Code::kCorrupt, "%s", text); }).message;
  };
  EXPECT_EQ(message("10 µs, \xe2\x82\xac, \xf0\x9f\x98\x80"),
            "10 µs, \xe2\x82\xac, \xf0\x9f\x98\x80");
  EXPECT_EQ(message("'\xff\xb8'"), "'?\?'");
  EXPECT_EQ(message("cut \xe2\x82"), "cut ??");
  EXPECT_EQ(message("\xe2\x82next"), "??next");
  EXPECT_EQ(message("\xc0\x80 \xed\xa0\x80"), "?? ???");  // overlong, and a surrogate
}

TEST(an_answer_without_words_brings_no_error) {
  const Got silent = run([] { return Outcome::answer(Code::kBufferTooSmall, nullptr); });
  EXPECT_EQ(silent.status, LMN_BUFFER_TOO_SMALL);
  EXPECT(!silent.has_error);
  const Got spoken = run([] { return Outcome::answer(Code::kClosed, lmn::capi::kNoMoreNews); });
  EXPECT_EQ(spoken.status, LMN_CLOSED);
  EXPECT(spoken.message.find("last chunk") != std::string::npos);
  EXPECT_EQ(lmn_error_status(lmn::capi::kNoMoreNews), LMN_CLOSED);
  EXPECT_EQ(lmn_error_status(lmn::capi::kNoNews), LMN_TIMEOUT);
}

TEST(exceptions_become_statuses) {
  const Got broken = run([]() -> Outcome {
    LMN_CHECK(1 + 1 == 3);
    return {};
  });
  EXPECT_EQ(broken.status, LMN_INTERNAL);
  EXPECT(broken.message.find("1 + 1 == 3") != std::string::npos);
  const Got memory = run([]() -> Outcome { throw std::bad_alloc(); });
  EXPECT_EQ(memory.status, LMN_OUT_OF_MEMORY);
  EXPECT(memory.has_error);
  const Got standard = run([]() -> Outcome { throw std::runtime_error("words"); });
  EXPECT_EQ(standard.status, LMN_INTERNAL);
  EXPECT_EQ(standard.message, "words");
  const Got other = run([]() -> Outcome { throw 42; });
  EXPECT_EQ(other.status, LMN_INTERNAL);
}

TEST(an_error_that_cannot_be_allocated_still_has_its_status) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  testing::skip("sanitizers end a program that asks malloc for so much");
#endif
  lmn_error* err = nullptr;
  const std::string_view impossible(
      "x", size_t{1} << 62);  // longer than memory: malloc refuses before it is read
  EXPECT_EQ(lmn::capi::report(Code::kCorrupt, impossible, &err), LMN_CORRUPT);
  ASSERT(err != nullptr);
  EXPECT_EQ(lmn_error_status(err), LMN_CORRUPT);
  EXPECT(std::string(lmn_error_message(err)).find("LMN_CORRUPT") == 0);
  lmn_error_destroy(err);
  lmn_error_destroy(err);  // static storage: nothing happens
}
