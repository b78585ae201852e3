// SPDX-License-Identifier: Apache-2.0
#include "server/trace_context.h"

#include <sys/random.h>

#include <bit>

#include "server/clock.h"

namespace lmn::server {
namespace {

bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// version "-" trace-id "-" parent-id "-" flags; later versions may append.
bool is_traceparent(std::string_view text) {
  if (text.size() < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  const std::string_view version = text.substr(0, 2), trace = text.substr(3, 32),
                         parent = text.substr(36, 16), flags = text.substr(53, 2);
  if (version == "ff" || (version == "00" && text.size() != 55)) return false;
  if (text.size() > 55 && text[55] != '-') return false;
  return is_lower_hex(version) && is_lower_hex(trace) && is_lower_hex(parent) &&
         is_lower_hex(flags) && trace.find_first_not_of('0') != std::string_view::npos &&
         parent.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

Random::Random() {
  if (::getrandom(state_, sizeof state_, 0) == sizeof state_) return;
  uint64_t seed = static_cast<uint64_t>(now_ns()) ^ reinterpret_cast<uintptr_t>(this);
  for (uint64_t& word : state_) {  // SplitMix64
    uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    word = z ^ (z >> 31);
  }
}

uint64_t Random::next() {
  uint64_t* s = state_;
  const uint64_t result = std::rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

std::string random_hex(Random& random, size_t digits) {
  std::string out(digits, '0');
  uint64_t bits = 0;
  for (size_t i = 0; i < digits; ++i, bits >>= 4) {
    if (i % 16 == 0) bits = random.next();
    out[i] = "0123456789abcdef"[bits & 15];
  }
  return out;
}

std::string TraceContext::traceparent() const {
  return "00-" + trace_id + "-" + span_id + (sampled ? "-01" : "-00");
}

TraceContext make_trace_context(std::string_view traceparent, Random& random) {
  TraceContext context;
  if (is_traceparent(traceparent)) {
    context.trace_id = traceparent.substr(3, 32);
    const char digit = traceparent[54];
    context.sampled = ((digit <= '9' ? digit - '0' : digit - 'a' + 10) & 1) != 0;
  } else {
    context.trace_id = random_hex(random, 32);
  }
  context.span_id = random_hex(random, 16);
  return context;
}

}  // namespace lmn::server
