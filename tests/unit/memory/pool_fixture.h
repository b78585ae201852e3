// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the pool share: sources that stand for other kinds of memory or refuse, and a
// stamp that tells whether two live objects share bytes.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "memory/pool.h"
#include "testing.h"

#if defined(__SANITIZE_THREAD__)
#define LMN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LMN_TSAN 1
#endif
#endif

namespace lmn::memory {

inline bool has(const Status& status, Code code, const std::string& word) {
  return status.code() == code && status.message().find(word) != std::string_view::npos;
}

// Memory that faults when it is read or written, as a device's does for the CPU. Counts what is
// out.
class DeviceLikeSource final : public BlockSource {
 public:
  explicit DeviceLikeSource(size_t capacity = SIZE_MAX) : capacity_(capacity) {}
  ~DeviceLikeSource() override { EXPECT_EQ(out_, size_t{0}); }
  const char* name() const override { return "device-like"; }
  bool host_addressable() const override { return false; }
  bool zeroed() const override { return false; }
  Result<std::byte*> reserve(size_t bytes) override {
    if (bytes > capacity_ - out_) return error(Code::kOutOfMemory, "device-like: %zu bytes", bytes);
    void* all = mmap(nullptr, bytes + kPageBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return error(Code::kOutOfMemory, "device-like: mmap");
    auto* from = static_cast<std::byte*>(all);
    auto* base = from + (kPageBytes - reinterpret_cast<uintptr_t>(from) % kPageBytes) % kPageBytes;
    if (base > from) munmap(from, static_cast<size_t>(base - from));
    munmap(base + bytes, kPageBytes - static_cast<size_t>(base - from));
    out_ += bytes;
    return base;
  }
  void release(std::byte* data, size_t bytes) noexcept override {
    out_ -= bytes;
    munmap(data, bytes);
  }
  bool decommit(std::byte*, size_t) noexcept override { return false; }

  size_t out() const { return out_; }

 private:
  const size_t capacity_;
  size_t out_ = 0;
};

inline std::shared_ptr<Pool> make_pool(const PoolOptions& options = {},
                                       std::unique_ptr<BlockSource> source = {}) {
  if (source == nullptr) source = std::make_unique<HostSource>();
  Result<std::shared_ptr<Pool>> pool = Pool::create(options, std::move(source));
  ASSERT_OK(pool);
  return std::move(pool).value();
}

inline bool aligned(const void* data, size_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// Writes `bytes` bytes that depend on `seed`, and looks whether they are still there: the first and
// the last eight, and one in each KiB.
inline void stamp(std::byte* data, size_t bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes; i += 1024) data[i] = static_cast<std::byte>(seed + i / 1024);
  if (bytes >= 8) std::memcpy(data + bytes - 8, &seed, 8);
  if (bytes >= 16) std::memcpy(data, &seed, 8);
}
inline bool stamped(const std::byte* data, size_t bytes, uint64_t seed) {
  if (bytes >= 8 && std::memcmp(data + bytes - 8, &seed, 8) != 0) return false;
  if (bytes >= 16 && std::memcmp(data, &seed, 8) != 0) return false;
  for (size_t i = 1024; i + 8 < bytes; i += 1024) {
    if (data[i] != static_cast<std::byte>(seed + i / 1024)) return false;
  }
  return bytes >= 8 || data[0] == static_cast<std::byte>(seed);
}

}  // namespace lmn::memory
