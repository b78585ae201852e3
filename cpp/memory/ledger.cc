// SPDX-License-Identifier: Apache-2.0
#include "memory/ledger.h"

namespace lmn::memory {

void Ledger::add_to(Counter& counter, int64_t bytes) {
  const int64_t now = counter.current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = counter.peak.load(std::memory_order_relaxed);
  while (now > peak && !counter.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void Ledger::add(Owner owner, int64_t bytes) {
  add_to(owners_[static_cast<size_t>(owner)], bytes);
  add_to(total_, bytes);
}

Ledger::Snapshot Ledger::snapshot() const {
  const auto read = [](const Counter& counter) {
    return Entry{counter.current.load(std::memory_order_relaxed),
                 counter.peak.load(std::memory_order_relaxed)};
  };
  Snapshot snapshot;
  for (size_t i = 0; i < owners_.size(); ++i) snapshot.owners[i] = read(owners_[i]);
  snapshot.total = read(total_);
  return snapshot;
}

}  // namespace lmn::memory
