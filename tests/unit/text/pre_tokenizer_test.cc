// SPDX-License-Identifier: Apache-2.0
//
// The pre-tokenisers against the regular expressions they stand for, as PyPI's regex ran them.
#include "text/bpe/pre_tokenizer.h"

#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "testing.h"
#include "text/pre_tokenizer_expectations.inc"
#include "text/show.h"
#include "text/unicode/char_class.h"
#include "text/unicode/utf8.h"

namespace {

using namespace lmn::text;

std::vector<int32_t> piece_sizes(PreTokenizer pre, std::string_view text) {
  std::vector<int32_t> out;
  while (!text.empty()) {
    const size_t size = next_piece(pre, text);
    out.push_back(static_cast<int32_t>(size));
    text.remove_prefix(size);
  }
  return out;
}

void compare_with_expectations(PreTokenizer pre, size_t column) {
  const json::Value cases = json::parse(kPreTokenizerExpectations);
  EXPECT(cases.size() >= 400);
  for (const json::Value& item : cases.items()) {
    const std::string& text = item[0].str();
    const std::string got = show_text(text) + ": " + show_ids(piece_sizes(pre, text));
    EXPECT_EQ(got, show_text(text) + ": " + show_ids(item[column].ints()));
  }
}

TEST(gpt2_pieces_are_those_of_the_regular_expression) {
  compare_with_expectations(PreTokenizer::kGpt2, 1);
}
TEST(smollm_pieces_are_those_of_the_regular_expression) {
  compare_with_expectations(PreTokenizer::kSmolLm, 2);
}
TEST(llama3_pieces_are_those_of_the_regular_expression) {
  compare_with_expectations(PreTokenizer::kLlama3, 3);
}
TEST(qwen2_pieces_are_those_of_the_regular_expression) {
  compare_with_expectations(PreTokenizer::kQwen2, 4);
}

TEST(names_choose_the_pre_tokenizer) {
  EXPECT(find_pre_tokenizer("smollm") == PreTokenizer::kSmolLm);
  EXPECT(find_pre_tokenizer("gpt-2") == PreTokenizer::kGpt2);
  EXPECT(find_pre_tokenizer("default") == PreTokenizer::kGpt2);
  EXPECT(find_pre_tokenizer("") == PreTokenizer::kGpt2);
  EXPECT(find_pre_tokenizer("llama-bpe") == PreTokenizer::kLlama3);
  EXPECT(find_pre_tokenizer("llama3") == PreTokenizer::kLlama3);
  EXPECT(find_pre_tokenizer("qwen2") == PreTokenizer::kQwen2);
  EXPECT(!find_pre_tokenizer("qwen"));
}

// Counts of Unicode 16.0 (DerivedGeneralCategory.txt): L = Lu 1858 + Ll 2258 + Lt 31 + Lm 404 +
// Lo 136477, N = Nd 760 + Nl 236 + No 915; White_Space has 25 characters (PropList.txt).
TEST(character_classes_have_the_sizes_of_unicode_16) {
  int count[4] = {};
  for (char32_t c = 0; c < 0x110000; ++c) ++count[static_cast<int>(classify(c))];
  EXPECT_EQ(count[static_cast<int>(CharClass::kLetter)], 1858 + 2258 + 31 + 404 + 136477);
  EXPECT_EQ(count[static_cast<int>(CharClass::kNumber)], 760 + 236 + 915);
  EXPECT_EQ(count[static_cast<int>(CharClass::kSpace)], 25);
}

TEST(utf8_reads_what_it_writes) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string bytes;
    append_utf8(bytes, c);
    int size = 0;
    if (read_utf8(bytes.data(), size) != c || static_cast<size_t>(size) != bytes.size() ||
        find_invalid_utf8(bytes) != std::string_view::npos) {
      EXPECT_EQ(c, char32_t{0xFFFFFFFF});
    }
  }
}

}  // namespace
