// SPDX-License-Identifier: Apache-2.0
#include "memory/span.h"

#include <new>

namespace lmn::memory {
namespace {

Span* create_record(std::byte* base, size_t size, uint32_t capacity, bool with_requested) {
  const size_t links = round_up((capacity + 1) * sizeof(uint16_t), sizeof(uint32_t));
  const size_t total =
      sizeof(Span) + links + (with_requested ? capacity * sizeof(uint32_t) : size_t{0});
  void* memory = ::operator new (total, std::align_val_t{alignof(Span)}, std::nothrow);
  if (memory == nullptr) return nullptr;
  auto* span = new (memory) Span;
  span->base = base;
  span->size = size;
  span->reciprocal = reciprocal(size);
  span->capacity = capacity;
  for (uint32_t i = 0; i <= capacity; ++i) new (span->links() + i) std::atomic<uint16_t>(kNoObject);
  span->free_all();
  if (with_requested) {
    span->requested = new (reinterpret_cast<char*>(span + 1) + links) uint32_t[capacity]();
  }
  return span;
}

}  // namespace

void Span::free_all() {
  for (uint32_t i = 0; i + 1 < capacity; ++i) {
    links()[i].store(static_cast<uint16_t>(i + 1), std::memory_order_relaxed);
  }
  links()[capacity - 1].store(kNoObject, std::memory_order_relaxed);
  head = 0;
}

uint32_t Span::count_returned() {
  uint32_t count = 0;
  for (uint16_t at = remote.load(std::memory_order_acquire); at < capacity && count < capacity;
       at = links()[at].load(std::memory_order_relaxed)) {
    ++count;
  }
  return count;
}

Span* Span::create(std::byte* base, int size_class, size_t pages, bool with_requested) {
  const size_t size = class_bytes(size_class);
  Span* span =
      create_record(base, size, static_cast<uint32_t>(pages * kPageBytes / size), with_requested);
  if (span == nullptr) return nullptr;
  span->pages = static_cast<uint32_t>(pages);
  span->size_class = static_cast<uint8_t>(size_class);
  return span;
}

Span* Span::create_large(std::byte* base, size_t bytes) {
  Span* span = create_record(base, bytes, 1, false);
  if (span == nullptr) return nullptr;
  span->pages = static_cast<uint32_t>(bytes / kPageBytes);
  span->links()[0].store(kAllocated, std::memory_order_relaxed);
  span->head = kNoObject;
  span->count_taken();
  return span;
}

void Span::destroy(Span* span) {
  span->~Span();
  ::operator delete (static_cast<void*>(span), std::align_val_t{alignof(Span)});
}

}  // namespace lmn::memory
