// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer: text <-> token ids. Byte-level BPE (model "gpt2", with a pre-tokeniser named by `pre`)
// and SentencePiece BPE (model "llama"), created from the vocabulary a model file carries.
// Immutable after create(): every const method may run on any number of threads at once. It must
// not know where the vocabulary came from (formats), nor what the ids are used for (engine).
// Formats followed: Hugging Face tokenizers (ByteLevel BPE), SentencePiece BPE, and for what those
// leave open (when special tokens are matched) the practice of GGUF files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::text {

// Values are those of GGUF's tokenizer.ggml.token_type.
enum class TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,      // <unk>
  kControl = 3,      // <|im_start|>: matched in text only on request, not shown by default
  kUserDefined = 4,  // matched in text always, before anything else
  kUnused = 5,
  kByte = 6,  // <0x0A>: the fallback for one byte (SentencePiece)
};

// What a model file says about its tokenizer: the keys tokenizer.ggml.*. Views need to live only
// until create() returns. An absent key keeps the value given here.
struct TokenizerData {
  std::string_view model;                // "gpt2" | "llama"
  std::string_view pre;                  // "smollm", ...; used by "gpt2" only
  std::vector<std::string_view> tokens;  // index = id
  std::vector<float> scores;             // one per token, needed by "llama" only
  std::vector<int32_t> token_types;      // token_type: TokenKind per token; empty = all normal
  // "left right", best first; needed by "gpt2" only.
  std::vector<std::string_view> merges;
  int32_t bos_id = -1;  // *_token_id, -1 = none
  int32_t eos_id = -1;
  int32_t eot_id = -1;
  int32_t unk_id = -1;
  int32_t pad_id = -1;
  std::optional<bool> add_bos;           // add_bos_token; absent: true for "llama" and llama-bpe
  std::optional<bool> add_eos;           // add_eos_token; absent: false
  std::optional<bool> add_space_prefix;  // "llama" only; absent: true
  std::string_view chat_template;        // tokenizer.chat_template, "" = none
};

struct EncodeOptions {
  // Text such as "<|im_end|>" becomes the control token of that name.
  bool parse_special = false;
  // Absent: as the model says. BOS is added even where the text already spells it out.
  std::optional<bool> add_bos = std::nullopt;
  std::optional<bool> add_eos = std::nullopt;
};

struct DecodeOptions {
  // Control and unknown tokens give no text.
  bool skip_special = true;
  // "llama" only: undo add_space_prefix. False when the ids continue other text.
  bool strip_leading_space = true;
};

// The pre-tokenisers create() accepts, as a list for messages and documentation.
std::string supported_pre_tokenizers();

class Tokenizer {
 public:
  // UNSUPPORTED: model or pre-tokeniser not known. CORRUPT: the vocabulary contradicts itself.
  // Copies what it keeps.
  static Result<std::unique_ptr<Tokenizer>> create(const TokenizerData& data);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // INVALID_ARGUMENT when `utf8` is not well-formed UTF-8; the message names the byte offset. Time
  // is O(n log n) in the worst case, whatever the text.
  Result<std::vector<int32_t>> encode(std::string_view utf8,
                                      const EncodeOptions& options = {}) const;

  // Always well-formed UTF-8: bytes that are not become U+FFFD, one per maximal subpart (Unicode
  // 15, section 3.9). INVALID_ARGUMENT when an id is outside [0, vocab_size).
  Result<std::string> decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // The bytes a token stands for, perhaps part of a character; a control token gives its name.
  // Lives as long as the tokenizer. `id` must be in [0, vocab_size).
  std::string_view token_bytes(int32_t id) const;
  TokenKind kind(int32_t id) const;
  bool valid_id(int32_t id) const { return id >= 0 && id < vocab_size(); }
  // Control or unknown: what DecodeOptions::skip_special leaves out.
  bool is_special(int32_t id) const {
    const TokenKind k = kind(id);
    return k == TokenKind::kControl || k == TokenKind::kUnknown;
  }

  // Generation ends at: the file's eos and eot tokens, and any control or user-defined token whose
  // text is one of the end-of-turn or end-of-text markers in use (kEndMarkers in tokenizer.cc).
  // False for ids outside the vocabulary.
  bool is_end_of_generation(int32_t id) const;

  int32_t vocab_size() const;
  int32_t bos_id() const;  // -1 = none, here and below
  int32_t eos_id() const;
  int32_t eot_id() const;
  int32_t unk_id() const;
  int32_t pad_id() const;
  bool add_bos() const;
  bool add_eos() const;
  bool add_space_prefix() const;           // always false for byte-level BPE
  std::string_view model() const;          // "gpt2" | "llama"
  std::string_view pre() const;            // as the file names it; "" for "llama"
  std::string_view chat_template() const;  // Jinja source, "" = none
  int64_t memory_bytes() const;            // heap held, for the ledger

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmn::text
