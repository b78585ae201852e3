// SPDX-License-Identifier: Apache-2.0
//
// The engine thread: take what was submitted, end what was cancelled, start what fits, run one step
// (step.cc), announce; again. It sleeps only where nothing runs (and then nothing waits either:
// what waits fits an empty engine, see admission.h).
#include <sched.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/check.h"
#include "engine/engine_impl.h"

namespace lmn::engine {
namespace {

// A sequence as the engine holds it: the reference is to the whole request.
std::shared_ptr<Sequence> hold(const std::shared_ptr<RequestCore>& request, int32_t sample) {
  return {request, &request->sequence(sample)};
}

int base_level(const Sequence& sequence) {
  return priority_level(sequence.request().options().priority);
}

}  // namespace

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
    const int64_t now = parallel::now_ns();
    take_submitted();
    end_cancelled_and_late();
    start_waiting(now);
    if (!running_.empty()) step(now);
    send_announcements();
    if (running_.empty() && waiting_.empty()) signals_->wake.wait(seen, options_.idle_spin_ns);
  }
  // A few instructions of a client, see submit().
  while (submitting_.load(std::memory_order_seq_cst) != 0) sched_yield();
  take_submitted();
  waiting_.extract([](Sequence&) { return true; },
                   [&](std::shared_ptr<Sequence> sequence) {
                     end_waiting(std::move(sequence), FinishReason::kCancelled);
                   });
  for (const auto& sequence : running_) end_sequence(*sequence, {FinishReason::kCancelled, -1, {}});
  running_.clear();
  send_announcements();
}

// A broken invariant (or no memory at all): this engine computes nothing any more, and says so to
// everybody.
void Engine::Impl::break_with(const char* what) noexcept {
  try {
    broken_status_ = error(Code::kInternal, "the engine stopped: %s", what);
  } catch (const std::bad_alloc&) {  // the requests then end with kError and no message
  }
  broken_.store(true, std::memory_order_release);
  closed_.store(true, std::memory_order_seq_cst);
  while (submitting_.load(std::memory_order_seq_cst) != 0) sched_yield();
  take_submitted();
  // Nothing uses pages any more; before any request ends, as everywhere.
  counters_.pages_used.store(0, std::memory_order_relaxed);
  counters_.pages_cached.store(0, std::memory_order_relaxed);
  const auto end = [&](RequestCore& request) {
    if (request.live_sequences == 0) return;
    request.live_sequences = 0;
    counters_.failed.fetch_add(1, std::memory_order_relaxed);
    for (int32_t i = 0; i < request.samples(); ++i) {
      Sequence& sequence = request.sequence(i);
      if (std::exchange(sequence.ended, true)) continue;
      if (i == 0 || request.forked) uncount(sequence);
      Status failure;
      try {
        failure = broken_status_;
      } catch (const std::bad_alloc&) {
      }
      sequence.end(RequestState::kFailed, FinishReason::kError, -1, std::move(failure));
    }
    try {
      announce(request);
    } catch (const std::bad_alloc&) {  // who polls or waits still sees the end
    }
  };
  if (ending_ != nullptr) end(ending_->request());
  waiting_.extract([](Sequence&) { return true; },
                   [&](std::shared_ptr<Sequence> sequence) { end(sequence->request()); });
  for (const auto& sequence : joining_) end(sequence->request());
  for (const auto& sequence : running_) end(sequence->request());
  ending_.reset();
  joining_.clear();
  running_.clear();
  send_announcements();
}

void Engine::Impl::take_submitted() {
  RequestCore* submitted = nullptr;
  while (ring_.pop(&submitted)) {
    const std::shared_ptr<RequestCore> request = std::move(submitted->self);
    for (int32_t i = 0; i < request->samples(); ++i)
      request->sequence(i).set_state(RequestState::kWaiting);
    next_deadline_ns_ = std::min(next_deadline_ns_, request->fixed().deadline_ns);
    counters_.unstarted.fetch_add(1, std::memory_order_relaxed);
    // Its cancel may have been counted, and looked for in vain, while it was in the ring.
    cancelled_in_ring_ |= request->cancel_requested();
    waiting_.push(hold(request, 0), base_level(request->sequence(0)), request->options().tenant,
                  request->fixed().submit_ns);
  }
}

void Engine::Impl::end_cancelled_and_late() {
  const uint64_t cancels = signals_->cancels.load(std::memory_order_acquire);
  const int64_t now = next_deadline_ns_ == parallel::kNoDeadline ? 0 : parallel::now_ns();
  const bool late = now >= next_deadline_ns_;
  if (cancels == seen_cancels_ && !late && !cancelled_in_ring_) return;
  seen_cancels_ = cancels;
  cancelled_in_ring_ = false;

  if (late) next_deadline_ns_ = parallel::kNoDeadline;
  const auto reason = [&](const Sequence& sequence) {
    const RequestCore& request = sequence.request();
    if (request.cancel_requested()) return FinishReason::kCancelled;
    if (late && request.fixed().deadline_ns <= now) return FinishReason::kDeadline;
    if (late) next_deadline_ns_ = std::min(next_deadline_ns_, request.fixed().deadline_ns);
    return FinishReason::kNone;
  };
  waiting_.extract(
      [&](const Sequence& sequence) { return reason(sequence) != FinishReason::kNone; },
      [&](std::shared_ptr<Sequence> sequence) {
        const FinishReason why = reason(*sequence);
        end_waiting(std::move(sequence), why);
      });
  for (const auto& sequence : running_) {
    const FinishReason why = reason(*sequence);
    if (why != FinishReason::kNone) end_sequence(*sequence, {why, -1, {}});
  }
  erase_ended();
}

// In the order of WaitingQueue. One that finds no place, or too few pages, takes them from running
// sequences of a lower level: an answer that matters more does not wait for one that matters less.
//
// One that is due by age and overtakes a higher level takes nothing from anybody: it gets a place
// that is free, and keeps the rank of the level that it overtook for kRaisedSteps steps, so that it
// is not preempted at once. At most one place in kDueShare is taken that way, so what matters more
// keeps the others.
void Engine::Impl::start_waiting(int64_t now) {
  if (waiting_.empty()) return;
  const auto most_raised = std::max<ptrdiff_t>(1, limits_.sequences / kDueShare);
  auto raised = std::count_if(running_.begin(), running_.end(), [](const auto& sequence) {
    return sequence->level > base_level(*sequence);
  });
  bool due = true;
  while (!waiting_.empty()) {
    due = due && raised < most_raised;
    Sequence& candidate = *waiting_.front(now, due);
    int highest = 0;
    waiting_.scan(1, [&](const Sequence& first) {
      highest = base_level(first);
      return true;
    });
    const bool overtakes = base_level(candidate) < highest;
    candidate.level = overtakes ? highest : base_level(candidate);
    candidate.raised_steps = overtakes ? kRaisedSteps : 0;
    const bool full = running_.size() == static_cast<size_t>(limits_.sequences);
    if (!full && take_room(candidate)) {
      raised += overtakes ? 1 : 0;
      start(waiting_.pop(now, due), now);
    } else if (overtakes) {
      due = false;  // the highest level goes on
    } else if (preempting_makes_room(candidate)) {
      preempt_last();
    } else {
      return;
    }
  }
}

// Pages for the known tokens that the sequence does not hold yet.
int64_t Engine::Impl::lacks(const Sequence& sequence) {
  return std::max<int64_t>(
      0, kv_pages(sequence.known_tokens()) - static_cast<int64_t>(sequence.cache.pages.size()));
}

// Room to start: pages for the known tokens, beside what running sequences still need for theirs,
// and one for the growth of each. Who would run alone has room. Gives the sequence the published
// pages that its tokens begin with; at least one token is left to be computed, for its logits.
bool Engine::Impl::take_room(Sequence& sequence) {
  const auto room = [&] {
    return Room{sequence.request().fixed().id, sequence.sample(), running_.size(),
                pages_.changes()};
  };
  if (room() == no_room_) return false;  // nothing has changed since
  Sequence::Cache& cache = sequence.cache;
  if (!sequence.request().is_score()) {
    const std::span<const int32_t> known(sequence.tokens(),
                                         static_cast<size_t>(sequence.known_tokens()));
    cache.published =
        pages_.match(known, (sequence.known_tokens() - 1) / kKvPageTokens, cache.pages);
    cache.computed = cache.written = cache.verified = cache.published * kKvPageTokens;
  }
  int64_t needed = lacks(sequence);
  for (const auto& running : running_) needed += lacks(*running) + 1;
  if (running_.empty() || pages_.available() >= needed) return true;
  release_pages(sequence);
  no_room_ = room();
  return false;
}

// Whether the running sequences of a lower level hold what the candidate lacks: else their work
// would be lost for nothing.
bool Engine::Impl::preempting_makes_room(const Sequence& candidate) const {
  int64_t available = pages_.available(), needed = lacks(candidate);
  size_t staying = 0;
  for (const auto& running : running_) {
    if (running->level < candidate.level) {
      available += static_cast<int64_t>(running->cache.pages.size());
    } else {
      needed += lacks(*running) + 1;
      ++staying;
    }
  }
  return staying < running_.size() && (staying == 0 || available >= needed);
}

void Engine::Impl::start(std::shared_ptr<Sequence> sequence, int64_t now) {
  RequestCore& request = sequence->request();
  const int32_t prompt = request.fixed().prompt_tokens, hit = sequence->cache.computed;
  if (sequence->started) {
    sequence->preempted = false;
    counters_.preempted.fetch_sub(1, std::memory_order_relaxed);
  } else {
    sequence->started = true;
    counters_.unstarted.fetch_sub(1, std::memory_order_relaxed);
    counters_.queued_tokens.fetch_sub(prompt, std::memory_order_relaxed);
    // release, with the acquire in reserve_queue(): who counts this place as free also finds it
    // free in the ring.
    counters_.queued.fetch_sub(1, std::memory_order_release);
    if (!request.is_score()) {
      counters_.prefix_lookup_tokens.fetch_add(prompt, std::memory_order_relaxed);
      counters_.prefix_hit_tokens.fetch_add(hit, std::memory_order_relaxed);
    }
    // `now` may have been taken before this one was submitted.
    const int64_t begin = std::max(now, request.fixed().submit_ns);
    request.mark_started(begin, hit);
    histograms_.queue.add(begin - request.fixed().submit_ns);
  }
  request.mark_prefilled(std::min(prompt, hit));
  join_running(std::move(sequence));
}

void Engine::Impl::join_running(std::shared_ptr<Sequence> sequence) {
  sequence->set_state(RequestState::kRunning);
  counters_.running.fetch_add(1, std::memory_order_relaxed);
  put_in_order(std::move(sequence));
}

void Engine::Impl::put_in_order(std::shared_ptr<Sequence> sequence) {
  const auto behind = std::find_if(running_.begin(), running_.end(), [&](const auto& other) {
    return other->level < sequence->level;
  });
  running_.insert(behind, std::move(sequence));
}

// After a step: a rank that was raised for it has been used up by one.
void Engine::Impl::use_up_ranks() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.raised_steps == 0 || --sequence.raised_steps > 0) continue;
    sequence.level = base_level(sequence);
    std::shared_ptr<Sequence> lowered = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    put_in_order(std::move(lowered));
    --i;  // another one is here now; one that comes again has no steps left
  }
}

// Gives back the pages of the last in precedence. It waits again, first of its level, and computes
// its tokens anew, but for what the prefix cache still has by then.
void Engine::Impl::preempt_last() {
  release_pages(*running_.back());
  const std::shared_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  counters_.running.fetch_sub(1, std::memory_order_relaxed);
  counters_.preemptions.fetch_add(1, std::memory_order_relaxed);
  sequence->request().mark_preempted();
  wait_again(sequence);
}

void Engine::Impl::wait_again(const std::shared_ptr<Sequence>& sequence) {
  const RequestCore& request = sequence->request();
  sequence->set_state(RequestState::kWaiting);
  sequence->preempted = true;
  counters_.preempted.fetch_add(1, std::memory_order_relaxed);
  waiting_.push_front(sequence, base_level(*sequence), request.options().tenant,
                      request.fixed().submit_ns);
}

// The end of one that was just taken out of the queue: held in ending_, so that break_with() finds
// it.
void Engine::Impl::end_waiting(std::shared_ptr<Sequence> sequence, FinishReason reason) {
  ending_ = std::move(sequence);
  end_sequence(*ending_, {reason, -1, {}});
  ending_.reset();
}

// Takes it out of the figures of what waits and runs.
void Engine::Impl::uncount(const Sequence& sequence) {
  if (sequence.state() == RequestState::kRunning) {
    counters_.running.fetch_sub(1, std::memory_order_relaxed);
  } else if (!sequence.started) {
    counters_.unstarted.fetch_sub(1, std::memory_order_relaxed);
    counters_.queued_tokens.fetch_sub(sequence.prompt_tokens(), std::memory_order_relaxed);
    counters_.queued.fetch_sub(1, std::memory_order_release);
  } else if (sequence.preempted) {
    counters_.preempted.fetch_sub(1, std::memory_order_relaxed);
  }
}

// The end of a sequence, waiting or running. Everything is given back and counted before the client
// can see it.
void Engine::Impl::end_sequence(Sequence& sequence, Verdict verdict) {
  if (sequence.ended) return;
  RequestCore& request = sequence.request();
  // Text that was held back for a stop string or a character may still come.
  if (verdict.reason == FinishReason::kCancelled || verdict.reason == FinishReason::kDeadline)
    verdict = flush_text(sequence, std::move(verdict));
  if (sequence.sample() == 0 && !request.forked) {  // then the others have no prompt to follow
    request.forked = true;
    for (int32_t i = 1; i < request.samples(); ++i) {
      request.sequence(i).started = true;
      end_sequence(request.sequence(i), verdict);
    }
  }
  release_pages(sequence);
  uncount(sequence);
  sequence.ended = true;

  RequestState state = RequestState::kFinished;
  if (verdict.reason == FinishReason::kCancelled) state = RequestState::kCancelled;
  if (verdict.reason == FinishReason::kError) state = RequestState::kFailed;
  request.outcome = std::max(request.outcome, state);
  if (--request.live_sequences == 0) {
    (request.outcome == RequestState::kFailed      ? counters_.failed
     : request.outcome == RequestState::kCancelled ? counters_.cancelled
                                                   : counters_.finished)
        .fetch_add(1, std::memory_order_relaxed);
    const int64_t now = parallel::now_ns();
    request.mark_ended(now);
    trace_request(request, now);
  }
  sequence.end(state, verdict.reason, verdict.stop_index, std::move(verdict.failure));
  announce(request);
}

void Engine::Impl::trace_request(const RequestCore& request, int64_t end_ns) {
  if (!trace_.enabled()) return;
  const RequestCore::Fixed& fixed = request.fixed();
  const int64_t start = request.start_ns(), first = request.first_token_ns();
  const auto span = [&](const char* name, int64_t begin, int64_t end, int64_t tokens) {
    trace_.add({name, begin, end, fixed.id, static_cast<int32_t>(tokens), request.samples()});
  };
  span("queue", fixed.submit_ns, start == 0 ? end_ns : start, fixed.prompt_tokens);
  if (start != 0) span("prefill", start, first == 0 ? end_ns : first, fixed.prompt_tokens);
  int64_t generated = 0;
  for (int32_t i = 0; i < request.samples(); ++i)
    generated += request.sequence(i).generated_tokens();
  if (first != 0) span("decode", first, end_ns, generated);
}

void Engine::Impl::erase_ended() {
  std::erase_if(running_, [](const auto& sequence) { return sequence->ended; });
}

// From the last page, which PagePool asks for. Pages whose contents nobody has verified may hold
// NaN or infinity, and kernels weigh what lies behind a sequence's end with zero: they are
// scrubbed.
void Engine::Impl::release_pages(Sequence& sequence) {
  Sequence::Cache& cache = sequence.cache;
  const int64_t clean = cache.verified / kKvPageTokens, written = kv_pages(cache.written);
  for (auto i = static_cast<int64_t>(cache.pages.size()); i-- > 0;) {
    const int32_t page = cache.pages[static_cast<size_t>(i)];
    const bool dirty = cache.written > cache.verified && i >= clean && i < written;
    if (pages_.release(page) && dirty) LMN_CHECK(kv_.scrub(page).ok());
  }
  cache.pages.clear();
  cache.computed = cache.written = cache.verified = cache.published = 0;
  count_pages();
}

void Engine::Impl::count_pages() {
  counters_.pages_used.store(pages_.used(), std::memory_order_relaxed);
  counters_.pages_cached.store(pages_.cached(), std::memory_order_relaxed);
}

// The request has news: its clients hear of it when the step is over, once for all of it.
void Engine::Impl::announce(RequestCore& request) {
  request.advance();
  const RequestOptions& options = request.options();
  if (options.callback != nullptr) {
    notifier_.announce(request.shared_from_this());
    news_for_notifier_ = true;
  } else if (options.news != nullptr && !request.left()) {
    touched_queues_.announce(options.news, request.news());
  }
}

void Engine::Impl::send_announcements() {
  if (std::exchange(news_for_notifier_, false)) notifier_.wake();
  touched_queues_.signal();
}

}  // namespace lmn::engine
