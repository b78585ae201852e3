// SPDX-License-Identifier: Apache-2.0
//
// Every interleaving of the ring's own code in small programs.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "interleaving.h"
#include "parallel/priority_ring.h"
#include "testing.h"

namespace lmn::parallel {
namespace {

#if LMN_HAVE_FIBRES

using ModelRing = PriorityRing<int, ModelAtomic>;

// Producer p pushes pushes[p] values (10 p, 10 p + 1, …) into a ring of two cells while the
// consumer pops `pops` times.
int64_t explore_producers(const std::vector<int>& pushes, int pops) {
  std::unique_ptr<ModelRing> ring;
  std::vector<int> popped, accepted;
  bool ok = true;
  Explorer explorer;
  const int64_t schedules = explorer.explore(
      [&] {
        ring = std::make_unique<ModelRing>(1, 2);
        popped.clear();
        accepted.clear();
        std::vector<std::function<void()>> bodies;
        for (size_t p = 0; p < pushes.size(); ++p) {
          bodies.push_back([&, p] {
            for (int i = 0; i < pushes[p]; ++i) {
              const int value = static_cast<int>(p) * 10 + i;
              if (ring->try_push(0, value)) accepted.push_back(value);
            }
          });
        }
        bodies.push_back([&] {
          int value = 0;
          for (int i = 0; i < pops; ++i) {
            if (ring->pop(&value)) popped.push_back(value);
          }
        });
        return bodies;
      },
      [&] {
        int value = 0;
        while (ring->pop(&value)) popped.push_back(value);
        ok = ok && accepted.size() >= 2;  // two cells: the first two pushes cannot be refused
        for (size_t p = 0; p < pushes.size(); ++p) {  // each producer's values in its order
          int last = -1;
          for (const int v : popped) {
            if (v / 10 != static_cast<int>(p)) continue;
            ok = ok && v > last;
            last = v;
          }
        }
        std::sort(popped.begin(), popped.end());
        std::sort(accepted.begin(), accepted.end());
        ok = ok && popped == accepted;  // nothing lost, nothing twice
      });
  EXPECT(ok);
  return schedules;
}

TEST(every_interleaving_of_producers_and_the_consumer) {
  int64_t schedules = explore_producers({1, 1}, 1);
  schedules += explore_producers({2, 1}, 1);
  schedules += explore_producers({3}, 2);  // around the ring
  std::printf("     %lld schedules\n", static_cast<long long>(schedules));
  EXPECT(schedules > 20'000);
}

TEST(every_interleaving_of_a_full_ring_that_is_emptied) {
  std::unique_ptr<ModelRing> ring;
  std::vector<int> popped;
  bool pushed = false, other = false, ok = true;
  Explorer explorer;
  explorer.explore(
      [&] {
        ring = std::make_unique<ModelRing>(2, 2);
        popped.clear();
        ok = ok && ring->try_push(1, 0) && ring->try_push(1, 1) && !ring->try_push(1, 9);
        return std::vector<std::function<void()>>{
            [&] { pushed = ring->try_push(1, 2); },
            [&] { other = ring->try_push(0, 3); },
            [&] {
              int value = 0;
              for (int i = 0; i < 2; ++i) {
                if (ring->pop(&value)) popped.push_back(value);
              }
            },
        };
      },
      [&] {
        ok = ok && other && !popped.empty() && popped[0] == 0;  // the oldest of the higher level
        int value = 0;
        while (ring->pop(&value)) popped.push_back(value);
        std::vector<int> want = {0, 1, 3};
        if (pushed) want.push_back(2);
        std::sort(popped.begin(), popped.end());
        std::sort(want.begin(), want.end());
        ok = ok && popped == want;
      });
  EXPECT(ok);
}

// The pop that serves the level whose turn it is, against a push of that level and one of the
// highest: the low value comes out of it whenever its push was over before.
TEST(every_interleaving_of_a_turn) {
  std::unique_ptr<ModelRing> ring;
  std::vector<int> popped;
  bool low_pushed = false, low_was_there = false, ok = true;
  int64_t turns = 0;
  Explorer explorer;
  const int64_t schedules = explorer.explore(
      [&] {
        ring = std::make_unique<ModelRing>(2, 4);
        popped.clear();
        low_pushed = low_was_there = false;
        int before = 0;
        ok = ok && ring->try_push(1, 0);
        for (int i = 0; i < 2 * kLookPops - 1; ++i)  // the turns are level 1's, then level 0's
          ok = ok && ring->try_push(1, i + 1) && ring->pop(&before) && before == i;
        return std::vector<std::function<void()>>{
            [&] {
              ok = ring->try_push(0, 1000) && ok;
              low_pushed = true;
            },
            [&] { ok = ring->try_push(1, 2 * kLookPops) && ok; },
            [&] {
              low_was_there = low_pushed;
              int value = 0;
              if (ring->pop(&value)) popped.push_back(value);
            },
        };
      },
      [&] {
        int value = 0;
        while (ring->pop(&value)) popped.push_back(value);
        ok = ok && popped.size() == 3 && (!low_was_there || popped[0] == 1000);
        turns += popped[0] == 1000 ? 1 : 0;
        std::erase(popped, 1000);
        ok = ok && popped == std::vector<int>{2 * kLookPops - 1, 2 * kLookPops};
      });
  EXPECT(ok);
  EXPECT(turns > 0 && turns < schedules);
}

#endif

}  // namespace
}  // namespace lmn::parallel
