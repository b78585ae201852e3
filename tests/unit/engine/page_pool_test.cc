// SPDX-License-Identifier: Apache-2.0
#include "engine/page_pool.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "core/check.h"
#include "testing.h"

namespace lmn::engine {
namespace {

std::vector<int32_t> tokens_of(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

template <typename Body>
bool breaks(const Body& body) {
  try {
    body();
  } catch (const BrokenInvariant&) {
    return true;
  }
  return false;
}

TEST(pages_are_counted_and_come_back) {
  PagePool pool(5, true);
  std::set<int32_t> taken;
  for (int i = 0; i < 5; ++i) taken.insert(pool.allocate());
  EXPECT((taken == std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.allocate(), kNoPage);
  EXPECT_EQ(pool.used(), 5);
  EXPECT(pool.release(3));
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.allocate(), 3);
  pool.retain(3);
  EXPECT(pool.shared(3));
  EXPECT(!pool.release(3));
  EXPECT(!pool.shared(3));
  EXPECT(pool.release(3));
}

TEST(misuse_is_a_broken_invariant) {
  PagePool pool(2, true);
  EXPECT(breaks([&] { pool.release(1); }));
  EXPECT(breaks([&] { pool.retain(1); }));
}

TEST(a_known_beginning_is_found) {
  PagePool pool(8, true);
  const auto text = tokens_of(100, 3 * kKvPageTokens);
  std::vector<int32_t> mine;
  for (int32_t i = 0; i < 3; ++i) {
    mine.push_back(pool.allocate());
    EXPECT_EQ(pool.publish(i == 0 ? kNoPage : mine[size_t(i) - 1], text.data() + i * kKvPageTokens,
                           mine.back()),
              mine.back());
  }
  auto other = text;
  other[size_t(2 * kKvPageTokens) + 5] = 7;  // differs in its third page
  std::vector<int32_t> found;
  EXPECT_EQ(pool.match(other, 100, found), 2);
  EXPECT((found == std::vector<int32_t>{mine[0], mine[1]}));
  EXPECT_EQ(pool.match(text, 1, found), 1);
  EXPECT_EQ(pool.match(std::span(text).first(size_t{kKvPageTokens} - 1), 100, found), 0);
  // The second page alone, without the first, is another text.
  EXPECT_EQ(pool.match(std::span(text).subspan(size_t{kKvPageTokens}), 100, found), 0);
}

TEST(equal_pages_become_one) {
  PagePool pool(4, true);
  const auto text = tokens_of(0, kKvPageTokens);
  const int32_t first = pool.allocate(), second = pool.allocate();
  EXPECT_EQ(pool.publish(kNoPage, text.data(), first), first);
  EXPECT_EQ(pool.publish(kNoPage, text.data(), second), first);
  EXPECT_EQ(pool.used(), 1);
  EXPECT_EQ(pool.free(), 3);
  EXPECT(!pool.release(first));
  EXPECT_EQ(pool.used(), 1);
  EXPECT(!pool.release(first));
  EXPECT_EQ(pool.cached(), 1);
  EXPECT_EQ(pool.used(), 0);
}

TEST(cached_pages_go_when_others_need_them_the_oldest_first) {
  PagePool pool(3, true);
  const auto a = tokens_of(0, 2 * kKvPageTokens), b = tokens_of(500, kKvPageTokens);
  const int32_t a0 = pool.allocate(), a1 = pool.allocate(), b0 = pool.allocate();
  pool.publish(kNoPage, a.data(), a0);
  pool.publish(a0, a.data() + kKvPageTokens, a1);
  pool.publish(kNoPage, b.data(), b0);
  pool.release(a1);
  pool.release(a0);
  pool.release(b0);
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.allocate(), a1);  // the end of the one that was released first
  std::vector<int32_t> found;
  EXPECT_EQ(pool.match(a, 100, found), 1);
  EXPECT_EQ(pool.allocate(), b0);  // a0 is held again
  EXPECT_EQ(pool.allocate(), kNoPage);
}

TEST(without_an_index_nothing_is_remembered) {
  PagePool pool(2, false);
  const auto text = tokens_of(0, kKvPageTokens);
  const int32_t page = pool.allocate();
  EXPECT_EQ(pool.publish(kNoPage, text.data(), page), page);
  std::vector<int32_t> found;
  EXPECT_EQ(pool.match(text, 100, found), 0);
  EXPECT(pool.release(page));
  EXPECT_EQ(pool.cached(), 0);
}

// Sequences over a small alphabet of pages come and go. The reference keeps, for every page that is
// held or cached, the whole text up to its end: what match() finds must be that text.
TEST(random_sequences_as_the_reference) {
  constexpr int32_t kPages = 24;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int32_t n) { return static_cast<int32_t>(random() % uint32_t(n)); };
    PagePool pool(kPages, true);
    struct Holder {
      std::vector<int32_t> tokens, pages;
      size_t published = 0;
    };
    std::vector<Holder> holders;
    std::map<int32_t, std::vector<int32_t>> contents;  // page -> all tokens up to its end
    for (int step = 0; step < 600; ++step) {
      const int32_t what = pick(10);
      if (what < 3 || holders.empty()) {  // a new sequence
        Holder holder;
        const int32_t length = 1 + pick(6);
        for (int32_t i = 0; i < length; ++i) {
          const auto page = tokens_of(1000 * pick(2), kKvPageTokens);
          holder.tokens.insert(holder.tokens.end(), page.begin(), page.end());
        }
        const int32_t hits = pool.match(holder.tokens, length, holder.pages);
        holder.published = size_t(hits);
        for (int32_t i = 0; i < hits; ++i) {
          const std::vector<int32_t> want(holder.tokens.begin(),
                                          holder.tokens.begin() + (i + 1) * kKvPageTokens);
          EXPECT(contents.at(holder.pages[size_t(i)]) == want);
        }
        holders.push_back(holder);
      } else if (what < 8) {  // one more page, computed and published
        Holder& holder = holders[size_t(pick(int32_t(holders.size())))];
        const size_t i = holder.pages.size();
        if ((i + 1) * kKvPageTokens > holder.tokens.size()) continue;
        const int32_t page = pool.allocate();
        if (page == kNoPage) continue;
        contents.erase(page);
        const int32_t held = pool.publish(i == 0 ? kNoPage : holder.pages[i - 1],
                                          holder.tokens.data() + i * kKvPageTokens, page);
        const std::vector<int32_t> text(holder.tokens.begin(),
                                        holder.tokens.begin() + int32_t(i + 1) * kKvPageTokens);
        if (held == page) {
          contents[page] = text;
        } else {
          EXPECT(contents.at(held) == text);
        }
        holder.pages.push_back(held);
      } else {  // one goes
        const size_t i = size_t(pick(int32_t(holders.size())));
        for (size_t p = holders[i].pages.size(); p-- > 0;) pool.release(holders[i].pages[p]);
        holders.erase(holders.begin() + ptrdiff_t(i));
      }
      std::set<int32_t> held;
      for (const Holder& holder : holders) held.insert(holder.pages.begin(), holder.pages.end());
      EXPECT_EQ(pool.used(), int32_t(held.size()));
      EXPECT_EQ(pool.free() + pool.cached() + pool.used(), kPages);
    }
    for (const Holder& holder : holders) {
      for (size_t p = holder.pages.size(); p-- > 0;) pool.release(holder.pages[p]);
    }
    EXPECT_EQ(pool.used(), 0);
    for (int32_t i = 0; i < kPages; ++i) EXPECT(pool.allocate() != kNoPage);
    EXPECT_EQ(pool.cached(), 0);
  }
}

}  // namespace
}  // namespace lmn::engine
