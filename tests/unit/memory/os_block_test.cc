// SPDX-License-Identifier: Apache-2.0
#include "memory/os_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "testing.h"

namespace lmn::memory {
namespace {

TEST(block_is_zeroed_aligned_and_rounded_to_pages) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t bytes : {size_t{1}, page, page + 1, size_t{3} << 20}) {
    auto block = OsBlock::create(bytes, "test");
    ASSERT_OK(block);
    EXPECT_EQ(block->size() % page, size_t{0});
    EXPECT(block->size() >= bytes && block->size() < bytes + page);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % (bytes >= (2u << 20) ? 2u << 20 : page),
              uintptr_t{0});
    EXPECT(std::all_of(block->data(), block->data() + block->size(),
                       [](std::byte b) { return b == std::byte{0}; }));
    std::fill(block->data(), block->data() + block->size(), std::byte{1});
  }
}

TEST(memory_is_backed_where_touched_only) {
  auto block = OsBlock::create(size_t{1} << 30, "test");
  ASSERT_OK(block);
  block->data()[0] = std::byte{1};
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(block->size() / page);
  ASSERT(mincore(block->data(), block->size(), resident.data()) == 0);
  const auto pages =
      std::count_if(resident.begin(), resident.end(), [](unsigned char c) { return (c & 1) != 0; });
  EXPECT(pages >= 1 && static_cast<size_t>(pages) * page <= (4u << 20));
}

TEST(move_leaves_nothing_behind) {
  auto block = OsBlock::create(100, "test");
  ASSERT_OK(block);
  std::byte* data = block->data();
  OsBlock moved = std::move(*block);
  EXPECT(moved.data() == data);
  OsBlock assigned;
  assigned = std::move(moved);
  EXPECT(assigned.data() == data);
  EXPECT(moved.data() == nullptr);  // NOLINT: what a moved-from block promises
}

TEST(refusals_name_the_size_and_the_purpose) {
  const size_t too_much = size_t{1} << 60;
  auto block = OsBlock::create(too_much, "KV cache");
  ASSERT(!block.ok());
  EXPECT(block.status().code() == Code::kOutOfMemory);
  EXPECT(block.status().message().find("KV cache") != std::string_view::npos);
  EXPECT(block.status().message().find(std::to_string(too_much)) != std::string_view::npos);
  EXPECT(OsBlock::create(0, "x").status().code() == Code::kInvalidArgument);
  EXPECT(OsBlock::create(SIZE_MAX, "x").status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace lmn::memory
