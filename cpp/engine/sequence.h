// SPDX-License-Identifier: Apache-2.0
//
// Sequence: one answer to a request's prompt (a request has as many as it has samples), or a score.
// Its members fall into two groups, by who may touch them: delivered (the engine thread writes,
// then publishes; clients read what is published), and those of the engine thread alone. All memory
// is allocated at submit, on the submitting thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/status.h"
#include "engine/due_heap.h"
#include "engine/request.h"
#include "engine/running_set.h"
#include "engine/sampler.h"
#include "engine/text_buffer.h"
#include "engine/waiting_queue.h"
#include "text/stop_strings.h"
#include "text/stream_decoder.h"

namespace lmn::engine {

class RequestCore;

class Sequence : public WaitingNode<Sequence>, public RunningNode, public DueNode<Sequence> {
 public:
  // What the buffers of a sequence of that request take.
  static int64_t buffer_bytes(const RequestCore& request);
  // Throws std::bad_alloc.
  void allocate(RequestCore& request, int32_t sample);

  RequestCore& request() const { return *request_; }
  int32_t sample() const { return sample_; }
  uint64_t seed() const { return seed_; }

  // --- client side -----------------------------------------------------------------------------
  enum class Taken { kNothing, kChunk, kFailure, kDone };
  // News since the last take, all of it. kFailure fills `failure`, kDone: the end was handed out.
  Taken take(Chunk* chunk, Status* failure);
  RequestState state() const { return state_.load(std::memory_order_acquire); }
  // After state() was terminal.
  FinishReason finish_reason() const { return finish_reason_; }
  const Status& failure() const { return failure_; }
  int32_t published_tokens() const {
    return static_cast<int32_t>(progress_.load(std::memory_order_relaxed) >> 32);
  }

  // --- engine side -----------------------------------------------------------------------------
  void set_state(RequestState state) { state_.store(state, std::memory_order_release); }
  // Appends a generated token with what belongs to it; visible to clients after publish().
  void append_token(int32_t token, float logprob);
  TopLogprobs next_top_logprobs();  // room for those of the token appended next
  float* next_logits();             // the caller's row for it, or null
  bool append_text(std::string_view piece) { return text_.append(piece); }
  void publish();
  // The last word. Publishes, and after that the engine touches nothing of this sequence that a
  // client can see.
  void end(RequestState state, FinishReason reason, int32_t stop_index, Status failure);

  int32_t prompt_tokens() const { return prompt_tokens_; }
  int32_t generated_tokens() const { return generated_; }
  int32_t known_tokens() const { return prompt_tokens_ + generated_; }
  const int32_t* tokens() const { return tokens_.get(); }  // [known_tokens]

  // Of the engine thread alone.
  struct Cache {
    int32_t computed = 0;        // leading tokens whose keys and values are in the cache
    int32_t written = 0;         // as `computed`, and those of a step that failed
    int32_t verified = 0;        // of those, known to be finite: finite logits came of them
    int32_t published = 0;       // leading pages that are published in the PagePool
    std::vector<int32_t> pages;  // the block table; its capacity is enough for the longest answer
  };
  Cache cache;
  // For the known tokens, beyond those that it holds.
  int64_t lacking_pages() const;
  int level = 0;             // of priority; raised while it runs when it was due by age
  int32_t raised_steps = 0;  // so many more steps `level` stays raised
  bool started = false;      // has run before
  bool preempted = false;    // waits again
  bool ended = false;
  int64_t news_ns = 0;  // when the last token was delivered
  // Of a paced one: when its next token is due, and when that is looked at (pace.h). 0: at once.
  int64_t due_ns = 0, wake_ns = 0;
  std::optional<text::StreamDecoder> decoder;
  text::StopMatcher matcher;

 private:
  static constexpr uint64_t pack(uint32_t tokens, uint32_t text) {
    return uint64_t{tokens} << 32 | text;
  }
  void fill_chunk(uint64_t from, uint64_t to, Chunk* chunk) const;
  void put_end(Chunk* chunk) const;

  RequestCore* request_ = nullptr;
  int32_t sample_ = 0;
  int32_t prompt_tokens_ = 0;
  uint64_t seed_ = 0;

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

  // generated tokens << 32 | bytes of text. Stored by publish() (release), loaded by take()
  // (acquire): what lies in the buffers below these counts is visible to who has read them.
  std::atomic<uint64_t> progress_{0};
  // What take() has handed out. Clients claim by compare-and-swap (release; a failed one is relaxed
  // and begins anew): who loads it (acquire) then finds progress_ at least as far.
  std::atomic<uint64_t> taken_{0};
  std::atomic<bool> end_taken_{false};  // claimed by exchange; guards no data (relaxed)
  std::atomic<RequestState> state_{RequestState::kSubmitted};
};

}  // namespace lmn::engine
