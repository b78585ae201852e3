// SPDX-License-Identifier: Apache-2.0
//
// Patterns and texts with what RE2's syntax page says of them, and what is refused.
#include "ops/regex.h"

#include <string>

#include "testing.h"

namespace lmn::ops {
namespace {

bool matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::parse(pattern);
  ASSERT_OK(regex);
  return regex->full_match(text);
}

}  // namespace

TEST(RegexMatchesWholeTexts) {
  EXPECT(matches("", ""));
  EXPECT(!matches("a", "ab"));
  EXPECT(matches("(a|ab)(c|bcd)(d*)", "abcd"));
  EXPECT(matches("a{2,3}", "aaa") && !matches("a{2,3}", "aaaa") && !matches("a{2,3}", "a"));
  EXPECT(matches("a{,2}", "a{,2}"));
  EXPECT(matches("(?:ab){0}x?", "x"));
  EXPECT(matches("(a*)*(b|)", "aaab"));
}

TEST(RegexKnowsClassesEscapesAndFlags) {
  EXPECT(matches("[^\\d\\s]+", "é_") && !matches("[^\\d\\s]+", "é 1"));
  EXPECT(matches("[]a-c]+[[:^alpha:]]", "]b9"));
  EXPECT(matches("\\x41\\x{e9}\\101\\.\\t", "A\u00e9A.\t"));
  EXPECT(matches("\\Q(a)\\E+", "(a)))"));
  EXPECT(!matches("a.b", "a\nb") && matches("(?s)a.b", "a\nb") && matches("(?s:.)", "\n"));
  EXPECT(matches("(?i)straße", "STRAßE") && matches("((?i)a)b", "Ab") &&
         !matches("((?i)a)b", "AB"));
  EXPECT(matches("(?m)^a$\\n^b$", "a\nb") && !matches("^a$\\n^b$", "a\nb"));
  EXPECT(matches("\\bfoo\\b.+", "foo bar") && !matches("foo\\B", "foo"));
  EXPECT(matches("(?P<year>\\d{4})-(?<month>\\d\\d)", "2026-11"));
}

TEST(RegexTakesTimeThatIsLinearInTheText) {
  EXPECT(!matches("(a*)*(a*)*b", std::string(200000, 'a')));
}

TEST(RegexRefusesWhatItLacksAndWhatIsTooLarge) {
  const std::string deep(300, '('), loops = "((((((){1000}){1000}){1000}){1000}){1000})";
  for (const std::string& pattern :
       {std::string("("), std::string("a)"), std::string("[a"), std::string("a**"),
        std::string("*"), std::string("\\1"), std::string("(?=a)"), std::string("\\pL"),
        std::string("a{3,2}"), std::string("a{1001}"), std::string("[b-a]"), std::string("\\"),
        std::string("((a{1000}){1000}){1000}"), loops, deep}) {
    const Result<Regex> regex = Regex::parse(pattern);
    EXPECT(!regex.ok());
    EXPECT(regex.ok() || regex.status().code() == Code::kUnsupported);
  }
}

}  // namespace lmn::ops
