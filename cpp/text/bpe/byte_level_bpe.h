// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE (GPT-2 and its descendants): a piece of text starts as its bytes and neighbouring
// tokens merge by rank. The vocabulary file spells each byte as a printable character (space is Ġ);
// here tokens are their bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/bpe/merge.h"
#include "text/bpe/pre_tokenizer.h"
#include "text/bpe/special_tokens.h"
#include "text/bpe/vocabulary.h"

namespace lmn::text {

// Appends the bytes that `spelled` stands for. False, and nothing appended, when some character
// stands for no byte.
bool append_unspelled(std::string& out, std::string_view spelled);

class ByteLevelBpe {
 public:
  // `vocabulary` and `specials` must outlive the object. CORRUPT: a merge names a token that does
  // not exist.
  static Result<std::unique_ptr<ByteLevelBpe>> create(const Vocabulary& vocabulary,
                                                      const SpecialTokens& specials,
                                                      const std::vector<std::string_view>& merges,
                                                      PreTokenizer pre);

  // Appends the ids of well-formed text. Bytes that no token stands for are dropped, as Hugging
  // Face tokenizers do (SmolLM2 lacks 04 06 13 14 16 1D, and F1 F2 which begin planes 4 to 11).
  void encode(std::string_view text, std::vector<int32_t>& out) const;
  int64_t memory_bytes() const;

 private:
  struct Rule {  // in the order of rank
    int32_t left, right, result;
  };
  struct Slot {
    uint32_t tag;  // bits of the hash of the pair
    int32_t rule;  // -1: empty
  };
  struct Pairs {
    using Symbol = int32_t;
    const ByteLevelBpe* bpe;
    PairMerge find(int32_t left, int32_t right) const;
    int32_t join(int32_t, int32_t, int32_t id) const { return id; }
  };

  explicit ByteLevelBpe(const Vocabulary& vocabulary, PreTokenizer pre);
  static uint64_t hash_pair(int32_t left, int32_t right) {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    return key * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  }
  // The top bits choose the slot; the low 32 depend on the right token only.
  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 20); }
  Status read_rules(const SpecialTokens& specials, const std::vector<std::string_view>& merges);
  void index_rules();
  void encode_piece(std::string_view piece, std::vector<int32_t>& scratch,
                    std::vector<int32_t>& out) const;

  const Vocabulary& vocabulary_;
  PreTokenizer pre_;
  // A piece that is a token is that token, whatever the merges say ("ignore_merges" of Llama 3).
  bool whole_pieces_;
  std::array<int32_t, 256> byte_ids_;  // -1: no such token
  std::vector<Rule> rules_;
  std::vector<Slot> slots_;  // power of two, at most half full
  int shift_ = 0;            // 64 - log2(slots)
};

}  // namespace lmn::text
