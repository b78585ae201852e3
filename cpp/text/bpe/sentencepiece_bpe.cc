// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/sentencepiece_bpe.h"

#include <bit>
#include <cmath>

#include "text/unicode/utf8.h"

namespace lmn::text {
namespace {

// Order-reversing map of finite floats: higher score, smaller number. Never kNoMerge.
uint32_t priority_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);  // -0 = +0
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

bool has_inner_space(std::string_view piece) {
  const size_t word = piece.find_first_not_of(' ');
  return word != std::string_view::npos && piece.find(' ', word) != std::string_view::npos;
}

}  // namespace

std::string replace_space_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t mark; (mark = text.find(kSpaceMark)) != std::string_view::npos;) {
    out.append(text.substr(0, mark)).append(" ");
    text.remove_prefix(mark + kSpaceMark.size());
  }
  return out.append(text);
}

int byte_of_token(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  return high == std::string_view::npos || low == std::string_view::npos
             ? -1
             : static_cast<int>(high * 16 + low);
}

Result<SentencePieceBpe> SentencePieceBpe::create(const Vocabulary& vocabulary,
                                                  const std::vector<float>& scores,
                                                  const std::array<int32_t, 256>& byte_ids,
                                                  int32_t unk_id) {
  const auto count = static_cast<size_t>(vocabulary.size());
  if (scores.size() != count) {
    return error(Code::kCorrupt, "tokenizer of model 'llama' has %zu scores for %zu tokens",
                 scores.size(), count);
  }
  SentencePieceBpe bpe(vocabulary);
  bpe.byte_ids_ = byte_ids;
  bpe.unk_id_ = unk_id;
  bpe.cut_at_spaces_ = true;
  bpe.priorities_.reserve(count);
  for (size_t id = 0; id < count; ++id) {
    if (!std::isfinite(scores[id])) {
      return error(Code::kCorrupt, "tokenizer score of token %zu is not a finite number", id);
    }
    bpe.priorities_.push_back(priority_of(scores[id]));
    const TokenKind kind = vocabulary.kind(static_cast<int32_t>(id));
    const bool merges =
        kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kUnused;
    if (merges && has_inner_space(vocabulary.bytes(static_cast<int32_t>(id))))
      bpe.cut_at_spaces_ = false;
  }
  return bpe;
}

PairMerge SentencePieceBpe::Pairs::find(const Symbol& left, const Symbol& right) const {
  const size_t size = right.end - left.begin;
  if (size > bpe->vocabulary_->max_bytes()) return {};
  const int32_t id = bpe->vocabulary_->find(text.substr(left.begin, size));
  return id < 0 ? PairMerge{} : PairMerge{bpe->priorities_[static_cast<size_t>(id)], id};
}

Status SentencePieceBpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  std::vector<Symbol> symbols;
  bool after_unknown = false;
  if (!cut_at_spaces_) return encode_segment(text, symbols, after_unknown, out);
  while (!text.empty()) {  // spaces, then what is not space
    const size_t word = text.find_first_not_of(' ');
    const size_t end = word == std::string_view::npos ? word : text.find(' ', word);
    const std::string_view segment = text.substr(0, end);
    LMN_RETURN_IF_ERROR(encode_segment(segment, symbols, after_unknown, out));
    text.remove_prefix(segment.size());
  }
  return {};
}

Status SentencePieceBpe::encode_segment(std::string_view text, std::vector<Symbol>& symbols,
                                        bool& after_unknown, std::vector<int32_t>& out) const {
  symbols.clear();
  for (size_t at = 0; at < text.size();) {
    int size = 0;
    read_utf8(text.data() + at, size);
    const size_t end = at + static_cast<size_t>(size);
    const int32_t id = vocabulary_->find(text.substr(at, end - at));
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end), id});
    at = end;
  }
  symbols.resize(merge_all(Pairs{this, text}, symbols.data(), symbols.size()));
  for (const Symbol& symbol : symbols) {
    const std::string_view bytes = text.substr(symbol.begin, symbol.end - symbol.begin);
    bool unknown = false;
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
    } else {
      for (const char c : bytes) unknown = unknown || byte_ids_[static_cast<unsigned char>(c)] < 0;
      if (!unknown) {
        for (const char c : bytes) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      } else if (unk_id_ < 0) {
        return error(Code::kInvalidArgument,
                     "the text has '%.*s', which this vocabulary cannot express (no such piece, no "
                     "byte tokens, no "
                     "unknown token); remove it from the text",
                     static_cast<int>(bytes.size()), bytes.data());
      } else if (!after_unknown) {  // a run of unknown characters is one unknown token
        out.push_back(unk_id_);
      }
    }
    after_unknown = unknown;
  }
  return {};
}

int64_t SentencePieceBpe::memory_bytes() const {
  return static_cast<int64_t>(priorities_.capacity() * sizeof(uint32_t));
}

}  // namespace lmn::text
