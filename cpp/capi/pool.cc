// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/pool.h. Allocation and free try the pool's fast path before the fence of
// guard.h: it throws nothing and has no cancellation point.
#include "lmnative/pool.h"

#include <limits>

#include "capi/available_memory.h"
#include "capi/options.h"
#include "capi/tensor.h"
#include "memory/pool.h"

struct lmn_pool {
  std::shared_ptr<lmn::memory::Pool> object;
};

namespace lmn::capi {
namespace {

// Anonymous pages, as many as this process may still touch: see available_memory.h.
class QuotaSource final : public memory::HostSource {
 public:
  Result<std::byte*> reserve(size_t bytes) override {
    LMN_RETURN_IF_ERROR(
        check_fits(static_cast<int64_t>(bytes), "memory pool", "free memory, or allocate less"));
    return HostSource::reserve(bytes);
  }
};

Result<memory::PoolOptions> pool_options(const lmn_pool_options* options) {
  lmn_pool_options given;
  LMN_RETURN_IF_ERROR(read_options(options, "lmn_pool_options", &given));
  if (given.debug > LMN_POOL_DEBUG_FULL) {
    return error(Code::kInvalidArgument,
                 "lmn_pool_options.debug is %u; it is LMN_POOL_DEBUG_OFF, "
                 "_CHECKS or _FULL",
                 given.debug);
  }
  if (given.block_bytes != 0 &&
      (given.block_bytes < memory::kPageBytes || given.block_bytes > uint64_t{1} << 46)) {
    return error(Code::kInvalidArgument,
                 "lmn_pool_options.block_bytes is %llu; it is 65536 to 2^46, or 0",
                 static_cast<unsigned long long>(given.block_bytes));
  }
  memory::PoolOptions out;
  out.block_bytes = given.block_bytes != 0 ? given.block_bytes : default_block_bytes();
  out.limit_bytes = given.limit_bytes;
  out.keep_large_bytes = given.keep_bytes != 0 ? given.keep_bytes : out.block_bytes;
  if (given.keep_bytes == std::numeric_limits<uint64_t>::max()) out.keep_large_bytes = 0;
  out.debug = static_cast<memory::DebugTier>(given.debug);
  return out;
}

// Out of line, so that the exports' fast paths are all that they set up for.
[[gnu::noinline]] lmn_status alloc_fenced(lmn_pool* pool, uint64_t bytes, void** data,
                                          lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    LMN_REQUIRE_ONE(data);
    LMN_ASSIGN_OR_RETURN(*data, pool->object->allocate(bytes));
    return {};
  });
}

[[gnu::noinline]] lmn_status free_fenced(lmn_pool* pool, void* data, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    return pool->object->free(data);
  });
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_pool_create(const lmn_pool_options* options, lmn_pool** pool, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    LMN_ASSIGN_OR_RETURN(const memory::PoolOptions given, pool_options(options));
    auto handle = std::make_unique<lmn_pool>();
    LMN_ASSIGN_OR_RETURN(handle->object,
                         memory::Pool::create(given, std::make_unique<QuotaSource>()));
    *pool = handle.release();
    return {};
  });
}

void lmn_pool_destroy(lmn_pool* pool) {
  guard_destroy([&] { delete pool; });
}

lmn_status lmn_pool_alloc(lmn_pool* pool, uint64_t bytes, void** data, lmn_error** err) {
  if (pool != nullptr && data != nullptr) [[likely]] {
    if (std::byte* memory = pool->object->try_allocate_fast(bytes)) [[likely]] {
      if (err != nullptr) *err = nullptr;
      *data = memory;
      return LMN_OK;
    }
  }
  return alloc_fenced(pool, bytes, data, err);
}

lmn_status lmn_pool_free(lmn_pool* pool, void* data, lmn_error** err) {
  if (pool != nullptr && pool->object->try_free_fast(data)) [[likely]] {
    if (err != nullptr) *err = nullptr;
    return LMN_OK;
  }
  return free_fenced(pool, data, err);
}

lmn_status lmn_pool_tensor_create(lmn_pool* pool, int32_t dtype_code, int32_t dtype_bits,
                                  int32_t ndim, const int64_t* shape,
                                  DLManagedTensorVersioned** tensor, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    LMN_REQUIRE_ONE(shape);
    LMN_REQUIRE_ONE(tensor);
    LMN_ASSIGN_OR_RETURN(const TensorArguments given,
                         check_tensor(dtype_code, dtype_bits, ndim, shape));
    const std::shared_ptr<memory::Pool>& object = pool->object;
    LMN_ASSIGN_OR_RETURN(std::byte * data, object->allocate(given.bytes));
    // If the record of the owner cannot be made, shared_ptr calls the deleter.
    std::shared_ptr<std::byte> owner(
        data, [keep = object](std::byte* memory) { (void)keep->try_free(memory); });
    *tensor = make_tensor(given.spec, data, std::move(owner));
    return {};
  });
}

lmn_status lmn_pool_trim(lmn_pool* pool, uint64_t* released, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    const size_t bytes = pool->object->trim();
    if (released != nullptr) *released = bytes;
    return {};
  });
}

lmn_status lmn_pool_stats_get(const lmn_pool* pool, lmn_pool_stats* stats, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    LMN_RETURN_IF_ERROR(check_output(stats, "stats", "lmn_pool_stats"));
    const memory::PoolStats now = pool->object->stats();
    lmn_pool_stats out{};
    out.reserved_bytes = now.reserved;
    out.held_bytes = now.held;
    out.held_peak_bytes = now.held_peak;
    out.in_use_bytes = now.in_use;
    out.large_in_use_bytes = now.large_in_use;
    out.large_kept_bytes = now.large_kept;
    out.live_count = now.live;
    out.allocation_count = now.allocations;
    out.requested_bytes = now.requested_total;
    out.granted_bytes = now.granted_total;
    out.promoted_size_count = now.promoted_sizes;
    write_output(out, stats);
    return {};
  });
}

lmn_status lmn_pool_check(const lmn_pool* pool, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(pool);
    return pool->object->check();
  });
}

}  // extern "C"
