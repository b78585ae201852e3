// SPDX-License-Identifier: Apache-2.0
//
// Request: a caller's handle on one piece of work: generate one answer to a prompt or several
// ("samples"), or score given tokens. Every method may be called from any thread at any time, none
// waits for the engine beyond its time-out, and none keeps the engine alive: after the engine is
// gone, what was delivered can still be read.
//
// States: submitted -> waiting -> running -> finished | cancelled | failed. README.md is the
// contract.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "engine/news_queue.h"
#include "engine/sampling_params.h"

namespace lmn::engine {

enum class RequestKind : int32_t {
  kGenerate = 0,
  kScore = 1,  // logits of every given token; samples nothing
};

enum class RequestState : int32_t {
  kSubmitted = 0,  // in the ring
  kWaiting = 1,    // seen by the engine thread, holds none of the pages it will need
  kRunning = 2,    // holds pages; one that is preempted waits again
  kFinished = 3,
  kCancelled = 4,
  kFailed = 5,
};
inline bool is_terminal(RequestState state) { return state >= RequestState::kFinished; }

enum class FinishReason : int32_t {
  kNone = 0,       // not finished
  kEos = 1,        // the model's own end-of-generation token
  kStopToken = 2,  // one of stop_token_ids
  kStopString = 3,
  kLength = 4,  // max_tokens, or the end of the context; for a score: all tokens scored
  kCancelled = 5,
  kError = 6,
  kDeadline = 7,  // deadline_ns passed
};

// Priorities: 0 is normal. Higher runs first; equal ones run in the order of submission.
inline constexpr int32_t kMinPriority = -2;
inline constexpr int32_t kMaxPriority = 2;

struct RequestOptions {
  RequestKind kind = RequestKind::kGenerate;
  std::vector<int32_t> prompt;  // token ids; at least one
  int32_t max_tokens = 0;       // generated tokens at most; 0: until the context ends
  int32_t samples = 1;          // answers to the prompt; sample i draws with seed + i
  int32_t priority = 0;
  uint64_t tenant = 0;  // tenants take turns within a priority; 0: none
  SamplingParams sampling;
  bool ignore_eos = false;   // go on after end-of-generation tokens
  bool skip_special = true;  // control tokens give no text
  bool text = true;          // decode to text; without a tokenizer there is none
  // Ends after such a token, which is in token_ids and not in text. So is an end-of-generation one.
  std::vector<int32_t> stop_token_ids;
  // Ends where any of these strings is complete in the text; it is not in text.
  std::vector<std::string> stop;
  // Prompt tokens in one step at most, below the engine's own. 0: the engine's.
  int32_t prefill_chunk_tokens = 0;
  // From submit: then the request ends with kDeadline, seen within one step. 0: none.
  int64_t deadline_ns = 0;
  // A sample's token k comes k intervals after its first one at the earliest (pace.h); the engine
  // does other work meanwhile. 0: as soon as it can. Of no meaning to a score.
  int64_t token_interval_ns = 0;

  // Raw logits, float32 [rows, vocab_size], in the caller's memory. A score needs one row per
  // prompt token: row i holds the logits after token i. A generation may give max_tokens rows
  // (max_tokens > 0): row i holds the logits that token i was drawn from. The memory must outlive
  // the handle: dropping the handle waits until the engine has let go (a step).
  float* logits = nullptr;
  int64_t logits_rows = 0;  // with samples: of each; sample i begins at row i * logits_rows

  // News goes there, as `tag`. Null: to no queue.
  std::shared_ptr<NewsQueue> news;
  uint64_t tag = 0;
  // Called on a thread of the engine when there is news; never twice at a time for one request. It
  // may submit, cancel, and drop the handle. Must not throw.
  void (*callback)(void* user) = nullptr;
  void* callback_user = nullptr;
};

inline constexpr int32_t kMaxSamples = 64;

// News of one sample of a request since the last next(). The views stay valid as long as the
// handle.
struct Chunk {
  int32_t sample = 0;
  std::span<const int32_t> token_ids;
  // Whole UTF-8 characters. Lags behind token_ids while a character or a stop string may be open.
  std::string_view text;
  std::span<const float> logprobs;  // per token, when asked for
  // [tokens, sampling.logprobs], likeliest first; natural, of the unmodified logits.
  std::span<const int32_t> top_ids;
  std::span<const float> top_logprobs;
  const float* logits = nullptr;                     // [tokens, vocab_size], when asked for
  FinishReason finish_reason = FinishReason::kNone;  // set in the last chunk, and in any after it
  // With finish_reason. kStopString: index in stop. kStopToken: index in stop_token_ids.
  int32_t stop_index = -1;
};

struct RequestStats {
  RequestState state = RequestState::kSubmitted;
  FinishReason finish_reason = FinishReason::kNone;
  int32_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // of all samples
  int32_t prefilled_tokens = 0;  // prompt tokens computed so far, or found in the prefix cache
  int32_t cached_tokens = 0;     // prompt tokens found in the prefix cache at the start
  int32_t preemptions = 0;
  uint64_t seed = 0;       // in use
  int64_t queue_ns = 0;    // submit to first step
  int64_t prefill_ns = 0;  // first step to first token (score: to the end)
  int64_t decode_ns = 0;   // first token to the end, or to now
};

// What Request::take found.
enum class News : uint8_t {
  kChunk,
  kNothing,  // in the time given
  kEnd,      // the end of the last sample was handed out before
  kFailure,  // of a sample, or CLOSED in a forked child
};

class RequestCore;

class Request {
 public:
  explicit Request(std::shared_ptr<RequestCore> core);
  ~Request();  // close()
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Waits until there is news, at most timeout_ns (0: poll, negative: no limit), and takes all that
  // one sample has. A sample's last chunk has a finish_reason; a failed one gives what it had, with
  // finish_reason kNone, and then its failure as the status. TIMEOUT: nothing yet. CLOSED after the
  // end of the last sample was handed out, and in a forked child. When several threads call at
  // once, each token goes to one of them.
  Status next(int64_t timeout_ns, Chunk* chunk);
  // The same, for readers that poll: nothing to hand out is no Status, and allocates nothing.
  News take(int64_t timeout_ns, Chunk* chunk, Status* failure);

  // Waits for the end without taking news: OK when finished or cancelled, TIMEOUT, CLOSED, or the
  // request's failure.
  Status wait(int64_t timeout_ns);

  // Cancels. Waits for the engine where it writes into the caller's logits, and for a callback that
  // runs on another thread and may use this handle meanwhile; none begins afterwards. What was
  // delivered stays readable. Any number of times.
  void close();

  void cancel();  // seen within one step; no effect on a request that has ended

  RequestStats stats() const;
  uint64_t id() const;  // unique within its engine, ascending from 1

 private:
  std::shared_ptr<RequestCore> core_;
};

}  // namespace lmn::engine
