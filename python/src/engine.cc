// SPDX-License-Identifier: Apache-2.0
//
// Engines and requests. Handles are shared: a call keeps its handle while it runs without the GIL,
// so close() in another Python thread never frees what is in use. Every wait is cut into slices
// that look for Ctrl-C, or asks for it from its progress callback.
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "interrupt.h"
#include "model.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

using EnginePtr = std::shared_ptr<lmn_engine>;
using RequestPtr = std::shared_ptr<lmn_request>;

// Lets go of a handle without the GIL: destroying one may wait for a step, or join threads.
template <typename Handle>
void drop(std::shared_ptr<Handle>& handle) {
  std::shared_ptr<Handle> last = std::move(handle);
  handle.reset();
  py::gil_scoped_release nogil;
  last.reset();
}

template <typename Handle>
std::shared_ptr<Handle> use(const std::shared_ptr<Handle>& handle, const char* what) {
  if (!handle) raise(LMN_CLOSED, std::string(what) + " is closed");
  return handle;
}

py::list list_of(const int32_t* values, uint64_t count) {
  py::list result(count);
  for (uint64_t i = 0; i < count; ++i) result[i] = values[i];
  return result;
}

// One chunk as (token_ids, text, finish_reason, logprobs, top, logits); the last three None unless
// asked for.
py::tuple chunk_of(const lmn_chunk& chunk, uint32_t vocab) {
  py::object logprobs = py::none(), top = py::none(), logits = py::none();
  if (chunk.logprobs != nullptr) {
    py::list values(chunk.token_count);
    py::list alternatives(chunk.token_count);
    for (uint64_t i = 0; i < chunk.token_count; ++i) {
      values[i] = py::float_(chunk.logprobs[i]);
      py::dict best;
      for (uint64_t k = i * chunk.top_logprob_count; k < (i + 1) * chunk.top_logprob_count; ++k) {
        best[py::int_(chunk.top_ids[k])] = py::float_(chunk.top_logprobs[k]);
      }
      alternatives[i] = std::move(best);
    }
    logprobs = std::move(values);
    top = std::move(alternatives);
  }
  if (chunk.logits != nullptr) {
    logits = py::cast(copy_of_floats(chunk.logits, static_cast<int64_t>(chunk.token_count), vocab));
  }
  return py::make_tuple(list_of(chunk.token_ids, chunk.token_count),
                        py::str(chunk.text, chunk.text_bytes), chunk.finish_reason, logprobs, top,
                        logits);
}

class Request {
 public:
  Request(lmn_request* request, uint32_t vocab)
      : request_(request, &lmn_request_destroy), vocab_(vocab) {}
  ~Request() { drop(request_); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // The next chunk, or None after the last one.
  py::object next() {
    const RequestPtr request = use(request_, "the request");
    const std::unique_lock lock(in_next_, std::try_to_lock);
    if (!lock.owns_lock()) throw std::runtime_error("two threads read the same request");
    while (true) {
      auto chunk = sized<lmn_chunk>();
      ErrorSlot error;
      lmn_status status = LMN_OK;
      {
        py::gil_scoped_release nogil;
        status = lmn_request_next(request.get(), std::chrono::nanoseconds(kSignalSlice).count(),
                                  &chunk, error.out());
      }
      if (status == LMN_OK) return chunk_of(chunk, vocab_);
      if (status == LMN_CLOSED) return py::none();
      if (status != LMN_TIMEOUT) check(status, error);
      check_signals();
    }
  }

  void cancel() {
    if (!request_) return;
    ErrorSlot error;
    check(lmn_request_cancel(request_.get(), error.out()), error);
  }

  void close() {
    if (!request_) return;
    lmn_request_cancel(request_.get(), nullptr);
    drop(request_);
  }

  py::dict stats() const {
    const RequestPtr request = use(request_, "the request");
    auto stats = sized<lmn_request_stats>();
    ErrorSlot error;
    check(lmn_request_stats_get(request.get(), &stats, error.out()), error);
    py::dict result;
    result["prompt_tokens"] = stats.prompt_tokens;
    result["generated_tokens"] = stats.generated_tokens;
    result["queue_ns"] = stats.queue_ns;
    result["prefill_ns"] = stats.prefill_ns;
    result["decode_ns"] = stats.decode_ns;
    result["seed"] = stats.seed;
    return result;
  }

 private:
  RequestPtr request_;
  uint32_t vocab_;
  std::mutex in_next_;
};

class Engine {
 public:
  Engine(const Model& model, int32_t threads, uint32_t context_tokens, uint32_t kv_tokens,
         uint32_t prefill_chunk_tokens, uint32_t queue_capacity, const py::object& progress) {
    Progress reporter(progress);
    auto options = sized<lmn_engine_options>();
    options.threads = threads;
    options.context_tokens = context_tokens;
    options.kv_tokens = kv_tokens;
    options.prefill_chunk_tokens = prefill_chunk_tokens;
    options.queue_capacity = queue_capacity;
    options.progress = reporter.function();
    options.progress_user = reporter.user();
    auto info = sized<lmn_model_info>();
    lmn_engine* engine = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      py::gil_scoped_release nogil;
      status = lmn_engine_create(model.get(), &options, &engine, error.out());
    }
    if (engine != nullptr) engine_ = EnginePtr(engine, &lmn_engine_destroy);
    reporter.rethrow();
    check(status, error);
    ErrorSlot info_error;
    check(lmn_model_info_get(model.get(), &info, info_error.out()), info_error);
    vocab_ = info.vocab_size;
  }
  ~Engine() { drop(engine_); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void close() { drop(engine_); }
  bool closed() const { return !engine_; }

  std::unique_ptr<Request> submit(const py::object& prompt, uint32_t flags, uint32_t add_bos,
                                  uint32_t max_tokens, float temperature, int32_t top_k,
                                  float top_p, float min_p, float repetition_penalty,
                                  float presence_penalty, float frequency_penalty,
                                  uint32_t penalty_last_n, uint64_t seed, uint32_t top_logprobs,
                                  int32_t priority, const py::list& logit_bias,
                                  const py::list& stop, const py::list& stop_token_ids,
                                  uint64_t deadline_ns) {
    const EnginePtr engine = use(engine_, "the LLM");
    auto options = sized<lmn_request_options>();
    options.flags = flags;
    std::optional<Ids> ids;
    if (PyUnicode_Check(prompt.ptr()) || PyBytes_Check(prompt.ptr())) {
      const std::string_view text = utf8_view(prompt, "prompt");
      options.prompt = text.data();
      options.prompt_bytes = text.size();
    } else {
      ids.emplace(prompt, "prompt");
      static const int32_t kNone =
          0;  // no ids are still ids: the library says what is wrong with them
      options.prompt_ids = ids->count() == 0 ? &kNone : ids->as_int32();
      options.prompt_id_count = ids->count();
    }
    options.add_bos = add_bos;
    options.max_tokens = max_tokens;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    options.min_p = min_p;
    options.repetition_penalty = repetition_penalty;
    options.presence_penalty = presence_penalty;
    options.frequency_penalty = frequency_penalty;
    options.penalty_last_n = penalty_last_n;
    options.seed = seed;
    options.top_logprobs = top_logprobs;
    options.priority = priority;
    options.deadline_ns = deadline_ns;
    std::vector<lmn_token_bias> biases;
    for (const py::handle item : logit_bias) {
      const auto pair = py::reinterpret_borrow<py::tuple>(item);
      biases.push_back({pair[0].cast<int32_t>(), pair[1].cast<float>()});
    }
    options.logit_bias = biases.data();
    options.logit_bias_count = biases.size();
    std::vector<lmn_string> stops;
    for (const py::handle item : stop) {
      const std::string_view text = utf8_view(item, "stop string");
      stops.push_back({text.data(), text.size()});
    }
    options.stop = stops.data();
    options.stop_count = stops.size();
    std::vector<int32_t> stop_tokens;
    for (const py::handle item : stop_token_ids) stop_tokens.push_back(item.cast<int32_t>());
    options.stop_token_ids = stop_tokens.data();
    options.stop_token_id_count = stop_tokens.size();

    lmn_request* request = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      py::gil_scoped_release nogil;
      status = lmn_engine_submit(engine.get(), &options, &request, error.out());
    }
    check(status, error);
    return std::make_unique<Request>(request, vocab_);
  }

  Tensor score(const py::object& source, uint32_t chunk_tokens) {
    EnginePtr engine = use(engine_, "the LLM");
    const Ids ids(source, "ids");
    Progress reporter{py::none()};
    auto options = sized<lmn_score_options>();
    options.chunk_tokens = chunk_tokens;
    options.progress = reporter.function();
    options.progress_user = reporter.user();
    DLManagedTensorVersioned* logits = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      py::gil_scoped_release nogil;
      status = lmn_engine_score(engine.get(), ids.tensor(), &options, &logits, error.out());
    }
    drop(engine);  // perhaps the last share, after close() in another thread
    OwnedTensor owned(logits);
    reporter.rethrow();
    check(status, error);
    return Tensor(std::move(owned));
  }

  py::dict stats() const {
    const EnginePtr engine = use(engine_, "the LLM");
    auto stats = sized<lmn_engine_stats>();
    ErrorSlot error;
    check(lmn_engine_stats_get(engine.get(), &stats, error.out()), error);
    py::dict result;
    result["threads"] = stats.threads;
    result["context_tokens"] = stats.context_tokens;
    result["queue_capacity"] = stats.queue_capacity;
    result["waiting"] = stats.waiting;
    result["running"] = stats.running;
    result["kv_pages"] = stats.kv_pages;
    result["kv_pages_used"] = stats.kv_pages_used;
    result["kv_page_tokens"] = stats.kv_page_tokens;
    result["submitted"] = stats.submitted;
    result["finished"] = stats.finished;
    result["cancelled"] = stats.cancelled;
    result["failed"] = stats.failed;
    result["rejected"] = stats.rejected;
    result["prompt_tokens"] = stats.prompt_tokens;
    result["generated_tokens"] = stats.generated_tokens;
    result["steps"] = stats.steps;
    result["load_ns"] = stats.load_ns;
    return result;
  }

  // Owner -> (current, peak).
  py::dict memory() const {
    const EnginePtr engine = use(engine_, "the LLM");
    std::vector<lmn_memory_entry> entries(32);
    size_t count = 0;
    ErrorSlot first, second;
    lmn_status status =
        lmn_engine_memory_get(engine.get(), entries.data(), entries.size(), &count, first.out());
    const bool again = status == LMN_BUFFER_TOO_SMALL;
    entries.resize(count);
    if (again)
      status =
          lmn_engine_memory_get(engine.get(), entries.data(), entries.size(), &count, second.out());
    check(status, again ? second : first);
    py::dict result;
    for (const lmn_memory_entry& entry : entries)
      result[entry.owner] = py::make_tuple(entry.current, entry.peak);
    return result;
  }

 private:
  EnginePtr engine_;
  uint32_t vocab_ = 0;
};

}  // namespace

void bind_engine(py::module_& module) {
  py::class_<Request>(module, "Request")
      .def("next", &Request::next)
      .def("cancel", &Request::cancel)
      .def("close", &Request::close)
      .def("stats", &Request::stats);
  py::class_<Engine>(module, "Engine")
      .def(py::init<const Model&, int32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                    const py::object&>())
      .def("submit", &Engine::submit, py::arg("prompt"), py::kw_only(), py::arg("flags"),
           py::arg("add_bos"), py::arg("max_tokens"), py::arg("temperature"), py::arg("top_k"),
           py::arg("top_p"), py::arg("min_p"), py::arg("repetition_penalty"),
           py::arg("presence_penalty"), py::arg("frequency_penalty"), py::arg("penalty_last_n"),
           py::arg("seed"), py::arg("top_logprobs"), py::arg("priority"), py::arg("logit_bias"),
           py::arg("stop"), py::arg("stop_token_ids"), py::arg("deadline_ns"))
      .def("score", &Engine::score)
      .def("stats", &Engine::stats)
      .def("memory", &Engine::memory)
      .def("close", &Engine::close)
      .def_property_readonly("closed", &Engine::closed);
}

}  // namespace lmn::python
