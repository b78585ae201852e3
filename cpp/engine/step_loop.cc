// SPDX-License-Identifier: Apache-2.0
//
// The engine thread: take what was submitted, end what was cancelled, start what fits, run one step
// (step.cc), announce; again. It sleeps only where no running sequence may go on: nothing runs (and
// then nothing waits either: what waits fits an empty engine, see admission.h), or all that run are
// paced and none is due.
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
    end_cancelled_and_late(now);
    start_waiting(now);
    running_.wake(now);
    // After a step once more around: what has ended has made room.
    const bool go_on = running_.ready();
    if (go_on) step(now);
    send_announcements();
    if (!go_on) sleep(seen, now);
  }
  // A few instructions of a client, see submit().
  while (submitting_.load(std::memory_order_seq_cst) != 0) sched_yield();
  take_submitted();
  waiting_.extract([](Sequence&) { return true; },
                   [&](std::shared_ptr<Sequence> sequence) {
                     end_waiting(std::move(sequence), FinishReason::kCancelled);
                   });
  while (!running_.empty()) {
    end_sequence(*running_.last(), {FinishReason::kCancelled, -1, {}});
    ended_.clear();
  }
  send_announcements();
}

// Until somebody submits or cancels, or the first of what time alone brings. An engine whose next
// work is due by the clock does not spin for it, only for the next request after one. Nor does it
// where an event loop has just been told of news and there is no CPU to spare: the loop, and the
// client behind it, need the one that a spin would hold.
void Engine::Impl::sleep(uint32_t seen, int64_t now) {
  const int64_t until =
      std::min({running_.next_due(), deadlines_.first_due(), waiting_.next_due(now)});
  const bool took = std::exchange(took_, false);
  const bool spins = (took || running_.empty()) && (!told_event_loop_ || has_spare_cpu_);
  signals_->wake.wait(seen, spins ? options_.idle_spin_ns : 0, until);
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
  running_.for_each([&](Sequence& sequence) { end(sequence.request()); });
  ending_.reset();
  joining_.clear();
  running_.clear();
  ended_.clear();
  send_announcements();
}

void Engine::Impl::take_submitted() {
  RequestCore* submitted = nullptr;
  while (ring_.pop(&submitted)) {
    const std::shared_ptr<RequestCore> request = std::move(submitted->self);
    for (int32_t i = 0; i < request->samples(); ++i)
      request->sequence(i).set_state(RequestState::kWaiting);
    const int64_t deadline = request->fixed().deadline_ns;
    if (deadline != parallel::kNoDeadline) deadlines_.push(*request, deadline);
    counters_.unstarted.fetch_add(1, std::memory_order_relaxed);
    waiting_.push(hold(request, 0), base_level(request->sequence(0)), request->options().tenant,
                  request->fixed().submit_ns);
    took_ = true;
    // Its cancel may have been listed, and passed over, while it was in the ring.
    if (request->cancel_requested()) end_request(*request, FinishReason::kCancelled);
  }
}

void Engine::Impl::end_cancelled_and_late(int64_t now) {
  if (signals_->look_for_cancels()) {
    while (const std::shared_ptr<Cancellation> cancelled = signals_->cancelled.take())
      end_request(*cancelled->request, FinishReason::kCancelled);
  }
  while (deadlines_.first_due() <= now) {
    const std::shared_ptr<RequestCore> late = deadlines_.first()->shared_from_this();
    end_request(*late, FinishReason::kDeadline);
  }
  ended_.clear();
}

// One that waits or runs; of one that is in the ring or has ended, nothing. The caller holds it.
void Engine::Impl::end_request(RequestCore& request, FinishReason reason) {
  for (int32_t i = 0; i < request.samples(); ++i) {
    Sequence& sequence = request.sequence(i);
    if (sequence.queued()) {
      end_waiting(waiting_.remove(sequence), reason);
    } else if (sequence.running()) {
      end_sequence(sequence, {reason, -1, {}});
    }
  }
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
  const auto places = static_cast<size_t>(options_.max_sequences);
  const size_t most_raised = std::max<size_t>(1, places / kDueShare);
  bool due = true;
  while (!waiting_.empty()) {
    due = due && raised_.size() < most_raised;
    Sequence& candidate = *waiting_.front(now, due);
    int highest = 0;
    waiting_.scan(1, [&](const Sequence& first) {
      highest = base_level(first);
      return true;
    });
    const bool overtakes = base_level(candidate) < highest;
    candidate.level = overtakes ? highest : base_level(candidate);
    candidate.raised_steps = overtakes ? kRaisedSteps : 0;
    if (running_.size() < places && take_room(candidate)) {
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
  if (running_.empty() || pages_.available() >= sequence.lacking_pages() + running_.needs(0))
    return true;
  release_pages(sequence);
  no_room_ = room();
  return false;
}

// Whether the running sequences of a lower level hold what the candidate lacks: else their work
// would be lost for nothing.
bool Engine::Impl::preempting_makes_room(const Sequence& candidate) const {
  const size_t lower = running_.count_below(candidate.level);
  if (lower == 0 || lower == running_.size()) return lower > 0;
  return pages_.available() + running_.pages_below(candidate.level) >=
         candidate.lacking_pages() + running_.needs(candidate.level);
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
  if (sequence->raised_steps > 0) raised_.push_back(sequence.get());
  running_.add(std::move(sequence));
}

std::shared_ptr<Sequence> Engine::Impl::leave_running(Sequence& sequence) {
  if (std::exchange(sequence.raised_steps, 0) > 0) std::erase(raised_, &sequence);
  return running_.remove(sequence);
}

// After a step: a rank that was raised for it has been used up by one.
void Engine::Impl::use_up_ranks() {
  std::erase_if(raised_, [this](Sequence* sequence) {
    if (--sequence->raised_steps > 0) return false;
    running_.move(*sequence, base_level(*sequence));
    return true;
  });
}

// Gives back the pages of the last in precedence. It waits again, first of its level, and computes
// its tokens anew, but for what the prefix cache still has by then.
void Engine::Impl::preempt_last() {
  release_pages(*running_.last());
  const std::shared_ptr<Sequence> sequence = leave_running(*running_.last());
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
  if (sequence.running()) ended_.push_back(leave_running(sequence));
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
    if (deadlines_.contains(request)) deadlines_.remove(request);
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

// From the last page, which PagePool asks for. Pages whose contents nobody has verified may hold
// NaN or infinity, and kernels weigh what lies behind a sequence's end with zero: they are
// scrubbed.
void Engine::Impl::release_pages(Sequence& sequence) {
  Sequence::Cache& cache = sequence.cache;
  const int64_t clean = cache.verified / kKvPageTokens, written = kv_pages(cache.written);
  for (auto i = static_cast<int64_t>(cache.pages.size()); i-- > 0;) {
    const int32_t page = cache.pages[static_cast<size_t>(i)];
    const bool dirty = cache.written > cache.verified && i >= clean && i < written;
    if (pages_.release(page) && dirty) require_device(kv_.scrub(page));
  }
  cache.pages.clear();
  cache.computed = cache.written = cache.verified = cache.published = 0;
  count_pages();
}

// A device that is closed has told why to those whom it concerned, and nobody reads its memory
// again. Any other failure ends the engine.
void Engine::Impl::require_device(const Status& status) {
  if (status.ok() || status.code() == Code::kClosed) return;
  throw BrokenInvariant(std::string(status.message()));
}

void Engine::Impl::count_pages() {
  counters_.pages_used.store(pages_.used(), std::memory_order_relaxed);
  counters_.pages_cached.store(pages_.cached(), std::memory_order_relaxed);
}

// The request has news: its clients hear of it when the step is over, once for all of it.
void Engine::Impl::announce(RequestCore& request) {
  request.advance();
  const RequestOptions& options = request.options();
  told_event_loop_ = options.news != nullptr;
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
