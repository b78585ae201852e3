// SPDX-License-Identifier: Apache-2.0
//
// PoolResource: a pool as a std::pmr::memory_resource, for containers; every byte that is asked for
// is booked in a ledger, if there is one, under one owner. The pool must be of host memory. As the
// standard has it, it throws std::bad_alloc when memory is refused. Any number of threads at once.
#pragma once

#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

#include "memory/ledger.h"
#include "memory/pool.h"

namespace lmn::memory {

class PoolResource final : public std::pmr::memory_resource {
 public:
  // Keeps the pool alive; `ledger` may be null, else it outlives this.
  explicit PoolResource(std::shared_ptr<Pool> pool, Ledger* ledger = nullptr,
                        Owner owner = Owner::kScratch)
      : pool_(std::move(pool)), ledger_(ledger), owner_(owner) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    void* data = pool_->try_allocate_aligned(bytes, alignment);
    if (data == nullptr) throw std::bad_alloc();
    if (ledger_ != nullptr) ledger_->add(owner_, static_cast<int64_t>(bytes));
    return data;
  }
  void do_deallocate(void* data, size_t bytes, size_t) override {
    // A container cannot be told of a fault; Pool::check() tells of it.
    if (pool_->free(data).ok() && ledger_ != nullptr) {
      ledger_->subtract(owner_, static_cast<int64_t>(bytes));
    }
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const PoolResource*>(&other);
    return same != nullptr && same->pool_ == pool_ && same->ledger_ == ledger_ &&
           same->owner_ == owner_;
  }

  const std::shared_ptr<Pool> pool_;
  Ledger* const ledger_;
  const Owner owner_;
};

}  // namespace lmn::memory
