// SPDX-License-Identifier: Apache-2.0
#include "parallel/news_list.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "parallel/event_count.h"
#include "testing.h"

namespace lmn::parallel {
namespace {

struct Object : NewsNode<Object> {
  explicit Object(int which) : id(which) {}
  int id;
  std::atomic<int64_t> news{0};  // relaxed: ordered by the list alone
  int64_t plain = 0;
};

std::vector<std::shared_ptr<Object>> make_objects(int count) {
  std::vector<std::shared_ptr<Object>> objects;
  for (int i = 0; i < count; ++i) objects.push_back(std::make_shared<Object>(i));
  return objects;
}

TEST(taken_in_order_and_once) {
  const auto objects = make_objects(4);
  NewsList<Object> list;
  EXPECT(list.empty());
  for (const size_t i : {2u, 0u, 2u, 1u, 0u}) list.announce(objects[i]);
  EXPECT(!list.announce(objects[1]));
  EXPECT(!list.empty());
  EXPECT_EQ(objects[2].use_count(), 2L);
  std::vector<int> order;
  const auto note = [&](const std::shared_ptr<Object>& object) { order.push_back(object->id); };
  EXPECT_EQ(list.take(2, note), 2);  // a limit leaves the others in their order
  EXPECT(list.announce(objects[3]));
  EXPECT(list.announce(objects[2]));  // taken, so it may come in again
  EXPECT_EQ(list.take(100, note), 3);
  EXPECT((order == std::vector<int>{2, 0, 1, 3, 2}));
  EXPECT(list.empty());
  EXPECT(list.take() == nullptr);
  for (const auto& object : objects) EXPECT_EQ(object.use_count(), 1L);
}

TEST(an_object_in_the_list_lives_and_goes_with_it) {
  auto object = std::make_shared<Object>(1);
  const std::weak_ptr<Object> watch = object;
  {
    NewsList<Object> list;
    list.announce(object);
    object = nullptr;
    EXPECT(!watch.expired());
  }
  EXPECT(watch.expired());
}

// Four threads announce news of sixteen objects while one takes: each object's last news is seen.
TEST(nothing_is_lost_under_stress) {
  constexpr int kAnnouncers = 4, kObjects = 16, kEach = 50'000;
  const auto objects = make_objects(kObjects);
  NewsList<Object> list;
  EventCount wake;
  std::vector<std::thread> threads;
  for (int t = 0; t < kAnnouncers; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto& object = objects[static_cast<size_t>((i * (t + 1) + t) % kObjects)];
        object->news.fetch_add(1, std::memory_order_relaxed);
        if (list.announce(object)) wake.advance();
      }
    });
  }
  int64_t seen[kObjects] = {};
  int64_t sum = 0;
  while (sum < int64_t{kAnnouncers} * kEach) {
    const uint32_t before = wake.value();
    const int taken = list.take(3, [&](const std::shared_ptr<Object>& object) {
      const int64_t news = object->news.load(std::memory_order_relaxed);
      sum += news - seen[object->id];
      seen[object->id] = news;
    });
    if (taken == 0 && wake.wait(before, 0, deadline_after(20'000'000'000)) == before) break;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, int64_t{kAnnouncers} * kEach);
  EXPECT(list.empty());
}

// Plain data on both ways: a missing order is a report of ThreadSanitizer.
TEST(news_made_before_announcing_is_visible) {
  const auto object = std::make_shared<Object>(0);
  NewsList<Object> list;
  EventCount there, back;
  constexpr int kRounds = 5'000;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      ++object->plain;
      const uint32_t before = back.value();
      list.announce(object);
      there.advance();
      back.wait(before, 20'000);
    }
  });
  int taken = 0;
  for (uint32_t seen = 0; taken < kRounds;) {
    seen = there.wait(seen, 20'000);
    while (const auto got = list.take()) {
      ++got->plain;
      ++taken;
    }
    back.advance();
  }
  other.join();
  EXPECT_EQ(object->plain, int64_t{2} * kRounds);
}

}  // namespace
}  // namespace lmn::parallel
