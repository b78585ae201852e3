// SPDX-License-Identifier: Apache-2.0
//
// DueHeap: which of many objects is due next. A pairing heap through the objects (T derives from
// DueNode<T>, and is in one heap only), so it allocates nothing and any object can leave it: a push
// costs a comparison, leaving about log2(n) of them, counted over all (Fredman, Sedgewick, Sleator,
// Tarjan 1986). It owns nothing and reads no clock. Of one thread.
#pragma once

#include <cstdint>
#include <utility>

#include "parallel/clock.h"

namespace lmn::engine {

template <typename T>
class DueNode {
 private:
  template <typename U>
  friend class DueHeap;

  int64_t due_ns_ = 0;
  bool in_heap_ = false;
  T* child_ = nullptr;   // its first; no child is due before its parent
  T* next_ = nullptr;    // sibling
  T* before_ = nullptr;  // sibling, or of the first child: parent
};

template <typename T>
class DueHeap {
 public:
  bool empty() const { return root_ == nullptr; }
  T* first() const { return root_; }  // null when empty
  // kNoDeadline when empty.
  int64_t first_due() const { return empty() ? parallel::kNoDeadline : at(root_).due_ns_; }
  static bool contains(const T& object) { return static_cast<const Node&>(object).in_heap_; }

  void push(T& object, int64_t due_ns) {
    Node& node = object;
    node = Node();
    node.due_ns_ = due_ns;
    node.in_heap_ = true;
    root_ = meld(root_, &object);
  }

  // One that is in the heap.
  void remove(T& object) {
    Node& node = object;
    T* below = meld_siblings(node.child_);
    if (&object == root_) {
      root_ = below;
    } else {
      T*& link =
          at(node.before_).child_ == &object ? at(node.before_).child_ : at(node.before_).next_;
      link = node.next_;
      if (node.next_ != nullptr) at(node.next_).before_ = node.before_;
      root_ = meld(root_, below);
    }
    node = Node();
  }

 private:
  using Node = DueNode<T>;
  static Node& at(T* object) { return *object; }

  // Two roots, or null.
  static T* meld(T* a, T* b) {
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    if (at(b).due_ns_ < at(a).due_ns_) std::swap(a, b);
    at(b).before_ = a;
    at(b).next_ = at(a).child_;
    if (at(a).child_ != nullptr) at(at(a).child_).before_ = b;
    at(a).child_ = b;
    return a;
  }

  static T* detach(T* object) {
    at(object).before_ = at(object).next_ = nullptr;
    return object;
  }

  // From the left in pairs, then the pairs from the right.
  static T* meld_siblings(T* first) {
    T* pairs = nullptr;  // the last one first, linked by next_
    while (first != nullptr) {
      T* a = first;
      T* b = at(a).next_;
      first = b == nullptr ? nullptr : at(b).next_;
      detach(a);
      T* pair = b == nullptr ? a : meld(a, detach(b));
      at(pair).next_ = std::exchange(pairs, pair);
    }
    T* root = nullptr;
    while (pairs != nullptr) {
      T* pair = pairs;
      pairs = at(pair).next_;
      root = meld(root, detach(pair));
    }
    return root;
  }

  T* root_ = nullptr;
};

}  // namespace lmn::engine
