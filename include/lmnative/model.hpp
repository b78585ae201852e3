// SPDX-License-Identifier: Apache-2.0
//
// Part of lmnative.hpp, which says the rules: errors, tensors, memory pools, models, tokenizers.
#ifndef LMNATIVE_MODEL_HPP_
#define LMNATIVE_MODEL_HPP_

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
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

}  // namespace lmnative

#endif  // LMNATIVE_MODEL_HPP_
