// SPDX-License-Identifier: Apache-2.0
//
// Names of requests: ids that nobody can guess, and W3C trace contexts (Trace Context, level 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmn::server {

// Random numbers of one thread: xoshiro256**, seeded by the system.
class Random {
 public:
  Random();
  uint64_t next();

 private:
  uint64_t state_[4];
};

std::string random_hex(Random& random, size_t digits);

struct TraceContext {
  std::string trace_id;  // 32 digits
  std::string span_id;   // 16 digits, of this server's span
  bool sampled = false;

  std::string traceparent() const;
};

// A span of the trace that `traceparent` names, or of a new one where it names none.
TraceContext make_trace_context(std::string_view traceparent, Random& random);

}  // namespace lmn::server
