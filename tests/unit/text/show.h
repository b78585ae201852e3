// SPDX-License-Identifier: Apache-2.0
//
// Ids and texts in the messages of failing tests, and the arguments of tests that run over random
// input.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

inline std::string show_ids(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += std::to_string(id) + " ";
  return out;
}

// ASCII as it is, the rest as \xNN.
inline std::string show_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02X", static_cast<unsigned char>(c));
    out += c >= ' ' && c <= '~' ? std::string(1, c) : std::string(escaped);
  }
  return out;
}

// A fixed sequence of numbers (a linear congruential generator, constants of Numerical Recipes).
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed) {}
  uint32_t below(uint32_t bound) {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<uint32_t>((static_cast<uint64_t>(state_ >> 8) * bound) >> 24);
  }

 private:
  uint32_t state_;
};
