// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

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

KvCache::KvCache(Device& device, const KvShape& shape, DType dtype, int32_t pages)
    : device_(&device), dtype_(dtype), layers_(static_cast<size_t>(shape.layers)), pages_(pages) {}

KvCache::KvCache(KvCache&& other) noexcept
    : device_(other.device_),
      region_(std::exchange(other.region_, nullptr)),
      bytes_(other.bytes_),
      page_bytes_(other.page_bytes_),
      zeros_(std::move(other.zeros_)),
      dtype_(other.dtype_),
      layers_(std::move(other.layers_)),
      pages_(other.pages_),
      ledger_(std::move(other.ledger_)) {}

KvCache::~KvCache() {
  if (region_ != nullptr) device_->release(region_, static_cast<size_t>(bytes_));
}

Result<KvCache> KvCache::create(Device& device, const KvShape& shape, DType dtype, int64_t tokens,
                                memory::Ledger& ledger) {
  LMN_ASSIGN_OR_RETURN(const int64_t bytes, kv_bytes(shape, dtype, tokens));
  const int64_t pages = kv_pages(tokens), page_bytes = bytes_of_page(shape, dtype);
  KvCache cache(device, shape, dtype, static_cast<int32_t>(pages));
  cache.page_bytes_ = page_bytes;
  cache.zeros_.resize(static_cast<size_t>(page_bytes));
  if (bytes == 0) return cache;
  Result<std::byte*> region = device.allocate(static_cast<size_t>(bytes));
  if (!region.ok()) {
    return std::move(region).status().with_context("KV cache of " + std::to_string(tokens) +
                                                   " tokens, " + std::to_string(bytes) +
                                                   " bytes (lower kv_tokens or context_tokens)");
  }
  cache.region_ = *region;
  cache.bytes_ = bytes;
  cache.ledger_ = memory::LedgerEntry(&ledger, memory::Owner::kKv, bytes);
  // page_bytes is a multiple of 64: 32 elements of two bytes are 64, and 32 blocks
  // of 34 bytes are 17 times as many.
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    cache.layers_[static_cast<size_t>(layer)] = {cache.array(0, 2 * layer),
                                                 cache.array(0, 2 * layer + 1)};
  }
  return cache;
}

Status KvCache::scrub(int32_t page) {
  for (int32_t i = 0; i < page_step(); ++i) {
    LMN_RETURN_IF_ERROR(device_->copy_from_host(array(page, i), zeros_.data(), zeros_.size()));
  }
  return {};
}

Status KvCache::copy_page(int32_t from, int32_t to) {
  if (region_ == nullptr) return {};
  return device_->copy(array(to, 0), array(from, 0),
                       static_cast<size_t>(page_step() * page_bytes_));
}

}  // namespace lmn::engine
