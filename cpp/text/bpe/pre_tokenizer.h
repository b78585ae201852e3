// SPDX-License-Identifier: Apache-2.0
//
// Pre-tokenisers: they cut text into the pieces inside which byte pairs are merged. Each is a
// hand-written scanner for one published regular expression, walking code points forwards; a scan
// of a text is linear. Well-formed UTF-8 only.
//
//   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm     every \p{N} is a piece of its own; what lies between goes through gpt-2 by itself
//   llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//              and then | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2      as llama-bpe, but \p{N} instead of \p{N}{1,3}
//
// No Unicode normalisation is done; Hugging Face's Qwen2 tokenizer applies NFC first, which GGUF
// runtimes leave out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmn::text {

enum class PreTokenizer { kGpt2, kSmolLm, kLlama3, kQwen2 };

// `name` as in tokenizer.ggml.pre; "" and "default" mean gpt-2. nullopt when not known.
std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name);

// Bytes of the piece at the front of `text`, which is not empty. At least 1, ends at a character
// boundary.
size_t next_piece(PreTokenizer pre, std::string_view text);

}  // namespace lmn::text
