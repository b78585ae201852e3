// SPDX-License-Identifier: Apache-2.0
//
// Slots: from the tag of an engine's request to what waits for it on this thread. A tag holds the
// thread, the slot, and the slot's generation, so that late news of a request that was given up
// finds nobody. One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace lmn::server {

// Wants to know when a request of an engine has news.
class NewsReceiver {
 public:
  virtual void on_news(uint32_t index) = 0;  // the one that was given at take()

 protected:
  ~NewsReceiver() = default;
};

class Slots {
 public:
  explicit Slots(uint32_t thread) : thread_(thread) {}

  static uint32_t thread_of(uint64_t tag) { return static_cast<uint32_t>(tag >> 56); }

  uint64_t take(NewsReceiver* receiver, uint32_t index) {
    uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
      free_.reserve(slots_.size());  // release() never allocates
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slots_[slot].receiver = receiver;
    slots_[slot].index = index;
    return (uint64_t{thread_} << 56) | (uint64_t{slots_[slot].generation} << 32) | slot;
  }
  void release(uint64_t tag) {
    Slot& slot = slots_[static_cast<uint32_t>(tag)];
    slot.receiver = nullptr;
    slot.generation = (slot.generation + 1) & 0xFFFFFF;
    free_.push_back(static_cast<uint32_t>(tag));
  }
  void deliver(uint64_t tag) {
    const auto at = static_cast<uint32_t>(tag);
    if (at >= slots_.size()) return;
    const Slot slot = slots_[at];
    if (slot.receiver == nullptr || slot.generation != ((tag >> 32) & 0xFFFFFF)) return;
    slot.receiver->on_news(slot.index);
  }

 private:
  struct Slot {
    NewsReceiver* receiver = nullptr;
    uint32_t index = 0;
    uint32_t generation = 0;  // 24 bits
  };
  const uint32_t thread_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace lmn::server
