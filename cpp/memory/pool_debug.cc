// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_debug.h"

#include <algorithm>
#include <new>

#include "memory/poison.h"

namespace lmn::memory {
namespace {

constexpr auto kCanaryByte = std::byte{0xC5};
constexpr auto kNewByte = std::byte{0xA5};
constexpr auto kFreedByte = std::byte{0xDF};
constexpr uint32_t kFreedMark = ~uint32_t{0};  // in Span::requested: filled with kFreedByte

bool all_are(const std::byte* data, size_t bytes, std::byte value) {
  return std::all_of(data, data + bytes, [value](std::byte b) { return b == value; });
}

}  // namespace

Status fault_status(Fault fault, const void* data) {
  switch (fault) {
    case Fault::kNone:
      return {};
    case Fault::kForeign:
      return error(Code::kInvalidArgument,
                   "free of %p, which is not memory of this pool; free it where it was allocated",
                   data);
    case Fault::kInterior:
      return error(Code::kInvalidArgument,
                   "free of %p, which is inside this pool's memory, but not the start of an "
                   "allocation; free the address that alloc gave",
                   data);
    case Fault::kDoubleFree:
      return error(Code::kInvalidArgument, "free of %p, which is not allocated: freed before?",
                   data);
    case Fault::kOverrun:
      return error(Code::kCorrupt, "bytes behind the end of the allocation at %p were written",
                   data);
    case Fault::kLateWrite:
      return error(Code::kCorrupt, "bytes of %p were written after it was freed", data);
  }
  return error(Code::kInternal, "unknown fault at %p", data);
}

size_t Debugger::requested(const Span* span, uint32_t index) {
  return span->size_class == kLargeClass ? span->large_bytes : span->requested[index];
}

void Debugger::allocated(Span* span, uint32_t index, size_t bytes) {
  bool was_freed = false;
  if (span->size_class == kLargeClass) {
    span->large_bytes = bytes;
  } else {
    was_freed = span->requested[index] == kFreedMark;
    span->requested[index] = static_cast<uint32_t>(bytes);
  }
  std::byte* data = span->object(index);
  if (!writes_) return unpoison(data, bytes);
  unpoison(data, span->size);
  if (tier_ == DebugTier::kFull) {
    if (was_freed && !all_are(data, span->size, kFreedByte)) {
      note(fault_status(Fault::kLateWrite, data));
    }
    std::fill_n(data, bytes, kNewByte);
  }
  std::fill_n(data + bytes, kCanary, kCanaryByte);
  poison(data + bytes, span->size - bytes);
}

bool Debugger::canary_is_whole(const Span* span, uint32_t index) const {
  if (!writes_) return true;
  const std::byte* end = span->object(index) + requested(span, index);
  unpoison(end, kCanary);
  const bool whole = all_are(end, kCanary, kCanaryByte);
  poison(end, kCanary);
  return whole;
}

Fault Debugger::freed(Span* span, uint32_t index) {
  const Fault fault = canary_is_whole(span, index) ? Fault::kNone : Fault::kOverrun;
  std::byte* data = span->object(index);
  if (writes_ && tier_ == DebugTier::kFull && span->size_class != kLargeClass) {
    unpoison(data, span->size);
    std::fill_n(data, span->size, kFreedByte);
    span->requested[index] = kFreedMark;
  }
  poison(data, span->size);
  return fault;
}

bool Debugger::quarantine(Entry entry, Entry* leaving) {
  bool queued = false;
  if (tier_ == DebugTier::kFull) {
    try {
      queue_.push_back(entry);
      queued = true;
    } catch (const std::bad_alloc&) {  // no room to wait
    }
  }
  if (!queued) {
    *leaving = entry;
    return true;
  }
  return queue_.size() > kQuarantine && leave_quarantine(leaving);
}

bool Debugger::leave_quarantine(Entry* leaving) {
  if (queue_.empty()) return false;
  *leaving = queue_.front();
  queue_.pop_front();
  return true;
}

}  // namespace lmn::memory
