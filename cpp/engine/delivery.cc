// SPDX-License-Identifier: Apache-2.0
#include "engine/delivery.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/request_core.h"

namespace lmn::engine {
namespace {

Verdict no_memory() {
  return {FinishReason::kError, -1,
          error(Code::kOutOfMemory, "no memory for more text of the request")};
}

// The piece through the stop strings into the text.
Verdict append(Sequence& sequence, std::string_view piece) {
  const text::StopMatcher::Step step = sequence.matcher.push(piece);
  if (sequence.request().options().text && !sequence.append_text(step.text)) return no_memory();
  if (step.stop >= 0) return {FinishReason::kStopString, step.stop, {}};
  return {};
}

// A token that ends the answer: it is delivered as an id and gives no text.
Verdict stop_token(const Sequence& sequence, int32_t token) {
  const RequestOptions& options = sequence.request().options();
  const auto found = std::find(options.stop_token_ids.begin(), options.stop_token_ids.end(), token);
  if (found != options.stop_token_ids.end()) {
    return {
        FinishReason::kStopToken, static_cast<int32_t>(found - options.stop_token_ids.begin()), {}};
  }
  const text::Tokenizer* tokenizer = sequence.request().fixed().tokenizer;
  if (!options.ignore_eos && tokenizer != nullptr && tokenizer->is_end_of_generation(token)) {
    return {FinishReason::kEos, -1, {}};
  }
  return {};
}

}  // namespace

Verdict deliver(Sequence& sequence, int32_t token, float logprob) {
  sequence.append_token(token, logprob);
  Verdict verdict = stop_token(sequence, token);
  if (verdict.reason == FinishReason::kNone && sequence.decoder) {
    const Result<std::string_view> piece = sequence.decoder->push(token);
    if (!piece.ok()) return {FinishReason::kError, -1, piece.status()};
    verdict = append(sequence, *piece);
    if (verdict.reason != FinishReason::kNone) return verdict;
  }
  if (verdict.reason == FinishReason::kNone &&
      sequence.generated_tokens() == sequence.request().fixed().max_tokens) {
    verdict.reason = FinishReason::kLength;
  }
  return verdict.reason == FinishReason::kNone ? std::move(verdict)
                                               : flush_text(sequence, std::move(verdict));
}

Verdict flush_text(Sequence& sequence, Verdict verdict) {
  if (!sequence.decoder) return verdict;
  Verdict last = append(sequence, sequence.decoder->flush());
  if (last.reason != FinishReason::kNone) return last;
  if (sequence.request().options().text && !sequence.append_text(sequence.matcher.flush()))
    return no_memory();
  return verdict;
}

}  // namespace lmn::engine
