// SPDX-License-Identifier: Apache-2.0
//
// SentencePiece BPE against the sentencepiece library: vocabularies it trained, with and without a
// space in front, byte tokens and pieces that span words.
#include <cmath>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json.h"
#include "testing.h"
#include "text/sentencepiece_expectations.inc"
#include "text/show.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace {

using namespace lmn::text;

struct Model {
  json::Value source;
  TokenizerData data;

  explicit Model(size_t index) : source(json::parse(kSentencePieceExpectations)[index]) {
    data.model = "llama";
    for (const json::Value& token : source["tokens"].items()) data.tokens.push_back(token.str());
    data.scores = source["scores"].floats();
    data.token_types = source["types"].ints();
    data.add_space_prefix = source["add_space_prefix"].boolean();
    data.bos_id = 1;
    data.eos_id = 2;
  }
  std::unique_ptr<Tokenizer> create() const {
    auto created = Tokenizer::create(data);
    ASSERT_OK(created);
    return std::move(created).value();
  }
};

void compare_with_expectations(size_t index) {
  const Model model(index);
  const auto tokenizer = model.create();
  EXPECT(model.source["cases"].size() > 100);
  for (const json::Value& item : model.source["cases"].items()) {
    const std::string& text = item[0].str();
    const auto ids = tokenizer->encode(text, {.add_bos = false});
    ASSERT_OK(ids);
    EXPECT_EQ(show_text(text) + ": " + show_ids(*ids),
              show_text(text) + ": " + show_ids(item[1].ints()));
    bool knows_all = true;  // sentencepiece shows an unknown token as " U+2047 ", we as nothing
    for (const int32_t id : *ids)
      knows_all = knows_all && tokenizer->kind(id) != TokenKind::kUnknown;
    if (knows_all) EXPECT_EQ(*tokenizer->decode(*ids), item[2].str());
  }
}

// The first token that stands for `bytes`, or -1.
int32_t token_of(const Tokenizer& tokenizer, std::string_view bytes) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_bytes(id) == bytes) return id;
  }
  return -1;
}

TEST(ids_are_those_of_sentencepiece) { compare_with_expectations(0); }
TEST(ids_without_prefix_and_byte_tokens_are_those_of_sentencepiece) {
  compare_with_expectations(1);
}
TEST(ids_of_pieces_across_words_are_those_of_sentencepiece) { compare_with_expectations(2); }

// In one piece of 256 KiB when pieces span words: no cutting at spaces helps. Quadratic time would
// be half a minute and more, 2^35 steps; no machine or sanitizer needs 20 s of CPU time otherwise.
TEST(long_texts_take_time_in_proportion_to_their_length) {
  for (const size_t index : {0u, 2u}) {
    const auto tokenizer = Model(index).create();
    for (const char* unit : {"the other ", "a", " ", "Q"}) {
      std::string text;
      while (text.size() < 1 << 18) text += unit;
      const std::clock_t start = std::clock();
      const auto ids = tokenizer->encode(text);
      ASSERT_OK(ids);
      EXPECT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 20);
      EXPECT(*tokenizer->decode(*ids) == text);
    }
  }
}

TEST(bos_is_added_by_default_and_eos_on_request) {
  const auto tokenizer = Model(0).create();
  EXPECT(tokenizer->add_bos());
  EXPECT_EQ(show_ids(*tokenizer->encode("")), "1 ");
  EXPECT_EQ(show_ids(*tokenizer->encode("", {.add_bos = false, .add_eos = true})), "2 ");
  EXPECT_EQ(show_ids(*tokenizer->encode("", {.add_bos = false})), "");
}

TEST(control_tokens_are_matched_on_request_and_start_a_new_text) {
  const auto tokenizer = Model(0).create();
  const int32_t the = token_of(*tokenizer, " the");
  EXPECT(the > 2);
  // Each stretch of text between special tokens gets its space in front, as in GGUF runtimes.
  EXPECT_EQ(show_ids(*tokenizer->encode("the</s>the", {.parse_special = true, .add_bos = false})),
            show_ids({the, 2, the}));
  const auto literal = tokenizer->encode("</s>", {.add_bos = false});
  for (const int32_t id : *literal) EXPECT(id != 2);
  EXPECT_EQ(*tokenizer->decode(*literal), "</s>");
}

TEST(only_the_first_visible_token_loses_its_space) {
  const auto tokenizer = Model(0).create();
  const int32_t the = token_of(*tokenizer, " the");
  EXPECT_EQ(*tokenizer->decode(std::vector<int32_t>{1, the, the}), "the the");
  EXPECT_EQ(*tokenizer->decode(std::vector<int32_t>{the, the}, {.strip_leading_space = false}),
            " the the");
  EXPECT_EQ(*tokenizer->decode(std::vector<int32_t>{1, the}, {.skip_special = false}), "<s> the");
  StreamDecoder decoder(*tokenizer,
                        {.strip_leading_space = false});  // what an answer to a prompt uses
  EXPECT_EQ(*decoder.push(the), " the");
}

TEST(byte_tokens_are_found_and_decoded) {
  const auto tokenizer = Model(0).create();
  const int32_t e2 = token_of(*tokenizer, "\xE2");
  EXPECT(tokenizer->kind(e2) == TokenKind::kByte);
  EXPECT_EQ(tokenizer->token_bytes(e2), "\xE2");
}

TEST(text_that_no_token_expresses_is_an_error) {
  TokenizerData data;
  data.model = "llama";
  data.tokens = {"a", "b"};
  data.scores = {0, 0};
  data.add_space_prefix = false;
  auto tokenizer = Tokenizer::create(data);
  ASSERT_OK(tokenizer);
  EXPECT_EQ(show_ids(*(*tokenizer)->encode("ab")), "0 1 ");
  const auto ids = (*tokenizer)->encode("abc");
  EXPECT(ids.status().code() == lmn::Code::kInvalidArgument);
  EXPECT(ids.status().message().find("'c'") != std::string_view::npos);
}

TEST(bad_vocabularies_are_refused) {
  TokenizerData data;
  data.model = "llama";
  data.tokens = {"a", "b"};
  data.scores = {0};
  EXPECT(Tokenizer::create(data).status().code() == lmn::Code::kCorrupt);
  data.scores = {0, NAN};
  EXPECT(Tokenizer::create(data).status().code() == lmn::Code::kCorrupt);
  data.scores = {0, 0};
  data.token_types = {1, 6};  // "b" is not of the form <0x0A>
  EXPECT(Tokenizer::create(data).status().code() == lmn::Code::kCorrupt);
  data.token_types = {1, 1};
  ASSERT_OK(Tokenizer::create(data));
}

}  // namespace
