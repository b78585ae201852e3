// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/check.h"
#include "engine/kv_cache.h"
#include "engine/request_core.h"

namespace lmn::engine {
namespace {

// English text has four to five bytes a token, so this is nearly always the only segment.
constexpr int64_t kTextBytesPerToken = 8;
constexpr int64_t kMinTextBytes = 256;

int64_t text_bytes(const RequestCore::Fixed& fixed) {
  if (!fixed.decode) return 0;
  return std::min<int64_t>(kMinTextBytes + kTextBytesPerToken * fixed.max_tokens, UINT32_MAX / 2);
}
int64_t top_logprobs(const RequestCore::Fixed& fixed) {
  return std::max(fixed.options.sampling.logprobs, 0);
}
int64_t total_tokens(const RequestCore::Fixed& fixed) {
  return int64_t{fixed.prompt_tokens} + fixed.max_tokens;
}

}  // namespace

int64_t Sequence::buffer_bytes(const RequestCore& request) {
  const RequestCore::Fixed& fixed = request.fixed();
  int64_t bytes = static_cast<int64_t>(sizeof(Sequence)) +
                  (total_tokens(fixed) + kv_pages(total_tokens(fixed))) * 4 + text_bytes(fixed);
  if (fixed.options.sampling.logprobs >= 0)
    bytes += fixed.max_tokens * (1 + 2 * top_logprobs(fixed)) * 4;
  return bytes;
}

void Sequence::allocate(RequestCore& request, int32_t sample) {
  const RequestCore::Fixed& fixed = request.fixed();
  request_ = &request;
  sample_ = sample;
  prompt_tokens_ = fixed.prompt_tokens;
  seed_ = fixed.seed + static_cast<uint64_t>(sample);
  level = priority_level(fixed.options.priority);

  const auto max_tokens = static_cast<size_t>(fixed.max_tokens);
  // Not zeroed: pages of a long request are touched when they are needed.
  tokens_.reset(new int32_t[static_cast<size_t>(total_tokens(fixed))]);
  std::copy(fixed.options.prompt.begin(), fixed.options.prompt.end(), tokens_.get());
  if (fixed.options.sampling.logprobs >= 0) {
    const auto top = static_cast<size_t>(top_logprobs(fixed));
    logprobs_.reset(new float[max_tokens]);
    top_ids_.reset(new int32_t[max_tokens * top]);
    top_logprobs_.reset(new float[max_tokens * top]);
  }
  cache.pages.reserve(static_cast<size_t>(kv_pages(total_tokens(fixed))));
  if (fixed.decode) {
    if (!text_.reserve(static_cast<uint32_t>(text_bytes(fixed)))) throw std::bad_alloc();
    text::DecodeOptions how;
    how.skip_special = fixed.options.skip_special;
    how.strip_leading_space = false;  // what is generated continues the prompt
    decoder.emplace(*fixed.tokenizer, how);
    matcher = fixed.stops;
  }
}

// --- client side -------------------------------------------------------------------------------

Sequence::Taken Sequence::take(Chunk* chunk, Status* failure) {
  for (;;) {
    // State before progress: when it is terminal, progress is final. What was taken before what
    // was published: another reader may take between the two loads, and then our claim fails; the
    // other way round it would succeed, and hand out its tokens backwards.
    const bool over = is_terminal(state_.load(std::memory_order_acquire));
    uint64_t from = taken_.load(std::memory_order_acquire);
    const uint64_t published = progress_.load(std::memory_order_acquire);
    if (from != published) {
      const auto text = text_.view(static_cast<uint32_t>(from), static_cast<uint32_t>(published));
      const uint64_t to =
          pack(static_cast<uint32_t>(published >> 32), static_cast<uint32_t>(from + text.size()));
      if (!taken_.compare_exchange_strong(from, to, std::memory_order_release,
                                          std::memory_order_relaxed))
        continue;
      fill_chunk(from, to, chunk);
      if (over && to == published && failure_.ok() &&
          !end_taken_.exchange(true, std::memory_order_relaxed))
        put_end(chunk);
      return Taken::kChunk;
    }
    if (!over) return Taken::kNothing;
    if (end_taken_.exchange(true, std::memory_order_relaxed)) return Taken::kDone;
    if (!failure_.ok()) {
      *failure = failure_;
      return Taken::kFailure;
    }
    chunk->sample = sample_;
    put_end(chunk);
    return Taken::kChunk;
  }
}

void Sequence::put_end(Chunk* chunk) const {
  chunk->finish_reason = finish_reason_;
  chunk->stop_index = stop_index_;
}

void Sequence::fill_chunk(uint64_t from, uint64_t to, Chunk* chunk) const {
  const auto first = static_cast<size_t>(from >> 32), count = static_cast<size_t>(to >> 32) - first;
  chunk->sample = sample_;
  chunk->token_ids = {tokens_.get() + prompt_tokens_ + first, count};
  chunk->text = text_.view(static_cast<uint32_t>(from), static_cast<uint32_t>(to));
  const RequestOptions& options = request_->options();
  if (logprobs_ != nullptr) {
    const auto top = static_cast<size_t>(options.sampling.logprobs);
    chunk->logprobs = {logprobs_.get() + first, count};
    chunk->top_ids = {top_ids_.get() + first * top, count * top};
    chunk->top_logprobs = {top_logprobs_.get() + first * top, count * top};
  }
  if (options.logits != nullptr && !request_->is_score()) {
    chunk->logits = request_->logits_row(sample_, static_cast<int64_t>(first));
  }
}

// --- engine side -------------------------------------------------------------------------------

int64_t Sequence::lacking_pages() const {
  return std::max<int64_t>(0, kv_pages(known_tokens()) - static_cast<int64_t>(cache.pages.size()));
}

TopLogprobs Sequence::next_top_logprobs() {
  if (top_ids_ == nullptr) return {};
  const auto top = static_cast<size_t>(request_->options().sampling.logprobs);
  const size_t first = static_cast<size_t>(generated_) * top;
  return {{top_ids_.get() + first, top}, {top_logprobs_.get() + first, top}};
}

float* Sequence::next_logits() {
  if (request_->options().logits == nullptr) return nullptr;
  return request_->logits_row(sample_, generated_);
}

void Sequence::append_token(int32_t token, float logprob) {
  LMN_CHECK(generated_ < request_->fixed().max_tokens);
  tokens_[static_cast<size_t>(known_tokens())] = token;
  if (logprobs_ != nullptr) logprobs_[static_cast<size_t>(generated_)] = logprob;
  ++generated_;
}

void Sequence::publish() {
  progress_.store(pack(static_cast<uint32_t>(generated_), text_.size()), std::memory_order_release);
}

void Sequence::end(RequestState state, FinishReason reason, int32_t stop_index, Status failure) {
  finish_reason_ = reason;
  stop_index_ = stop_index;
  failure_ = std::move(failure);
  publish();
  // Pairs with the acquire loads in take() and state().
  state_.store(state, std::memory_order_release);
}

}  // namespace lmn::engine
