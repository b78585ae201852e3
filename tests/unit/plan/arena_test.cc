// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.h"

#include <algorithm>
#include <random>
#include <vector>

#include "testing.h"

using namespace lmn::plan;

namespace {

// Written apart from the code under test: colours bytes, stage by stage.
bool overlaps(const std::vector<Interval>& intervals, int64_t size, int stages) {
  for (int stage = 0; stage <= stages; ++stage) {
    std::vector<bool> taken(static_cast<size_t>(size / kAlignment), false);
    for (const Interval& i : intervals) {
      if (stage < i.first || stage > i.last) continue;
      for (int64_t line = i.offset / kAlignment; line * kAlignment < i.offset + i.bytes; ++line) {
        if (taken[static_cast<size_t>(line)]) return true;
        taken[static_cast<size_t>(line)] = true;
      }
    }
  }
  return false;
}

}  // namespace

TEST(buffers_that_never_meet_share_bytes) {
  std::vector<Interval> chain = {{100, 0, 1, 0}, {100, 2, 3, 0}, {100, 4, 5, 0}};
  EXPECT_EQ(assign_offsets(chain), 128);
  for (const Interval& i : chain) EXPECT_EQ(i.offset, 0);
}

TEST(buffers_that_meet_at_one_stage_do_not_share) {
  std::vector<Interval> chain = {{64, 0, 1, 0}, {64, 1, 2, 0}};
  EXPECT_EQ(assign_offsets(chain), 128);
  EXPECT(chain[0].offset != chain[1].offset);
}

TEST(the_smallest_gap_that_fits_is_taken) {
  // The three largest stand one behind the other; then the first of them is over, and after it the
  // third. What follows fits both gaps and takes the smaller.
  std::vector<Interval> i = {
      {1024, 0, 1, 0}, {640, 0, 9, 0}, {512, 0, 1, 0}, {320, 0, 9, 0}, {300, 5, 9, 0}};
  EXPECT_EQ(assign_offsets(i), 1024 + 640 + 512 + 320);
  EXPECT_EQ(i[2].offset, 1664);
  EXPECT_EQ(i[4].offset, 1664);
}

TEST(nothing_needs_no_arena) {
  std::vector<Interval> none;
  EXPECT_EQ(assign_offsets(none), 0);
  EXPECT(is_valid_assignment(none, 0));
}

TEST(random_lifetimes_never_overlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int stages = 1 + static_cast<int>(random() % 40);
    std::vector<Interval> intervals(1 + random() % 60);
    int64_t sum = 0;
    for (Interval& i : intervals) {
      i.bytes = random() % 8 == 0 ? 0 : static_cast<int64_t>(random() % 2000);
      i.first = static_cast<int>(random() % static_cast<unsigned>(stages));
      i.last = i.first + static_cast<int>(random() % static_cast<unsigned>(stages - i.first + 1));
      sum += align_up(i.bytes);
    }
    const int64_t size = assign_offsets(intervals);
    EXPECT(is_valid_assignment(intervals, size));
    EXPECT(!overlaps(intervals, size, stages));
    EXPECT(size <= sum);
    int64_t busiest = 0;
    for (int stage = 0; stage <= stages; ++stage) {
      int64_t alive = 0;
      for (const Interval& i : intervals)
        alive += stage >= i.first && stage <= i.last ? align_up(i.bytes) : 0;
      busiest = std::max(busiest, alive);
    }
    EXPECT(size >= busiest);
  }
}

TEST(the_check_finds_what_is_wrong) {
  const Interval a{100, 0, 2, 0};
  EXPECT(!is_valid_assignment(std::vector<Interval>{{100, 0, 2, 32}}, 256));   // not aligned
  EXPECT(!is_valid_assignment(std::vector<Interval>{{100, 0, 2, 192}}, 256));  // beyond the end
  EXPECT(!is_valid_assignment(std::vector<Interval>{a, {100, 2, 3, 64}},
                              256));  // shares bytes at stage 2
  EXPECT(is_valid_assignment(std::vector<Interval>{a, {100, 3, 3, 64}}, 256));
  EXPECT(is_valid_assignment(std::vector<Interval>{a, {100, 2, 3, 128}}, 256));
}
