// SPDX-License-Identifier: Apache-2.0
//
// RequestCore: what a request is, shared by its handle (Request) and the engine: what was fixed at
// submit (anybody reads), its sequences, and how a client hears of their news.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/status.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "memory/ledger.h"
#include "parallel/clock.h"
#include "parallel/event_count.h"
#include "parallel/fork_mark.h"
#include "parallel/news_list.h"
#include "text/stop_strings.h"

namespace lmn::engine {

class RequestCore;

// A request's place in the list of cancelled ones, which holds the request by it.
struct Cancellation : parallel::NewsNode<Cancellation> {
  RequestCore* request = nullptr;
};

// What a request needs of its engine, and may outlive it.
class EngineSignals {
 public:
  // Any thread, once for a request, after its flag was set.
  void cancel(const std::shared_ptr<Cancellation>& cancellation);
  // The engine thread: whether there was a cancel since the last call; those are then in
  // `cancelled`.
  bool look_for_cancels();
  // After the engine thread has ended: `cancelled` holds no request any more, and will not.
  void close_cancels();

  const parallel::ForkMark process;
  parallel::EventCount wake;  // the engine thread waits on it when it has nothing to do
  parallel::NewsList<Cancellation> cancelled;  // taken from by the engine thread
  std::atomic<int64_t> live_bytes{0};          // of live requests' buffers; relaxed, a figure
  std::shared_ptr<memory::Ledger> ledger;

 private:
  void drop_cancelled();

  // Grows by two with every cancel, after that is in the list; odd once the list is closed. All
  // changes are acq_rel: whoever cancels before the closing is found by it, and whoever cancels
  // after it finds the list closed, and empties it. Acquire before the list is looked at.
  std::atomic<uint64_t> cancels_{0};
  uint64_t seen_cancels_ = 0;  // of the engine thread
  std::mutex closed_mutex_;    // those who empty the closed list take turns
};

class RequestCore : public std::enable_shared_from_this<RequestCore>,
                    public parallel::NewsNode<RequestCore>,
                    public DueNode<RequestCore> {
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
  explicit RequestCore(Fixed fixed);
  ~RequestCore();
  int64_t buffer_bytes() const { return buffer_bytes_; }
  // The sequences and their buffers. Throws std::bad_alloc.
  void allocate();

  // --- client side -----------------------------------------------------------------------------
  Status next(int64_t timeout_ns, Chunk* chunk);
  News take(int64_t timeout_ns, Chunk* chunk, Status* failure);
  Status wait(int64_t timeout_ns);
  void cancel();
  RequestStats stats() const;
  // The handle goes: no callback runs after this has returned, unless this is called from one.
  void leave();
  bool left() const { return left_.load(std::memory_order_relaxed); }
  const std::shared_ptr<NewsOfRequest>& news() const { return news_; }  // null without a queue

  // --- fixed at submit -------------------------------------------------------------------------
  const Fixed& fixed() const { return fixed_; }
  const RequestOptions& options() const { return fixed_.options; }
  bool is_score() const { return fixed_.options.kind == RequestKind::kScore; }
  int32_t samples() const { return fixed_.options.samples; }
  Sequence& sequence(int32_t sample) const { return sequences_[static_cast<size_t>(sample)]; }
  float* logits_row(int32_t sample, int64_t row) const {
    return fixed_.options.logits +
           (sample * fixed_.options.logits_rows + row) * int64_t{fixed_.vocab_size};
  }

  // --- engine side -----------------------------------------------------------------------------
  // relaxed: set before the request is in EngineSignals::cancelled, which orders it. Who does not
  // see it set finds the request there later.
  bool cancel_requested() const { return cancel_.load(std::memory_order_relaxed); }
  void mark_started(int64_t now, int32_t cached_tokens);
  void mark_first_token(int64_t now) { first_token_ns_.store(now, std::memory_order_relaxed); }
  void mark_prefilled(int32_t tokens) { prefilled_.store(tokens, std::memory_order_relaxed); }
  void mark_preempted() { preemptions_.fetch_add(1, std::memory_order_relaxed); }
  void mark_ended(int64_t now) { end_ns_.store(now, std::memory_order_relaxed); }
  int64_t start_ns() const { return start_ns_.load(std::memory_order_relaxed); }
  int64_t first_token_ns() const { return first_token_ns_.load(std::memory_order_relaxed); }
  // After news of any sequence: wakes who waits in next() or wait().
  void advance() { events_.advance(); }

  // --- notifier threads ------------------------------------------------------------------------
  // Calls the callback, unless the handle is gone or another thread is calling it: that one then
  // calls once more.
  void call_back();

  // Of the engine thread alone.
  std::shared_ptr<RequestCore> self;  // the ring's reference, while in the ring
  int32_t live_sequences = 0;
  bool forked = false;  // the sequences behind the first have their prompt from it, or have ended
  RequestState outcome = RequestState::kFinished;  // the worst of ended sequences

 private:
  Status check_process() const;

  const Fixed fixed_;
  int64_t buffer_bytes_ = 0;
  memory::LedgerEntry ledger_;
  std::unique_ptr<Sequence[]> sequences_;  // [samples]
  std::atomic<uint32_t> next_sample_{
      0};  // where next() begins to look; relaxed, any value is right
  std::atomic<bool> cancel_{false};
  Cancellation cancellation_;
  std::atomic<bool> left_{false};
  std::shared_ptr<NewsOfRequest> news_;
  parallel::EventCount events_;

  // The callback's gate: who is in it.
  std::mutex gate_mutex_;
  bool in_callback_ = false;
  bool call_again_ = false;
  pthread_t caller_{};
  parallel::EventCount gate_;  // advanced when a call is over

  // Relaxed figures for stats(). Times of now_ns(), 0: not yet.
  std::atomic<int32_t> prefilled_{0}, cached_{0}, preemptions_{0};
  std::atomic<int64_t> start_ns_{0}, first_token_ns_{0}, end_ns_{0};
};

}  // namespace lmn::engine
