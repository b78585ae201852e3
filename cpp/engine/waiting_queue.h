// SPDX-License-Identifier: Apache-2.0
//
// WaitingQueue: the requests the engine thread has taken from the ring and not started, by priority
// and then by age. Linked through the requests themselves, so it allocates nothing. Of the engine
// thread alone.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "engine/request_core.h"

namespace lmn::engine {

inline constexpr int kPriorityLevels = kMaxPriority - kMinPriority + 1;
inline int priority_level(int32_t priority) { return priority - kMinPriority; }

class WaitingQueue {
 public:
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }

  void push(std::shared_ptr<RequestCore> request) {
    List& list = lists_[static_cast<size_t>(priority_level(request->options().priority))];
    RequestCore* last = request.get();
    (list.last == nullptr ? list.first : list.last->next_waiting) = std::move(request);
    list.last = last;
    ++size_;
  }

  // The oldest of the highest priority; null when empty.
  RequestCore* front() const {
    for (size_t i = lists_.size(); i-- > 0;) {
      if (lists_[i].first != nullptr) return lists_[i].first.get();
    }
    return nullptr;
  }
  std::shared_ptr<RequestCore> pop() {
    for (size_t i = lists_.size(); i-- > 0;) {
      if (lists_[i].first != nullptr) return unlink(lists_[i], nullptr, lists_[i].first);
    }
    return nullptr;
  }

  // Takes out every request for which `wanted` holds, and hands it to `receive`.
  template <typename Wanted, typename Receive>
  void extract(const Wanted& wanted, const Receive& receive) {
    for (List& list : lists_) {
      RequestCore* before = nullptr;
      std::shared_ptr<RequestCore>* link = &list.first;
      while (*link != nullptr) {
        if (wanted(**link)) {
          receive(unlink(list, before, *link));
        } else {
          before = link->get();
          link = &before->next_waiting;
        }
      }
    }
  }

 private:
  struct List {
    std::shared_ptr<RequestCore> first;
    RequestCore* last = nullptr;
  };

  // `link` holds the request: list.first, or before->next_waiting.
  std::shared_ptr<RequestCore> unlink(List& list, RequestCore* before,
                                      std::shared_ptr<RequestCore>& link) {
    std::shared_ptr<RequestCore> request = std::move(link);
    link = std::move(request->next_waiting);
    if (list.last == request.get()) list.last = before;
    --size_;
    return request;
  }

  std::array<List, kPriorityLevels> lists_;
  int size_ = 0;
};

}  // namespace lmn::engine
