// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/special_tokens.h"

namespace lmn::text {

int32_t SpecialTokens::child(int32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  int32_t at = nodes_[static_cast<size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<size_t>(at)].byte != byte)
    at = nodes_[static_cast<size_t>(at)].next_sibling;
  return at;
}

void SpecialTokens::add(std::string_view text, int32_t id, bool always) {
  if (text.empty()) return;
  int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back(Node{-1, nodes_[static_cast<size_t>(node)].first_child, -1, byte, false});
      nodes_[static_cast<size_t>(node)].first_child = next;
      if (node == 0) roots_[byte] = next;
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].id = id;
  nodes_[static_cast<size_t>(node)].always = always;
  any_always_ = any_always_ || always;
}

SpecialTokens::Match SpecialTokens::next(std::string_view text, size_t from,
                                         bool parse_special) const {
  if (!parse_special && !any_always_) return {text.size(), 0, -1};
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t node = roots_[static_cast<unsigned char>(text[begin])];
    if (node < 0) continue;
    Match longest{begin, 0, -1};
    for (size_t end = begin + 1; node >= 0; ++end) {
      const Node& here = nodes_[static_cast<size_t>(node)];
      if (here.id >= 0 && (parse_special || here.always)) longest = {begin, end - begin, here.id};
      if (end == text.size()) break;
      node = child(node, static_cast<unsigned char>(text[end]));
    }
    if (longest.size > 0) return longest;
  }
  return {text.size(), 0, -1};
}

int32_t SpecialTokens::find(std::string_view text) const {
  int32_t node = 0;
  for (const char c : text) {
    node = child(node, static_cast<unsigned char>(c));
    if (node < 0) return -1;
  }
  return nodes_[static_cast<size_t>(node)].id;
}

}  // namespace lmn::text
