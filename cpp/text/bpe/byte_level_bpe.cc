// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/byte_level_bpe.h"

#include <algorithm>

namespace lmn::text {
namespace {

// GPT-2's spelling of bytes: those that print in Latin-1 (! to ~, ¡ to ¬, ® to ÿ) are themselves,
// the other 68 are U+0100 onwards in order. Index: code point; value: byte, or -1.
constexpr size_t kSpellings = 0x144;
constexpr std::array<int16_t, kSpellings> kByteOfSpelling = [] {
  std::array<int16_t, kSpellings> table{};
  for (auto& entry : table) entry = -1;
  size_t other = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    table[prints ? byte : other++] = static_cast<int16_t>(byte);
  }
  return table;
}();

}  // namespace

bool append_unspelled(std::string& out, std::string_view spelled) {
  const size_t size_before = out.size();
  for (size_t i = 0; i < spelled.size(); ++i) {
    uint32_t code = static_cast<unsigned char>(spelled[i]);
    if (code >= 0x80) {  // only two-byte characters (C2 80 to C5 83) spell bytes
      const uint32_t second =
          i + 1 < spelled.size() ? static_cast<unsigned char>(spelled[i + 1]) : 0u;
      code = code >= 0xC2 && code <= 0xC5 && (second & 0xC0) == 0x80
                 ? (code & 0x1F) << 6 | (second & 0x3F)
                 : static_cast<uint32_t>(kSpellings);
      ++i;
    }
    const int16_t byte = code < kSpellings ? kByteOfSpelling[code] : int16_t{-1};
    if (byte < 0) {
      out.resize(size_before);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

ByteLevelBpe::ByteLevelBpe(const Vocabulary& vocabulary, PreTokenizer pre)
    : vocabulary_(vocabulary), pre_(pre), whole_pieces_(pre == PreTokenizer::kLlama3) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary.find(std::string_view(&c, 1));
  }
}

Result<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::create(
    const Vocabulary& vocabulary, const SpecialTokens& specials,
    const std::vector<std::string_view>& merges, PreTokenizer pre) {
  std::unique_ptr<ByteLevelBpe> bpe(new ByteLevelBpe(vocabulary, pre));
  const size_t slots = std::bit_ceil(2 * merges.size() + 2);
  bpe->slots_.assign(slots, Slot{-1, -1, {}});
  bpe->shift_ = 64 - std::countr_zero(slots);

  std::string bytes;  // of the left token, then of both
  int32_t expected =
      0;  // vocabularies list the results of merges in order: usually no search is needed
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return error(Code::kCorrupt,
                   "tokenizer merge %zu is '%.*s', want two tokens separated by a space", rank,
                   static_cast<int>(std::min<size_t>(merge.size(), 80)), merge.data());
    }
    const std::string_view left_text = merge.substr(0, space), right_text = merge.substr(space + 1);
    bytes.clear();
    if (!append_unspelled(bytes, left_text))
      continue;  // no text contains it: merging starts from bytes
    const size_t left_size = bytes.size();
    if (!append_unspelled(bytes, right_text)) continue;
    const std::string_view both = bytes;
    const auto id_of = [&](std::string_view token_bytes, std::string_view text) {
      const int32_t id = vocabulary.find(token_bytes);
      return id >= 0 ? id : specials.find(text);
    };
    const int32_t left = id_of(both.substr(0, left_size), left_text);
    const int32_t right = id_of(both.substr(left_size), right_text);
    const int32_t result = vocabulary.surely_finds(both, expected)
                               ? expected
                               : id_of(both, std::string(left_text).append(right_text));
    if (left < 0 || right < 0 || result < 0) {
      return error(Code::kCorrupt,
                   "tokenizer merge %zu, '%.*s', needs a token that the vocabulary does not have",
                   rank, static_cast<int>(std::min<size_t>(merge.size(), 80)), merge.data());
    }
    expected = result + 1;
    bpe->add_merge(left, right, {static_cast<uint32_t>(rank), result});
  }
  return bpe;
}

void ByteLevelBpe::add_merge(int32_t left, int32_t right, PairMerge merge) {
  size_t i = slot_of(left, right);
  while (slots_[i].left >= 0) {
    if (slots_[i].left == left && slots_[i].right == right)
      return;  // listed before, with a better rank
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = Slot{left, right, merge};
}

PairMerge ByteLevelBpe::Pairs::find(int32_t left, int32_t right) const {
  const std::vector<Slot>& slots = bpe->slots_;
  for (size_t i = bpe->slot_of(left, right);; i = (i + 1) & (slots.size() - 1)) {
    const Slot& slot = slots[i];
    if (slot.left == left && slot.right == right) return slot.merge;
    if (slot.left < 0) return {};
  }
}

void ByteLevelBpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  std::vector<int32_t> scratch(kShortSequence);
  while (!text.empty()) {
    const size_t size = next_piece(pre_, text);
    encode_piece(text.substr(0, size), scratch, out);
    text.remove_prefix(size);
  }
}

void ByteLevelBpe::encode_piece(std::string_view piece, std::vector<int32_t>& scratch,
                                std::vector<int32_t>& out) const {
  if (whole_pieces_) {
    if (const int32_t id = vocabulary_.find(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  if (piece.size() > scratch.size()) scratch.resize(piece.size());
  size_t count = 0;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) scratch[count++] = id;
  }
  count = merge_all(Pairs{this}, scratch.data(), count);
  out.insert(out.end(), scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(count));
}

int64_t ByteLevelBpe::memory_bytes() const {
  return static_cast<int64_t>(sizeof(*this) + slots_.capacity() * sizeof(Slot));
}

}  // namespace lmn::text
