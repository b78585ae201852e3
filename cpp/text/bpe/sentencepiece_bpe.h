// SPDX-License-Identifier: Apache-2.0
//
// SentencePiece BPE (model "llama"): text starts as its characters, and the neighbouring pair whose
// concatenation is the vocabulary piece of highest score merges first. What is left and is no piece
// becomes byte tokens (<0xE2>), or the unknown token. Pieces spell a space as ▁ (U+2581); here they
// are held with spaces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/bpe/merge.h"
#include "text/bpe/vocabulary.h"

namespace lmn::text {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁

// `text` with every ▁ turned into a space: what SentencePiece takes both for.
std::string replace_space_marks(std::string_view text);
// The byte of "<0x0A>", or -1.
int byte_of_token(std::string_view text);

class SentencePieceBpe {
 public:
  // `vocabulary` must outlive the object. `byte_ids`: id of the byte token of every byte, -1 =
  // none. CORRUPT: scores missing or not numbers.
  static Result<SentencePieceBpe> create(const Vocabulary& vocabulary,
                                         const std::vector<float>& scores,
                                         const std::array<int32_t, 256>& byte_ids, int32_t unk_id);

  // Appends the ids of well-formed text without ▁. INVALID_ARGUMENT: a character is in neither the
  // vocabulary nor the byte tokens, and there is no unknown token.
  Status encode(std::string_view text, std::vector<int32_t>& out) const;
  int64_t memory_bytes() const;

 private:
  struct Symbol {
    uint32_t begin, end;  // in the text
    int32_t id;           // -1: not a piece
  };
  struct Pairs {
    using Symbol = SentencePieceBpe::Symbol;
    const SentencePieceBpe* bpe;
    std::string_view text;
    PairMerge find(const Symbol& left, const Symbol& right) const;
    Symbol join(const Symbol& left, const Symbol& right, int32_t id) const {
      return {left.begin, right.end, id};
    }
  };

  explicit SentencePieceBpe(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {}
  // `after_unknown`: the last symbol of the segment before was unknown; updated. `symbols` is
  // scratch.
  Status encode_segment(std::string_view text, std::vector<Symbol>& symbols, bool& after_unknown,
                        std::vector<int32_t>& out) const;

  const Vocabulary* vocabulary_;
  std::vector<uint32_t> priorities_;  // per token: smaller = higher score
  std::array<int32_t, 256> byte_ids_{};
  int32_t unk_id_ = -1;
  // No piece has a space after another character, so words do not influence each other.
  bool cut_at_spaces_ = false;
};

}  // namespace lmn::text
