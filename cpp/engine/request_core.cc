// SPDX-License-Identifier: Apache-2.0
#include "engine/request_core.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace lmn::engine {
namespace {

// A client spins this long before it sleeps: longer would take a CPU from the team that computes
// what it waits for.
constexpr int64_t kClientSpinNs = 5'000;

}  // namespace

void EngineSignals::cancel(const std::shared_ptr<Cancellation>& cancellation) {
  cancelled.announce(cancellation);
  if (cancels_.fetch_add(2, std::memory_order_acq_rel) % 2 != 0) drop_cancelled();
  wake.advance();
}

bool EngineSignals::look_for_cancels() {
  const uint64_t cancels = cancels_.load(std::memory_order_acquire);
  return std::exchange(seen_cancels_, cancels) != cancels;
}

void EngineSignals::close_cancels() {
  cancels_.fetch_or(1, std::memory_order_acq_rel);
  drop_cancelled();
}

void EngineSignals::drop_cancelled() {
  const std::lock_guard<std::mutex> lock(closed_mutex_);
  while (cancelled.take() != nullptr) {
  }
}

RequestCore::RequestCore(Fixed fixed) : fixed_(std::move(fixed)) {
  cancellation_.request = this;
  buffer_bytes_ = static_cast<int64_t>(sizeof(RequestCore)) +
                  static_cast<int64_t>(fixed_.options.prompt.size() * sizeof(int32_t)) +
                  samples() * Sequence::buffer_bytes(*this);
  fixed_.signals->live_bytes.fetch_add(buffer_bytes_, std::memory_order_relaxed);
  ledger_ =
      memory::LedgerEntry(fixed_.signals->ledger.get(), memory::Owner::kRequests, buffer_bytes_);
}

RequestCore::~RequestCore() {
  fixed_.signals->live_bytes.fetch_sub(buffer_bytes_, std::memory_order_relaxed);
}

void RequestCore::allocate() {
  sequences_ = std::make_unique<Sequence[]>(static_cast<size_t>(samples()));
  for (int32_t i = 0; i < samples(); ++i) sequence(i).allocate(*this, i);
  live_sequences = samples();
  if (fixed_.options.news != nullptr) news_ = std::make_shared<NewsOfRequest>(fixed_.options.tag);
}

// --- client side -------------------------------------------------------------------------------

Status RequestCore::check_process() const {
  if (fixed_.signals->process.is_here()) return {};
  return error(Code::kClosed,
               "the request was inherited through fork from process %d, where its engine runs",
               static_cast<int>(fixed_.signals->process.pid()));
}

Status RequestCore::next(int64_t timeout_ns, Chunk* chunk) {
  Status failure;
  switch (take(timeout_ns, chunk, &failure)) {
    case News::kChunk:
      return {};
    case News::kNothing:
      return error(Code::kTimeout, "request %llu has no news yet",
                   static_cast<unsigned long long>(fixed_.id));
    case News::kEnd:
      return error(Code::kClosed, "the last chunk of request %llu was handed out before",
                   static_cast<unsigned long long>(fixed_.id));
    case News::kFailure:
      break;
  }
  return failure;
}

News RequestCore::take(int64_t timeout_ns, Chunk* chunk, Status* failure) {
  *chunk = {};
  *failure = check_process();
  if (!failure->ok()) return News::kFailure;
  const int64_t deadline = parallel::deadline_after(timeout_ns);
  const auto count = static_cast<uint32_t>(samples());
  for (;;) {
    const uint32_t seen = events_.value();
    const uint32_t first = next_sample_.load(std::memory_order_relaxed);
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t sample = (first + i) % count;
      switch (sequences_[sample].take(chunk, failure)) {
        case Sequence::Taken::kChunk:
          next_sample_.store((sample + 1) % count, std::memory_order_relaxed);
          return News::kChunk;
        case Sequence::Taken::kFailure:
          return News::kFailure;
        case Sequence::Taken::kDone:
          ++done;
          break;
        case Sequence::Taken::kNothing:
          break;
      }
    }
    if (done == count) return News::kEnd;
    if (events_.wait(seen, timeout_ns == 0 ? 0 : kClientSpinNs, deadline) == seen)
      return News::kNothing;
  }
}

Status RequestCore::wait(int64_t timeout_ns) {
  LMN_RETURN_IF_ERROR(check_process());
  const int64_t deadline = parallel::deadline_after(timeout_ns);
  for (;;) {
    const uint32_t seen = events_.value();
    int32_t ended = 0;
    const Status* failure = nullptr;
    for (int32_t i = 0; i < samples(); ++i) {
      if (!is_terminal(sequence(i).state())) break;
      ++ended;
      if (failure == nullptr && !sequence(i).failure().ok()) failure = &sequence(i).failure();
    }
    if (ended == samples()) return failure == nullptr ? Status() : *failure;
    if (events_.wait(seen, timeout_ns == 0 ? 0 : kClientSpinNs, deadline) == seen) {
      return error(Code::kTimeout, "request %llu has not ended yet",
                   static_cast<unsigned long long>(fixed_.id));
    }
  }
}

void RequestCore::cancel() {
  if (!fixed_.signals->process.is_here()) return;
  const auto over = [](const Sequence& sequence) { return is_terminal(sequence.state()); };
  if (std::all_of(sequences_.get(), sequences_.get() + samples(), over)) return;
  if (cancel_.exchange(true, std::memory_order_relaxed)) return;
  fixed_.signals->cancel({shared_from_this(), &cancellation_});
}

RequestStats RequestCore::stats() const {
  RequestStats out;
  out.state = sequence(0).state();
  for (int32_t i = 0; i < samples(); ++i) {
    out.generated_tokens += sequence(i).published_tokens();
    if (is_terminal(out.state) && !is_terminal(sequence(i).state()))
      out.state = RequestState::kRunning;
  }
  if (is_terminal(out.state)) out.finish_reason = sequence(0).finish_reason();
  out.prompt_tokens = fixed_.prompt_tokens;
  out.prefilled_tokens = prefilled_.load(std::memory_order_relaxed);
  out.cached_tokens = cached_.load(std::memory_order_relaxed);
  out.preemptions = preemptions_.load(std::memory_order_relaxed);
  out.seed = fixed_.seed;
  const int64_t start = start_ns();
  const int64_t first = first_token_ns();
  const int64_t end = end_ns_.load(std::memory_order_relaxed);
  const int64_t now = end != 0 ? end : parallel::now_ns();
  out.queue_ns = (start != 0 ? start : now) - fixed_.submit_ns;
  if (start != 0) out.prefill_ns = (first != 0 ? first : now) - start;
  if (first != 0) out.decode_ns = now - first;
  return out;
}

void RequestCore::leave() {
  left_.store(true, std::memory_order_relaxed);
  if (news_ != nullptr) news_->left.store(true, std::memory_order_relaxed);
  if (fixed_.options.callback == nullptr || !fixed_.signals->process.is_here()) return;
  for (;;) {
    const uint32_t seen = gate_.value();
    {
      // The mutex orders left_: a caller that enters after this finds it set.
      const std::lock_guard<std::mutex> lock(gate_mutex_);
      if (!in_callback_ || pthread_equal(caller_, pthread_self()) != 0) return;
    }
    gate_.wait(seen, 0);
  }
}

// --- engine side -------------------------------------------------------------------------------

void RequestCore::mark_started(int64_t now, int32_t cached_tokens) {
  start_ns_.store(now, std::memory_order_relaxed);
  cached_.store(cached_tokens, std::memory_order_relaxed);
}

// --- notifier threads --------------------------------------------------------------------------

void RequestCore::call_back() {
  {
    const std::lock_guard<std::mutex> lock(gate_mutex_);
    if (in_callback_) call_again_ = true;
    if (in_callback_ || left()) return;
    in_callback_ = true;
    caller_ = pthread_self();
  }
  for (bool more = true; more;) {
    try {
      fixed_.options.callback(fixed_.options.callback_user);
    } catch (...) {  // forbidden; and no reason to end the process
    }
    const std::lock_guard<std::mutex> lock(gate_mutex_);
    more = std::exchange(call_again_, false) && !left();
    if (!more) in_callback_ = false;
  }
  gate_.advance();
}

}  // namespace lmn::engine
