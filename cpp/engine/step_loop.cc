// SPDX-License-Identifier: Apache-2.0
//
// The engine thread: take what was submitted, end what was cancelled, start what fits, run one
// step, deliver; again. It sleeps only where nothing runs (and then nothing waits either: what
// waits fits an empty engine, see admission.h).
#include <sched.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/check.h"
#include "engine/batch.h"
#include "engine/engine_impl.h"

namespace lmn::engine {

void Engine::Impl::enter(void* self) { static_cast<Impl*>(self)->loop(); }

void Engine::Impl::loop() {
  try {
    run_until_closed();
    return;
  } catch (const std::exception& e) {
    break_with(e.what());
  } catch (...) {
    break_with("unknown exception");
  }
}

void Engine::Impl::run_until_closed() {
  for (;;) {
    // Before everything that it announces: submissions, cancels, closing.
    const uint32_t seen = signals_->wake.value();
    if (closed_.load(std::memory_order_seq_cst)) break;
    take_submitted();
    end_cancelled_and_late();
    start_waiting();
    if (running_.empty()) {
      signals_->wake.wait(seen, options_.idle_spin_ns);
    } else {
      step();
    }
  }
  // A few instructions of a client, see submit().
  while (submitting_.load(std::memory_order_seq_cst) != 0) sched_yield();
  take_submitted();
  waiting_.extract([](RequestCore&) { return true; },
                   [&](std::shared_ptr<RequestCore> request) {
                     end_waiting(*request, FinishReason::kCancelled);
                   });
  for (const auto& request : running_) {
    end_running(*request, flush_text(*request, {FinishReason::kCancelled, -1, {}}));
  }
  running_.clear();
}

// A broken invariant (or no memory at all): this engine computes nothing any more, and says so to
// everybody.
void Engine::Impl::break_with(const char* what) noexcept {
  try {
    broken_status_ = error(Code::kInternal, "the engine stopped: %s", what);
  } catch (const std::bad_alloc&) {  // the requests then end with kError and no message
  }
  closed_.store(true, std::memory_order_seq_cst);
  while (submitting_.load(std::memory_order_seq_cst) != 0) sched_yield();
  take_submitted();
  for (auto* counter : {&counters_.queued, &counters_.waiting, &counters_.running}) {
    counter->store(0, std::memory_order_relaxed);
  }
  const auto end = [&](RequestCore& request) {
    Status failure;
    try {
      failure = broken_status_;
    } catch (const std::bad_alloc&) {
    }
    counters_.failed.fetch_add(1, std::memory_order_relaxed);
    request.end(RequestState::kFailed, FinishReason::kError, -1, std::move(failure));
  };
  waiting_.extract([](RequestCore&) { return true; },
                   [&](std::shared_ptr<RequestCore> request) { end(*request); });
  for (const auto& request : running_) {
    if (!request->sequence.ended) end(*request);
  }
  running_.clear();
}

void Engine::Impl::take_submitted() {
  RequestCore* submitted = nullptr;
  while (ring_.pop(&submitted)) {
    std::shared_ptr<RequestCore> request = std::move(submitted->self);
    request->set_state(RequestState::kWaiting);
    next_deadline_ns_ = std::min(next_deadline_ns_, request->fixed().deadline_ns);
    counters_.waiting.fetch_add(1, std::memory_order_relaxed);
    const int level = priority_level(request->options().priority);
    const int64_t submit_ns = request->fixed().submit_ns;
    waiting_.push(std::move(request), level, 0, submit_ns);
  }
}

void Engine::Impl::end_cancelled_and_late() {
  const uint64_t cancels = signals_->cancels.load(std::memory_order_acquire);
  const int64_t now = next_deadline_ns_ == parallel::kNoDeadline ? 0 : parallel::now_ns();
  const bool late = now >= next_deadline_ns_;
  if (cancels == seen_cancels_ && !late) return;
  seen_cancels_ = cancels;

  if (late) next_deadline_ns_ = parallel::kNoDeadline;
  const auto reason = [&](const RequestCore& request) {
    if (request.cancel_requested()) return FinishReason::kCancelled;
    if (late && request.fixed().deadline_ns <= now) return FinishReason::kDeadline;
    if (late) next_deadline_ns_ = std::min(next_deadline_ns_, request.fixed().deadline_ns);
    return FinishReason::kNone;
  };
  waiting_.extract(
      [&](const RequestCore& request) { return reason(request) != FinishReason::kNone; },
      [&](std::shared_ptr<RequestCore> request) { end_waiting(*request, reason(*request)); });
  for (const auto& request : running_) {
    const FinishReason why = reason(*request);
    if (why != FinishReason::kNone) end_running(*request, flush_text(*request, {why, -1, {}}));
  }
  std::erase_if(running_, [](const auto& request) { return request->sequence.ended; });
}

// In the order of WaitingQueue. A request starts when the pages for its longest outcome are there,
// so nothing that runs can run out of them.
void Engine::Impl::start_waiting() {
  const auto may_start = [this] {
    return !waiting_.empty() && running_.size() < static_cast<size_t>(limits_.sequences);
  };
  if (!may_start()) return;
  for (const int64_t now = parallel::now_ns(); may_start();) {
    if (reserved_pages_ + waiting_.front(now)->sequence.max_pages > kv_.pages().total()) return;
    std::shared_ptr<RequestCore> request = waiting_.pop(now);
    reserved_pages_ += request->sequence.max_pages;
    counters_.waiting.fetch_sub(1, std::memory_order_relaxed);
    counters_.running.fetch_add(1, std::memory_order_relaxed);
    // release, with the acquire in submit(): who counts this place as free also finds it free in
    // the ring.
    counters_.queued.fetch_sub(1, std::memory_order_release);
    request->mark_started(now);
    request->set_state(RequestState::kRunning);
    running_.push_back(std::move(request));
  }
}

void Engine::Impl::step() {
  views_.clear();
  for (const auto& request : running_) {
    const int32_t wanted = request->options().prefill_chunk_tokens;
    const int32_t chunk = wanted > 0 ? std::min(wanted, options_.prefill_chunk_tokens)
                                     : options_.prefill_chunk_tokens;
    views_.push_back(
        {request->known_tokens(), request->sequence.computed, chunk, request->is_score()});
  }
  schedule(views_,
           {limits_.tokens, options_.prefill_chunk_tokens, limits_.sequences, limits_.outputs},
           step_);
  LMN_CHECK(!step_.empty());
  for (const Slice& slice : step_) {
    std::vector<int32_t>& pages = running_[static_cast<size_t>(slice.sequence)]->sequence.pages;
    while (static_cast<int64_t>(pages.size()) < kv_pages(slice.begin + slice.tokens)) {
      pages.push_back(kv_.pages().allocate());
      LMN_CHECK(pages.back() >= 0);  // reserved in start_waiting()
    }
  }
  counters_.pages_used.store(kv_.pages().used(), std::memory_order_relaxed);

  const StepSizes sizes = write_batch(step_, running_, limits_, inputs_);
  const Result<const float*> logits = parts_.runner->run(sizes, *parts_.team);
  counters_.steps.fetch_add(1, std::memory_order_relaxed);
  int64_t row = 0;
  for (const Slice& slice : step_) {
    RequestCore& request = *running_[static_cast<size_t>(slice.sequence)];
    if (logits.ok()) {
      handle(request, slice, *logits + row * limits_.vocab_size);
    } else {
      end_running(request, {FinishReason::kError, -1, logits.status()});
    }
    row += slice.outputs;
  }
  std::erase_if(running_, [](const auto& request) { return request->sequence.ended; });
}

void Engine::Impl::handle(RequestCore& request, const Slice& slice, const float* logits) {
  const int32_t before = std::min(slice.begin, request.prompt_tokens());
  request.sequence.computed = slice.begin + slice.tokens;
  const int32_t prefilled = std::min(request.sequence.computed, request.prompt_tokens());
  request.mark_prefilled(prefilled);
  counters_.prompt_tokens.fetch_add(prefilled - before, std::memory_order_relaxed);
  if (slice.outputs == 0) return;
  Verdict verdict = request.is_score() ? handle_scored(request, slice, logits)
                                       : handle_generated(request, logits);
  if (verdict.reason != FinishReason::kNone) {
    end_running(request, std::move(verdict));
  } else if (!request.is_score()) {
    request.publish();
  }
}

Verdict Engine::Impl::handle_generated(RequestCore& request, const float* logits) {
  const auto vocab = static_cast<size_t>(limits_.vocab_size);
  const Sampler::Input input{{logits, vocab},
                             {request.tokens(), static_cast<size_t>(request.known_tokens())},
                             request.prompt_tokens(),
                             request.fixed().seed};
  const Sampler::Choice choice =
      sampler_.choose(request.options().sampling, input, request.next_top_logprobs());
  if (choice.non_finite >= 0) {
    return {FinishReason::kError, -1,
            error(Code::kCorrupt,
                  "logit %d of generated token %d is %g: the model's weights or its arithmetic are "
                  "broken",
                  choice.non_finite, request.generated_tokens(),
                  static_cast<double>(logits[choice.non_finite]))};
  }
  if (choice.token_id < 0) {
    return {FinishReason::kError, -1,
            error(Code::kInvalidArgument, "logit_bias and penalties leave no token to choose")};
  }
  if (request.options().logits != nullptr) {
    std::copy_n(logits, vocab,
                request.options().logits + static_cast<size_t>(request.generated_tokens()) * vocab);
  }
  counters_.generated_tokens.fetch_add(1, std::memory_order_relaxed);
  return deliver(request, choice.token_id, choice.logprob);
}

Verdict Engine::Impl::handle_scored(RequestCore& request, const Slice& slice, const float* logits) {
  const auto vocab = static_cast<size_t>(limits_.vocab_size);
  for (int32_t i = 0; i < slice.outputs; ++i) {
    const float* row = logits + static_cast<size_t>(i) * vocab;
    const int32_t bad = first_non_finite({row, vocab});
    if (bad >= 0) {
      return {
          FinishReason::kError, -1,
          error(Code::kCorrupt,
                "logit %d after token %d is %g: the model's weights or its arithmetic are broken",
                bad, slice.begin + i, static_cast<double>(row[bad]))};
    }
    std::copy_n(row, vocab,
                request.options().logits + static_cast<size_t>(slice.begin + i) * vocab);
  }
  const bool done = request.sequence.computed == request.prompt_tokens();
  return {done ? FinishReason::kLength : FinishReason::kNone, -1, {}};
}

void Engine::Impl::end_waiting(RequestCore& request, FinishReason reason) {
  counters_.waiting.fetch_sub(1, std::memory_order_relaxed);
  counters_.queued.fetch_sub(1, std::memory_order_release);
  (reason == FinishReason::kCancelled ? counters_.cancelled : counters_.finished)
      .fetch_add(1, std::memory_order_relaxed);
  request.end(
      reason == FinishReason::kCancelled ? RequestState::kCancelled : RequestState::kFinished,
      reason, -1, {});
}

// Everything is given back and counted before the client can see the end.
void Engine::Impl::end_running(RequestCore& request, Verdict verdict) {
  if (request.sequence.ended) return;
  release_pages(request, verdict.reason == FinishReason::kError);
  request.sequence.ended = true;
  counters_.running.fetch_sub(1, std::memory_order_relaxed);
  RequestState state = RequestState::kFinished;
  std::atomic<int64_t>* counter = &counters_.finished;
  if (verdict.reason == FinishReason::kCancelled) {
    state = RequestState::kCancelled;
    counter = &counters_.cancelled;
  } else if (verdict.reason == FinishReason::kError) {
    state = RequestState::kFailed;
    counter = &counters_.failed;
  }
  counter->fetch_add(1, std::memory_order_relaxed);
  request.end(state, verdict.reason, verdict.stop_index, std::move(verdict.failure));
}

void Engine::Impl::release_pages(RequestCore& request, bool scrub) {
  std::vector<int32_t>& pages = request.sequence.pages;
  // From the last, so that the first page comes off the free stack first.
  for (size_t i = pages.size(); i-- > 0;) {
    kv_.pages().release(pages[i]);
    if (scrub) LMN_CHECK(kv_.scrub(pages[i]).ok());
  }
  pages.clear();
  reserved_pages_ -= request.sequence.max_pages;
  counters_.pages_used.store(kv_.pages().used(), std::memory_order_relaxed);
}

}  // namespace lmn::engine
