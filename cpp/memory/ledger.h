// SPDX-License-Identifier: Apache-2.0
//
// Ledger: who holds how many bytes, now and at most. One instance per model or engine, passed to
// whoever allocates; every add has its subtract, so that a torn-down owner reads zero. Counting
// only: it allocates nothing and owns no memory. Thread-safe; a snapshot is exact for each owner,
// and not one moment for all of them together.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace lmn::memory {

// X(enumerator, "name", what it counts)
#define LMN_LEDGER_OWNERS(X)                                            \
  X(kMapped, "mapped", "model file bytes mapped into memory")           \
  X(kFileCopy, "file_copy", "model file bytes read into memory")        \
  X(kPackedWeights, "packed_weights", "weights in the kernels' layout") \
  X(kKv, "kv", "KV cache region, reserved")                             \
  X(kArena, "arena", "activations of plans")                            \
  X(kPinned, "pinned", "page-locked, for copies to and from a device")  \
  X(kScratch, "scratch", "per-worker and sampler scratch")              \
  X(kTokenizer, "tokenizer", "vocabulary and merges")                   \
  X(kRequests, "requests", "buffers of live requests")                  \
  X(kTrace, "trace", "spans that wait to be read")

enum class Owner : uint8_t {
#define X(e, name, text) e,
  LMN_LEDGER_OWNERS(X)
#undef X
};

inline constexpr std::string_view kOwnerNames[] = {
#define X(e, name, text) name,
    LMN_LEDGER_OWNERS(X)
#undef X
};
inline constexpr int kOwnerCount = static_cast<int>(std::size(kOwnerNames));

class Ledger {
 public:
  struct Entry {
    int64_t current = 0;  // bytes
    int64_t peak = 0;     // bytes
  };
  struct Snapshot {
    std::array<Entry, kOwnerCount> owners;
    Entry total;  // peak of the sum, which may be less than the sum of the peaks

    const Entry& operator[](Owner owner) const { return owners[static_cast<size_t>(owner)]; }
  };

  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  void add(Owner owner, int64_t bytes);
  void subtract(Owner owner, int64_t bytes) { add(owner, -bytes); }
  Snapshot snapshot() const;

 private:
  // Relaxed throughout: the counters order nothing but themselves.
  struct Counter {
    std::atomic<int64_t> current{0};
    std::atomic<int64_t> peak{0};
  };
  static void add_to(Counter& counter, int64_t bytes);
  std::array<Counter, kOwnerCount> owners_;
  Counter total_;
};

// Bytes in a ledger for as long as this object lives. Movable; the ledger must outlive it.
class LedgerEntry {
 public:
  LedgerEntry() = default;
  LedgerEntry(Ledger* ledger, Owner owner, int64_t bytes)
      : ledger_(ledger), owner_(owner), bytes_(bytes) {
    if (ledger_ != nullptr) ledger_->add(owner_, bytes_);
  }
  LedgerEntry(LedgerEntry&& other) noexcept { *this = static_cast<LedgerEntry&&>(other); }
  LedgerEntry& operator=(LedgerEntry&& other) noexcept {
    if (this != &other) {
      release();
      ledger_ = other.ledger_;
      owner_ = other.owner_;
      bytes_ = other.bytes_;
      other.ledger_ = nullptr;
    }
    return *this;
  }
  ~LedgerEntry() { release(); }

  int64_t bytes() const { return bytes_; }
  void release() {
    if (ledger_ != nullptr) ledger_->subtract(owner_, bytes_);
    ledger_ = nullptr;
  }

 private:
  Ledger* ledger_ = nullptr;
  Owner owner_ = Owner::kScratch;
  int64_t bytes_ = 0;
};

}  // namespace lmn::memory
