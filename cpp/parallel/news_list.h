// SPDX-License-Identifier: Apache-2.0
//
// NewsList: "this object has news", from any thread to one that takes them all. An object is in the
// list at most once: announcing it again before it is taken costs one read-modify-write and changes
// nothing. Lock-free; nothing is allocated, the link is in the object (T derives from NewsNode<T>,
// and is in one list only). While it is in the list, the list holds a reference to it.
//
// Order: objects come in the order in which their announcements took effect.
//
// Memory order.
//
// - `announced` of an object: both sides exchange it, acq_rel. An announcer that finds it set
//   precedes, in the flag's order, the taker's next exchange, which acquires from it: the taker
//   looks at the object afterwards and finds the news. An announcer that finds it clear acquires
//   from the taker's exchange: the taker is done with `link` and `held` before they are written
//   anew. That announcer puts the object in, and the taker's next exchange of the flag acquires
//   from it.
//
// - `newest_`: the compare-exchange of announce() (release) pairs with the exchange of take()
//   (acquire): `link` and `held` of all objects in the chain are there before they are read. A
//   chain of compare-exchanges is one release sequence, so this holds for every object of it and
//   not only for the newest. The load before it (relaxed) is only a guess that the compare-exchange
//   checks.
//
// - The rest of the list is the taker's own. Several threads may take if something else, such as a
//   mutex, makes them take in turn.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "parallel/clock.h"

namespace lmn::parallel {

template <typename T, template <typename> class Atomic>
class NewsList;

template <typename T, template <typename> class Atomic = std::atomic>
class NewsNode {
 private:
  friend class NewsList<T, Atomic>;
  Atomic<bool> announced_{false};
  T* link_ = nullptr;        // announced before it; once taken: announced after it
  std::shared_ptr<T> held_;  // the list's reference
};

// Atomic is std::atomic; the interleaving test puts its own in.
template <typename T, template <typename> class Atomic = std::atomic>
class NewsList {
 public:
  NewsList() = default;
  NewsList(const NewsList&) = delete;
  NewsList& operator=(const NewsList&) = delete;
  ~NewsList() {
    while (take() != nullptr) {
    }
  }

  // Any thread, after it made the news. True: the object was not in the list, so a taker may need
  // to be woken.
  bool announce(const std::shared_ptr<T>& object) {
    NewsNode<T, Atomic>& node = *object;
    if (node.announced_.exchange(true, std::memory_order_acq_rel)) return false;
    node.held_ = object;
    T* newest = newest_.load(std::memory_order_relaxed);
    do {
      node.link_ = newest;
    } while (!newest_.compare_exchange_weak(newest, object.get(), std::memory_order_release));
    return true;
  }

  // One thread at a time. Null: nothing there. Look for the object's news after this, not before:
  // news made later announces it again.
  std::shared_ptr<T> take() {
    if (oldest_ == nullptr) {
      for (T* node = newest_.exchange(nullptr, std::memory_order_acquire); node != nullptr;) {
        T* before = std::exchange(node_of(node).link_, oldest_);
        oldest_ = node;
        node = before;
      }
      if (oldest_ == nullptr) return nullptr;
    }
    NewsNode<T, Atomic>& node = node_of(oldest_);
    oldest_ = std::exchange(node.link_, nullptr);
    std::shared_ptr<T> object = std::move(node.held_);
    node.announced_.exchange(false, std::memory_order_acq_rel);
    return object;
  }

  // Hands at most `limit` objects to receive(std::shared_ptr<T>), and says how many.
  template <typename Receive>
  int take(int limit, const Receive& receive) {
    int taken = 0;
    for (; taken < limit; ++taken) {
      std::shared_ptr<T> object = take();
      if (object == nullptr) break;
      receive(std::move(object));
    }
    return taken;
  }

  // As take(): whether it would find nothing. Relaxed: nothing is read behind the pointer.
  bool empty() const {
    return oldest_ == nullptr && newest_.load(std::memory_order_relaxed) == nullptr;
  }

 private:
  static NewsNode<T, Atomic>& node_of(T* object) { return *object; }

  alignas(kCacheLine) Atomic<T*> newest_{nullptr};  // announcers
  alignas(kCacheLine) T* oldest_ = nullptr;         // the taker
};

}  // namespace lmn::parallel
