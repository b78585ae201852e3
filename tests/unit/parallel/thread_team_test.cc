// SPDX-License-Identifier: Apache-2.0
#include "parallel/thread_team.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/check.h"
#include "parallel/clock.h"
#include "testing.h"

namespace lmn::parallel {
namespace {

std::unique_ptr<ThreadTeam> make_team(int threads, int64_t spin_ns = 0) {
  auto team = ThreadTeam::create({threads, spin_ns});
  ASSERT_OK(team);
  return std::move(team).value();
}

constexpr int kSizes[] = {1, 2, 3, 5};

TEST(every_member_runs_once_and_index_0_is_the_caller) {
  for (const int size : kSizes) {
    const auto team = make_team(size);
    EXPECT_EQ(team->size(), size);
    const auto caller = std::this_thread::get_id();
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(static_cast<size_t>(size), 0);
      std::thread::id zero;
      team->run([&](int index) {
        ++calls[static_cast<size_t>(index)];
        if (index == 0) zero = std::this_thread::get_id();
      });
      EXPECT(std::all_of(calls.begin(), calls.end(), [](int n) { return n == 1; }));
      EXPECT(zero == caller);
    }
  }
}

// Each stage reads what all members wrote in the stage before: plain memory, so a missing ordering
// is a wrong sum here and a report under ThreadSanitizer.
void check_barriers(ThreadTeam& team, int stages) {
  const int size = team.size();
  std::vector<std::vector<int64_t>> values(2, std::vector<int64_t>(static_cast<size_t>(size), 1));
  team.run([&](int index) {
    for (int stage = 0; stage < stages; ++stage) {
      const auto& from = values[static_cast<size_t>(stage % 2)];
      auto& to = values[static_cast<size_t>((stage + 1) % 2)];
      to[static_cast<size_t>(index)] =
          std::accumulate(from.begin(), from.end(), int64_t{0}) % 1000003 + index;
      team.barrier(index);
    }
  });
  std::vector<int64_t> want(static_cast<size_t>(size), 1);
  for (int stage = 0; stage < stages; ++stage) {
    const int64_t sum = std::accumulate(want.begin(), want.end(), int64_t{0}) % 1000003;
    for (int i = 0; i < size; ++i) want[static_cast<size_t>(i)] = sum + i;
  }
  EXPECT(values[static_cast<size_t>(stages % 2)] == want);
}

TEST(barrier_orders_writes) {
  for (const int size : kSizes) {
    const auto team = make_team(size);
    check_barriers(*team, 500);
    check_barriers(*team, 501);
  }
}

TEST(barrier_orders_writes_when_every_wait_parks) {
  for (const int size : kSizes) {
    const auto team = make_team(size, -1);
    check_barriers(*team, 300);
  }
}

TEST(exception_on_any_member_reaches_the_caller_and_the_team_lives) {
  for (const int64_t spin_ns : {int64_t{0}, int64_t{-1}}) {
    for (const int size : kSizes) {
      const auto team = make_team(size, spin_ns);
      for (int thrower = 0; thrower < size; ++thrower) {
        for (int stage = 0; stage < 3;
             ++stage) {  // before the first barrier, between two, after the last
          std::string caught;
          try {
            team->run([&](int index) {
              for (int s = 0; s < 3; ++s) {
                if (index == thrower && s == stage)
                  throw BrokenInvariant("stage " + std::to_string(s));
                if (s < 2) team->barrier(index);
              }
            });
          } catch (const BrokenInvariant& e) {
            caught = e.what();
          }
          EXPECT_EQ(caught, "stage " + std::to_string(stage));
          check_barriers(*team, 7);
        }
      }
    }
  }
}

TEST(all_members_throw_one_is_reported) {
  const auto team = make_team(5);
  for (int round = 0; round < 50; ++round) {
    bool caught = false;
    try {
      team->run([&](int index) { throw std::runtime_error(std::to_string(index)); });
    } catch (const std::runtime_error&) {
      caught = true;
    }
    EXPECT(caught);
  }
  check_barriers(*team, 10);
}

TEST(bad_thread_counts_are_refused) {
  for (const int threads : {-1, 1025, 1 << 30}) {
    const auto team = ThreadTeam::create({threads, 0});
    ASSERT(!team.ok());
    EXPECT(team.status().code() == Code::kInvalidArgument);
    EXPECT(team.status().message().find(std::to_string(threads)) != std::string_view::npos);
  }
}

TEST(members_round_alike_whatever_the_creator_had_set) {
  std::fesetround(FE_UPWARD);
  const auto team = make_team(3);
  std::fesetround(FE_TONEAREST);
  int modes[3];
  team->run([&](int index) { modes[index] = std::fegetround(); });
  for (const int mode : modes) EXPECT_EQ(mode, FE_TONEAREST);
}

TEST(forked_child_gets_an_error_and_can_destroy) {
  auto team = make_team(3);
  EXPECT(team->check_usable().ok());
  const pid_t child = fork();
  if (child == 0) {
    const Status status = team->check_usable();
    bool threw = false;
    try {
      team->run([](int) {});
    } catch (const BrokenInvariant&) {
      threw = true;
    }
    team.reset();
    _exit(status.code() == Code::kClosed && threw ? 0 : 1);
  }
  int status = 0;
  ASSERT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check_barriers(*team, 10);  // the parent's team is untouched
}

TEST(idle_team_uses_no_cpu) {
  const auto team = make_team(3);
  team->run([](int) {});
  usleep(5'000);  // longer than any spin
  const auto cpu_us = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const auto before = cpu_us();
  usleep(200'000);
  EXPECT(cpu_us() - before < 50'000);  // of 200 ms, in ticks of up to 10 ms
}

// Prints the cost; asserts only what any machine that runs two threads at once must reach.
TEST(barrier_cost) {
  const auto team = make_team(2);
  constexpr int kRounds = 2'000;
  double best = 1e9;
  for (int trial = 0; trial < 10; ++trial) {
    int64_t ns = 0;
    team->run([&](int index) {
      team->barrier(index);
      const int64_t start = now_ns();
      for (int i = 0; i < kRounds; ++i) team->barrier(index);
      if (index == 0) ns = now_ns() - start;
    });
    best = std::min(best, static_cast<double>(ns) / kRounds);
  }
  std::printf("     barrier of 2 members: %.0f ns (best of 10)\n", best);
  int64_t start = now_ns();
  for (int i = 0; i < kRounds; ++i) team->run([](int) {});
  std::printf("     fork-join of 2 members: %.0f ns\n",
              static_cast<double>(now_ns() - start) / kRounds);
}

}  // namespace
}  // namespace lmn::parallel
