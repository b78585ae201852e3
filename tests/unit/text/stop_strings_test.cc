// SPDX-License-Identifier: Apache-2.0
//
// Stop strings: by hand, and against the definition (the first byte at which any stop string is
// complete) for random texts over a small alphabet, cut at random.
#include "text/stop_strings.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "testing.h"
#include "text/show.h"

namespace {

using namespace lmn::text;

StopMatcher make(const std::vector<std::string_view>& stops) {
  auto created = StopMatcher::create(stops);
  ASSERT_OK(created);
  return std::move(created).value();
}

TEST(a_stop_string_across_pieces_is_found_and_not_emitted) {
  StopMatcher matcher = make({"\nUser:"});
  EXPECT_EQ(matcher.push("Fine.").text, "Fine.");
  EXPECT_EQ(matcher.push("\n").text, "");
  EXPECT_EQ(matcher.push("Us").text, "");
  EXPECT_EQ(matcher.held_bytes(), size_t{3});
  EXPECT_EQ(matcher.push("ual\nUs").text, "\nUsual");
  const StopMatcher::Step step = matcher.push("er: hello");
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(step.stop, 0);
  EXPECT(matcher.stopped());
  EXPECT_EQ(matcher.push("more").text, "");
  EXPECT_EQ(matcher.push("more").stop, 0);
  EXPECT_EQ(matcher.flush(), "");
  EXPECT(!matcher.stopped());
}

TEST(text_held_back_comes_out_at_the_end) {
  StopMatcher matcher = make({"END", "<|im_end|>"});
  EXPECT_EQ(matcher.push("the EN").text, "the ");
  EXPECT_EQ(matcher.flush(), "EN");
  EXPECT_EQ(matcher.push("D.").text, "D.");  // flush forgot the EN
  EXPECT_EQ(matcher.push("x<|im_e").text, "x");
  EXPECT_EQ(matcher.push("E").text, "<|im_e");
  EXPECT_EQ(matcher.flush(), "E");
}

TEST(no_stop_strings_means_no_delay) {
  StopMatcher matcher;
  EXPECT(matcher.empty());
  EXPECT_EQ(matcher.push("anything").text, "anything");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(the_longest_of_those_that_end_together_counts) {
  StopMatcher matcher = make({"c", "abc", "bc"});
  const StopMatcher::Step step = matcher.push("xabcab");
  EXPECT_EQ(step.text, "x");
  EXPECT_EQ(step.stop, 1);
}

TEST(bad_stop_strings_are_refused) {
  for (const std::vector<std::string_view>& stops :
       {std::vector<std::string_view>{"ok", ""}, {"ok", "\xC3"}}) {
    const auto created = StopMatcher::create(stops);
    EXPECT(created.status().code() == lmn::Code::kInvalidArgument);
    EXPECT(created.status().message().find("stop string 1") != std::string_view::npos);
  }
}

// The definition, by trying every end and every stop string.
std::pair<std::string, int> stop_by_definition(const std::string& text,
                                               const std::vector<std::string_view>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool here = std::string_view(text).substr(0, end).ends_with(stops[i]);
      if (here && (best < 0 || stops[i].size() > stops[static_cast<size_t>(best)].size()))
        best = static_cast<int>(i);
    }
    if (best >= 0) return {text.substr(0, end - stops[static_cast<size_t>(best)].size()), best};
  }
  return {text, -1};
}

TEST(random_texts_stop_where_the_definition_says) {
  Random random(11);
  int hits = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> strings(1 + random.below(3));
    for (std::string& stop : strings) {
      for (uint32_t i = 1 + random.below(6); i > 0; --i)
        stop += static_cast<char>('a' + random.below(2));
    }
    const std::vector<std::string_view> stops(strings.begin(), strings.end());
    std::string text;
    for (uint32_t i = random.below(30); i > 0; --i)
      text += static_cast<char>('a' + random.below(3));
    const auto [want, want_stop] = stop_by_definition(text, stops);

    StopMatcher matcher = make(stops);
    size_t longest = 0;
    for (const std::string_view stop : stops) longest = std::max(longest, stop.size());
    std::string got;
    int stop = -1;
    for (size_t at = 0; at < text.size() && stop < 0;) {
      const size_t size = std::min<size_t>(1 + random.below(4), text.size() - at);
      const StopMatcher::Step step = matcher.push(std::string_view(text).substr(at, size));
      got += step.text;
      stop = step.stop;
      at += size;
      EXPECT(matcher.held_bytes() < longest);
    }
    if (stop < 0) got += matcher.flush();
    EXPECT_EQ(got, want);
    EXPECT_EQ(stop, want_stop);
    hits += want_stop >= 0 ? 1 : 0;
  }
  EXPECT(hits > 300);
}

}  // namespace
