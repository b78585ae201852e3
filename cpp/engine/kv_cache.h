// SPDX-License-Identifier: Apache-2.0
//
// KvCache: one region of device memory for the keys and values of all sequences, cut into pages of
// kKvPageTokens tokens. A page holds the keys and values of the same tokens for every layer, one
// array of page_bytes each: k and v of layer 0, of layer 1, and so on. So memory is touched in the
// measure in which tokens come, and what was never used costs none. Kernels see arrays of such
// pages (layout: ops::KvLayer); page p is number p * page_step() in each. Who holds which page is
// the business of PagePool. Of the engine thread alone.
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
// that none has. UNSUPPORTED: heads that are no whole number of the dtype's blocks.
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
  // Arrays of a page: the distance of pages in kernels' page numbers.
  int32_t page_step() const { return static_cast<int32_t>(2 * layers_.size()); }
  KvBinding binding() const { return {layers_, dtype_, kKvPageTokens}; }
  int64_t bytes() const { return bytes_; }

  // Writes zeros over a page. A page that held NaN or infinity must not be handed out as it is:
  // kernels read whole pages and weigh what lies behind a sequence's end with zero, and zero times
  // NaN is NaN.
  Status scrub(int32_t page);
  Status copy_page(int32_t from, int32_t to);

 private:
  KvCache(Device& device, const KvShape& shape, DType dtype, int32_t pages);
  std::byte* array(int32_t page, int32_t index) const {
    return region_ + (int64_t{page} * page_step() + index) * page_bytes_;
  }

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
