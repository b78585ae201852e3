// SPDX-License-Identifier: Apache-2.0
#include "engine/news_queue.h"

#include <utility>

namespace lmn::engine {

NewsQueue::NewsQueue(std::unique_ptr<parallel::EventFd> descriptor)
    : descriptor_(std::move(descriptor)) {}

void NewsQueue::destroy(NewsQueue* queue) {
  if (queue->process_.is_here()) delete queue;
}

Result<std::shared_ptr<NewsQueue>> NewsQueue::create() {
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<parallel::EventFd> descriptor, parallel::EventFd::create());
  return std::shared_ptr<NewsQueue>(new NewsQueue(std::move(descriptor)), destroy);
}

Result<size_t> NewsQueue::drain(std::span<uint64_t> tags) {
  if (!process_.is_here()) {
    return error(Code::kClosed,
                 "the engine was created in process %d and gives no news in this forked child; "
                 "create an engine after fork",
                 static_cast<int>(process_.pid()));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  descriptor_->clear();
  size_t count = 0;
  while (count < tags.size()) {
    const std::shared_ptr<NewsOfRequest> news = list_.take();
    if (news == nullptr) return count;
    if (!news->left.load(std::memory_order_relaxed)) tags[count++] = news->tag;
  }
  if (!list_.empty()) descriptor_->signal();
  return count;
}

void TouchedQueues::announce(const std::shared_ptr<NewsQueue>& queue,
                             const std::shared_ptr<NewsOfRequest>& request) {
  queue->list_.announce(request);
  if (std::exchange(queue->touched_, true)) return;
  queue->next_touched_ = std::exchange(first_, queue);
}

void TouchedQueues::signal() {
  while (first_ != nullptr) {
    const std::shared_ptr<NewsQueue> queue = std::move(first_);
    first_ = std::move(queue->next_touched_);
    queue->touched_ = false;
    queue->descriptor_->signal();
  }
}

}  // namespace lmn::engine
