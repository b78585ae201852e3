// SPDX-License-Identifier: Apache-2.0
//
// Admission: what is checked at submit, on the submitting thread, before a request costs anything.
// A request that passes can run to its end: it fits the context and the KV cache, and every id is
// in the vocabulary.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "engine/request.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace lmn::engine {

struct AdmissionLimits {
  int32_t vocab_size = 0;
  int32_t context_tokens = 0;
  int64_t kv_pages = 0;
  const text::Tokenizer* tokenizer = nullptr;
};

struct Admission {
  int32_t max_tokens = 0;  // resolved: 0 for a score, else at least 1 and within context and cache
  text::StopMatcher stops;
};

// Tokens an answer may have behind so many prompt tokens; 0 or less: no room. What is not asked for
// (`asked` is 0) is cut to what context and cache hold. What is asked for is cut to the context;
// that the cache cannot hold it is for admit() to say.
int64_t answer_limit(int64_t asked, int64_t prompt_tokens, const AdmissionLimits& limits);

// INVALID_ARGUMENT names the field, its value and the range; OUT_OF_MEMORY what the KV cache holds.
Result<Admission> admit(const RequestOptions& options, const AdmissionLimits& limits);

}  // namespace lmn::engine
