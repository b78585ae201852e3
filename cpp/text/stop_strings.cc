// SPDX-License-Identifier: Apache-2.0
#include "text/stop_strings.h"

#include <algorithm>

#include "text/unicode/utf8.h"

namespace lmn::text {

Result<StopMatcher> StopMatcher::create(std::span<const std::string_view> stops) {
  StopMatcher matcher;
  for (size_t index = 0; index < stops.size(); ++index) {
    const std::string_view stop = stops[index];
    if (stop.empty())
      return error(Code::kInvalidArgument, "stop string %zu is empty; leave it out", index);
    LMN_RETURN_IF_ERROR(check_utf8(stop, "stop string " + std::to_string(index)));
    if (stop.size() > UINT32_MAX)
      return error(Code::kInvalidArgument, "stop string %zu is longer than 4 GiB", index);
    // fallback[i]: length of the longest proper prefix of `stop` that is a suffix of its first i +
    // 1 bytes
    Pattern pattern{std::string(stop), std::vector<uint32_t>(stop.size(), 0), 0};
    uint32_t matched = 0;
    for (size_t i = 1; i < stop.size(); ++i) {
      while (matched > 0 && stop[i] != stop[matched]) matched = pattern.fallback[matched - 1];
      if (stop[i] == stop[matched]) ++matched;
      pattern.fallback[i] = matched;
    }
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

StopMatcher::Step StopMatcher::push(std::string_view piece) {
  if (stopped_ >= 0) return {"", stopped_};
  if (patterns_.empty()) return {piece, -1};
  buffer_.reserve(kRoomyBytes);  // copies of a matcher have no room yet
  buffer_.erase(0, buffer_.size() - held_);
  const size_t scanned = buffer_.size();
  buffer_.append(piece);
  for (size_t at = scanned; at < buffer_.size(); ++at) {
    size_t hit_size = 0;
    for (size_t index = 0; index < patterns_.size(); ++index) {
      Pattern& pattern = patterns_[index];
      const char c = buffer_[at];
      while (pattern.matched > 0 && c != pattern.text[pattern.matched]) {
        pattern.matched = pattern.fallback[pattern.matched - 1];
      }
      if (c == pattern.text[pattern.matched]) ++pattern.matched;
      if (pattern.matched == pattern.text.size() && pattern.text.size() > hit_size) {
        hit_size = pattern.text.size();
        stopped_ = static_cast<int32_t>(index);
      }
    }
    if (hit_size > 0) {
      held_ = 0;
      return {std::string_view(buffer_).substr(0, at + 1 - hit_size), stopped_};
    }
  }
  held_ = 0;
  for (const Pattern& pattern : patterns_) held_ = std::max<size_t>(held_, pattern.matched);
  return {std::string_view(buffer_).substr(0, buffer_.size() - held_), -1};
}

std::string_view StopMatcher::flush() {
  const size_t rest = stopped_ >= 0 ? 0 : held_;
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  held_ = 0;
  stopped_ = -1;
  return std::string_view(buffer_).substr(buffer_.size() - rest);
}

}  // namespace lmn::text
