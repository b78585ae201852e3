// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

TEST(a_page_holds_all_layers_side_by_side) {
  FakeDevice device;
  memory::Ledger ledger;
  {
    const KvShape shape{3, 2, 64};
    auto cache = KvCache::create(device, shape, DType::kF16, 100, ledger);  // 4 pages
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

TEST(scrub_clears_its_page_and_no_other) {
  FakeDevice device;
  memory::Ledger ledger;
  auto cache = KvCache::create(device, {2, 1, 4}, DType::kF32, 96, ledger);
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
  auto cache = KvCache::create(device, {0, 0, 0}, DType::kF16, 1'000, ledger);
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
  auto cache = KvCache::create(device, {2, 1, 4}, DType::kF16, 64, ledger);
  ASSERT(!cache.ok());
  EXPECT(cache.status().code() == Code::kOutOfMemory);
  EXPECT(cache.status().message().find("64 tokens") != std::string_view::npos);
  EXPECT(cache.status().message().find("2048 bytes") != std::string_view::npos);
  EXPECT(cache.status().message().find("kv_tokens") != std::string_view::npos);
}

}  // namespace
}  // namespace lmn::engine
