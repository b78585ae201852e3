// SPDX-License-Identifier: Apache-2.0
//
// NewsQueue: which requests have news, for a client that has many and waits for none of them alone:
// a list of tags and a descriptor that is readable while it is not empty. A request names its queue
// at submit and shares it, so neither queue nor engine has to be the last to go. An engine serves
// any number of queues; a queue has requests of one engine.
//
// It must not know: what the news is. That is read from the request.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "core/status.h"
#include "parallel/event_fd.h"
#include "parallel/fork_mark.h"
#include "parallel/news_list.h"

namespace lmn::engine {

// What a queue lists of a request: outlives one that is dropped and not drained, without its
// buffers.
struct NewsOfRequest : parallel::NewsNode<NewsOfRequest> {
  explicit NewsOfRequest(uint64_t t) : tag(t) {}
  const uint64_t tag;
  std::atomic<bool> left{false};  // the handle is gone; relaxed, it orders nothing
};

class NewsQueue {
 public:
  // IO: the system refuses a descriptor. In a child of fork the queue is leaked, not destroyed: a
  // thread that is not there may have been in the middle of it.
  static Result<std::shared_ptr<NewsQueue>> create();
  NewsQueue(const NewsQueue&) = delete;
  NewsQueue& operator=(const NewsQueue&) = delete;

  // Readable while requests have news. Belongs to the queue.
  int descriptor() const { return descriptor_->fd(); }
  // Writes the tags of requests that have news, each once, and returns their number. What does not
  // fit keeps the descriptor readable. Any thread; CLOSED in a forked child.
  Result<size_t> drain(std::span<uint64_t> tags);

 private:
  friend class TouchedQueues;
  explicit NewsQueue(std::unique_ptr<parallel::EventFd> descriptor);
  static void destroy(NewsQueue* queue);

  const parallel::ForkMark process_;
  const std::unique_ptr<parallel::EventFd> descriptor_;
  parallel::NewsList<NewsOfRequest> list_;  // announced by the engine thread, taken by drain()
  std::mutex mutex_;                        // drain() by several threads
  // Of TouchedQueues.
  bool touched_ = false;
  std::shared_ptr<NewsQueue> next_touched_;
};

// The queues that have got news and were not signalled: each once, however much news it got. Of the
// engine thread alone; allocates nothing.
class TouchedQueues {
 public:
  void announce(const std::shared_ptr<NewsQueue>& queue,
                const std::shared_ptr<NewsOfRequest>& request);
  void signal();  // all of them; then there are none

 private:
  std::shared_ptr<NewsQueue> first_;
};

}  // namespace lmn::engine
