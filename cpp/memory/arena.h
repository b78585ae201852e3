// SPDX-License-Identifier: Apache-2.0
//
// Arena: one allocation of a pool, handed out from the front and given back all at once or from a
// mark on. Offsets are exact: the first is 0, each next one is the end of the one before, rounded
// up to its alignment; so a plan that has computed offsets may use them as they are. For one thread
// at a time. It never touches the memory, which may be a device's.
#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "memory/ledger.h"
#include "memory/pool.h"

namespace lmn::memory {

class Arena {
 public:
  Arena() = default;  // of 0 bytes
  // `bytes` from `pool`, which it keeps alive; booked under `owner` as long as it lives, if there
  // is a ledger. OUT_OF_MEMORY as the pool says.
  static Result<Arena> create(std::shared_ptr<Pool> pool, size_t bytes, Ledger* ledger = nullptr,
                              Owner owner = Owner::kArena) {
    Arena arena;
    LMN_ASSIGN_OR_RETURN(arena.base_, pool->allocate(bytes));
    arena.pool_ = std::move(pool);
    arena.capacity_ = bytes;
    arena.entry_ = LedgerEntry(ledger, owner, static_cast<int64_t>(bytes));
    return arena;
  }
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(base_, other.base_);
    std::swap(capacity_, other.capacity_);
    std::swap(used_, other.used_);
    std::swap(peak_, other.peak_);
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~Arena() {
    if (base_ != nullptr) (void)pool_->try_free(base_);
  }

  // nullptr when it does not fit. `alignment`: a power of two up to 64.
  std::byte* allocate(size_t bytes, size_t alignment = kAlignment) {
    if (!std::has_single_bit(alignment) || alignment > kAlignment) return nullptr;
    const size_t offset = round_up(used_, alignment);
    if (offset > capacity_ || bytes > capacity_ - offset) return nullptr;
    used_ = offset + bytes;
    peak_ = used_ > peak_ ? used_ : peak_;
    return base_ + offset;
  }
  // Gives back everything from `mark` on, an earlier value of used().
  void reset(size_t mark = 0) { used_ = mark < used_ ? mark : used_; }

  std::byte* data() const { return base_; }
  size_t used() const { return used_; }  // bytes, gaps for alignment among them
  size_t peak() const { return peak_; }
  size_t capacity() const { return capacity_; }

 private:
  std::shared_ptr<Pool> pool_;
  std::byte* base_ = nullptr;
  size_t capacity_ = 0, used_ = 0, peak_ = 0;
  LedgerEntry entry_;
};

}  // namespace lmn::memory
