// SPDX-License-Identifier: Apache-2.0
//
// The stream decoder over a vocabulary of all single bytes, so that any byte sequence is a token
// sequence: replacement against Python's codec, and the promise that nothing depends on where the
// stream is cut.
#include "text/stream_decoder.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json.h"
#include "testing.h"
#include "text/model_tokenizer.h"
#include "text/show.h"
#include "text/unicode/utf8.h"
#include "text/utf8_expectations.inc"

namespace {

using namespace lmn::text;

// Token i stands for byte i, spelled GPT-2's way; 256 and 257 are control tokens, 258 is a
// user-defined one.
struct ByteVocabulary {
  std::vector<std::string> spellings;
  TokenizerData data;

  ByteVocabulary() {
    char32_t other = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      std::string spelling;
      append_utf8(spelling, prints ? byte : other++);
      spellings.push_back(spelling);
    }
    spellings.insert(spellings.end(), {"<|end|>", "<|x|>", "\xE4\xB8"});
    data.model = "gpt2";
    data.pre = "gpt-2";
    for (const std::string& spelling : spellings) data.tokens.push_back(spelling);
    data.token_types.assign(256, 1);
    data.token_types.insert(data.token_types.end(), {3, 3, 4});
  }
  std::unique_ptr<Tokenizer> create() const {
    auto created = Tokenizer::create(data);
    ASSERT_OK(created);
    return std::move(created).value();
  }
};

std::string decode_in_pieces(StreamDecoder& decoder, const std::vector<int32_t>& ids, bool& whole) {
  std::string out;
  const auto add = [&](std::string_view piece) {
    whole = whole && find_invalid_utf8(piece) == std::string_view::npos;
    out += piece;
  };
  for (const int32_t id : ids) {
    const auto piece = decoder.push(id);
    ASSERT_OK(piece);
    add(*piece);
  }
  add(decoder.flush());
  return out;
}

TEST(ill_formed_bytes_are_replaced_as_python_replaces_them) {
  const auto tokenizer = ByteVocabulary().create();
  const json::Value cases = json::parse(kUtf8Expectations);
  EXPECT_EQ(cases.size(), size_t{300});
  StreamDecoder decoder(*tokenizer);  // flush makes it new
  for (const json::Value& item : cases.items()) {
    const std::string& hex = item[0].str();
    std::vector<int32_t> ids;
    for (size_t i = 0; i < hex.size(); i += 2)
      ids.push_back(std::stoi(hex.substr(i, 2), nullptr, 16));
    const auto whole = tokenizer->decode(ids);
    ASSERT_OK(whole);
    EXPECT_EQ(hex + " " + *whole, hex + " " + item[1].str());
    bool well_formed = true;
    EXPECT_EQ(decode_in_pieces(decoder, ids, well_formed), item[1].str());
    EXPECT(well_formed);
  }
}

TEST(a_character_comes_out_with_its_last_byte) {
  const auto tokenizer = ByteVocabulary().create();
  StreamDecoder decoder(*tokenizer);
  for (const int32_t id : {0xF0, 0x9F, 0x99}) {  // U+1F642 is F0 9F 99 82
    EXPECT_EQ(*decoder.push(id), "");
    EXPECT(decoder.has_pending());
  }
  EXPECT_EQ(*decoder.push(0x82), "\xF0\x9F\x99\x82");
  EXPECT(!decoder.has_pending());
  EXPECT_EQ(*decoder.push(0xE2), "");
  EXPECT_EQ(*decoder.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(*decoder.push(0xC3), "");
  EXPECT_EQ(decoder.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(special_tokens_are_left_out_unless_asked_for) {
  const auto tokenizer = ByteVocabulary().create();
  const std::vector<int32_t> ids{'a', 256, 'b', 258, 0xAD, 257};
  EXPECT_EQ(*tokenizer->decode(ids), "ab\xE4\xB8\xAD");
  EXPECT_EQ(*tokenizer->decode(ids, {.skip_special = false}), "a<|end|>b\xE4\xB8\xAD<|x|>");
}

TEST(an_id_outside_the_vocabulary_is_an_error_that_changes_nothing) {
  const auto tokenizer = ByteVocabulary().create();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(*decoder.push(0xC3), "");
  for (const int32_t id : {-1, 259, INT32_MAX, INT32_MIN}) {
    const auto result = decoder.push(id);
    EXPECT(result.status().code() == lmn::Code::kInvalidArgument);
    EXPECT(result.status().message().find(std::to_string(id)) != std::string_view::npos);
    EXPECT(result.status().message().find("0 to 258") != std::string_view::npos);
  }
  EXPECT_EQ(*decoder.push(0xA9), "\xC3\xA9");
  EXPECT(!tokenizer->decode(std::vector<int32_t>{1, 259}).ok());
}

TEST(random_ids_of_the_default_model_decode_alike_at_every_cut) {
  const auto tokenizer = ModelVocabulary::open().tokenizer();
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> ids(1 + random.below(40));
    for (int32_t& id : ids) {  // the low ids are single bytes: half characters are frequent
      id = static_cast<int32_t>(random.below(
          random.below(2) == 0 ? 300u : static_cast<uint32_t>(tokenizer->vocab_size())));
    }
    for (const bool skip : {true, false}) {
      const DecodeOptions options{.skip_special = skip};
      std::string bytes;  // the definition: all bytes, then replacement
      for (const int32_t id : ids) {
        if (!skip || !tokenizer->is_special(id)) bytes += tokenizer->token_bytes(id);
      }
      std::string want;
      for (std::string_view rest = bytes; !rest.empty();) {
        const Utf8Step step = next_utf8(rest);
        want += step.kind == Utf8Step::kCharacter ? rest.substr(0, step.size) : kReplacement;
        rest.remove_prefix(step.size);
      }
      EXPECT_EQ(*tokenizer->decode(ids, options), want);
      bool well_formed = true;
      StreamDecoder decoder(*tokenizer, options);
      EXPECT_EQ(decode_in_pieces(decoder, ids, well_formed), want);
      EXPECT(well_formed);
    }
  }
}

}  // namespace
