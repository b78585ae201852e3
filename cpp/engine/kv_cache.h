// SPDX-License-Identifier: Apache-2.0
//
// KvCache: one region of device memory for the keys and values of all sequences, cut into pages of
// kKvPageTokens tokens. A page holds the same tokens of every layer; its number is its place in
// every layer's array (layout: ops::KvLayer). Who holds which page is the business of PagePool. Of
// the engine thread alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/status.h"
#include "engine/step_runner.h"
#include "memory/ledger.h"

namespace lmn::engine {

// 32 tokens of one key dimension in f16 are 64 bytes: exactly one cache line, two AVX2 or one
// AVX-512 register pair, so an attention kernel wastes no part of a line. 64 would double what the
// last page of a sequence leaves unused (half a page on average) and coarsen what a shared prefix
// can match; 16 would leave half of every line to the neighbouring dimension.
inline constexpr int32_t kKvPageTokens = 32;

// Pages that hold so many tokens.
inline constexpr int64_t kv_pages(int64_t tokens) {
  return (tokens + kKvPageTokens - 1) / kKvPageTokens;
}

// Bytes of a cache of so many tokens. INVALID_ARGUMENT: more than a cache can address, or a dtype
// that none has.
Result<int64_t> kv_bytes(const KvShape& shape, DType dtype, int64_t tokens);

class KvCache {
 public:
  // OUT_OF_MEMORY names the size and the option that lowers it. A shape without layers takes no
  // memory.
  static Result<KvCache> create(Device& device, const KvShape& shape, DType dtype, int64_t tokens,
                                memory::Ledger& ledger);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&&) = delete;
  ~KvCache();

  int32_t pages() const { return pages_; }
  KvBinding binding() const { return {layers_, dtype_, kKvPageTokens}; }
  int64_t bytes() const { return bytes_; }

  // Writes zeros over a page. A page that held NaN or infinity must not be handed out as it is:
  // kernels read whole pages and weigh what lies behind a sequence's end with zero, and zero times
  // NaN is NaN.
  Status scrub(int32_t page);
  Status copy_page(int32_t from, int32_t to);

 private:
  KvCache(Device& device, const KvShape& shape, DType dtype, int32_t pages);

  Device* device_;
  std::byte* region_ = nullptr;
  int64_t bytes_ = 0;
  int64_t page_bytes_ = 0;        // of k or of v, in one layer
  std::vector<std::byte> zeros_;  // [page_bytes]: scrub() allocates nothing
  DType dtype_;
  std::vector<KvLayerMemory> layers_;
  int32_t pages_;
  memory::LedgerEntry ledger_;
};

}  // namespace lmn::engine
