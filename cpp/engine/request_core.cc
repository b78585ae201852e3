// SPDX-License-Identifier: Apache-2.0
#include "engine/request_core.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "engine/kv_cache.h"
#include "parallel/clock.h"

namespace lmn::engine {
namespace {

// English text has four to five bytes a token, so this is nearly always the only segment.
constexpr int64_t kTextBytesPerToken = 8;
constexpr int64_t kMinTextBytes = 256;

// A client spins this long before it sleeps: longer would take a CPU from the team that computes
// what it waits for.
constexpr int64_t kClientSpinNs = 5'000;

}  // namespace

RequestCore::RequestCore(Fixed fixed) : fixed_(std::move(fixed)), pid_(getpid()) {
  const auto max_tokens = static_cast<size_t>(fixed_.max_tokens);
  const size_t total = static_cast<size_t>(fixed_.prompt_tokens) + max_tokens;
  const int32_t top = std::max(fixed_.options.sampling.logprobs, 0);
  size_t bytes = sizeof(RequestCore) + total * sizeof(int32_t);

  // Not zeroed: pages of a long request are touched when they are needed.
  tokens_.reset(new int32_t[total]);
  std::copy(fixed_.options.prompt.begin(), fixed_.options.prompt.end(), tokens_.get());
  if (fixed_.options.sampling.logprobs >= 0) {
    logprobs_.reset(new float[max_tokens]);
    top_ids_.reset(new int32_t[max_tokens * static_cast<size_t>(top)]);
    top_logprobs_.reset(new float[max_tokens * static_cast<size_t>(top)]);
    bytes +=
        max_tokens * (sizeof(float) + static_cast<size_t>(top) * (sizeof(int32_t) + sizeof(float)));
  }
  sequence.max_pages = static_cast<int32_t>(kv_pages(static_cast<int64_t>(total)));
  sequence.pages.reserve(static_cast<size_t>(sequence.max_pages));
  bytes += sequence.pages.capacity() * sizeof(int32_t);
  if (fixed_.decode) {
    const int64_t text_bytes =
        std::min<int64_t>(kMinTextBytes + kTextBytesPerToken * fixed_.max_tokens, UINT32_MAX / 2);
    if (!text_.reserve(static_cast<uint32_t>(text_bytes))) throw std::bad_alloc();
    bytes += static_cast<size_t>(text_bytes);
    text::DecodeOptions how;
    how.skip_special = fixed_.options.skip_special;
    how.strip_leading_space = false;  // what is generated continues the prompt
    sequence.decoder.emplace(*fixed_.tokenizer, how);
    sequence.matcher = fixed_.stops;
  }
  ledger_ = memory::LedgerEntry(fixed_.signals->ledger.get(), memory::Owner::kRequests,
                                static_cast<int64_t>(bytes));
}

// --- client side -------------------------------------------------------------------------------

Status RequestCore::check_process() const {
  if (getpid() == pid_) return {};
  return error(Code::kClosed,
               "the request was inherited through fork from process %d, where its engine runs",
               static_cast<int>(pid_));
}

Status RequestCore::next(int64_t timeout_ns, Chunk* chunk) {
  LMN_RETURN_IF_ERROR(check_process());
  *chunk = {};
  const int64_t deadline = parallel::deadline_after(timeout_ns);
  for (;;) {
    const uint32_t seen = events_.value();
    // State before progress: when it is terminal, progress is final.
    const bool ended = is_terminal(state_.load(std::memory_order_acquire));
    const uint64_t published = progress_.load(std::memory_order_acquire);
    uint64_t from = taken_.load(std::memory_order_relaxed);
    if (from != published) {
      const auto text = text_.view(static_cast<uint32_t>(from), static_cast<uint32_t>(published));
      const uint64_t to =
          pack(static_cast<uint32_t>(published >> 32), static_cast<uint32_t>(from + text.size()));
      if (!taken_.compare_exchange_strong(from, to, std::memory_order_relaxed)) continue;
      fill_chunk(from, to, chunk);
      if (ended && to == published && failure_.ok()) {
        chunk->finish_reason = finish_reason_;
        chunk->stop_index = stop_index_;
      }
      return {};
    }
    if (ended) {
      if (!failure_.ok()) return failure_;
      chunk->finish_reason = finish_reason_;
      chunk->stop_index = stop_index_;
      return {};
    }
    if (events_.wait(seen, timeout_ns == 0 ? 0 : kClientSpinNs, deadline) == seen) {
      return error(Code::kTimeout, "request %llu has no news yet",
                   static_cast<unsigned long long>(fixed_.id));
    }
  }
}

void RequestCore::fill_chunk(uint64_t from, uint64_t to, Chunk* chunk) const {
  const auto first = static_cast<size_t>(from >> 32), count = static_cast<size_t>(to >> 32) - first;
  chunk->token_ids = {tokens_.get() + fixed_.prompt_tokens + first, count};
  chunk->text = text_.view(static_cast<uint32_t>(from), static_cast<uint32_t>(to));
  if (logprobs_ != nullptr) {
    const auto top = static_cast<size_t>(fixed_.options.sampling.logprobs);
    chunk->logprobs = {logprobs_.get() + first, count};
    chunk->top_ids = {top_ids_.get() + first * top, count * top};
    chunk->top_logprobs = {top_logprobs_.get() + first * top, count * top};
  }
  if (fixed_.options.logits != nullptr && !is_score()) {
    chunk->logits = fixed_.options.logits + first * static_cast<size_t>(fixed_.vocab_size);
  }
}

Status RequestCore::wait(int64_t timeout_ns) {
  LMN_RETURN_IF_ERROR(check_process());
  const int64_t deadline = parallel::deadline_after(timeout_ns);
  for (;;) {
    const uint32_t seen = events_.value();
    if (is_terminal(state_.load(std::memory_order_acquire))) return failure_;
    if (events_.wait(seen, timeout_ns == 0 ? 0 : kClientSpinNs, deadline) == seen) {
      return error(Code::kTimeout, "request %llu has not ended yet",
                   static_cast<unsigned long long>(fixed_.id));
    }
  }
}

void RequestCore::cancel() {
  if (getpid() != pid_ || cancel_.exchange(true, std::memory_order_relaxed)) return;
  fixed_.signals->cancels.fetch_add(1, std::memory_order_release);
  fixed_.signals->wake.advance();
}

RequestStats RequestCore::stats() const {
  RequestStats out;
  out.state = state_.load(std::memory_order_acquire);
  if (is_terminal(out.state)) out.finish_reason = finish_reason_;
  out.prompt_tokens = fixed_.prompt_tokens;
  out.generated_tokens = static_cast<int32_t>(progress_.load(std::memory_order_relaxed) >> 32);
  out.prefilled_tokens = prefilled_.load(std::memory_order_relaxed);
  out.seed = fixed_.seed;
  const int64_t start = start_ns_.load(std::memory_order_relaxed);
  const int64_t first = first_token_ns_.load(std::memory_order_relaxed);
  const int64_t end = end_ns_.load(std::memory_order_relaxed);
  const int64_t now = end != 0 ? end : parallel::now_ns();
  out.queue_ns = (start != 0 ? start : now) - fixed_.submit_ns;
  if (start != 0) out.prefill_ns = (first != 0 ? first : now) - start;
  if (first != 0) out.decode_ns = now - first;
  return out;
}

// --- engine side -------------------------------------------------------------------------------

TopLogprobs RequestCore::next_top_logprobs() {
  if (top_ids_ == nullptr) return {};
  const auto top = static_cast<size_t>(fixed_.options.sampling.logprobs);
  const size_t first = static_cast<size_t>(generated_) * top;
  return {{top_ids_.get() + first, top}, {top_logprobs_.get() + first, top}};
}

void RequestCore::append_token(int32_t token, float logprob) {
  LMN_CHECK(generated_ < fixed_.max_tokens);
  tokens_[static_cast<size_t>(known_tokens())] = token;
  if (logprobs_ != nullptr) logprobs_[static_cast<size_t>(generated_)] = logprob;
  if (generated_ == 0) first_token_ns_.store(parallel::now_ns(), std::memory_order_relaxed);
  ++generated_;
}

void RequestCore::publish() {
  progress_.store(pack(static_cast<uint32_t>(generated_), text_.size()), std::memory_order_release);
  events_.advance();
}

void RequestCore::end(RequestState state, FinishReason reason, int32_t stop_index, Status failure) {
  finish_reason_ = reason;
  stop_index_ = stop_index;
  failure_ = std::move(failure);
  end_ns_.store(parallel::now_ns(), std::memory_order_relaxed);
  progress_.store(pack(static_cast<uint32_t>(generated_), text_.size()), std::memory_order_release);
  // Pairs with the acquire loads in next, wait and stats.
  state_.store(state, std::memory_order_release);
  events_.advance();
}

}  // namespace lmn::engine
