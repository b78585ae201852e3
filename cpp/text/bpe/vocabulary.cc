// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/vocabulary.h"

#include <algorithm>
#include <array>

namespace lmn::text {

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  arena_.reserve(bytes);
  offsets_.reserve(tokens + 1);
  offsets_.assign(1, 0);
  kinds_.reserve(tokens);
}

void Vocabulary::add(std::string_view bytes, TokenKind kind, bool findable) {
  arena_.append(bytes);
  offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  kinds_.push_back(static_cast<uint8_t>(static_cast<int>(kind) | (findable ? kFindable : 0)));
  if (findable) max_bytes_ = std::max(max_bytes_, bytes.size());
  all_distinct_ = all_distinct_ && (findable || kind != TokenKind::kNormal);
}

void Vocabulary::build_index() {
  const size_t slots = std::bit_ceil(2 * kinds_.size() + 2);  // a search always meets an empty one
  slots_.assign(slots, Slot{0, -1});
  shift_ = 64 - std::countr_zero(slots);
  std::array<uint64_t, kLookupBlock> hashes;
  for (int32_t first = 0; first < size(); first += static_cast<int32_t>(kLookupBlock)) {
    const int32_t end = std::min(first + static_cast<int32_t>(kLookupBlock), size());
    for (int32_t id = first; id < end; ++id) {
      const uint64_t hash = hash_bytes(bytes(id));
      hashes[static_cast<size_t>(id - first)] = hash;
      prefetch(hash);
    }
    for (int32_t id = first; id < end; ++id) {
      if (kinds_[static_cast<size_t>(id)] & kFindable) {
        index(id, hashes[static_cast<size_t>(id - first)]);
      }
    }
  }
}

void Vocabulary::index(int32_t id, uint64_t hash) {
  const auto tag = static_cast<uint32_t>(hash);
  size_t i = hash >> shift_;
  while (slots_[i].id >= 0 && !(slots_[i].tag == tag && bytes(slots_[i].id) == bytes(id))) {
    i = (i + 1) & (slots_.size() - 1);
  }
  all_distinct_ = all_distinct_ && slots_[i].id < 0;
  slots_[i] = Slot{tag, id};
}

int64_t Vocabulary::memory_bytes() const {
  return static_cast<int64_t>(arena_.capacity() + offsets_.capacity() * sizeof(uint32_t) +
                              kinds_.capacity() + slots_.capacity() * sizeof(Slot));
}

}  // namespace lmn::text
