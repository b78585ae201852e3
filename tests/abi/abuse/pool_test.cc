// SPDX-License-Identifier: Apache-2.0
//
// lmn_pool_*: wrong arguments, faults of callers, tensors that outlive their pool, threads, forks,
// and the C++ face.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "abuse.h"
#include "lmnative/lmnative.hpp"

using namespace abuse;  // NOLINT: tests

namespace {

using Pool = std::unique_ptr<lmn_pool, Destroy<lmn_pool_destroy>>;

Pool create_pool(uint32_t debug = LMN_POOL_DEBUG_OFF, uint64_t limit = 0) {
  auto options = sized<lmn_pool_options>();
  options.debug = debug;
  options.limit_bytes = limit;
  lmn_pool* pool = nullptr;
  CHECK_CALL(lmn_pool_create(&options, &pool, err));
  return Pool(pool);
}

lmn_pool_stats stats_of(const Pool& pool) {
  auto stats = sized<lmn_pool_stats>();
  CHECK_CALL(lmn_pool_stats_get(pool.get(), &stats, err));
  return stats;
}

void* alloc(const Pool& pool, uint64_t bytes) {
  void* data = nullptr;
  CHECK_CALL(lmn_pool_alloc(pool.get(), bytes, &data, err));
  return data;
}

}  // namespace

TEST(pool_null_arguments) {
  const Pool pool = create_pool();
  const int64_t shape[] = {1};
  DLManagedTensorVersioned* tensor = nullptr;
  void* data = nullptr;
  auto stats = sized<lmn_pool_stats>();
  lmn_pool_destroy(nullptr);
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_create(nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_alloc(nullptr, 1, &data, err));
  EXPECT_NULL_ARGUMENT("data", lmn_pool_alloc(pool.get(), 1, nullptr, err));
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_free(nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_trim(nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_check(nullptr, err));
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_stats_get(nullptr, &stats, err));
  EXPECT_NULL_ARGUMENT("stats", lmn_pool_stats_get(pool.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("pool", lmn_pool_tensor_create(nullptr, kDLInt, 8, 1, shape, &tensor, err));
  EXPECT_NULL_ARGUMENT("shape",
                       lmn_pool_tensor_create(pool.get(), kDLInt, 8, 1, nullptr, &tensor, err));
  EXPECT_NULL_ARGUMENT("tensor",
                       lmn_pool_tensor_create(pool.get(), kDLInt, 8, 1, shape, nullptr, err));
  CHECK_CALL(lmn_pool_free(pool.get(), nullptr, err));
  CHECK_CALL(lmn_pool_trim(pool.get(), nullptr, err));
  EXPECT(tensor == nullptr && data == nullptr);
}

TEST(pool_wrong_options) {
  lmn_pool* pool = nullptr;
  auto options = sized<lmn_pool_options>();
  options.debug = 3;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "debug is 3", lmn_pool_create(&options, &pool, err));
  options = sized<lmn_pool_options>();
  options.block_bytes = 65535;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "block_bytes is 65535",
                 lmn_pool_create(&options, &pool, err));
  options.block_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "block_bytes", lmn_pool_create(&options, &pool, err));
  options = sized<lmn_pool_options>();
  options.struct_size = 12;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "struct_size is 12", lmn_pool_create(&options, &pool, err));
  EXPECT(pool == nullptr);
}

TEST(pool_memory_is_aligned_counted_and_comes_back) {
  const Pool pool = create_pool();
  std::vector<void*> all;
  for (uint64_t bytes = 64; bytes <= 65536; bytes *= 2) {
    all.push_back(alloc(pool, bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.back()) % bytes, uintptr_t{0});
    std::memset(all.back(), 1, bytes);
  }
  all.push_back(alloc(pool, 0));
  all.push_back(alloc(pool, 100));  // gets 128
  all.push_back(alloc(pool, 5 << 20));
  lmn_pool_stats stats = stats_of(pool);
  EXPECT_EQ(stats.live_count, uint64_t{14});
  EXPECT_EQ(stats.in_use_bytes, uint64_t{131072 - 64 + 64 + 128 + (5 << 20)});
  EXPECT_EQ(stats.large_in_use_bytes, uint64_t{5 << 20});
  EXPECT_EQ(stats.requested_bytes, uint64_t{131072 - 64 + 1 + 100 + (5 << 20)});
  for (void* data : all) CHECK_CALL(lmn_pool_free(pool.get(), data, err));
  CHECK_CALL(lmn_pool_check(pool.get(), err));
  uint64_t released = 0;
  CHECK_CALL(lmn_pool_trim(pool.get(), &released, err));
  EXPECT(released > 0);
  stats = stats_of(pool);
  EXPECT_EQ(stats.live_count, uint64_t{0});
  EXPECT_EQ(stats.held_bytes, uint64_t{0});
  EXPECT_EQ(stats.reserved_bytes, uint64_t{0});
  EXPECT_EQ(stats.allocation_count, uint64_t{14});
  EXPECT(stats.held_peak_bytes > 5 << 20);
}

TEST(pool_faults_are_told_and_change_nothing) {
  for (const uint32_t debug : {LMN_POOL_DEBUG_OFF, LMN_POOL_DEBUG_CHECKS, LMN_POOL_DEBUG_FULL}) {
    const Pool pool = create_pool(debug), other = create_pool(debug);
    int local = 0;
    void* data = alloc(pool, 1000);
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "not memory of this pool",
                   lmn_pool_free(pool.get(), &local, err));
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "not memory of this pool",
                   lmn_pool_free(other.get(), data, err));
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "not the start",
                   lmn_pool_free(pool.get(), static_cast<char*>(data) + 1, err));
    CHECK_CALL(lmn_pool_free(pool.get(), data, err));
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "freed before", lmn_pool_free(pool.get(), data, err));
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "not memory of this pool",
                   lmn_pool_check(pool.get(), err));
    CHECK_CALL(lmn_pool_free(other.get(), alloc(other, 1000), err));
  }
}

TEST(pool_refusals_name_the_figures) {
  const Pool limited = create_pool(LMN_POOL_DEBUG_OFF, 1 << 20);
  void* data = nullptr;
  EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "limit is 1048576",
                 lmn_pool_alloc(limited.get(), 2 << 20, &data, err));
  const Pool pool = create_pool();
  // More than any machine has: refused, not promised.
  EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "are available",
                 lmn_pool_alloc(pool.get(), uint64_t{1} << 46, &data, err));
  for (const uint64_t bytes : {std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63}) {
    EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "bytes", lmn_pool_alloc(pool.get(), bytes, &data, err));
  }
  EXPECT(data == nullptr);
}

TEST(pool_tensors_outlive_their_pool_and_end_on_any_thread) {
  Pool pool = create_pool();
  const int64_t shape[] = {3, 5};
  DLManagedTensorVersioned* raw = nullptr;
  CHECK_CALL(lmn_pool_tensor_create(pool.get(), kDLFloat, 32, 2, shape, &raw, err));
  Tensor tensor(raw);
  EXPECT_EQ(tensor->dl_tensor.ndim, 2);
  EXPECT_EQ(tensor->dl_tensor.shape[1], int64_t{5});
  EXPECT_EQ(tensor->dl_tensor.strides[0], int64_t{5});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->dl_tensor.data) % 64, uintptr_t{0});
  EXPECT_EQ(stats_of(pool).live_count, uint64_t{1});
  DLManagedTensorVersioned* second = nullptr;
  CHECK_CALL(lmn_pool_tensor_create(pool.get(), kDLBool, 8, 1, shape, &second, err));
  std::thread([&] { lmn_tensor_destroy(second); }).join();
  EXPECT_EQ(stats_of(pool).live_count, uint64_t{1});
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "dtype",
                 lmn_pool_tensor_create(pool.get(), kDLFloat, 33, 2, shape, &raw, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "ndim is 9",
                 lmn_pool_tensor_create(pool.get(), kDLFloat, 32, 9, shape, &raw, err));
  pool.reset();
  std::memset(tensor->dl_tensor.data, 7, 60);
  std::thread([&] { tensor.reset(); }).join();
}

TEST(pool_memory_freed_by_other_threads) {
  const Pool pool = create_pool();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        std::vector<void*> mine;
        for (uint64_t k = 0; k < 20; ++k) mine.push_back(alloc(pool, 100 << k % 12));
        std::thread([&] {
          for (void* data : mine) EXPECT_EQ(lmn_pool_free(pool.get(), data, nullptr), LMN_OK);
        }).join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stats_of(pool).live_count, uint64_t{0});
  CHECK_CALL(lmn_pool_check(pool.get(), err));
}

TEST(pool_in_a_forked_child) {
  const Pool pool = create_pool();
  void* data = alloc(pool, 100);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    void* more = nullptr;
    const bool refused = lmn_pool_alloc(pool.get(), 2 << 20, &more, nullptr) == LMN_CLOSED;
    const bool freed = lmn_pool_free(pool.get(), data, nullptr) == LMN_OK;
    lmn_pool* own = nullptr;
    const bool works = lmn_pool_create(nullptr, &own, nullptr) == LMN_OK &&
                       lmn_pool_alloc(own, 2 << 20, &more, nullptr) == LMN_OK;
    _exit(refused && freed && works ? 0 : 1);
  }
  int status = -1;
  ASSERT(waitpid(child, &status, 0) == child);
  EXPECT_EQ(status, 0);
}

TEST(pool_of_the_cpp_face) {
  lmnative::Pool pool({.debug = LMN_POOL_DEBUG_CHECKS});
  void* data = pool.alloc(100);
  auto tensor = pool.tensor(kDLInt, 16, {2, 3});
  EXPECT_EQ(tensor.values<int16_t>().size(), size_t{6});
  EXPECT_EQ(pool.stats().live_count, uint64_t{2});
  pool.check();
  pool.free(data);
  try {
    pool.free(data);
    EXPECT(false);
  } catch (const lmnative::Error& error) {
    EXPECT_EQ(error.status(), LMN_INVALID_ARGUMENT);
  }
  lmnative::Pool moved = std::move(pool);
  (void)moved.trim();
}
