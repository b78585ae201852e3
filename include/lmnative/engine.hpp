// SPDX-License-Identifier: Apache-2.0
//
// Part of lmnative.hpp, which says the rules: engines and their requests.
#ifndef LMNATIVE_ENGINE_HPP_
#define LMNATIVE_ENGINE_HPP_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmnative/model.hpp"

namespace lmnative {

// A prompt: text, or token ids used as they are. A view: what it was made from lives until submit
// returns.
class Prompt {
 public:
  Prompt(std::string_view text) : text_(text) {}                      // NOLINT: implicit by design
  Prompt(const char* text) : text_(text) {}                           // NOLINT
  Prompt(const std::string& text) : text_(text) {}                    // NOLINT
  Prompt(std::span<const int32_t> ids) : ids_(ids), is_ids_(true) {}  // NOLINT
  Prompt(const std::vector<int32_t>& ids) : Prompt(std::span<const int32_t>(ids)) {}  // NOLINT

  void put_into(lmn_request_options* out) const {
    if (is_ids_) {
      static constexpr int32_t kNone =
          0;  // an empty vector may have no data(), and NULL would mean "no ids given"
      out->prompt_ids = ids_.empty() ? &kNone : ids_.data();
      out->prompt_id_count = ids_.size();
    } else {
      out->prompt = text_.empty() ? "" : text_.data();
      out->prompt_bytes = text_.size();
    }
  }

 private:
  std::string_view text_;
  std::span<const int32_t> ids_;
  bool is_ids_ = false;
};

// The fields of lmn_request_options, with their meanings and defaults.
struct RequestOptions {
  uint32_t max_tokens = 0;  // 0: as many as context and KV cache hold
  float temperature = 0;    // 0: greedy
  int32_t top_k = 0;
  float top_p = 0;
  float min_p = 0;
  float repetition_penalty = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint32_t penalty_last_n = 0;
  std::optional<uint64_t> seed{};  // nothing: drawn
  bool logprobs = false;           // chunks carry the log-probability of each token
  uint32_t top_logprobs = 0;       // likeliest alternatives per token; above 0 implies logprobs
  bool logits = false;             // chunks carry the logits of each token
  bool ignore_eos = false;
  bool parse_special = false;  // control tokens in the prompt's text are parsed
  bool keep_special = false;   // control tokens appear in the text of chunks
  std::optional<bool> add_bos{};
  int32_t priority = 0;
  std::vector<lmn_token_bias> logit_bias{};
  std::vector<std::string> stop{};
  std::vector<int32_t> stop_token_ids{};
  std::chrono::nanoseconds deadline{0};        // from submit; 0: none
  std::chrono::nanoseconds token_interval{0};  // from token to token at least; 0: at once
  uint64_t tag = 0;
  uint64_t tenant = 0;  // tenants take turns; 0: none
  uint32_t n = 1;       // answers to the prompt ("samples"); sample i has seed + i
  bool notify = false;  // news goes to Engine::drain, as the tag
};

// News of one sample of a request. The views are valid as long as the request.
struct Chunk {
  std::span<const int32_t> token_ids;
  std::string_view text;
  std::span<const float> logprobs;      // [tokens]; empty unless asked for
  std::span<const int32_t> top_ids;     // [tokens, top_count], likeliest first
  std::span<const float> top_logprobs;  // [tokens, top_count]
  const float* logits = nullptr;        // [tokens, vocab]; null unless asked for
  uint32_t top_count = 0;
  uint32_t finish_reason = LMN_FINISH_NONE;  // set in the sample's last chunk
  uint32_t sample = 0;                       // 0 to n - 1
  // Of callbacks, with LMN_FINISH_ERROR: why a sample failed. It has no tokens then.
  const Error* error = nullptr;
};

// All that a request produced, or one sample of it.
struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;      // when asked for
  std::vector<int32_t> top_ids;     // [tokens, top_count]
  std::vector<float> top_logprobs;  // [tokens, top_count]
  uint32_t finish_reason = LMN_FINISH_NONE;
  lmn_request_stats stats{};            // of the request
  std::vector<Answer> other_samples{};  // samples 1 to n - 1, without stats
};

// Sees each chunk as the answer grows; false cancels the request.
using ChunkFunction = std::function<bool(const Chunk&)>;

namespace detail {

// lmn_request_next; nothing at LMN_TIMEOUT.
inline std::optional<Chunk> take(lmn_request* request, int64_t timeout_ns) {
  auto raw = sized<lmn_chunk>();
  const lmn_status status = invoke_except(LMN_TIMEOUT, [&](lmn_error** err) {
    return lmn_request_next(request, timeout_ns, &raw, err);
  });
  if (status == LMN_TIMEOUT) return std::nullopt;
  const size_t tokens = static_cast<size_t>(raw.token_count);
  Chunk chunk;
  chunk.token_ids = {raw.token_ids, tokens};
  chunk.text = {raw.text, static_cast<size_t>(raw.text_bytes)};
  if (raw.logprobs != nullptr) chunk.logprobs = {raw.logprobs, tokens};
  if (raw.top_ids != nullptr) {
    chunk.top_ids = {raw.top_ids, tokens * raw.top_logprob_count};
    chunk.top_logprobs = {raw.top_logprobs, tokens * raw.top_logprob_count};
  }
  chunk.logits = raw.logits;
  chunk.top_count = raw.top_logprob_count;
  chunk.finish_reason = raw.finish_reason;
  chunk.sample = raw.sample;
  return chunk;
}

inline lmn_request_stats stats_of(const lmn_request* request) {
  auto out = sized<lmn_request_stats>();
  invoke([&](lmn_error** err) { return lmn_request_stats_get(request, &out, err); });
  return out;
}

// Puts the chunks of all samples together.
class Collector {
 public:
  explicit Collector(uint32_t samples) { answer_.other_samples.resize(samples - 1); }

  void add(const Chunk& chunk) {
    Answer& to = chunk.sample == 0 ? answer_ : answer_.other_samples[chunk.sample - 1];
    append(&to.token_ids, chunk.token_ids);
    append(&to.logprobs, chunk.logprobs);
    append(&to.top_ids, chunk.top_ids);
    append(&to.top_logprobs, chunk.top_logprobs);
    to.text += chunk.text;
    to.finish_reason = chunk.finish_reason;
  }
  Answer finish(const lmn_request_stats& stats) {
    answer_.stats = stats;
    return std::move(answer_);
  }

 private:
  template <typename T>
  static void append(std::vector<T>* to, std::span<const T> from) {
    to->insert(to->end(), from.begin(), from.end());
  }
  Answer answer_;
};

// What a callback needs. It lives as long as its request and any call that runs.
struct Listener : std::enable_shared_from_this<Listener> {
  Listener(ChunkFunction function, uint32_t samples)
      : on_chunk(std::move(function)), samples_left(samples) {}

  ChunkFunction on_chunk;
  uint32_t samples_left;            // of the running call
  std::atomic<bool> closed{false};  // the handle is being destroyed, perhaps by on_chunk

  static void call(void* user, lmn_request* request) noexcept {
    const std::shared_ptr<Listener> self = static_cast<Listener*>(user)->shared_from_this();
    while (self->samples_left > 0 && !self->closed.load(std::memory_order_relaxed)) {
      if (!self->take_one(request)) return;
    }
    const std::lock_guard lock(self->mutex_);
    self->ended_ = true;
    self->end_.notify_all();
  }
  // For on_chunk to have seen everything. Negative: without end.
  bool wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return ended_; };
    if (timeout.count() >= 0) return end_.wait_for(lock, timeout, ended);
    end_.wait(lock, ended);
    return true;
  }

 private:
  // False when there is no more for now.
  bool take_one(lmn_request* request) noexcept {
    try {
      const std::optional<Chunk> chunk = take(request, 0);
      if (!chunk) return false;
      return hand_out(request, *chunk);
    } catch (const Error& error) {  // take's: the failure of a sample
      Chunk failure;
      failure.finish_reason = LMN_FINISH_ERROR;
      failure.error = &error;
      return hand_out(request, failure);
    } catch (...) {  // no memory for the Error: the request can only be given up
      samples_left = 0;
      return true;
    }
  }
  // What on_chunk throws cancels.
  bool hand_out(lmn_request* request, const Chunk& chunk) noexcept {
    if (chunk.finish_reason != LMN_FINISH_NONE) --samples_left;
    bool go_on = false;
    try {
      go_on = on_chunk(chunk);
    } catch (...) {
    }
    if (closed.load(std::memory_order_relaxed)) return false;
    if (!go_on) (void)lmn_request_cancel(request, nullptr);
    return true;
  }

  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
};

// The answer of generate_async on its way: it owns the request, and itself, until the end.
struct Pending {
  explicit Pending(uint32_t samples) : collector(samples), samples_left(samples) {}

  std::promise<Answer> promise;
  Collector collector;
  uint32_t samples_left;
  std::exception_ptr failure;

  static void call(void* user, lmn_request* request) noexcept {
    auto* self = static_cast<Pending*>(user);
    while (self->samples_left > 0) {
      if (!self->take_one(request)) return;
    }
    self->finish(request);
    delete self;
  }

 private:
  bool take_one(lmn_request* request) noexcept {
    std::optional<Chunk> chunk;
    try {
      chunk = take(request, 0);
      if (!chunk) return false;
    } catch (...) {  // the failure of a sample
      failure = std::current_exception();
      --samples_left;
      return true;
    }
    if (chunk->finish_reason != LMN_FINISH_NONE) --samples_left;
    try {
      collector.add(*chunk);
    } catch (...) {  // no memory
      failure = std::current_exception();
      (void)lmn_request_cancel(request, nullptr);
    }
    return true;
  }

  // The request is gone before the future is ready.
  void finish(lmn_request* request) noexcept {
    auto stats = sized<lmn_request_stats>();
    (void)lmn_request_stats_get(request, &stats, nullptr);
    lmn_request_destroy(request);
    try {
      if (failure)
        promise.set_exception(failure);
      else
        promise.set_value(collector.finish(stats));
    } catch (...) {  // of std::future: cannot be told to anybody
    }
  }
};

}  // namespace detail

// One piece of work of an engine. One thread at a time, but for cancel() and stats(). Destroying it
// cancels it, and waits for its callback if that runs on another thread.
class Request {
 public:
  static constexpr std::chrono::nanoseconds kForever{-1};

  // `samples` is the n that it was submitted with.
  explicit Request(lmn_request* owned, uint32_t samples = 1)
      : handle_(owned), samples_(samples), samples_left_(samples) {}
  ~Request() { close(); }
  Request(Request&& other) noexcept = default;
  Request& operator=(Request&& other) noexcept {
    Request old(std::move(other));
    std::swap(listener_, old.listener_);
    std::swap(handle_, old.handle_);
    std::swap(samples_, old.samples_);
    std::swap(samples_left_, old.samples_left_);
    return *this;
  }

  // Waits for news and takes it. Nothing when there was none in time, and after the last chunk of
  // the last sample: finished() says which. Not for a request with a callback, which takes it all.
  std::optional<Chunk> next(std::chrono::nanoseconds timeout = kForever) {
    if (finished()) return std::nullopt;
    try {
      std::optional<Chunk> chunk = detail::take(get(), timeout.count());
      if (chunk && chunk->finish_reason != LMN_FINISH_NONE) --samples_left_;
      return chunk;
    } catch (const Error&) {  // the failure of a sample ends it
      --samples_left_;
      throw;
    }
  }
  bool finished() const { return samples_left_ == 0; }  // the last chunk was taken

  // Takes the rest. `on_chunk` sees each chunk first. Throws the failure of a sample.
  Answer collect(const ChunkFunction& on_chunk = {}) {
    detail::Collector collector(samples_);
    while (const std::optional<Chunk> chunk = next()) {
      if (on_chunk && !on_chunk(*chunk)) cancel();
      collector.add(*chunk);
    }
    return collector.finish(stats());
  }

  // Waits for the end without taking chunks, and until the callback, if there is one, has seen all;
  // false when it did not come in time. Throws the failure of a sample.
  bool wait(std::chrono::nanoseconds timeout = kForever) {
    if (listener_) {
      (void)stats();  // throws in a forked child, where no callback comes
      if (!listener_->wait(timeout)) return false;
      timeout = kForever;
    }
    return detail::invoke_except(LMN_TIMEOUT, [&](lmn_error** err) {
             return lmn_request_wait(get(), timeout.count(), err);
           }) == LMN_OK;
  }
  void cancel() {
    detail::invoke([&](lmn_error** err) { return lmn_request_cancel(get(), err); });
  }
  lmn_request_stats stats() const { return detail::stats_of(get()); }

  lmn_request* get() const { return handle_.get(); }

 private:
  friend class Engine;
  Request(lmn_request* owned, uint32_t samples, std::shared_ptr<detail::Listener> listener)
      : listener_(std::move(listener)), handle_(owned), samples_(samples), samples_left_(samples) {}

  void close() {
    if (listener_) listener_->closed.store(true, std::memory_order_relaxed);
    handle_.reset();  // before the listener, which a running call may use
  }

  std::shared_ptr<detail::Listener> listener_;
  detail::Handle<lmn_request, lmn_request_destroy> handle_;
  uint32_t samples_ = 1;
  uint32_t samples_left_ = 0;
};

// The fields of lmn_score_options.
struct ScoreOptions {
  uint32_t chunk_tokens = 0;  // tokens of one step; 0: the engine's
  Progress progress{};        // also asked while the score waits its turn
};

// The fields of lmn_engine_options; 0 is each one's default.
struct EngineOptions {
  int32_t threads = 0;
  uint32_t context_tokens = 0;
  uint32_t kv_tokens = 0;
  uint32_t prefill_chunk_tokens = 0;
  uint32_t queue_capacity = 0;
  Progress progress{};
  uint32_t max_sequences = 0;
  std::optional<bool> prefix_cache{};
  uint64_t queue_tokens = 0;
  uint64_t queue_bytes = 0;
  std::chrono::nanoseconds inter_token_target{0};
  std::chrono::nanoseconds idle_spin{0};  // negative: none
  uint32_t trace_events = 0;
  uint32_t activation_bits = 0;
  bool profile = false;
  uint32_t kv_type = 0;  // LMN_KV_*
};

// Spans of Engine::trace, oldest first.
struct Trace {
  std::vector<lmn_trace_event> events;
  uint64_t lost = 0;  // since create: there was no room for them
};

// Any number of threads may use one. Destroying it cancels what is in flight.
class Engine {
 public:
  explicit Engine(const Model& model, const EngineOptions& options = {}) {
    auto given = detail::sized<lmn_engine_options>();
    given.threads = options.threads;
    given.context_tokens = options.context_tokens;
    given.kv_tokens = options.kv_tokens;
    given.prefill_chunk_tokens = options.prefill_chunk_tokens;
    given.queue_capacity = options.queue_capacity;
    given.max_sequences = options.max_sequences;
    given.prefix_cache = detail::tri_state(options.prefix_cache);
    given.queue_tokens = options.queue_tokens;
    given.queue_bytes = options.queue_bytes;
    given.inter_token_target_ns = static_cast<uint64_t>(options.inter_token_target.count());
    given.idle_spin_ns = options.idle_spin.count();
    given.trace_events = options.trace_events;
    given.activation_bits = options.activation_bits;
    if (options.profile) given.flags |= LMN_ENGINE_PROFILE;
    given.kv_type = options.kv_type;
    lmn_engine* raw = nullptr;
    detail::invoke_with_progress(&given, options.progress, [&](lmn_error** err) {
      return lmn_engine_create(model.get(), &given, &raw, err);
    });
    handle_.reset(raw);
  }

  // Queues a request; never blocks. Throws LMN_QUEUE_FULL when the queue has no room for it.
  Request submit(const Prompt& prompt, const RequestOptions& options = {}) {
    return Request(submit_raw(prompt, options, nullptr, nullptr), samples_of(options));
  }
  // The callback form: `on_chunk` sees every chunk on a thread of the engine, the first perhaps
  // before this returns; never two at a time. In it everything may be done but waiting for this
  // request; what it throws cancels the request. A sample that fails gets a last chunk with an
  // `error`.
  Request submit(const Prompt& prompt, const RequestOptions& options, ChunkFunction on_chunk) {
    auto listener = std::make_shared<detail::Listener>(std::move(on_chunk), samples_of(options));
    lmn_request* raw = submit_raw(prompt, options, &detail::Listener::call, listener.get());
    return Request(raw, samples_of(options), std::move(listener));
  }

  // Submits and waits for the whole answer. `on_chunk` runs on this thread as the answer grows.
  Answer generate(const Prompt& prompt, const RequestOptions& options = {},
                  const ChunkFunction& on_chunk = {}) {
    return submit(prompt, options).collect(on_chunk);
  }
  // Submits at once (so its errors are thrown here); the answer comes without a thread that waits
  // for it. The future may outlive the engine, whose destruction makes it ready.
  std::future<Answer> generate_async(const Prompt& prompt, const RequestOptions& options = {}) {
    auto pending = std::make_unique<detail::Pending>(samples_of(options));
    std::future<Answer> future = pending->promise.get_future();
    (void)submit_raw(prompt, options, &detail::Pending::call, pending.get());
    (void)pending.release();  // it may be gone already
    return future;
  }

  // Readable while requests submitted with `notify` have news; belongs to the engine.
  int descriptor() const {
    int32_t out = -1;
    detail::invoke([&](lmn_error** err) { return lmn_engine_descriptor_get(get(), &out, err); });
    return out;
  }
  // The tags of requests that have news, each once, in the beginning of `tags`. When more have news
  // than fit, the descriptor stays readable.
  std::span<uint64_t> drain(std::span<uint64_t> tags) {
    size_t count = 0;
    detail::invoke([&](lmn_error** err) {
      return lmn_engine_drain(get(), tags.data(), tags.size(), &count, err);
    });
    return tags.first(count);
  }

  // The logits after every token: float32 [tokens, vocab]. Blocks until done, or until `progress`
  // stops it.
  Tensor score(std::span<const int32_t> ids, const ScoreOptions& options = {}) {
    Tensor tensor(kDLInt, 32, {static_cast<int64_t>(ids.size())});
    std::copy(ids.begin(), ids.end(), tensor.values<int32_t>().begin());
    return score(tensor, options);
  }
  // `ids`: a 1-D CPU tensor of int32 or int64; borrowed.
  Tensor score(const Tensor& ids, const ScoreOptions& options = {}) {
    auto given = detail::sized<lmn_score_options>();
    given.chunk_tokens = options.chunk_tokens;
    DLManagedTensorVersioned* raw = nullptr;
    detail::invoke_with_progress(&given, options.progress, [&](lmn_error** err) {
      return lmn_engine_score(get(), ids.get(), &given, &raw, err);
    });
    return Tensor(raw);
  }

  lmn_engine_stats stats() const {
    auto out = detail::sized<lmn_engine_stats>();
    detail::invoke([&](lmn_error** err) { return lmn_engine_stats_get(get(), &out, err); });
    return out;
  }
  // How long steps, their parts and requests took.
  std::vector<lmn_histogram> histograms() const {
    return detail::fetch<std::vector<lmn_histogram>>(
        [&](lmn_histogram* out, size_t capacity, size_t* count, lmn_error** err) {
          return lmn_engine_histogram_get(get(), out, capacity, count, err);
        });
  }
  // Takes the spans that are there. Throws LMN_UNSUPPORTED when trace_events was 0. One thread at a
  // time.
  Trace trace() {
    constexpr size_t kBlock = 4096;
    Trace out;
    for (size_t count = kBlock; count == kBlock;) {
      const size_t before = out.events.size();
      out.events.resize(before + kBlock);
      detail::invoke([&](lmn_error** err) {
        return lmn_engine_trace_get(get(), out.events.data() + before, kBlock, &count, &out.lost,
                                    err);
      });
      out.events.resize(before + count);
    }
    return out;
  }
  // Where the time of steps went, by kind. Throws LMN_UNSUPPORTED when `profile` was off. Names
  // live as long as the engine.
  std::vector<lmn_profile_entry> profile() const {
    return detail::fetch<std::vector<lmn_profile_entry>>(
        [&](lmn_profile_entry* out, size_t capacity, size_t* count, lmn_error** err) {
          return lmn_engine_profile_get(get(), out, capacity, count, err);
        });
  }
  // Who holds memory; the last entry is the total.
  std::vector<lmn_memory_entry> memory() const {
    return detail::fetch<std::vector<lmn_memory_entry>>(
        [&](lmn_memory_entry* entries, size_t capacity, size_t* count, lmn_error** err) {
          return lmn_engine_memory_get(get(), entries, capacity, count, err);
        });
  }

  lmn_engine* get() const { return handle_.get(); }

 private:
  static uint32_t samples_of(const RequestOptions& options) {
    return std::clamp(options.n, 1u, 64u);  // more is refused by submit
  }

  lmn_request* submit_raw(const Prompt& prompt, const RequestOptions& options,
                          lmn_request_fn callback, void* user) {
    auto given = detail::sized<lmn_request_options>();
    prompt.put_into(&given);
    const auto flag = [&](bool on, uint32_t bit) { given.flags |= on ? bit : 0; };
    flag(options.parse_special, LMN_REQUEST_PARSE_SPECIAL);
    flag(options.seed.has_value(), LMN_REQUEST_SEED);
    flag(options.ignore_eos, LMN_REQUEST_IGNORE_EOS);
    flag(options.logprobs, LMN_REQUEST_LOGPROBS);
    flag(options.logits, LMN_REQUEST_LOGITS);
    flag(options.keep_special, LMN_REQUEST_KEEP_SPECIAL);
    flag(options.notify, LMN_REQUEST_NOTIFY);
    given.add_bos = detail::tri_state(options.add_bos);
    given.max_tokens = options.max_tokens;
    given.temperature = options.temperature;
    given.top_k = options.top_k;
    given.top_p = options.top_p;
    given.min_p = options.min_p;
    given.repetition_penalty = options.repetition_penalty;
    given.presence_penalty = options.presence_penalty;
    given.frequency_penalty = options.frequency_penalty;
    given.penalty_last_n = options.penalty_last_n;
    given.seed = options.seed.value_or(0);
    given.top_logprobs = options.top_logprobs;
    given.priority = options.priority;
    given.logit_bias = options.logit_bias.data();
    given.logit_bias_count = options.logit_bias.size();
    std::vector<lmn_string> stop;
    for (const std::string& text : options.stop) stop.push_back({text.data(), text.size()});
    given.stop = stop.data();
    given.stop_count = stop.size();
    given.stop_token_ids = options.stop_token_ids.data();
    given.stop_token_id_count = options.stop_token_ids.size();
    const auto above_0 = [](std::chrono::nanoseconds time) {
      return time.count() > 0 ? static_cast<uint64_t>(time.count()) : 0;
    };
    given.deadline_ns = above_0(options.deadline);
    given.token_interval_ns = above_0(options.token_interval);
    given.tag = options.tag;
    given.tenant = options.tenant;
    given.n = options.n;
    given.callback = callback;
    given.callback_user = user;
    lmn_request* raw = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_engine_submit(get(), &given, &raw, err); });
    return raw;
  }

  detail::Handle<lmn_engine, lmn_engine_destroy> handle_;
};

}  // namespace lmnative

#endif  // LMNATIVE_ENGINE_HPP_
