// SPDX-License-Identifier: Apache-2.0
//
// LinkedList: a doubly linked list through its nodes, which it neither owns nor allocates. A node
// is in one list at a time for each Link it has.
#pragma once

namespace lmn::engine {

template <typename T>
struct Link {
  T* before = nullptr;
  T* after = nullptr;
};

// Links::of(T*) is the Link<T>& that the list goes through.
template <typename T, typename Links>
struct LinkedList {
  T* first = nullptr;
  T* last = nullptr;

  bool empty() const { return first == nullptr; }
  void push_back(T* node) {
    Links::of(node) = {last, nullptr};
    (last == nullptr ? first : Links::of(last).after) = node;
    last = node;
  }
  void push_front(T* node) {
    Links::of(node) = {nullptr, first};
    (first == nullptr ? last : Links::of(first).before) = node;
    first = node;
  }
  void remove(T* node) {
    const Link<T> link = Links::of(node);
    (link.before == nullptr ? first : Links::of(link.before).after) = link.after;
    (link.after == nullptr ? last : Links::of(link.after).before) = link.before;
  }
  void replace(T* node, T* by) {
    const Link<T> link = Links::of(by) = Links::of(node);
    (link.before == nullptr ? first : Links::of(link.before).after) = by;
    (link.after == nullptr ? last : Links::of(link.after).before) = by;
  }
};

}  // namespace lmn::engine
