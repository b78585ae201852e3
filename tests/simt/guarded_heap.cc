// SPDX-License-Identifier: Apache-2.0
//
// Bump allocation over a reserved region, with one byte of shadow for 16 bytes: how many of them,
// from the first, belong to an allocation. A class of sizes is used again once it has aged.
#include "guarded_heap.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace simt_tests {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUseMalloc = true;
#else
constexpr bool kUseMalloc = false;
#endif

constexpr size_t kRegion = size_t{1} << 38, kGranule = 16, kAlignment = 256, kZone = 256;
constexpr size_t kKept = 64;  // freed allocations of a size before the oldest is used again

// The heap's own records: operator new may be made of guarded_allocate.
template <typename T>
struct Malloc {
  using value_type = T;
  Malloc() = default;
  template <typename U>
  Malloc(const Malloc<U>&) {}  // NOLINT: implicit by the standard
  T* allocate(size_t n) {
    void* data = std::malloc(n * sizeof(T));
    if (data == nullptr) std::abort();
    return static_cast<T*>(data);
  }
  void deallocate(T* data, size_t) { std::free(data); }
  bool operator==(const Malloc&) const { return true; }
};
using Freed = std::deque<std::byte*, Malloc<std::byte*>>;

struct Heap {
  Heap() {
    base = reserve(kRegion);
    shadow = reinterpret_cast<uint8_t*>(reserve(kRegion / kGranule));
    next = base + kZone;
  }
  static std::byte* reserve(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<std::byte*>(memory);
  }
  void mark(const std::byte* at, size_t bytes, bool usable) {
    uint8_t* s = shadow + static_cast<size_t>(at - base) / kGranule;
    std::memset(s, usable ? static_cast<int>(kGranule) : 0, bytes / kGranule);
    if (bytes % kGranule != 0)
      s[bytes / kGranule] = usable ? static_cast<uint8_t>(bytes % kGranule) : uint8_t{0};
  }

  std::mutex mutex;
  std::byte* base;
  uint8_t* shadow;
  std::byte* next;
  std::unordered_map<void*, size_t, std::hash<void*>, std::equal_to<>,
                     Malloc<std::pair<void* const, size_t>>>
      live;
  // By the bytes taken from the region.
  std::map<size_t, Freed, std::less<>, Malloc<std::pair<const size_t, Freed>>> freed;
};

Heap& heap() {
  alignas(Heap) static std::byte storage[sizeof(Heap)];
  static Heap* instance = new (storage) Heap;  // never destroyed: memory may be freed after main
  return *instance;
}

size_t taken(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment + kZone; }

}  // namespace

void* guarded_allocate(size_t bytes) {
  if (bytes == 0) bytes = 1;
  if (kUseMalloc) {
    void* data = nullptr;
    if (posix_memalign(&data, kAlignment, bytes) != 0) std::abort();
    std::memset(data, 0xFF, bytes);
    return data;
  }
  Heap& h = heap();
  const std::lock_guard<std::mutex> lock(h.mutex);
  std::byte* data = nullptr;
  auto& freed = h.freed[taken(bytes)];
  if (freed.size() >= kKept || (bytes > (size_t{1} << 20) && !freed.empty())) {
    data = freed.front();
    freed.pop_front();
  } else {
    data = h.next;
    h.next += taken(bytes);
    if (h.next > h.base + kRegion) std::abort();
  }
  h.mark(data, bytes, true);
  std::memset(data, 0xFF, bytes);
  h.live[data] = bytes;
  return data;
}

void guarded_free(void* data) {
  if (data == nullptr) return;
  if (kUseMalloc) return std::free(data);
  Heap& h = heap();
  const std::lock_guard<std::mutex> lock(h.mutex);
  const auto found = h.live.find(data);
  if (found == h.live.end()) std::abort();
  h.mark(static_cast<std::byte*>(data), found->second, false);
  h.freed[taken(found->second)].push_back(static_cast<std::byte*>(data));
  h.live.erase(found);
}

void guarded_show(void* data, bool usable) {
  if (kUseMalloc) return;
  Heap& h = heap();
  const std::lock_guard<std::mutex> lock(h.mutex);
  h.mark(static_cast<std::byte*>(data), h.live.at(data), usable);
}

Inside guarded_inside(const void* at, size_t bytes) {
  if (kUseMalloc) return Inside::kNotOurs;
  const Heap& h = heap();
  const auto* p = static_cast<const std::byte*>(at);
  if (p < h.base || p >= h.base + kRegion) return Inside::kNotOurs;
  const size_t begin = static_cast<size_t>(p - h.base), end = begin + bytes;
  for (size_t g = begin / kGranule; g * kGranule < end; ++g) {
    const size_t last = (end < (g + 1) * kGranule ? end : (g + 1) * kGranule) - g * kGranule;
    if (h.shadow[g] < last) return Inside::kNo;
  }
  return Inside::kYes;
}

}  // namespace simt_tests
