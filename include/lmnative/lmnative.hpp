// SPDX-License-Identifier: Apache-2.0
//
// The C++20 face of lmnative: RAII, exceptions and views over lmnative.h. Header only, with no ABI
// of its own: everything here is compiled into the program that includes it, and only C crosses to
// the library.
//
//   lmnative::Model model("smollm2-135m");
//   lmnative::Engine engine(model, {.threads = 2});
//   for (auto request = engine.submit("The capital of France is", {.max_tokens = 32}); auto chunk =
//   request.next();)
//     std::cout << chunk->text << std::flush;
//
// - A call that fails throws lmnative::Error, with the status and the message of the C call.
// - Objects move and do not copy; a moved-from object may only be assigned to or destroyed. Any
// order of destruction
//   is safe: children keep their parents alive.
// - What lmnative.h says of threads, lifetimes, units and ranges holds here. Views (string_view,
// span, pointers inside
//   lmn_ structs) point into the object that was asked.
#ifndef LMNATIVE_LMNATIVE_HPP_
#define LMNATIVE_LMNATIVE_HPP_

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
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmnative/lmnative.h"

namespace lmnative {

class Error : public std::runtime_error {
 public:
  Error(lmn_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  lmn_status status() const noexcept { return status_; }  // LMN_NOT_FOUND, …

 private:
  lmn_status status_;
};

namespace detail {

// Runs call(lmn_error **) and throws what it reports, but for one status that the caller deals with
// (LMN_OK: none).
template <typename Call>
lmn_status invoke_except(lmn_status expected, Call&& call) {
  lmn_error* raw = nullptr;
  const lmn_status status = call(&raw);
  const std::unique_ptr<lmn_error, void (*)(lmn_error*)> error(raw, lmn_error_destroy);
  if (status == LMN_OK || status == expected) return status;
  throw Error(status, error ? lmn_error_message(error.get()) : lmn_status_name(status));
}
template <typename Call>
void invoke(Call&& call) {
  invoke_except(LMN_OK, std::forward<Call>(call));
}

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const noexcept {
    destroy(handle);
  }
};
template <typename T, auto destroy>
using Handle = std::unique_ptr<T, Destroy<destroy>>;

// An output struct, ready to be filled.
template <typename T>
T sized() {
  T out{};
  out.struct_size = sizeof(T);
  return out;
}

inline uint32_t tri_state(const std::optional<bool>& value) {
  return !value.has_value() ? LMN_DEFAULT : *value ? LMN_YES : LMN_NO;
}

// The two-call pattern of (buffer, capacity, count) functions: ask for the size, then fetch.
template <typename Container, typename Call>
Container fetch(Call&& call) {
  Container out;
  size_t count = 0;
  invoke_except(LMN_BUFFER_TOO_SMALL, [&](lmn_error** err) {
    return call(static_cast<typename Container::value_type*>(nullptr), size_t{0}, &count, err);
  });
  out.resize(count);
  if (count > 0) invoke([&](lmn_error** err) { return call(out.data(), out.size(), &count, err); });
  return out;
}

}  // namespace detail

// Called with (what, done, total) during long calls, on the calling thread; false stops the call
// with LMN_CANCELLED. What it throws comes out of that call.
using Progress = std::function<bool(std::string_view what, uint64_t done, uint64_t total)>;

namespace detail {

struct ProgressState {
  const Progress& function;
  std::exception_ptr thrown;

  static int32_t call(void* user, const char* what, uint64_t done, uint64_t total) {
    auto* self = static_cast<ProgressState*>(user);
    try {
      return self->function(what, done, total) ? 0 : 1;
    } catch (...) {
      self->thrown = std::current_exception();
      return 1;
    }
  }
};

// invoke() with `progress` behind options->progress.
template <typename Options, typename Call>
void invoke_with_progress(Options* options, const Progress& progress, Call&& call) {
  ProgressState state{progress, nullptr};
  if (progress) {
    options->progress = &ProgressState::call;
    options->progress_user = &state;
  }
  try {
    invoke(std::forward<Call>(call));
  } catch (const Error&) {
    if (state.thrown) std::rethrow_exception(state.thrown);
    throw;
  }
}

}  // namespace detail

inline std::string_view version() { return lmn_version(); }

// Version, compiler, CPU target and default thread count; the strings are static.
inline lmn_build_info build_info() {
  auto info = detail::sized<lmn_build_info>();
  detail::invoke([&](lmn_error** err) { return lmn_build_info_get(&info, err); });
  return info;
}

// A DLPack tensor that this object owns: of this library or of any other that hands out DLPack.
class Tensor {
 public:
  // Zeroed, compact, on the CPU: Tensor(kDLFloat, 32, {4, 49152}).
  Tensor(DLDataTypeCode code, int32_t bits, std::span<const int64_t> shape) {
    DLManagedTensorVersioned* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_tensor_create(static_cast<int32_t>(code), bits, static_cast<int32_t>(shape.size()),
                               shape.data(), &raw, err);
    });
    handle_.reset(raw);
  }
  Tensor(DLDataTypeCode code, int32_t bits, std::initializer_list<int64_t> shape)
      : Tensor(code, bits, std::span<const int64_t>(shape.begin(), shape.size())) {}
  explicit Tensor(DLManagedTensorVersioned* owned) : handle_(owned) {}

  DLManagedTensorVersioned* get() const { return handle_.get(); }
  DLManagedTensorVersioned* release() { return handle_.release(); }  // the caller calls the deleter

  std::span<const int64_t> shape() const {
    return {handle_->dl_tensor.shape, static_cast<size_t>(handle_->dl_tensor.ndim)};
  }
  DLDataType dtype() const { return handle_->dl_tensor.dtype; }
  bool read_only() const { return (handle_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }
  // The elements of a compact tensor. T must be its type: nothing is converted.
  template <typename T>
  std::span<T> values() const {
    size_t count = 1;
    for (const int64_t size : shape()) count *= static_cast<size_t>(size);
    auto* bytes = static_cast<char*>(handle_->dl_tensor.data) + handle_->dl_tensor.byte_offset;
    return {reinterpret_cast<T*>(bytes), count};
  }

 private:
  detail::Handle<DLManagedTensorVersioned, lmn_tensor_destroy> handle_;
};

struct PoolOptions {
  uint32_t debug = LMN_POOL_DEBUG_OFF;
  uint64_t block_bytes = 0;  // 0: 256 MiB, or less where little memory is available
  uint64_t limit_bytes = 0;  // 0: none
  uint64_t keep_bytes = 0;   // 0: block_bytes; UINT64_MAX: none
};

// A memory pool. Any number of threads may use one; memory may be freed by any of them.
class Pool {
 public:
  explicit Pool(const PoolOptions& options = {}) {
    auto given = detail::sized<lmn_pool_options>();
    given.debug = options.debug;
    given.block_bytes = options.block_bytes;
    given.limit_bytes = options.limit_bytes;
    given.keep_bytes = options.keep_bytes;
    lmn_pool* raw = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_pool_create(&given, &raw, err); });
    handle_.reset(raw);
  }

  // Not initialised, 64-byte aligned; it goes with the pool unless it is freed before.
  void* alloc(uint64_t bytes) {
    void* data = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_pool_alloc(get(), bytes, &data, err); });
    return data;
  }
  void free(void* data) {
    detail::invoke([&](lmn_error** err) { return lmn_pool_free(get(), data, err); });
  }
  // Compact, on the CPU, not initialised; outlives the pool.
  Tensor tensor(DLDataTypeCode code, int32_t bits, std::span<const int64_t> shape) {
    DLManagedTensorVersioned* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_pool_tensor_create(get(), static_cast<int32_t>(code), bits,
                                    static_cast<int32_t>(shape.size()), shape.data(), &raw, err);
    });
    return Tensor(raw);
  }
  Tensor tensor(DLDataTypeCode code, int32_t bits, std::initializer_list<int64_t> shape) {
    return tensor(code, bits, std::span<const int64_t>(shape.begin(), shape.size()));
  }
  // Gives back to the system what no allocation uses; returns its bytes.
  uint64_t trim() {
    uint64_t released = 0;
    detail::invoke([&](lmn_error** err) { return lmn_pool_trim(get(), &released, err); });
    return released;
  }
  lmn_pool_stats stats() const {
    auto out = detail::sized<lmn_pool_stats>();
    detail::invoke([&](lmn_error** err) { return lmn_pool_stats_get(get(), &out, err); });
    return out;
  }
  // Throws the first fault; no other thread may be in the pool.
  void check() const {
    detail::invoke([&](lmn_error** err) { return lmn_pool_check(get(), err); });
  }

  lmn_pool* get() const { return handle_.get(); }

 private:
  detail::Handle<lmn_pool, lmn_pool_destroy> handle_;
};

struct ModelOptions {
  uint32_t read_mode = LMN_READ_MAP;
  Progress progress{};
};

// A model file. Immutable: any number of threads may use one.
class Model {
 public:
  // A path, or a known name such as "smollm2-135m".
  explicit Model(const std::string& path, const ModelOptions& options = {}) {
    auto given = detail::sized<lmn_model_options>();
    given.read_mode = options.read_mode;
    lmn_model* raw = nullptr;
    detail::invoke_with_progress(&given, options.progress, [&](lmn_error** err) {
      return lmn_model_open(path.c_str(), &given, &raw, err);
    });
    handle_.reset(raw);
  }

  lmn_model_info info() const {
    auto out = detail::sized<lmn_model_info>();
    detail::invoke([&](lmn_error** err) { return lmn_model_info_get(get(), &out, err); });
    return out;
  }
  lmn_value metadata(uint64_t index) const {
    auto out = detail::sized<lmn_value>();
    detail::invoke(
        [&](lmn_error** err) { return lmn_model_metadata_get(get(), index, &out, err); });
    return out;
  }
  // Nothing when the file has no such key.
  std::optional<lmn_value> find_metadata(const std::string& key) const {
    auto out = detail::sized<lmn_value>();
    const lmn_status status = detail::invoke_except(LMN_NOT_FOUND, [&](lmn_error** err) {
      return lmn_model_metadata_find(get(), key.c_str(), &out, err);
    });
    return status == LMN_OK ? std::optional(out) : std::nullopt;
  }
  lmn_value metadata_element(uint64_t index, uint64_t element) const {
    auto out = detail::sized<lmn_value>();
    detail::invoke([&](lmn_error** err) {
      return lmn_model_metadata_element_get(get(), index, element, &out, err);
    });
    return out;
  }
  lmn_tensor_info tensor(uint64_t index) const {
    auto out = detail::sized<lmn_tensor_info>();
    detail::invoke([&](lmn_error** err) { return lmn_model_tensor_get(get(), index, &out, err); });
    return out;
  }
  // The tensor's bytes in place, read-only; keeps the model's file mapped.
  Tensor export_tensor(const std::string& name) const {
    DLManagedTensorVersioned* raw = nullptr;
    detail::invoke(
        [&](lmn_error** err) { return lmn_model_tensor_export(get(), name.c_str(), &raw, err); });
    return Tensor(raw);
  }

  const lmn_model* get() const { return handle_.get(); }

 private:
  detail::Handle<lmn_model, lmn_model_destroy> handle_;
};

inline std::string_view key_of(const lmn_value& value) {
  return {value.key, static_cast<size_t>(value.key_bytes)};
}
inline std::string_view text_of(const lmn_value& value) {
  return {value.text, static_cast<size_t>(value.text_bytes)};
}
inline std::string_view name_of(const lmn_tensor_info& info) {
  return {info.name, static_cast<size_t>(info.name_bytes)};
}

struct EncodeOptions {
  bool parse_special = false;     // "<|im_start|>" in the text becomes that control token
  std::optional<bool> add_bos{};  // nothing: as the model says
  std::optional<bool> add_eos{};
};

struct DecodeOptions {
  bool skip_special = false;        // control tokens give no text
  bool keep_leading_space = false;  // the ids continue other text
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

namespace detail {
inline lmn_decode_options to_c(const DecodeOptions& options) {
  auto given = sized<lmn_decode_options>();
  given.skip_special = options.skip_special ? 1 : 0;
  given.keep_leading_space = options.keep_leading_space ? 1 : 0;
  return given;
}
}  // namespace detail

// Immutable: any number of threads may use one.
class Tokenizer {
 public:
  explicit Tokenizer(const Model& model) {
    lmn_tokenizer* raw = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_tokenizer_create(model.get(), &raw, err); });
    handle_.reset(raw);
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    auto given = detail::sized<lmn_encode_options>();
    given.parse_special = options.parse_special ? 1 : 0;
    given.add_bos = detail::tri_state(options.add_bos);
    given.add_eos = detail::tri_state(options.add_eos);
    return detail::fetch<std::vector<int32_t>>(
        [&](int32_t* ids, size_t capacity, size_t* count, lmn_error** err) {
          return lmn_tokenizer_encode(get(), text.data(), text.size(), &given, ids, capacity, count,
                                      err);
        });
  }
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const {
    const lmn_decode_options given = detail::to_c(options);
    return detail::fetch<std::string>(
        [&](char* text, size_t capacity, size_t* bytes, lmn_error** err) {
          return lmn_tokenizer_decode(get(), ids.data(), ids.size(), &given, text, capacity, bytes,
                                      err);
        });
  }
  // The prompt that the model's chat template makes of the messages; submit it with parse_special.
  std::string chat_render(std::span<const ChatMessage> messages,
                          bool generation_prompt = true) const {
    auto given = detail::sized<lmn_chat_options>();
    given.no_generation_prompt = generation_prompt ? 0 : 1;
    std::vector<lmn_chat_message> turns;
    for (const ChatMessage& m : messages)
      turns.push_back({m.role.c_str(), m.content.data(), m.content.size()});
    return detail::fetch<std::string>(
        [&](char* text, size_t capacity, size_t* bytes, lmn_error** err) {
          return lmn_tokenizer_chat_render(get(), turns.data(), turns.size(), &given, text,
                                           capacity, bytes, err);
        });
  }
  lmn_tokenizer_info info() const {
    auto out = detail::sized<lmn_tokenizer_info>();
    detail::invoke([&](lmn_error** err) { return lmn_tokenizer_info_get(get(), &out, err); });
    return out;
  }
  lmn_token_info token(int32_t id) const {
    auto out = detail::sized<lmn_token_info>();
    detail::invoke([&](lmn_error** err) { return lmn_tokenizer_token_get(get(), id, &out, err); });
    return out;
  }

  const lmn_tokenizer* get() const { return handle_.get(); }

 private:
  detail::Handle<lmn_tokenizer, lmn_tokenizer_destroy> handle_;
};

// A stream of ids to text. One thread at a time; each view is valid until the next call.
class Decoder {
 public:
  explicit Decoder(const Tokenizer& tokenizer, const DecodeOptions& options = {}) {
    const lmn_decode_options given = detail::to_c(options);
    lmn_decoder* raw = nullptr;
    detail::invoke(
        [&](lmn_error** err) { return lmn_decoder_create(tokenizer.get(), &given, &raw, err); });
    handle_.reset(raw);
  }

  std::string_view decode(int32_t id) {
    return view([&](const char** text, size_t* bytes, lmn_error** err) {
      return lmn_decoder_decode(handle_.get(), id, text, bytes, err);
    });
  }
  std::string_view flush() {
    return view([&](const char** text, size_t* bytes, lmn_error** err) {
      return lmn_decoder_flush(handle_.get(), text, bytes, err);
    });
  }

 private:
  template <typename Call>
  std::string_view view(Call&& call) {
    const char* text = nullptr;
    size_t bytes = 0;
    detail::invoke([&](lmn_error** err) { return call(&text, &bytes, err); });
    return {text, bytes};
  }
  detail::Handle<lmn_decoder, lmn_decoder_destroy> handle_;
};

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
  std::chrono::nanoseconds deadline{0};  // from submit; 0: none
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
  // False when there is no more for now. What on_chunk throws cancels.
  bool take_one(lmn_request* request) noexcept {
    bool go_on = false;
    try {
      try {
        const std::optional<Chunk> chunk = take(request, 0);
        if (!chunk) return false;
        if (chunk->finish_reason != LMN_FINISH_NONE) --samples_left;
        go_on = on_chunk(*chunk);
      } catch (const Error& error) {
        if (closed.load(std::memory_order_relaxed)) return false;
        --samples_left;
        Chunk failure;
        failure.finish_reason = LMN_FINISH_ERROR;
        failure.error = &error;
        go_on = on_chunk(failure);
      }
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
    given.deadline_ns =
        options.deadline.count() > 0 ? static_cast<uint64_t>(options.deadline.count()) : 0;
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

#endif  // LMNATIVE_LMNATIVE_HPP_
