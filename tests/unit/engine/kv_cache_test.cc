// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

Result<KvCache> create_cache(Device& device, const KvShape& shape, DType dtype, int64_t tokens,
                             memory::Ledger& ledger) {
  const KvPart part{&device, shape.layers};
  return KvCache::create({&part, 1}, shape, dtype, tokens, ledger);
}

TEST(a_page_holds_all_layers_side_by_side) {
  FakeDevice device;
  memory::Ledger ledger;
  {
    const KvShape shape{3, 2, 64};
    auto cache = create_cache(device, shape, DType::kF16, 100, ledger);  // 4 pages
    ASSERT_OK(cache);
    EXPECT_EQ(cache->pages(), 4);
    const int64_t array =
        2 * 64 * kKvPageTokens * 2;  // kv_heads * head_dim * page_tokens * sizeof(f16)
    EXPECT_EQ(cache->page_step(), 2 * 3);
    EXPECT_EQ(cache->bytes(), 4 * 2 * 3 * array);
    EXPECT_EQ(ledger.snapshot()[memory::Owner::kKv].current, cache->bytes());
    EXPECT_EQ(device.allocated, cache->bytes());
    const std::byte* begin = device.last.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, uintptr_t{0});
    int64_t i = 0;
    for (const KvLayerMemory& layer : cache->binding().layers) {
      EXPECT_EQ(layer.k - begin, i++ * array);
      EXPECT_EQ(layer.v - begin, i++ * array);
    }
  }
  EXPECT_EQ(device.allocated, 0);
  EXPECT_EQ(ledger.snapshot().total.current, 0);
}

TEST(bytes_follow_the_element_type) {
  const KvShape shape{30, 3, 64};
  const auto bytes = [&](DType dtype) {
    const Result<int64_t> result = kv_bytes(shape, dtype, 4096);
    return result.ok() ? *result : int64_t{-1};
  };
  EXPECT_EQ(bytes(DType::kF16), int64_t{30} * 2 * 3 * 4096 * 128);
  EXPECT_EQ(bytes(DType::kF32), int64_t{30} * 2 * 3 * 4096 * 256);
  EXPECT_EQ(bytes(DType::kQ8_0), int64_t{30} * 2 * 3 * 4096 * 68);  // 64 bytes and 2 float16
  const auto refused = kv_bytes({30, 3, 80}, DType::kQ8_0, 4096);
  ASSERT(!refused.ok());
  EXPECT(refused.status().code() == Code::kUnsupported);
  EXPECT(refused.status().message().find("multiple of 32") != std::string_view::npos);
  EXPECT(refused.status().message().find("have 80") != std::string_view::npos);

  FakeDevice device;
  memory::Ledger ledger;
  auto cache = create_cache(device, {2, 1, 32}, DType::kQ8_0, 96, ledger);
  ASSERT_OK(cache);
  EXPECT_EQ(cache->bytes(), int64_t{2} * 2 * 3 * 32 * 34);
  const int64_t page = 32 * 34;
  const KvLayerMemory& layer = cache->binding().layers[1];
  EXPECT_EQ(layer.v - layer.k, page);
  std::byte* v[3];  // pages of this array
  for (int64_t p = 0; p < 3; ++p) {
    v[p] = layer.v + p * cache->page_step() * page;
    std::fill_n(v[p], page, static_cast<std::byte>(p + 1));
  }
  EXPECT(cache->copy_page(0, 2).ok());
  EXPECT(cache->scrub(1).ok());
  for (int64_t i = 0; i < page; ++i)
    ASSERT(v[0][i] == std::byte{1} && v[1][i] == std::byte{0} && v[2][i] == std::byte{1});
}

TEST(scrub_clears_its_page_and_no_other) {
  FakeDevice device;
  memory::Ledger ledger;
  auto cache = create_cache(device, {2, 1, 4}, DType::kF32, 96, ledger);
  ASSERT_OK(cache);
  const int64_t array = 4 * kKvPageTokens * 4;
  const auto memory = [&](int64_t page) {  // of layers 0 and 1, k and v, as a kernel finds them
    std::vector<std::byte*> out;
    for (const KvLayerMemory& layer : cache->binding().layers) {
      out.push_back(layer.k + page * cache->page_step() * array);
      out.push_back(layer.v + page * cache->page_step() * array);
    }
    return out;
  };
  const auto holds = [&](int64_t page, int index, int value) {
    const std::byte* begin = memory(page)[size_t(index)];
    return std::all_of(begin, begin + array, [&](std::byte b) { return b == std::byte(value); });
  };
  for (int page = 0; page < 3; ++page) {
    for (int i = 0; i < 4; ++i)
      std::memset(memory(page)[size_t(i)], 10 * page + i + 1, size_t(array));
  }
  EXPECT(cache->scrub(1).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT(holds(0, i, i + 1));
    EXPECT(holds(1, i, 0));
    EXPECT(holds(2, i, 20 + i + 1));
  }
  EXPECT(cache->copy_page(2, 1).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT(holds(0, i, i + 1));
    EXPECT(holds(1, i, 20 + i + 1));
    EXPECT(holds(2, i, 20 + i + 1));
  }
}

TEST(a_model_without_layers_takes_no_memory) {
  FakeDevice device;
  memory::Ledger ledger;
  auto cache = create_cache(device, {0, 0, 0}, DType::kF16, 1'000, ledger);
  ASSERT_OK(cache);
  EXPECT_EQ(cache->bytes(), 0);
  EXPECT_EQ(cache->pages(), 32);
  EXPECT(cache->scrub(3).ok());
  EXPECT(cache->copy_page(3, 2).ok());
}

class PoorDevice : public FakeDevice {
 public:
  Result<std::byte*> allocate(size_t bytes) override {
    return error(Code::kOutOfMemory, "no %zu bytes", bytes);
  }
};

TEST(refusals_name_the_figures) {
  PoorDevice device;
  memory::Ledger ledger;
  auto cache = create_cache(device, {2, 1, 4}, DType::kF16, 64, ledger);
  ASSERT(!cache.ok());
  EXPECT(cache.status().code() == Code::kOutOfMemory);
  EXPECT(cache.status().message().find("64 tokens") != std::string_view::npos);
  EXPECT(cache.status().message().find("2048 bytes") != std::string_view::npos);
  EXPECT(cache.status().message().find("kv_tokens") != std::string_view::npos);
}

}  // namespace
}  // namespace lmn::engine
