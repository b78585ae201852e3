// SPDX-License-Identifier: Apache-2.0
//
// RequestCore: what a request is, shared by its handle (Request) and the engine. Its members fall
// into three groups, by who may touch them: fixed at submit (anybody reads), delivered (the engine
// thread writes, then publishes; clients read what is published), and sequence (the engine thread
// alone). All memory is allocated at submit, on the submitting thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/status.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/text_buffer.h"
#include "engine/waiting_queue.h"
#include "memory/ledger.h"
#include "parallel/event_count.h"
#include "text/stop_strings.h"
#include "text/stream_decoder.h"

namespace lmn::engine {

// What a request needs of its engine, and may outlive it.
struct EngineSignals {
  parallel::EventCount wake;  // the engine thread waits on it when it has nothing to do
  // Grows with every cancel: "look through the waiting requests". Release after a request's flag is
  // set, acquire before the flags are looked at.
  std::atomic<uint64_t> cancels{0};
  std::shared_ptr<memory::Ledger> ledger;
};

class RequestCore : public WaitingNode<RequestCore> {
 public:
  struct Fixed {
    uint64_t id = 0;
    RequestOptions options;
    int32_t prompt_tokens = 0;
    int32_t max_tokens = 0;  // resolved: never 0 for a generation
    int32_t vocab_size = 0;
    uint64_t seed = 0;
    int64_t submit_ns = 0;
    int64_t deadline_ns = 0;  // on the clock of now_ns(); kNoDeadline: none
    // May be null. Used by the engine thread, which ends before it.
    const text::Tokenizer* tokenizer = nullptr;
    bool decode = false;  // tokens are decoded: for the client's text, or for stop strings
    text::StopMatcher stops;
    std::shared_ptr<EngineSignals> signals;
  };
  // Throws std::bad_alloc.
  explicit RequestCore(Fixed fixed);

  // --- client side -----------------------------------------------------------------------------
  Status next(int64_t timeout_ns, Chunk* chunk);
  Status wait(int64_t timeout_ns);
  void cancel();
  RequestStats stats() const;

  // --- fixed at submit -------------------------------------------------------------------------
  const Fixed& fixed() const { return fixed_; }
  const RequestOptions& options() const { return fixed_.options; }
  bool is_score() const { return fixed_.options.kind == RequestKind::kScore; }

  // --- engine side -----------------------------------------------------------------------------
  // relaxed: ordered by EngineSignals::cancels where that matters, and looked at again each step
  // where it does not.
  bool cancel_requested() const { return cancel_.load(std::memory_order_relaxed); }
  void set_state(RequestState state) { state_.store(state, std::memory_order_release); }
  void mark_started(int64_t now) { start_ns_.store(now, std::memory_order_relaxed); }
  void mark_prefilled(int32_t tokens) { prefilled_.store(tokens, std::memory_order_relaxed); }
  // Appends a generated token with what belongs to it; visible to clients after publish().
  void append_token(int32_t token, float logprob);
  TopLogprobs next_top_logprobs();  // room for those of the token appended next
  bool append_text(std::string_view piece) { return text_.append(piece); }
  void publish();
  // The last word. Publishes, and after that the engine touches nothing of this request that a
  // client can see.
  void end(RequestState state, FinishReason reason, int32_t stop_index, Status failure);

  // Prompt and generated so far.
  int32_t known_tokens() const { return prompt_tokens() + generated_; }
  int32_t prompt_tokens() const { return fixed_.prompt_tokens; }
  int32_t generated_tokens() const { return generated_; }
  const int32_t* tokens() const { return tokens_.get(); }  // [known_tokens]

  // Of the engine thread alone.
  struct Sequence {
    int32_t computed = 0;        // leading tokens whose keys and values are in the cache
    std::vector<int32_t> pages;  // the block table; capacity max_pages
    int32_t max_pages = 0;       // reserved for it while it runs
    bool ended = false;          // still in the list of running requests, until the step is over
    std::optional<text::StreamDecoder> decoder;
    text::StopMatcher matcher;
  };
  Sequence sequence;
  std::shared_ptr<RequestCore> self;  // the ring's reference, while in the ring

 private:
  static constexpr uint64_t pack(uint32_t tokens, uint32_t text) {
    return uint64_t{tokens} << 32 | text;
  }
  Status check_process() const;
  void fill_chunk(uint64_t from, uint64_t to, Chunk* chunk) const;

  const Fixed fixed_;
  const pid_t pid_;
  memory::LedgerEntry ledger_;

  // Buffers, written by the engine thread ahead of what progress_ says, never rewritten.
  std::unique_ptr<int32_t[]> tokens_;   // [prompt_tokens + max_tokens]
  std::unique_ptr<float[]> logprobs_;   // [max_tokens], when asked for
  std::unique_ptr<int32_t[]> top_ids_;  // [max_tokens, sampling.logprobs]
  std::unique_ptr<float[]> top_logprobs_;
  TextBuffer text_;
  int32_t generated_ = 0;  // engine thread
  // Written before state_ becomes terminal (release), read after it was seen terminal (acquire).
  FinishReason finish_reason_ = FinishReason::kNone;
  int32_t stop_index_ = -1;
  Status failure_;

  // generated tokens << 32 | bytes of text. Stored by publish() (release), loaded by next()
  // (acquire): what lies in the buffers below these counts is visible to who has read them.
  std::atomic<uint64_t> progress_{0};
  // What next() has handed out. Clients claim by compare-exchange; it guards no data (relaxed).
  std::atomic<uint64_t> taken_{0};
  std::atomic<RequestState> state_{RequestState::kSubmitted};
  std::atomic<bool> cancel_{false};
  parallel::EventCount events_;  // after each publish() and end()

  // Relaxed figures for stats(). Times of now_ns(), 0: not yet.
  std::atomic<int32_t> prefilled_{0};
  std::atomic<int64_t> start_ns_{0}, first_token_ns_{0}, end_ns_{0};
};

}  // namespace lmn::engine
