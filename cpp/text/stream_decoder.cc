// SPDX-License-Identifier: Apache-2.0
#include "text/stream_decoder.h"

#include <algorithm>
#include <cstring>

#include "text/unicode/utf8.h"

namespace lmn::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer),
      options_(options),
      strip_next_(options.strip_leading_space && tokenizer.add_space_prefix()) {
  out_.reserve(kRoomyBytes);
}

Result<std::string_view> StreamDecoder::push(int32_t id) {
  if (!tokenizer_->valid_id(id)) {
    return error(Code::kInvalidArgument, "token id %d is outside the vocabulary: valid are 0 to %d",
                 id, tokenizer_->vocab_size() - 1);
  }
  out_.clear();
  if (options_.skip_special && tokenizer_->is_special(id)) return std::string_view();
  std::string_view bytes = tokenizer_->token_bytes(id);
  if (strip_next_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    strip_next_ = false;
  }
  append(bytes);
  return std::string_view(out_);
}

void StreamDecoder::append(std::string_view bytes) {
  // Finish the character left over, byte by byte. When a byte does not fit, what was held is a
  // maximal subpart, and the byte begins something new.
  while (pending_size_ > 0 && !bytes.empty()) {
    char sequence[4];
    std::memcpy(sequence, pending_, pending_size_);
    sequence[pending_size_] = bytes.front();
    const std::string_view extended(sequence, pending_size_ + 1u);
    const Utf8Step step = next_utf8(extended);
    if (step.kind == Utf8Step::kIllFormed) {
      out_.append(kReplacement);
      pending_size_ = 0;
      continue;
    }
    bytes.remove_prefix(1);
    if (step.kind == Utf8Step::kCharacter) {
      out_.append(extended);
      pending_size_ = 0;
    } else {
      pending_[pending_size_++] = static_cast<unsigned char>(extended.back());
    }
  }
  while (!bytes.empty()) {
    const size_t good = std::min(find_invalid_utf8(bytes), bytes.size());
    out_.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    const Utf8Step step = next_utf8(bytes);
    if (step.kind == Utf8Step::kIncomplete) {
      std::memcpy(pending_, bytes.data(), bytes.size());
      pending_size_ = static_cast<uint8_t>(bytes.size());
      return;
    }
    out_.append(kReplacement);
    bytes.remove_prefix(step.size);
  }
}

std::string_view StreamDecoder::flush() {
  out_.clear();
  if (pending_size_ > 0) out_.append(kReplacement);
  pending_size_ = 0;
  strip_next_ = options_.strip_leading_space && tokenizer_->add_space_prefix();
  return out_;
}

}  // namespace lmn::text
