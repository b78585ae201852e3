// SPDX-License-Identifier: Apache-2.0
//
// StreamDecoder: token ids in, text out as soon as it is complete. The pieces it returns, joined,
// are exactly Tokenizer::decode of all ids with the same options; no piece ends inside a character.
// One stream, one thread; the tokenizer may be shared. A push allocates nothing: the buffer, which
// is kept and reused, has room for a token of kRoomyBytes from the start, and grows once for a
// longer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "text/tokenizer.h"

namespace lmn::text {

class StreamDecoder {
 public:
  static constexpr size_t kRoomyBytes = 512;
  // `tokenizer` must outlive the decoder. A stream of generated ids that follow a prompt wants
  // strip_leading_space = false: the space of its first token is text.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // Text that became complete, perhaps empty; valid until the next call. INVALID_ARGUMENT when the
  // id is outside the vocabulary; the stream is then unchanged.
  Result<std::string_view> push(int32_t id);
  // End of stream: an incomplete character left over becomes U+FFFD. The decoder is then as newly
  // made.
  std::string_view flush();
  // Bytes of an unfinished character are held back.
  bool has_pending() const { return pending_size_ > 0; }

 private:
  void append(std::string_view bytes);

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool strip_next_;           // the next visible token loses one leading space
  unsigned char pending_[4];  // an unfinished but so far well-formed character
  uint8_t pending_size_ = 0;
  std::string out_;  // backs the view returned last
};

}  // namespace lmn::text
