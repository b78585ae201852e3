// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/tensor.h"

namespace lmn::engine {
namespace {

// Of k or of v of one page in one layer.
int64_t bytes_of_page(const KvShape& shape, DType dtype) {
  return shape.kv_heads * row_bytes(dtype, int64_t{shape.head_dim} * kKvPageTokens);
}

}  // namespace

Result<int64_t> kv_bytes(const KvShape& shape, DType dtype, int64_t tokens) {
  if (dtype != DType::kF16 && dtype != DType::kF32 && dtype != DType::kQ8_0) {
    return error(Code::kInvalidArgument, "kv_dtype is %s; a KV cache is f16, f32 or q8_0",
                 info(dtype).name.data());
  }
  if (shape.head_dim % info(dtype).block_elements != 0) {
    return error(Code::kUnsupported,
                 "a KV cache in %s needs heads of a multiple of %u elements, and the model's have "
                 "%d; use f16",
                 info(dtype).name.data(), info(dtype).block_elements, shape.head_dim);
  }
  const int64_t pages = kv_pages(tokens);
  int64_t bytes = 0;
  int32_t slots = 0;  // (page * page_step + array) * page_tokens + offset
  const bool overflow =
      __builtin_mul_overflow(int64_t{shape.kv_heads},
                             row_bytes(dtype, int64_t{shape.head_dim} * kKvPageTokens), &bytes) ||
      __builtin_mul_overflow(pages, bytes, &bytes) ||
      __builtin_mul_overflow(bytes, int64_t{2} * shape.layers, &bytes) ||
      __builtin_mul_overflow(pages, int64_t{kKvPageTokens} * std::max(2 * shape.layers, 1), &slots);
  if (overflow) {
    return error(Code::kInvalidArgument,
                 "kv_tokens is %lld, more than a KV cache can address; lower it",
                 static_cast<long long>(tokens));
  }
  return bytes;
}

Result<KvCache> KvCache::create(std::span<const KvPart> parts, const KvShape& shape, DType dtype,
                                int64_t tokens, memory::Ledger& ledger) {
  LMN_ASSIGN_OR_RETURN(const int64_t bytes, kv_bytes(shape, dtype, tokens));
  KvCache cache;
  cache.dtype_ = dtype;
  cache.pages_ = static_cast<int32_t>(kv_pages(tokens));
  cache.page_bytes_ = bytes_of_page(shape, dtype);
  if (bytes == 0) {
    cache.layers_.resize(static_cast<size_t>(shape.layers));
    return cache;
  }
  for (const KvPart& part : parts) {
    if (part.layers == 0) continue;
    const auto size =
        static_cast<size_t>(int64_t{cache.pages_} * 2 * part.layers * cache.page_bytes_);
    Result<std::byte*> data = part.device->allocate(size);
    if (!data.ok()) {
      return std::move(data).status().with_context("KV cache of " + std::to_string(tokens) +
                                                   " tokens, " + std::to_string(bytes) +
                                                   " bytes (lower kv_tokens or context_tokens)");
    }
    cache.zeros_.resize(
        std::max(cache.zeros_.size(), static_cast<size_t>(2 * part.layers * cache.page_bytes_)));
    Region& region = cache.regions_.emplace_back();
    region.layers = part.layers;
    region.data = {*data, Release{part.device, size}};
    // page_bytes is a multiple of 64: 32 elements of two bytes are 64, and 32 blocks
    // of 34 bytes are 17 times as many.
    for (int32_t layer = 0; layer < part.layers; ++layer) {
      cache.layers_.push_back(
          {cache.array(region, 0, 2 * layer), cache.array(region, 0, 2 * layer + 1)});
    }
  }
  LMN_CHECK(cache.layers_.size() == static_cast<size_t>(shape.layers));
  cache.bytes_ = bytes;
  cache.ledger_ = memory::LedgerEntry(&ledger, memory::Owner::kKv, bytes);
  return cache;
}

Status KvCache::scrub(int32_t page) {
  for (const Region& region : regions_) {
    LMN_RETURN_IF_ERROR(region.data.get_deleter().device->copy_from_host(
        array(region, page, 0), zeros_.data(),
        static_cast<size_t>(2 * region.layers * page_bytes_)));
  }
  return {};
}

Status KvCache::copy_page(int32_t from, int32_t to) {
  for (const Region& region : regions_) {
    LMN_RETURN_IF_ERROR(region.data.get_deleter().device->copy(
        array(region, to, 0), array(region, from, 0),
        static_cast<size_t>(2 * region.layers * page_bytes_)));
  }
  return {};
}

}  // namespace lmn::engine
