// SPDX-License-Identifier: Apache-2.0
//
// SpecialTokens: finds the tokens that are matched in text before anything is merged: user-defined
// ones always, control and unknown ones on request. The leftmost match counts, and of those that
// start there the longest. A trie, entered only at bytes with which some token begins; time is
// O(text * longest token), and linear on ordinary text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lmn::text {

class SpecialTokens {
 public:
  struct Match {
    size_t begin;
    size_t size;  // 0: no match
    int32_t id;
  };

  // `always`: matched even when control tokens are not asked for. Of equal texts the last one
  // counts.
  void add(std::string_view text, int32_t id, bool always);

  // The first match at or after `from`.
  Match next(std::string_view text, size_t from, bool parse_special) const;
  // Id of the token with exactly this text, or -1.
  int32_t find(std::string_view text) const;
  int64_t memory_bytes() const { return static_cast<int64_t>(nodes_.capacity() * sizeof(Node)); }

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t id = -1;         // token that ends here
    unsigned char byte = 0;  // on the edge that leads here
    bool always = false;
  };
  int32_t child(int32_t node, unsigned char byte) const;

  std::vector<Node> nodes_{Node{}};              // [0] is the root
  std::array<int32_t, 256> roots_ = no_roots();  // child of the root per first byte, -1 = none
  bool any_always_ = false;

  static constexpr std::array<int32_t, 256> no_roots() {
    std::array<int32_t, 256> out{};
    out.fill(-1);
    return out;
  }
};

}  // namespace lmn::text
