// SPDX-License-Identifier: Apache-2.0
//
// Every wait is cut into slices that look for Ctrl-C.
#include "request.h"

#include <algorithm>
#include <chrono>

#include "interrupt.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

py::list list_of(const int32_t* values, uint64_t count) {
  py::list result(count);
  for (uint64_t i = 0; i < count; ++i) result[i] = values[i];
  return result;
}

// One chunk as (text, token_ids, finish_reason, sample, logprobs, top_logprobs, logits); the last
// three None unless asked for.
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
  return py::make_tuple(py::str(chunk.text, chunk.text_bytes),
                        list_of(chunk.token_ids, chunk.token_count), chunk.finish_reason,
                        chunk.sample, logprobs, top, logits);
}

// The slices of a wait: calls `attempt(slice_ns)` without the GIL until it gives something else
// than LMN_TIMEOUT or `timeout_ns` is over, and returns what it gave last.
template <typename Attempt>
lmn_status in_slices(int64_t timeout_ns, const Attempt& attempt) {
  using Clock = std::chrono::steady_clock;
  const int64_t slice = std::chrono::nanoseconds(kSignalSlice).count();
  const Clock::time_point begin = Clock::now();
  int64_t left = timeout_ns;
  while (true) {
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = attempt(timeout_ns < 0 ? slice : std::min(left, slice));
    }
    if (status != LMN_TIMEOUT) return status;
    if (timeout_ns >= 0) {
      left = timeout_ns - std::chrono::nanoseconds(Clock::now() - begin).count();
      if (left <= 0) return status;
    }
    check_signals();
  }
}

}  // namespace

uint64_t Registry::announce(uint64_t loop) {
  const std::lock_guard lock(mutex_);
  entries_[++last_tag_].loop = loop;
  return last_tag_;
}

void Registry::set(uint64_t tag, const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  entries_[tag].request = request;
}

void Registry::remove(uint64_t tag) {
  const std::lock_guard lock(mutex_);
  entries_.erase(tag);
}

Registry::Entry Registry::find(uint64_t tag) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(tag);
  return found == entries_.end() ? Entry{} : found->second;
}

News take_news(uint64_t tag, RequestPtr request) {
  News news{tag, std::move(request), {}, false, LMN_OK, {}};
  const std::lock_guard lock(news.request->reading);
  while (true) {
    auto chunk = sized<lmn_chunk>();
    ErrorSlot error;
    const lmn_status status = lmn_request_next(news.request->request, 0, &chunk, error.out());
    if (status == LMN_OK) {
      news.chunks.push_back(chunk);
      continue;
    }
    if (status == LMN_TIMEOUT) return news;
    if (status != LMN_CLOSED) {
      news.failure = status;
      news.message = error.message() != nullptr ? error.message() : lmn_status_name(status);
    }
    news.ended = news.request->ended = true;
    return news;
  }
}

py::tuple to_python(const News& news) {
  py::list chunks(news.chunks.size());
  for (size_t i = 0; i < news.chunks.size(); ++i)
    chunks[i] = chunk_of(news.chunks[i], news.request->vocab);
  py::object end = py::none();
  if (news.failure != LMN_OK) {
    end = exception_of(news.failure, news.message);
  } else if (news.ended) {
    end = py::bool_(true);
  }
  return py::make_tuple(news.tag, chunks, end);
}

RequestPtr Request::use() const {
  if (!request_) raise(LMN_CLOSED, "the request is closed");
  return request_;
}

py::object Request::next(int64_t timeout_ns) {
  const RequestPtr request = use();
  const std::unique_lock lock(request->reading, std::try_to_lock);
  if (!lock.owns_lock()) return py::bool_(true);
  auto chunk = sized<lmn_chunk>();
  ErrorSlot error;
  const lmn_status status = in_slices(timeout_ns, [&](int64_t slice_ns) {
    error.reset();
    return lmn_request_next(request->request, slice_ns, &chunk, error.out());
  });
  if (status == LMN_OK) return chunk_of(chunk, request->vocab);
  if (status == LMN_TIMEOUT) return py::bool_(false);
  request->ended = true;
  if (status == LMN_CLOSED) return py::none();
  raise(status, error);
}

bool Request::wait(int64_t timeout_ns) {
  const RequestPtr request = use();
  ErrorSlot error;
  const lmn_status status = in_slices(timeout_ns, [&](int64_t slice_ns) {
    error.reset();
    return lmn_request_wait(request->request, slice_ns, error.out());
  });
  if (status == LMN_TIMEOUT) return false;
  check(status, error);
  return true;
}

void Request::cancel() {
  if (!request_) return;
  ErrorSlot error;
  check(lmn_request_cancel(request_->request, error.out()), error);
}

void Request::close() {
  if (!request_) return;
  if (tag_ != 0) registry_->remove(tag_);
  RequestPtr last = std::move(request_);
  request_.reset();
  if (last->ended) return;  // nothing to wait for: the GIL is worth more than what is freed
  lmn_request_cancel(last->request, nullptr);
  const WithoutGil nogil;
  last.reset();
}

py::dict Request::stats() const {
  const RequestPtr request = use();
  auto stats = sized<lmn_request_stats>();
  ErrorSlot error;
  check(lmn_request_stats_get(request->request, &stats, error.out()), error);
  py::dict result;
  result["finish_reason"] = stats.finish_reason;
  result["prompt_tokens"] = stats.prompt_tokens;
  result["generated_tokens"] = stats.generated_tokens;
  result["cached_tokens"] = stats.cached_tokens;
  result["preemptions"] = stats.preemptions;
  result["queue_ns"] = stats.queue_ns;
  result["prefill_ns"] = stats.prefill_ns;
  result["decode_ns"] = stats.decode_ns;
  result["seed"] = stats.seed;
  return result;
}

void bind_request(py::module_& module) {
  py::class_<Request>(module, "Request")
      .def("next", &Request::next)
      .def("wait", &Request::wait)
      .def("cancel", &Request::cancel)
      .def("close", &Request::close)
      .def("stats", &Request::stats)
      .def_property_readonly("tag", &Request::tag);
}

}  // namespace lmn::python
