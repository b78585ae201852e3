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

// One line of the merges: where the bytes of its tokens are in a buffer.
struct MergeText {
  size_t rank;
  size_t begin, middle, end;
  uint64_t left_hash, right_hash;

  std::string_view left(std::string_view buffer) const {
    return buffer.substr(begin, middle - begin);
  }
  std::string_view right(std::string_view buffer) const {
    return buffer.substr(middle, end - middle);
  }
  std::string_view both(std::string_view buffer) const { return buffer.substr(begin, end - begin); }
};

Status bad_merge(size_t rank, std::string_view text, const char* what) {
  return error(Code::kCorrupt, "tokenizer merge %zu, '%.*s', %s", rank,
               static_cast<int>(std::min<size_t>(text.size(), 80)), text.data(), what);
}

// Appends the bytes to `buffer` and the merge to `out`; leaves out a merge that no text reaches.
Status read_merge(std::string_view text, size_t rank, std::string& buffer,
                  std::vector<MergeText>& out) {
  const size_t space = text.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == text.size()) {
    return bad_merge(rank, text, "is not two tokens separated by a space");
  }
  MergeText merge{rank, buffer.size(), 0, 0, 0, 0};
  // Merging starts from bytes, so a character that spells none never takes part.
  if (!append_unspelled(buffer, text.substr(0, space))) return {};
  merge.middle = buffer.size();
  if (!append_unspelled(buffer, text.substr(space + 1))) return {};
  merge.end = buffer.size();
  out.push_back(merge);
  return {};
}

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
  LMN_RETURN_IF_ERROR(bpe->read_rules(specials, merges));
  bpe->index_rules();
  return bpe;
}

Status ByteLevelBpe::read_rules(const SpecialTokens& specials,
                                const std::vector<std::string_view>& merges) {
  rules_.reserve(merges.size());
  std::vector<MergeText> block;
  std::string bytes;  // of the tokens of a block
  // Vocabularies list the results of merges in order: usually no search is needed.
  int32_t expected = 0;
  for (size_t first = 0; first < merges.size(); first += kLookupBlock) {
    const size_t end = std::min(first + kLookupBlock, merges.size());
    block.clear();
    bytes.clear();
    for (size_t rank = first; rank < end; ++rank) {
      LMN_RETURN_IF_ERROR(read_merge(merges[rank], rank, bytes, block));
    }
    for (MergeText& merge : block) {
      merge.left_hash = hash_bytes(merge.left(bytes));
      merge.right_hash = hash_bytes(merge.right(bytes));
      vocabulary_.prefetch(merge.left_hash);
      vocabulary_.prefetch(merge.right_hash);
    }
    for (const MergeText& merge : block) {
      int32_t left = vocabulary_.find(merge.left(bytes), merge.left_hash);
      int32_t right = vocabulary_.find(merge.right(bytes), merge.right_hash);
      int32_t result = vocabulary_.surely_finds(merge.both(bytes), expected)
                           ? expected
                           : vocabulary_.find(merge.both(bytes));
      // A token that merges may be listed as user-defined: it is then known by its spelling.
      const std::string_view text = merges[merge.rank];
      const size_t space = text.find(' ', 1);
      if (left < 0) left = specials.find(text.substr(0, space));
      if (right < 0) right = specials.find(text.substr(space + 1));
      if (result < 0) {
        result = specials.find(std::string(text.substr(0, space)).append(text.substr(space + 1)));
      }
      if (left < 0 || right < 0 || result < 0) {
        return bad_merge(merge.rank, text, "needs a token that the vocabulary does not have");
      }
      expected = result + 1;
      rules_.push_back({left, right, result});
    }
  }
  return {};
}

void ByteLevelBpe::index_rules() {
  const size_t slots = std::bit_ceil(2 * rules_.size() + 2);  // a search always meets an empty one
  slots_.assign(slots, Slot{0, -1});
  shift_ = 64 - std::countr_zero(slots);
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (i + kLookupBlock < rules_.size()) {
      const Rule& later = rules_[i + kLookupBlock];
      __builtin_prefetch(&slots_[hash_pair(later.left, later.right) >> shift_], 1);
    }
    const Rule& rule = rules_[i];
    if (Pairs{this}.find(rule.left, rule.right).id >= 0) continue;  // listed with a better rank
    const uint64_t hash = hash_pair(rule.left, rule.right);
    size_t at = hash >> shift_;
    while (slots_[at].rule >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = Slot{tag_of(hash), static_cast<int32_t>(i)};
  }
}

PairMerge ByteLevelBpe::Pairs::find(int32_t left, int32_t right) const {
  const uint64_t hash = hash_pair(left, right);
  const Slot* slots = bpe->slots_.data();
  const size_t mask = bpe->slots_.size() - 1;
  for (size_t i = hash >> bpe->shift_;; i = (i + 1) & mask) {
    const Slot slot = slots[i];
    if (slot.rule < 0) return {};
    if (slot.tag != tag_of(hash)) continue;
    const Rule& rule = bpe->rules_[static_cast<size_t>(slot.rule)];
    if (rule.left == left && rule.right == right) {
      return {static_cast<uint32_t>(slot.rule), rule.result};
    }
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
  return static_cast<int64_t>(sizeof(*this) + slots_.capacity() * sizeof(Slot) +
                              rules_.capacity() * sizeof(Rule));
}

}  // namespace lmn::text
