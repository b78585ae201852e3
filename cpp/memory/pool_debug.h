// SPDX-License-Identifier: Apache-2.0
//
// Debug tiers of a pool: what is checked beyond what costs nothing. In kChecks and kFull every call
// takes the pool's lock, and allocations are a canary longer.
//
//   kOff     foreign addresses, frees of what is not in use
//   kChecks  and a canary of 16 bytes directly behind what was asked for, checked by free and by
//            Pool::check()
//   kFull    and fill patterns: new memory is 0xA5, freed memory 0xDF, checked before it is handed
//            out again; freed objects wait in a queue of kQuarantine, so that a second free or a
//            late write meets no new holder
//
// Canaries and patterns need memory that the CPU can address; for other sources the tiers keep the
// rest. A fault that no call can report (a late write, found by an allocation) is reported by
// Pool::check().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/status.h"
#include "memory/span.h"

namespace lmn::memory {

enum class DebugTier : uint8_t { kOff, kChecks, kFull };

// What a caller did wrong.
enum class Fault : uint8_t {
  kNone,
  kForeign,     // not memory of this pool
  kInterior,    // inside it, but not the start of an object
  kDoubleFree,  // an object that is not in use
  kOverrun,     // bytes behind the allocation were written
  kLateWrite,   // bytes of a freed object were written
};

// The work of the tiers on one object; the pool's lock is held.
class Debugger {
 public:
  static constexpr size_t kCanary = 16;
  static constexpr size_t kQuarantine = 256;  // objects
  struct Entry {
    Span* span;
    uint16_t index;
  };

  Debugger(DebugTier tier, bool host_addressable)
      : tier_(tier), writes_(tier != DebugTier::kOff && host_addressable) {}

  bool on() const { return tier_ != DebugTier::kOff; }
  // What has to be allocated so that a canary fits behind `bytes`.
  size_t padded(size_t bytes) const { return on() ? bytes + kCanary : bytes; }

  void allocated(Span* span, uint32_t index, size_t bytes);
  // Before an allocated object is freed: is its canary whole? Then fills it.
  Fault freed(Span* span, uint32_t index);
  bool canary_is_whole(const Span* span, uint32_t index) const;

  // Puts an object into the queue. The one that leaves it for that, if any, may be freed.
  bool quarantine(Entry entry, Entry* leaving);
  bool leave_quarantine(Entry* leaving);
  size_t quarantined() const { return queue_.size(); }

  void note(const Status& fault) {
    if (first_fault_.ok()) first_fault_ = fault;
  }
  const Status& first_fault() const { return first_fault_; }

 private:
  static size_t requested(const Span* span, uint32_t index);
  const DebugTier tier_;
  const bool writes_;
  std::deque<Entry> queue_;
  Status first_fault_;
};

Status fault_status(Fault fault, const void* data);

}  // namespace lmn::memory
