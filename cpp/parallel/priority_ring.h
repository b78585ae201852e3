// SPDX-License-Identifier: Apache-2.0
//
// PriorityRing: a bounded queue of many producers and one consumer, with levels (0 is the lowest).
// Each level is a ring of its own: FIFO holds inside a level, and a full level refuses without
// disturbing the others. Nothing is allocated after construction. T is a pointer to something
// aligned, or an integer of 63 bits at most.
//
// Order. pop takes the oldest value of the highest level that has one, with two limits, both of
// which count pops since the ring was last found empty:
//
// - The consumer looks at higher levels when its level is empty, and after kLookPops pops at most.
//   Looking before every pop would take a cache line from the producer that writes it, each time.
// - Each kLookPops-th pop begins its search at the level whose turn it is; the turns go round. So
//   the oldest value of any level is taken within levels * kLookPops pops, whatever arrives above.
//
// What it costs is cache lines that travel between cores (60 to 250 ns each, the rest is a few ns):
// a cell is 8 bytes, so a line brings eight values to the consumer and goes back to the producers
// once a lap. The consumer never writes a cell, and producers read its counter once they have used
// up what it had freed when they last looked: once a lap at best.
//
// Memory order. Positions count up for ever; position p lies in cell p % cells, lap p / cells. A
// cell holds the value and, in bit 0, the parity of the lap that wrote it.
//
// - `tail`: a producer claims a position by a compare-exchange. Relaxed: claiming carries no data,
//   it only makes the position unique.
//
// - Cell: the producer's store (release) pairs with pop's load (acquire): what the producer did
//   before is visible to who has the value. The parity says whether the cell is of this lap; it
//   cannot be of the next, see `freed`. All cells start with the parity of a lap before the first.
//
// - `freed`, positions that the consumer is done with: its store (release) comes after its loads of
//   those cells, and pairs with the producer's load (acquire), so a cell is read before the next
//   lap overwrites it. `freed_seen` hands what one producer has read to the others; its store
//   (release) and load (acquire) carry the same order on. An older number that overwrites a newer
//   one there only makes the next producer look again.
//
// - A refusal is true: `tail` is at `position` or further when `freed` is read.
//
// `head` and all of Reader are the consumer's own. No wake-up is lost: a push that happens before a
// pop (through an EventCount) is seen by it, since no older value of the cell may be read then.
//
// A producer that stalls between its claim and its store hides later values of its level until it
// goes on; it makes no other producer wait, nor the other levels. A consumer that sleeps must be
// woken after the store (EventCount::advance).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "parallel/clock.h"

namespace lmn::parallel {

// Pops of one level between two looks at those above it: a look costs up to one transfer of a line
// for each level above (250 ns), 32 pops about that.
inline constexpr int kLookPops = 32;

// Atomic is std::atomic; the interleaving test puts its own in.
template <typename T, template <typename> class Atomic = std::atomic>
class PriorityRing {
  static_assert(std::is_pointer_v<T> || std::is_integral_v<T>);

 public:
  // Each of `levels` levels takes `capacity` values at least.
  PriorityRing(int levels, size_t capacity)
      : levels_(levels),
        shared_(std::make_unique<Shared[]>(static_cast<size_t>(levels))),
        reader_(std::make_unique<Reader[]>(static_cast<size_t>(levels))),
        level_(levels - 1) {
    cells_ = std::bit_ceil(std::max<uint64_t>(capacity, 1));
    // Two lines of cells at a time, so that a producer of a full level does not write where the
    // consumer reads; in a small ring one cell.
    free_batch_ = std::clamp<uint64_t>(cells_ / 16, 1, 2 * kCacheLine / sizeof(Cell));
    if (this->capacity() < capacity) cells_ *= 2;
    for (int i = 0; i < levels; ++i) {
      shared_[i].cells = std::make_unique<Cell[]>(cells_);
      reader_[i].cells = shared_[i].cells.get();
    }
  }

  int levels() const { return levels_; }
  size_t capacity() const { return cells_ - (free_batch_ - 1); }

  // Any thread. False: that level is full (it holds capacity() values or more). `level` is in [0,
  // levels); an integer value in [0, 2^63).
  bool try_push(int level, T value) {
    Shared& l = shared_[level];
    uint64_t position = l.tail.load(std::memory_order_relaxed);
    do {
      if (!is_free(position, l.freed_seen.load(std::memory_order_acquire))) {
        const uint64_t freed = l.freed.load(std::memory_order_acquire);
        if (!is_free(position, freed)) return false;
        l.freed_seen.store(freed, std::memory_order_release);
      }
    } while (!l.tail.compare_exchange_weak(position, position + 1, std::memory_order_relaxed));
    l.cells[index(position)].store(encode(value) | parity(position), std::memory_order_release);
    return true;
  }

  // The consumer only. False: empty. Gives the level to `from_level` when that is not null.
  bool pop(T* value, int* from_level = nullptr) {
    int level = level_;
    const bool found = --until_look_ > 0
                           ? pop_from(level, value) || pop_highest(level_, &level, value)
                           : pop_in_turn(&level, value);
    if (!found) {
      until_look_ = kLookPops;
      level_ = levels_ - 1;
    }
    if (from_level != nullptr) *from_level = level;
    return found;
  }

 private:
  using Cell = Atomic<uint64_t>;
  struct Shared {
    alignas(kCacheLine) Atomic<uint64_t> tail{0};  // producers
    Atomic<uint64_t> freed_seen{0};                // producers: `freed` as one of them read it
    std::unique_ptr<Cell[]> cells;
    alignas(kCacheLine) Atomic<uint64_t> freed{0};  // the consumer
  };
  struct Reader {
    Cell* cells = nullptr;
    uint64_t head = 0;
    uint64_t freed = 0;  // as stored in Shared
  };

  static uint64_t encode(T value) {
    if constexpr (std::is_pointer_v<T>) {
      static_assert(alignof(std::remove_pointer_t<T>) >= 2);
      return reinterpret_cast<uintptr_t>(value);
    } else {
      return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value)) << 1;
    }
  }
  static T decode(uint64_t cell) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(static_cast<uintptr_t>(cell & ~uint64_t{1}));
    } else {
      return static_cast<T>(cell >> 1);
    }
  }
  uint64_t parity(uint64_t position) const { return (position & cells_) == 0 ? 1 : 0; }
  size_t index(uint64_t position) const { return position & (cells_ - 1); }
  bool is_free(uint64_t position, uint64_t freed) const {
    // Signed: a position that others took long ago may lie behind `freed`.
    return static_cast<int64_t>(position - freed) < static_cast<int64_t>(cells_);
  }

  bool pop_from(int level, T* value) {
    Reader& r = reader_[level];
    const uint64_t cell = r.cells[index(r.head)].load(std::memory_order_acquire);
    const bool found = (cell & 1) == parity(r.head);
    if (found) {
      *value = decode(cell);
      ++r.head;
    }
    if (r.head - r.freed >= (found ? free_batch_ : 1)) {
      r.freed = r.head;
      shared_[level].freed.store(r.head, std::memory_order_release);
    }
    return found;
  }
  bool pop_highest(int except, int* level, T* value) {
    for (int i = levels_ - 1; i >= 0; --i) {
      if (i != except && pop_from(i, value)) {
        *level = level_ = i;
        return true;
      }
    }
    return false;
  }
  bool pop_in_turn(int* level, T* value) {
    until_look_ = kLookPops;
    turn_ = (turn_ == 0 ? levels_ : turn_) - 1;
    if (!pop_from(turn_, value)) return pop_highest(turn_, level, value);
    *level = turn_;
    level_ = levels_ - 1;  // the next pop looks from the top
    return true;
  }

  const int levels_;
  uint64_t cells_;  // of a level; a power of two
  uint64_t free_batch_;
  const std::unique_ptr<Shared[]> shared_;
  // The consumer's.
  const std::unique_ptr<Reader[]> reader_;
  int level_;  // where it pops until it looks again
  int turn_ = 0;
  int until_look_ = kLookPops;
};

}  // namespace lmn::parallel
