// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/vocabulary.h"

#include <algorithm>

namespace lmn::text {

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  arena_.reserve(bytes);
  offsets_.reserve(tokens + 1);
  offsets_.assign(1, 0);
  kinds_.reserve(tokens);
  const size_t slots =
      std::bit_ceil(2 * tokens + 2);  // never full: a search always meets an empty slot
  slots_.assign(slots, Slot{0, -1});
  shift_ = 64 - std::countr_zero(slots);
}

void Vocabulary::add(std::string_view bytes, TokenKind kind, bool findable) {
  const int32_t id = size();
  arena_.append(bytes);
  offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  kinds_.push_back(static_cast<uint8_t>(kind));
  if (!findable) {
    all_distinct_ = all_distinct_ && kind != TokenKind::kNormal;
    return;
  }
  max_bytes_ = std::max(max_bytes_, bytes.size());
  const uint64_t hash = hash_bytes(bytes);
  const auto tag = static_cast<uint32_t>(hash);
  size_t i = hash >> shift_;
  while (slots_[i].id >= 0 && !(slots_[i].tag == tag && this->bytes(slots_[i].id) == bytes)) {
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
