// SPDX-License-Identifier: Apache-2.0
//
// Delivery: from a chosen token to what the client reads. Decodes text, finds stop strings, decides
// whether the answer ends. Runs on the engine thread and allocates nothing per token.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "engine/sequence.h"

namespace lmn::engine {

struct Verdict {
  FinishReason reason = FinishReason::kNone;
  int32_t stop_index = -1;
  Status failure;  // with kError
};

// Appends the token and the text it completes. Publishes nothing: the caller does when the verdict
// is kNone, and ends the sequence otherwise.
Verdict deliver(Sequence& sequence, int32_t token, float logprob);

// Appends text that was held back for a stop string or a character that did not come. A stop string
// may complete here; the verdict then says so instead of `verdict`.
Verdict flush_text(Sequence& sequence, Verdict verdict);

}  // namespace lmn::engine
