// SPDX-License-Identifier: Apache-2.0
//
// Requests in Python. A handle is shared: a call keeps it while it runs without the GIL, so close()
// in another Python thread never frees what is in use. Requests of event loops are also in the
// engine's `Registry`, by their tag: each belongs to one loop (a number that the Python package
// chooses), and only that loop's thread takes its chunks, so they stay in order.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace lmn::python {

namespace py = pybind11;

// An lmn_request and who reads it now.
struct RequestHandle {
  RequestHandle(lmn_request* given, uint32_t vocab_size) : request(given), vocab(vocab_size) {}
  RequestHandle(const RequestHandle&) = delete;
  RequestHandle& operator=(const RequestHandle&) = delete;
  ~RequestHandle() { lmn_request_destroy(request); }

  lmn_request* const request;
  const uint32_t vocab;
  std::mutex reading;
  bool ended = false;  // its last chunk was taken; guarded by `reading`
};
using RequestPtr = std::shared_ptr<RequestHandle>;

// The requests of event loops. Any thread.
class Registry {
 public:
  struct Entry {
    uint64_t loop = 0;
    std::weak_ptr<RequestHandle> request;  // empty until lmn_engine_submit has returned
  };

  // Before submit, so that news is known to be for `loop` whenever it comes. Returns the tag.
  uint64_t announce(uint64_t loop);
  void set(uint64_t tag, const RequestPtr& request);
  void remove(uint64_t tag);
  // loop 0: no such request (any more).
  Entry find(uint64_t tag) const;

 private:
  mutable std::mutex mutex_;
  uint64_t last_tag_ = 0;
  std::unordered_map<uint64_t, Entry> entries_;
};

// What one request had: everything is taken without the GIL, and turned into Python's after.
struct News {
  uint64_t tag = 0;
  RequestPtr request;  // keeps what the chunks point to
  std::vector<lmn_chunk> chunks;
  bool ended = false;
  lmn_status failure = LMN_OK;
  std::string message;
};
News take_news(uint64_t tag, RequestPtr request);
// (tag, [chunk, ...], end): end is None, True, or the exception with which the request ended.
py::tuple to_python(const News& news);

// A request as the Python package sees it.
class Request {
 public:
  Request(RequestPtr request, std::shared_ptr<Registry> registry, uint64_t tag)
      : request_(std::move(request)), registry_(std::move(registry)), tag_(tag) {}
  ~Request() { close(); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // The next chunk; None after the last one; False if there is none within `timeout_ns` (negative:
  // waits without end); True if another thread is in this call.
  py::object next(int64_t timeout_ns);
  // False if the request has not ended within `timeout_ns`.
  bool wait(int64_t timeout_ns);
  void cancel();
  void close();
  py::dict stats() const;
  uint64_t tag() const { return tag_; }

 private:
  RequestPtr use() const;

  RequestPtr request_;
  std::shared_ptr<Registry> registry_;
  uint64_t tag_;  // 0: not of an event loop
};

void bind_request(py::module_& module);

}  // namespace lmn::python
