// SPDX-License-Identifier: Apache-2.0
//
// Task graphs: every part of every task once, after all that it waits for; deques under thieves.
#include "parallel/task_graph.h"

#include <atomic>
#include <thread>

#include "testing.h"

namespace lmn::parallel {
namespace {

using Edges = std::vector<std::pair<int32_t, int32_t>>;

struct Random {
  uint32_t state;
  int operator()(int below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>((state >> 8) % static_cast<uint32_t>(below));
  }
};

// Plain integers that tasks read from those they wait for: a missing order is a wrong sum (and a
// race for the thread sanitizer).
void check_runs(const std::vector<int32_t>& most_parts, const Edges& edges, int threads,
                int rounds) {
  const TaskGraph graph(most_parts, edges);
  const size_t count = most_parts.size();
  std::vector<uint64_t> want(count, 1);
  for (size_t i = 0; i < count; ++i) {  // edges go forward
    for (const auto& [earlier, later] : edges) {
      if (later == static_cast<int32_t>(i)) want[i] += 3 * want[static_cast<size_t>(earlier)];
    }
  }
  std::vector<std::vector<int32_t>> before(count);
  for (const auto& [earlier, later] : edges) before[static_cast<size_t>(later)].push_back(earlier);
  auto team = *ThreadTeam::create({.threads = threads});
  TaskGraphRun run(graph, threads);
  std::vector<std::vector<uint64_t>> results(count, std::vector<uint64_t>(8));
  std::vector<std::atomic<int>> parts_run(count), parts_of(count);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < count; ++i) {
      parts_run[i].store(0, std::memory_order_relaxed);
      std::fill(results[i].begin(), results[i].end(), 0);
    }
    run.run(*team, [&](int32_t task, int part, int parts, int worker) {
      const auto i = static_cast<size_t>(task);
      uint64_t sum = part == 0 ? 1 : 0;
      for (size_t b = 0; b < before[i].size(); ++b) {
        if (static_cast<int>(b) % parts != part) continue;
        for (const uint64_t x : results[static_cast<size_t>(before[i][b])]) sum += 3 * x;
      }
      results[i][static_cast<size_t>(part)] = sum;
      parts_run[i].fetch_add(1, std::memory_order_relaxed);
      parts_of[i].store(parts, std::memory_order_relaxed);
      if (worker >= threads || parts > most_parts[i]) parts_run[i].store(-1000);
    });
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(parts_run[i].load(), parts_of[i].load());
      uint64_t sum = 0;
      for (const uint64_t x : results[i]) sum += x;
      EXPECT_EQ(sum, want[i]);
    }
  }
}

TEST(a_chain_and_no_task_at_all) {
  check_runs({}, {}, 2, 3);
  check_runs({1}, {}, 2, 3);
  for (int threads : {1, 2, 3}) check_runs({1, 4, 1, 2}, {{0, 1}, {1, 2}, {2, 3}}, threads, 50);
}

TEST(towers_that_join) {
  Edges edges;
  std::vector<int32_t> parts(8 * 5 + 1, 1);
  for (int tower = 0; tower < 8; ++tower) {
    for (int i = 0; i < 4; ++i) edges.emplace_back(tower * 5 + i, tower * 5 + i + 1);
    edges.emplace_back(tower * 5 + 4, 40);
  }
  for (int threads : {1, 2, 4}) check_runs(parts, edges, threads, 100);
}

TEST(random_graphs) {
  Random random{7};
  for (int which = 0; which < 12; ++which) {
    const int count = 1 + random(60);
    std::vector<int32_t> parts(static_cast<size_t>(count));
    for (int32_t& p : parts) p = 1 + random(4);
    Edges edges;
    for (int later = 1; later < count; ++later) {
      for (int earlier = std::max(0, later - 8); earlier < later; ++earlier) {
        if (random(5) == 0) edges.emplace_back(earlier, later);
      }
    }
    check_runs(parts, edges, 1 + which % 4, 40);
  }
}

// The owner pushes and pops while thieves steal: every item comes out once.
TEST(a_deque_under_thieves) {
  constexpr uint64_t kItems = 20'000;
  for (int thieves : {1, 3}) {
    WorkDeque<> deque(kItems);
    std::vector<std::atomic<int>> seen(kItems);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < thieves; ++t) {
      threads.emplace_back([&] {
        uint64_t item = 0;
        while (!over.load(std::memory_order_acquire) || deque.has_items()) {
          if (deque.steal(&item)) seen[item].fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    uint64_t item = 0;
    for (uint64_t i = 0; i < kItems; ++i) {
      deque.push(i);
      if (i % 3 != 0 && deque.pop(&item)) seen[item].fetch_add(1, std::memory_order_relaxed);
    }
    while (deque.pop(&item)) seen[item].fetch_add(1, std::memory_order_relaxed);
    over.store(true, std::memory_order_release);
    for (std::thread& thread : threads) thread.join();
    int wrong = 0;
    for (const auto& count : seen) wrong += count.load() != 1;
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace lmn::parallel
