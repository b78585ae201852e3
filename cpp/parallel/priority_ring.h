// SPDX-License-Identifier: Apache-2.0
//
// PriorityRing: a bounded queue of many producers and one consumer, with levels: pop takes the
// oldest value of the highest level that has one (level 0 is the lowest). Each level is a ring of
// cells after D. Vyukov's bounded queue; levels share nothing, so FIFO holds inside a level and a
// full level refuses without disturbing the others. Nothing is allocated after construction. T is
// trivially copyable (a pointer).
//
// Memory order. A cell's `sequence` says whose turn it is: `position` for the producer of that
// position, `position + 1` for the consumer, then `position + cells` for the producer one lap
// later.
//
// try_push claims a position with a compare-exchange on `tail`. Relaxed is enough: claiming carries
// no data, it only makes the position unique. The cell's data is guarded by `sequence`:
//
// - The producer's load of `sequence` (acquire) pairs with the consumer's store of position + cells
//   (release): the consumer has read the old value before the new one is written.
//
// - The producer's store of position + 1 (release) pairs with pop's load (acquire): the value is
//   there before it is read.
//
// `head` is the consumer's own.
//
// A producer that stalls between its claim and its store hides later values of its level until it
// goes on; it makes no other producer wait, nor the other levels. A consumer that sleeps must be
// woken after the store (EventCount::advance).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "parallel/clock.h"

namespace lmn::parallel {

// Atomic is std::atomic; the interleaving test puts its own in.
template <typename T, template <typename> class Atomic = std::atomic>
class PriorityRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // `capacity` values in each of `levels` levels at least: rounded up to a power of two, and to two
  // (in a single cell, the turn of the consumer and that of the producer one lap later would be the
  // same number).
  PriorityRing(int levels, size_t capacity)
      : levels_(levels), level_(std::make_unique<Level[]>(size_t(levels))) {
    size_t cells = 2;
    while (cells < capacity) cells *= 2;
    mask_ = cells - 1;
    for (int i = 0; i < levels; ++i) {
      level_[i].cells = std::make_unique<Cell[]>(cells);
      for (size_t c = 0; c < cells; ++c)
        level_[i].cells[c].sequence.store(c, std::memory_order_relaxed);
    }
  }

  int levels() const { return levels_; }
  size_t capacity() const { return mask_ + 1; }

  // Any thread. False: that level is full. `level` is in [0, levels).
  bool try_push(int level, T value) {
    Level& l = level_[level];
    uint64_t position = l.tail.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = l.cells[position & mask_];
      const auto turn =
          static_cast<int64_t>(cell.sequence.load(std::memory_order_acquire) - position);
      if (turn == 0) {
        if (l.tail.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          cell.value = value;
          cell.sequence.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (turn < 0) {
        return false;  // the value of one lap ago is still there
      } else {
        position = l.tail.load(std::memory_order_relaxed);  // another producer took it
      }
    }
  }

  // The consumer only. False: empty. Gives the level to `from_level` when that is not null.
  bool pop(T* value, int* from_level = nullptr) {
    for (int i = levels_ - 1; i >= 0; --i) {
      Level& l = level_[i];
      Cell& cell = l.cells[l.head & mask_];
      if (cell.sequence.load(std::memory_order_acquire) != l.head + 1) continue;
      *value = cell.value;
      cell.sequence.store(l.head + mask_ + 1, std::memory_order_release);
      ++l.head;
      if (from_level != nullptr) *from_level = i;
      return true;
    }
    return false;
  }

 private:
  struct Cell {
    Atomic<uint64_t> sequence;
    T value;
  };
  struct Level {
    alignas(kCacheLine) Atomic<uint64_t> tail{0};  // producers
    alignas(kCacheLine) uint64_t head = 0;         // the consumer
    std::unique_ptr<Cell[]> cells;
  };

  int levels_;
  uint64_t mask_ = 0;
  std::unique_ptr<Level[]> level_;
};

}  // namespace lmn::parallel
