// SPDX-License-Identifier: Apache-2.0
//
// KvCache: the keys and values of all sequences, cut into pages of kKvPageTokens tokens: one region
// of device memory, or one for the layers on each of several devices. A page holds, in a region,
// the keys and values of the same tokens for every layer of it, one array of page_bytes each: k and
// v of its first layer, of its second, and so on. So memory is touched in the measure in which
// tokens come, and what was never used costs none. Kernels see arrays of such pages (layout:
// ops::KvLayer); page p is number p * page_step() in each. Who holds which page is the business of
// PagePool. Of the engine thread alone.
#pragma once

#include <cstdint>
#include <memory>
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

// The next so many layers, on a device.
struct KvPart {
  Device* device = nullptr;
  int32_t layers = 0;
};

class KvCache {
 public:
  // The parts have shape.layers in all. OUT_OF_MEMORY names the size and the option that lowers it.
  // A shape without layers takes no memory.
  static Result<KvCache> create(std::span<const KvPart> parts, const KvShape& shape, DType dtype,
                                int64_t tokens, memory::Ledger& ledger);
  KvCache(KvCache&& other) noexcept = default;
  KvCache& operator=(KvCache&&) = delete;
  int32_t pages() const { return pages_; }
  // Arrays of a page in the last region: the distance of pages in its kernels' page numbers. Who
  // runs the others converts (split_runner.h).
  int32_t page_step() const { return regions_.empty() ? 0 : 2 * regions_.back().layers; }
  KvBinding binding() const { return {layers_, dtype_, kKvPageTokens}; }
  int64_t bytes() const { return bytes_; }

  // Writes zeros over a page. A page that held NaN or infinity must not be handed out as it is:
  // kernels read whole pages and weigh what lies behind a sequence's end with zero, and zero times
  // NaN is NaN.
  Status scrub(int32_t page);
  Status copy_page(int32_t from, int32_t to);

 private:
  struct Release {
    Device* device;
    size_t bytes;
    void operator()(std::byte* data) const { device->release(data, bytes); }
  };
  struct Region {
    int32_t layers = 0;
    std::unique_ptr<std::byte, Release> data;
  };
  KvCache() = default;
  std::byte* array(const Region& region, int32_t page, int32_t index) const {
    return region.data.get() + (int64_t{page} * 2 * region.layers + index) * page_bytes_;
  }

  std::vector<Region> regions_;
  int64_t bytes_ = 0;
  int64_t page_bytes_ = 0;        // of k or of v, in one layer
  std::vector<std::byte> zeros_;  // of a page in all layers of a region: scrub() allocates nothing
  DType dtype_ = DType::kF16;
  std::vector<KvLayerMemory> layers_;
  int32_t pages_ = 0;
  memory::LedgerEntry ledger_;
};

}  // namespace lmn::engine
