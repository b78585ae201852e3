// SPDX-License-Identifier: Apache-2.0
//
// StopMatcher: finds stop strings in a stream of text, across any cutting of the stream into
// pieces, and holds back no more than the longest tail that could still become a stop string. The
// stream ends at the first byte at which any stop string is complete; when several end there, the
// longest counts. So the result depends on the text alone. Knows nothing of tokens. One stream, one
// thread. The first push makes room for kRoomyBytes; after it nothing is allocated unless what is
// held back and a piece are longer together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::text {

class StopMatcher {
 public:
  static constexpr size_t kRoomyBytes = 512;

  struct Step {
    std::string_view text;  // safe to emit now; valid until the next call
    int32_t stop = -1;      // index of the stop string that was hit; `text` is what precedes it
  };

  StopMatcher() = default;  // no stop strings: push() returns its argument
  // Copies the strings. INVALID_ARGUMENT: an empty one, or one that is not well-formed UTF-8.
  static Result<StopMatcher> create(std::span<const std::string_view> stops);

  // `piece` must stay valid until the next call. After a stop was hit: always {"", that stop}.
  Step push(std::string_view piece);
  // End of stream: what was held back. Empty after a stop. The matcher is then as newly created.
  std::string_view flush();
  bool stopped() const { return stopped_ >= 0; }
  bool empty() const { return patterns_.empty(); }
  size_t held_bytes() const { return held_; }

 private:
  struct Pattern {  // Knuth-Morris-Pratt, one automaton per stop string
    std::string text;
    std::vector<uint32_t> fallback;
    uint32_t matched = 0;  // bytes of `text` that are a suffix of the stream
  };
  std::vector<Pattern> patterns_;
  std::string buffer_;  // [emitted last time | held back]
  size_t held_ = 0;     // length of the tail of buffer_ that was not emitted
  int32_t stopped_ = -1;
};

}  // namespace lmn::text
