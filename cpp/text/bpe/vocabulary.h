// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary: the bytes and the kind of every token, and bytes -> id by a flat hash table. One
// arena holds all bytes; nothing is allocated per token. "Bytes" are those a token stands for in
// text, not its spelling in the vocabulary file (Ġthe and ▁the are both " the"). Immutable once
// filled.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lmn::text {

// Not a keyed hash: the tables are filled from a model file, never from a request.
inline uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd
  const auto mix = [](uint64_t x) {
    x *= kMultiplier;
    return x ^ (x >> 32);
  };
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t hash = n;
  const auto load = [](const char* from, auto word) {
    std::memcpy(&word, from, sizeof(word));
    return static_cast<uint64_t>(word);
  };
  for (; n >= 8; p += 8, n -= 8) hash = mix(hash ^ load(p, uint64_t{}));
  if (n >= 4) {
    hash = mix(hash ^ (load(p, uint32_t{}) | load(p + n - 4, uint32_t{}) << 32));
  } else if (n > 0) {
    hash = mix(hash ^ (load(p, uint8_t{}) | load(p + n / 2, uint8_t{}) << 8 |
                       load(p + n - 1, uint8_t{}) << 16));
  }
  return hash * kMultiplier;
}

// Look-ups whose memory accesses are made to overlap: enough to hide the latency of a cache miss.
inline constexpr size_t kLookupBlock = 32;

class Vocabulary {
 public:
  // Filling: room for `tokens` tokens of `bytes` bytes in all, add() in the order of ids, then
  // build_index() once. `findable`: find() answers with this id. Of equal tokens the last one
  // counts, as in GGUF runtimes.
  void reserve(size_t tokens, size_t bytes);
  void add(std::string_view bytes, TokenKind kind, bool findable);
  void build_index();

  int32_t size() const { return static_cast<int32_t>(kinds_.size()); }
  std::string_view bytes(int32_t id) const {
    const uint32_t* offset = offsets_.data() + id;
    return std::string_view(arena_.data() + offset[0], offset[1] - offset[0]);
  }
  TokenKind kind(int32_t id) const {
    return static_cast<TokenKind>(kinds_[static_cast<size_t>(id)] & ~kFindable);
  }
  size_t max_bytes() const { return max_bytes_; }  // of a findable token
  // find(bytes) == id, cheaper: for an id that is likely the answer. May say false where find()
  // would agree.
  bool surely_finds(std::string_view bytes, int32_t id) const {
    return all_distinct_ && id < size() && kind(id) == TokenKind::kNormal &&
           this->bytes(id) == bytes;
  }

  int32_t find(std::string_view bytes) const { return find(bytes, hash_bytes(bytes)); }
  // The same in two steps, for a caller with many to find: prefetch all, then find each.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }
  int32_t find(std::string_view bytes, uint64_t hash) const {
    for (size_t i = hash >> shift_;; i = (i + 1) & (slots_.size() - 1)) {
      const Slot slot = slots_[i];
      if (slot.id < 0) return -1;
      if (slot.tag == static_cast<uint32_t>(hash) && this->bytes(slot.id) == bytes) return slot.id;
    }
  }

  int64_t memory_bytes() const;

 private:
  struct Slot {
    uint32_t tag;  // low half of the hash; the high bits choose the slot
    int32_t id;    // -1: empty
  };
  static constexpr uint8_t kFindable = 0x80;
  void index(int32_t id, uint64_t hash);

  std::string arena_;
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<uint8_t> kinds_;     // TokenKind, perhaps with kFindable
  std::vector<Slot> slots_;        // power of two, at most half full
  int shift_ = 0;                  // 64 - log2(slots)
  size_t max_bytes_ = 0;
  // No two findable tokens have the same bytes, and all normal ones are findable.
  bool all_distinct_ = true;
};

}  // namespace lmn::text
