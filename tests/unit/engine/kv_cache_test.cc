// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

TEST(layers_are_disjoint_and_aligned) {
  FakeDevice device;
  memory::Ledger ledger;
  {
    const KvShape shape{3, 2, 64};
    auto cache = KvCache::create(device, shape, DType::kF16, 100, ledger);  // 4 pages
    ASSERT_OK(cache);
    EXPECT_EQ(cache->pages(), 4);
    const int64_t array =
        4 * 2 * 64 * kKvPageTokens * 2;  // pages * kv_heads * head_dim * page_tokens * sizeof(f16)
    EXPECT_EQ(cache->bytes(), 2 * 3 * array);
    EXPECT_EQ(ledger.snapshot()[memory::Owner::kKv].current, cache->bytes());
    EXPECT_EQ(device.allocated, cache->bytes());
    std::vector<const std::byte*> begins;
    for (const KvLayerMemory& layer : cache->binding().layers) {
      begins.push_back(layer.k);
      begins.push_back(layer.v);
    }
    std::sort(begins.begin(), begins.end());
    for (size_t i = 0; i < begins.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begins[i]) % 64, uintptr_t{0});
      EXPECT_EQ(begins[i] - begins[0], static_cast<ptrdiff_t>(i) * array);
    }
  }
  EXPECT_EQ(device.allocated, 0);
  EXPECT_EQ(ledger.snapshot().total.current, 0);
}

TEST(scrub_clears_its_page_and_no_other) {
  FakeDevice device;
  memory::Ledger ledger;
  auto cache = KvCache::create(device, {2, 1, 4}, DType::kF32, 96, ledger);
  ASSERT_OK(cache);
  const int64_t page = 4 * kKvPageTokens * 4;
  for (const KvLayerMemory& layer : cache->binding().layers) {
    std::memset(layer.k, 0xFF, size_t(3 * page));
    std::memset(layer.v, 0xFF, size_t(3 * page));
  }
  EXPECT(cache->scrub(1).ok());
  for (const KvLayerMemory& layer : cache->binding().layers) {
    for (const std::byte* array : {layer.k, layer.v}) {
      for (int64_t i = 0; i < 3 * page; ++i) {
        if (array[i] != (i / page == 1 ? std::byte{0} : std::byte{0xFF}))
          testing::report_failure(__FILE__, __LINE__, "byte");
      }
    }
  }
}

TEST(a_model_without_layers_takes_no_memory) {
  FakeDevice device;
  memory::Ledger ledger;
  auto cache = KvCache::create(device, {0, 0, 0}, DType::kF16, 1'000, ledger);
  ASSERT_OK(cache);
  EXPECT_EQ(cache->bytes(), 0);
  EXPECT_EQ(cache->pages(), 32);
  EXPECT(cache->scrub(3).ok());
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
  auto cache = KvCache::create(device, {2, 1, 4}, DType::kF16, 64, ledger);
  ASSERT(!cache.ok());
  EXPECT(cache.status().code() == Code::kOutOfMemory);
  EXPECT(cache.status().message().find("64 tokens") != std::string_view::npos);
  EXPECT(cache.status().message().find("2048 bytes") != std::string_view::npos);
  EXPECT(cache.status().message().find("kv_tokens") != std::string_view::npos);
}

}  // namespace
}  // namespace lmn::engine
