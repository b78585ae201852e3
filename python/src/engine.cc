// SPDX-License-Identifier: Apache-2.0
//
// Engines. A call keeps the engine while it runs without the GIL, so close() in another Python
// thread never frees what is in use. A score asks for Ctrl-C from its progress callback.
#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "handles.h"
#include "interrupt.h"
#include "model.h"
#include "request.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

// Requests whose news one call of drain() takes at most; where there are more, the descriptor stays
// readable and the event loop comes again.
constexpr size_t kDrain = 1024;

// Lets go of an engine without the GIL: destroying it joins its threads.
void drop(EnginePtr& handle) {
  EnginePtr last = std::move(handle);
  handle.reset();
  if (!last) return;
  const WithoutGil nogil;
  last.reset();
}

// Fills `items` by a call of the (buffer, capacity, count) kind, with one more if `guess` was low.
template <typename Item, typename Call>
std::vector<Item> fill(size_t guess, const Call& call) {
  std::vector<Item> items(guess);
  size_t count = 0;
  ErrorSlot error;
  lmn_status status = call(items.data(), items.size(), &count, error.out());
  if (status == LMN_BUFFER_TOO_SMALL) {
    items.resize(count);
    error.reset();
    status = call(items.data(), items.size(), &count, error.out());
  }
  check(status, error);
  items.resize(count);
  return items;
}

class Engine {
 public:
  Engine(const Model& model, int32_t threads, uint32_t context_tokens, uint32_t kv_tokens,
         uint32_t prefill_chunk_tokens, uint32_t queue_capacity, uint32_t max_sequences,
         uint32_t prefix_cache, uint64_t queue_tokens, uint64_t queue_bytes,
         uint64_t inter_token_target_ns, int64_t idle_spin_ns, uint32_t trace_events,
         uint32_t activation_bits, bool profile, uint32_t kv_type, const std::string& device,
         const py::object& progress) {
    Progress reporter(progress);
    auto options = sized<lmn_engine_options>();
    options.threads = threads;
    options.context_tokens = context_tokens;
    options.kv_tokens = kv_tokens;
    options.prefill_chunk_tokens = prefill_chunk_tokens;
    options.queue_capacity = queue_capacity;
    options.max_sequences = max_sequences;
    options.prefix_cache = prefix_cache;
    options.queue_tokens = queue_tokens;
    options.queue_bytes = queue_bytes;
    options.inter_token_target_ns = inter_token_target_ns;
    options.idle_spin_ns = idle_spin_ns;
    options.trace_events = trace_events;
    options.activation_bits = activation_bits;
    if (profile) options.flags |= LMN_ENGINE_PROFILE;
    options.kv_type = kv_type;
    options.device = device.c_str();
    options.progress = reporter.function();
    options.progress_user = reporter.user();
    auto info = sized<lmn_model_info>();
    lmn_engine* engine = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
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
                                  uint64_t deadline_ns, uint64_t token_interval_ns, uint64_t tenant,
                                  uint32_t n, uint64_t loop) {
    const EnginePtr engine = use();
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
    options.token_interval_ns = token_interval_ns;
    options.tenant = tenant;
    options.n = n;
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

    if (loop != 0) {
      options.flags |= LMN_REQUEST_NOTIFY;
      options.tag = registry_->announce(loop);
    }
    lmn_request* request = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_engine_submit(engine.get(), &options, &request, error.out());
    }
    if (status != LMN_OK) {
      if (loop != 0) registry_->remove(options.tag);
      raise(status, error);
    }
    const auto shared = std::make_shared<RequestHandle>(request, vocab_);
    if (loop != 0) registry_->set(options.tag, shared);
    return std::make_unique<Request>(shared, registry_, options.tag);
  }

  // The engine's descriptor, for an event loop to watch.
  int32_t descriptor() const {
    const EnginePtr engine = use();
    int32_t result = -1;
    ErrorSlot error;
    check(lmn_engine_descriptor_get(engine.get(), &result, error.out()), error);
    return result;
  }

  // Takes all news of `loop`'s requests, and says of which requests of other loops there is some:
  // ([(tag, chunks, end), ...], {loop: [tag, ...]}).
  // Appends to `drained`, so that no signal handler of Python's comes between the taking and the
  // keeping.
  void drain(uint64_t loop, py::list& drained) {
    const EnginePtr engine = use();
    std::vector<News> mine;
    std::map<uint64_t, std::vector<uint64_t>> others;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      uint64_t tags[kDrain];
      size_t count = 0;
      status = lmn_engine_drain(engine.get(), tags, kDrain, &count, error.out());
      for (size_t i = 0; status == LMN_OK && i < count; ++i) {
        const Registry::Entry entry = registry_->find(tags[i]);
        if (entry.loop != 0 && entry.loop != loop) {
          others[entry.loop].push_back(tags[i]);
        } else if (RequestPtr request = entry.request.lock()) {
          mine.push_back(take_news(tags[i], std::move(request)));
        }
      }
    }
    check(status, error);
    drained.append(py::make_tuple(to_python(mine), py::cast(others)));
  }

  // All news of these requests, as in drain(); also when the engine is closed.
  py::list take(const std::vector<uint64_t>& tags) {
    std::vector<News> news;
    {
      const WithoutGil nogil;
      for (const uint64_t tag : tags) {
        if (RequestPtr request = registry_->find(tag).request.lock())
          news.push_back(take_news(tag, std::move(request)));
      }
    }
    return to_python(news);
  }

  Tensor score(const py::object& source, uint32_t chunk_tokens) {
    EnginePtr engine = use();
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
      const WithoutGil nogil;
      status = lmn_engine_score(engine.get(), ids.tensor(), &options, &logits, error.out());
    }
    drop(engine);  // perhaps the last share, after close() in another thread
    OwnedTensor owned(logits);
    reporter.rethrow();
    check(status, error);
    return Tensor(std::move(owned));
  }

  py::dict stats() const {
    const EnginePtr engine = use();
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
    result["layers"] = stats.layers;
    result["device_layers"] = stats.device_layers;
    result["submitted"] = stats.submitted;
    result["finished"] = stats.finished;
    result["cancelled"] = stats.cancelled;
    result["failed"] = stats.failed;
    result["rejected"] = stats.rejected;
    result["prompt_tokens"] = stats.prompt_tokens;
    result["generated_tokens"] = stats.generated_tokens;
    result["steps"] = stats.steps;
    result["load_ns"] = stats.load_ns;
    result["max_sequences"] = stats.max_sequences;
    result["kv_pages_cached"] = stats.kv_pages_cached;
    result["queue_tokens"] = stats.queue_tokens;
    result["queue_bytes"] = stats.queue_bytes;
    result["prefix_lookup_tokens"] = stats.prefix_lookup_tokens;
    result["prefix_hit_tokens"] = stats.prefix_hit_tokens;
    result["preemptions"] = stats.preemptions;
    result["rejected_queue"] = stats.rejected_queue;
    result["rejected_tokens"] = stats.rejected_tokens;
    result["rejected_bytes"] = stats.rejected_bytes;
    result["rejected_memory"] = stats.rejected_memory;
    result["rejected_invalid"] = stats.rejected_invalid;
    result["rejected_closed"] = stats.rejected_closed;
    return result;
  }

  // Owner -> (current, peak).
  py::dict memory() const {
    const EnginePtr engine = use();
    const auto entries = fill<lmn_memory_entry>(
        32, [&](auto... arguments) { return lmn_engine_memory_get(engine.get(), arguments...); });
    py::dict result;
    for (const lmn_memory_entry& entry : entries)
      result[entry.owner] = py::make_tuple(entry.current, entry.peak);
    return result;
  }

  // Name -> its fields.
  py::dict histograms() const {
    const EnginePtr engine = use();
    const auto histograms = fill<lmn_histogram>(16, [&](auto... arguments) {
      return lmn_engine_histogram_get(engine.get(), arguments...);
    });
    py::dict result;
    for (const lmn_histogram& from : histograms) {
      py::dict fields;
      fields["count"] = from.count;
      fields["sum_ns"] = from.sum_ns;
      fields["max_ns"] = from.max_ns;
      fields["p50_ns"] = from.p50_ns;
      fields["p90_ns"] = from.p90_ns;
      fields["p99_ns"] = from.p99_ns;
      py::list buckets(LMN_HISTOGRAM_BUCKETS);
      for (size_t i = 0; i < LMN_HISTOGRAM_BUCKETS; ++i) buckets[i] = from.buckets[i];
      fields["buckets"] = std::move(buckets);
      result[from.name] = std::move(fields);
    }
    return result;
  }

  // [(op, name, step kind, calls, run_ns, wait_ns, bytes, operations), ...]
  py::list profile() const {
    const EnginePtr engine = use();
    const auto entries = fill<lmn_profile_entry>(1024, [&](auto... arguments) {
      return lmn_engine_profile_get(engine.get(), arguments...);
    });
    py::list result(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      const lmn_profile_entry& from = entries[i];
      const char* kind = from.step_kind == LMN_STEP_PREFILL ? "prefill" : "decode";
      result[i] = py::make_tuple(from.op, from.name, kind, from.calls, from.run_ns, from.wait_ns,
                                 from.bytes, from.operations);
    }
    return result;
  }

  // ([(name, begin_ns, end_ns, request, tokens, sequences), ...], lost).
  py::tuple trace() {
    const EnginePtr engine = use();
    const std::lock_guard lock(in_trace_);  // the GIL is held all the while: nobody waits for it
    py::list result;
    std::vector<lmn_trace_event> events(4096);
    size_t count = events.size();
    uint64_t lost = 0;
    while (count == events.size()) {
      ErrorSlot error;
      check(lmn_engine_trace_get(engine.get(), events.data(), events.size(), &count, &lost,
                                 error.out()),
            error);
      for (size_t i = 0; i < count; ++i) {
        const lmn_trace_event& event = events[i];
        result.append(py::make_tuple(event.name, event.begin_ns, event.end_ns, event.request,
                                     event.tokens, event.sequences));
      }
    }
    return py::make_tuple(result, lost);
  }

  EnginePtr use() const {
    if (!engine_) raise(LMN_CLOSED, "the engine is closed");
    return engine_;
  }

 private:
  static py::list to_python(const std::vector<News>& news) {
    py::list result(news.size());
    for (size_t i = 0; i < news.size(); ++i) result[i] = python::to_python(news[i]);
    return result;
  }

  EnginePtr engine_;
  const std::shared_ptr<Registry> registry_ = std::make_shared<Registry>();
  std::mutex in_trace_;
  uint32_t vocab_ = 0;
};

}  // namespace

EnginePtr engine_of(const py::handle& engine) { return engine.cast<const Engine&>().use(); }

void bind_engine(py::module_& module) {
  py::class_<Engine>(module, "Engine")
      .def(py::init<const Model&, int32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                    uint32_t, uint64_t, uint64_t, uint64_t, int64_t, uint32_t, uint32_t, bool,
                    uint32_t, const std::string&, const py::object&>(),
           py::arg("model"), py::kw_only(), py::arg("threads"), py::arg("context_tokens"),
           py::arg("kv_tokens"), py::arg("prefill_chunk_tokens"), py::arg("queue_capacity"),
           py::arg("max_sequences"), py::arg("prefix_cache"), py::arg("queue_tokens"),
           py::arg("queue_bytes"), py::arg("inter_token_target_ns"), py::arg("idle_spin_ns"),
           py::arg("trace_events"), py::arg("activation_bits"), py::arg("profile"),
           py::arg("kv_type"), py::arg("device"), py::arg("progress"))
      .def("submit", &Engine::submit, py::arg("prompt"), py::kw_only(), py::arg("flags"),
           py::arg("add_bos"), py::arg("max_tokens"), py::arg("temperature"), py::arg("top_k"),
           py::arg("top_p"), py::arg("min_p"), py::arg("repetition_penalty"),
           py::arg("presence_penalty"), py::arg("frequency_penalty"), py::arg("penalty_last_n"),
           py::arg("seed"), py::arg("top_logprobs"), py::arg("priority"), py::arg("logit_bias"),
           py::arg("stop"), py::arg("stop_token_ids"), py::arg("deadline_ns"),
           py::arg("token_interval_ns"), py::arg("tenant"), py::arg("n"), py::arg("loop") = 0)
      .def("descriptor", &Engine::descriptor)
      .def("drain", &Engine::drain)
      .def("take", &Engine::take)
      .def("score", &Engine::score)
      .def("stats", &Engine::stats)
      .def("memory", &Engine::memory)
      .def("histograms", &Engine::histograms)
      .def("trace", &Engine::trace)
      .def("profile", &Engine::profile)
      .def("close", &Engine::close)
      .def_property_readonly("closed", &Engine::closed);
}

}  // namespace lmn::python
