// SPDX-License-Identifier: Apache-2.0
//
// WorkDeque: the queue of one worker: its owner pushes and pops at one end, thieves take from the
// other (Chase and Lev, "Dynamic circular work-stealing deque", SPAA 2005; memory orders after Lê
// et al., "Correct and efficient work-stealing for weak memory models", PPoPP 2013, with
// sequentially consistent accesses in the place of fences). It does not wrap: it takes as many
// pushes as its capacity between two resets, so a cell that a thief reads is not written again
// before it has found out who owns it.
//
// Memory order. `bottom` is written by the owner only, `top` only grows.
// - push: the store of `bottom` (release) pairs with a thief's load (seq_cst, an acquire): who sees
//   the position sees the cell, and what the owner wrote before it.
// - pop and steal of the last item: the owner's store of `bottom` and then load of `top`, against a
//   thief's load of `top` and then of `bottom`, all seq_cst: in their one order either the thief
//   sees the lowered bottom and leaves, or the owner sees the raised top and goes through the
//   compare-exchange, which one of the two wins.
// - A thief that loses the compare-exchange has read a cell for nothing; the cell is atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "parallel/clock.h"

namespace lmn::parallel {

// Atomic is std::atomic; the interleaving test puts its own in.
template <template <typename> class Atomic = std::atomic>
class WorkDeque {
 public:
  explicit WorkDeque(size_t capacity) : cells_(std::make_unique<Atomic<uint64_t>[]>(capacity)) {}

  // Nobody else may use it at the time.
  void reset() {
    top_.store(0, std::memory_order_relaxed);
    bottom_.store(0, std::memory_order_relaxed);
  }

  // The owner.
  void push(uint64_t item) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);
    cells_[static_cast<size_t>(bottom)].store(item, std::memory_order_relaxed);
    bottom_.store(bottom + 1, std::memory_order_release);
  }

  // The owner. The last item pushed; false: empty.
  bool pop(uint64_t* item) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top > bottom) {
      bottom_.store(bottom + 1, std::memory_order_release);
      return false;
    }
    *item = cells_[static_cast<size_t>(bottom)].load(std::memory_order_relaxed);
    if (top < bottom) return true;
    const bool won = top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst);
    bottom_.store(bottom + 1, std::memory_order_release);
    return won;
  }

  // Anybody. The first item; false: empty, or another thief was faster.
  bool steal(uint64_t* item) {
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top >= bottom_.load(std::memory_order_seq_cst)) return false;
    *item = cells_[static_cast<size_t>(top)].load(std::memory_order_relaxed);
    return top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst);
  }

  // Whether there was an item a moment ago. Anybody.
  bool has_items() const {
    return top_.load(std::memory_order_seq_cst) < bottom_.load(std::memory_order_seq_cst);
  }

 private:
  const std::unique_ptr<Atomic<uint64_t>[]> cells_;
  alignas(kCacheLine) Atomic<int64_t> top_{0};
  alignas(kCacheLine) Atomic<int64_t> bottom_{0};
};

}  // namespace lmn::parallel
