// SPDX-License-Identifier: Apache-2.0
//
// Steady decoding allocates nothing: a hook counts the heap allocations of this executable.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "testing.h"
#include "text/model_tokenizer.h"
#include "text/stop_strings.h"
#include "text/stream_decoder.h"

namespace {
std::atomic<int64_t> heap_allocations{0};
}  // namespace

// The array and nothrow forms of the standard library call these. Not inlined: GCC would take
// malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  heap_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* out = std::malloc(size == 0 ? 1 : size)) return out;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace {

using namespace lmn::text;

TEST(streaming_allocates_nothing) {
  const auto tokenizer = ModelVocabulary::open().tokenizer();
  StreamDecoder decoder(*tokenizer);
  auto stops = StopMatcher::create(std::vector<std::string_view>{"\nUser:", "the end of it all"});
  ASSERT_OK(stops);
  size_t emitted = 0;
  const auto push_all = [&] {
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const auto piece = decoder.push(id);
      ASSERT_OK(piece);
      emitted += stops->push(*piece).text.size();
    }
  };
  stops->push(*decoder.push(0));
  const int64_t before = heap_allocations.load();
  push_all();
  EXPECT(emitted > 100000);
  EXPECT_EQ(heap_allocations.load() - before, 0);
  EXPECT(before > 0);
}

}  // namespace
