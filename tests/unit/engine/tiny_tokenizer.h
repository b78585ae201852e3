// SPDX-License-Identifier: Apache-2.0
//
// A SentencePiece vocabulary of kFakeVocab tokens, small enough to read: what the hash model's
// token ids say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fake_model.h"
#include "testing.h"
#include "text/tokenizer.h"

namespace lmn::engine {

// The text of each id: "" for control tokens, one byte each for the three bytes of the euro sign.
struct TinyVocabulary {
  std::vector<std::string> written;  // as the model file has it
  std::vector<std::string> bytes;    // as it decodes
  int32_t eos = 2;
  int32_t euro[3] = {3, 4, 5};

  TinyVocabulary() {
    for (const char* control : {"<unk>", "<s>", "</s>"}) add(control, "");
    add("<0xE2>", "\xE2");
    add("<0x82>", "\x82");
    add("<0xAC>", "\xAC");
    for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c), std::string(1, c));
    for (char c = 'a'; written.size() < size_t(kFakeVocab); ++c)
      add(std::string("\xE2\x96\x81") + c, std::string(" ") + c);
  }

 private:
  void add(std::string name, std::string text) {
    written.push_back(std::move(name));
    bytes.push_back(std::move(text));
  }
};

inline std::unique_ptr<text::Tokenizer> tiny_tokenizer(const TinyVocabulary& vocabulary) {
  text::TokenizerData data;
  data.model = "llama";
  data.tokens.assign(vocabulary.written.begin(), vocabulary.written.end());
  data.scores.assign(vocabulary.written.size(), 0);
  data.token_types.assign(vocabulary.written.size(), 1);
  data.token_types[0] = 2;
  data.token_types[1] = data.token_types[2] = 3;
  for (const int32_t id : vocabulary.euro) data.token_types[size_t(id)] = 6;
  data.unk_id = 0;
  data.bos_id = 1;
  data.eos_id = vocabulary.eos;
  auto tokenizer = text::Tokenizer::create(data);
  ASSERT_OK(tokenizer);
  return std::move(tokenizer).value();
}

}  // namespace lmn::engine
