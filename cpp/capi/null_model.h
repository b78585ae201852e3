// SPDX-License-Identifier: Apache-2.0
//
// "null:vocab=1000,context=4096,step_ns=0,token_ns=0": the model that computes nothing, by name.
// What describes it to clients is a GGUF file in memory, so that whatever reads a model
// (inspection, metadata, tokenizer) needs no case of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::capi {

inline constexpr int64_t kNullTokenizerVocab = 256;

struct NullModel {
  int64_t vocab = 1000;    // tokens
  int64_t context = 4096;  // tokens
  int64_t step_ns = 0;     // a step spins so long,
  int64_t token_ns = 0;    // and so long for each of its tokens

  std::string name() const;  // with every key
  // A byte-level one, which takes the first 256 tokens.
  bool has_tokenizer() const { return vocab >= kNullTokenizerVocab; }
  int32_t likeliest_token() const;  // the letter "a", where there is one
};

inline bool is_null_model_name(std::string_view path) { return path.starts_with("null:"); }

// INVALID_ARGUMENT names the key, the value and the range.
Result<NullModel> parse_null_model(std::string_view name);

// From 256 tokens on with a byte-level tokenizer: token b is byte b, the others are "<|256|>" and
// so on, and no text encodes to those. Below 256 there is no tokenizer.
std::vector<std::byte> null_model_gguf(const NullModel& model);

}  // namespace lmn::capi
