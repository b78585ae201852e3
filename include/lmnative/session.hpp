// SPDX-License-Identifier: Apache-2.0
//
// Part of lmnative.hpp, which says the rules: ONNX models.
//
//   lmnative::Session session("model.onnx");
//   lmnative::Tensor x(kDLFloat, 32, {1, 4});
//   const auto outputs = session.run(lmnative::SessionValue(std::move(x)));
//   const lmnative::Tensor y = outputs[0].tensor();
#ifndef LMNATIVE_SESSION_HPP_
#define LMNATIVE_SESSION_HPP_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmnative/model.hpp"

namespace lmnative {

// What goes into a session and comes out of it. Immutable; shares its memory with what it was made
// from.
class SessionValue {
 public:
  // Takes the tensor over, without a copy if it is compact. `dtype`: a type whose elements are as
  // wide, such as "f8e4m3fn" for bytes; null: the tensor's own.
  explicit SessionValue(Tensor tensor, const char* dtype = nullptr) {
    lmn_session_value* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_session_value_create(tensor.release(), dtype, &raw, err);
    });
    handle_.reset(raw);
  }
  explicit SessionValue(lmn_session_value* owned) : handle_(owned) {}
  // A tensor of strings.
  static SessionValue strings(std::span<const int64_t> shape,
                              std::span<const std::string_view> items) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    if (count != items.size())
      throw Error(LMN_INVALID_ARGUMENT, "the shape is not of as many strings as there are");
    std::vector<const char*> texts;
    std::vector<size_t> lengths;
    for (const std::string_view item : items) {
      texts.push_back(item.data());
      lengths.push_back(item.size());
    }
    lmn_session_value* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_session_value_strings_create(static_cast<int32_t>(shape.size()), shape.data(),
                                              texts.data(), lengths.data(), &raw, err);
    });
    return SessionValue(raw);
  }
  // A sequence, optional or map: LMN_SESSION_VALUE_*.
  static SessionValue items(int32_t kind, const std::string& dtype,
                            std::span<const SessionValue> items) {
    lmn_session_value* raw = nullptr;
    const auto handles = pointers(items);
    detail::invoke([&](lmn_error** err) {
      return lmn_session_value_items_create(kind, dtype.c_str(), handles.data(), handles.size(),
                                            &raw, err);
    });
    return SessionValue(raw);
  }

  lmn_session_value_info info() const {
    auto out = detail::sized<lmn_session_value_info>();
    detail::invoke([&](lmn_error** err) { return lmn_session_value_info_get(get(), &out, err); });
    return out;
  }
  // The elements, in the value's memory.
  Tensor tensor() const {
    DLManagedTensorVersioned* raw = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_session_value_tensor_get(get(), &raw, err); });
    return Tensor(raw);
  }
  // Element `index` of a tensor of strings; lives as long as the value.
  std::string_view text(uint64_t index) const {
    const char* data = nullptr;
    size_t length = 0;
    detail::invoke([&](lmn_error** err) {
      return lmn_session_value_string_get(get(), index, &data, &length, err);
    });
    return {data, length};
  }
  SessionValue item(uint64_t index) const {
    lmn_session_value* raw = nullptr;
    detail::invoke(
        [&](lmn_error** err) { return lmn_session_value_item_get(get(), index, &raw, err); });
    return SessionValue(raw);
  }

  const lmn_session_value* get() const { return handle_.get(); }

  static std::vector<const lmn_session_value*> pointers(std::span<const SessionValue> values) {
    std::vector<const lmn_session_value*> out;
    for (const SessionValue& value : values) out.push_back(value.get());
    return out;
  }

 private:
  detail::Handle<lmn_session_value, lmn_session_value_destroy> handle_;
};

// Runs with fixed buffers, made by Session::bind. One run at a time.
class Binding {
 public:
  explicit Binding(lmn_binding* owned) : handle_(owned) {}
  void run() {
    detail::invoke([&](lmn_error** err) { return lmn_binding_run(get(), err); });
  }
  lmn_binding* get() const { return handle_.get(); }

 private:
  detail::Handle<lmn_binding, lmn_binding_destroy> handle_;
};

// The fields of lmn_session_options; 0 is each one's default.
struct SessionOptions {
  int32_t threads = 0;
  uint32_t max_shapes = 0;
  std::optional<bool> optimize{};
  uint64_t max_arena_bytes = 0;
  std::string base_folder{};  // of a model in memory: where external data lies
  uint32_t max_run_ms = 0;
  uint32_t runner = LMN_RUNNER_AUTO;
  uint32_t batch_window_us = 0;
  uint32_t max_batch = 0;
  uint32_t max_queue = 0;
  std::string device{};  // "cpu", "cuda", "cuda:N"
};

// An ONNX model. Any number of threads may run one.
class Session {
 public:
  explicit Session(const std::string& path, const SessionOptions& options = {}) {
    const lmn_session_options given = to_c(options);
    lmn_session* raw = nullptr;
    detail::invoke(
        [&](lmn_error** err) { return lmn_session_create(path.c_str(), &given, &raw, err); });
    handle_.reset(raw);
  }
  // A model in memory, which is copied.
  explicit Session(std::span<const std::byte> model, const SessionOptions& options = {}) {
    const lmn_session_options given = to_c(options);
    lmn_session* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_session_bytes_create(model.data(), model.size(), &given, &raw, err);
    });
    handle_.reset(raw);
  }
  explicit Session(lmn_session* owned) : handle_(owned) {}

  lmn_session_info info() const {
    auto out = detail::sized<lmn_session_info>();
    detail::invoke([&](lmn_error** err) { return lmn_session_info_get(get(), &out, err); });
    return out;
  }
  lmn_port_info input(uint32_t index) const {
    auto out = detail::sized<lmn_port_info>();
    detail::invoke([&](lmn_error** err) { return lmn_session_input_get(get(), index, &out, err); });
    return out;
  }
  lmn_port_info output(uint32_t index) const {
    auto out = detail::sized<lmn_port_info>();
    detail::invoke(
        [&](lmn_error** err) { return lmn_session_output_get(get(), index, &out, err); });
    return out;
  }

  // All outputs, in order, as new values.
  std::vector<SessionValue> run(std::span<const SessionValue> inputs) const {
    const auto in = SessionValue::pointers(inputs);
    std::vector<lmn_session_value*> raw(info().output_count, nullptr);
    detail::invoke([&](lmn_error** err) {
      return lmn_session_run(get(), in.data(), in.size(), raw.data(), raw.size(), err);
    });
    std::vector<SessionValue> outputs;
    for (lmn_session_value* value : raw) outputs.emplace_back(value);
    return outputs;
  }
  // One input.
  std::vector<SessionValue> run(const SessionValue& input) const { return run({&input, 1}); }

  // The same without waiting, in the order of submission. Error in the future: CANCELLED if the
  // session ends first. Throws QUEUE_FULL at once.
  std::future<std::vector<SessionValue>> run_async(std::span<const SessionValue> inputs) const {
    struct Pending {
      size_t count;
      std::promise<std::vector<SessionValue>> promise;
    };
    const auto in = SessionValue::pointers(inputs);
    auto pending = std::make_unique<Pending>();
    pending->count = info().output_count;
    std::future<std::vector<SessionValue>> future = pending->promise.get_future();
    const auto finished = [](void* user, lmn_run* run) {
      const std::unique_ptr<Pending> self(static_cast<Pending*>(user));
      try {
        std::vector<lmn_session_value*> raw(self->count, nullptr);
        detail::invoke(
            [&](lmn_error** err) { return lmn_run_wait(run, 0, raw.data(), raw.size(), err); });
        std::vector<SessionValue> outputs;
        for (lmn_session_value* value : raw) outputs.emplace_back(value);
        self->promise.set_value(std::move(outputs));
      } catch (...) {
        self->promise.set_exception(std::current_exception());
      }
    };
    detail::invoke([&](lmn_error** err) {
      return lmn_session_submit(get(), in.data(), in.size(), nullptr, pending->count, finished,
                                pending.get(), nullptr, err);
    });
    (void)pending.release();
    return future;
  }
  std::future<std::vector<SessionValue>> run_async(const SessionValue& input) const {
    return run_async({&input, 1});
  }

  // Inputs and outputs, all tensors, whose memory every run of the binding reads and writes.
  Binding bind(std::span<const SessionValue> inputs, std::span<const SessionValue> outputs) const {
    const auto in = SessionValue::pointers(inputs), out = SessionValue::pointers(outputs);
    lmn_binding* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_binding_create(get(), in.data(), in.size(), out.data(), out.size(), &raw, err);
    });
    return Binding(raw);
  }

  // The graph as text: as it runs, or as the file has it.
  std::string graph(bool optimized = true) const {
    return detail::fetch<std::string>(
        [&](char* out, size_t capacity, size_t* count, lmn_error** err) {
          return lmn_session_graph_get(get(), optimized ? 1 : 0, out, capacity, count, err);
        });
  }

  lmn_session* get() const { return handle_.get(); }

  // Points into `options`.
  static lmn_session_options to_c(const SessionOptions& options) {
    auto given = detail::sized<lmn_session_options>();
    given.threads = options.threads;
    given.max_shapes = options.max_shapes;
    given.optimize = detail::tri_state(options.optimize);
    given.max_arena_bytes = options.max_arena_bytes;
    given.base_folder = options.base_folder.empty() ? nullptr : options.base_folder.c_str();
    given.max_run_ms = options.max_run_ms;
    given.runner = options.runner;
    given.batch_window_us = options.batch_window_us;
    given.max_batch = options.max_batch;
    given.max_queue = options.max_queue;
    given.device = options.device.empty() ? nullptr : options.device.c_str();
    return given;
  }

 private:
  detail::Handle<lmn_session, lmn_session_destroy> handle_;
};

}  // namespace lmnative

#endif  // LMNATIVE_SESSION_HPP_
