// SPDX-License-Identifier: Apache-2.0
//
// ThreadTeam: fork-join over a fixed set of threads. run(f) calls f(index) once on every member;
// index 0 is the calling thread, so a team of one starts no thread and run() is a plain call.
// Between two runs, and inside barrier(), a member spins for at most spin_ns and then parks in the
// kernel: an idle team costs no CPU.
//
// Invariants: one run at a time (the team has one owner thread at a time); run and barrier allocate
// nothing; every member of a run calls barrier the same number of times. When f throws on one
// member, the others leave at their next barrier, every member finishes, and run() throws that
// exception on the caller: the team stays usable.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>

#include "core/status.h"

namespace lmn::parallel {

struct TeamOptions {
  // Members, the caller included; at most 1024. 0: default_thread_count() (cpu_topology.h).
  int threads = 0;
  // Longest spin before a member parks. 0: kDefaultSpinNs; negative: park at once.
  int64_t spin_ns = 0;
};

// Two decode steps lie one sampling apart (10 to 150 µs at a vocabulary of 49k), and waking a
// parked thread costs 5 to 50 µs: a worker that spins 200 µs stays awake between steps and costs an
// idle machine nothing that a person could measure.
inline constexpr int64_t kDefaultSpinNs = 200'000;
// Waking costs a run more than spinning does, so a member parks early only where spinning is known
// to be in vain; it then spins this long.
inline constexpr int64_t kLeastSpinNs = 1'000;
// Inside a run, members arrive within some µs of each other. One that is later than this has lost
// its CPU to somebody else. For kCrowdedNs from then on the member that waited parks early: a
// thread that wakes is scheduled before one that has used up its time by spinning, which is up to
// three times the speed on a machine that others use.
inline constexpr int64_t kLostCpuNs = 500'000;
inline constexpr int64_t kCrowdedNs = 50'000'000;
// Between runs, a wait longer than the longest spin halves the next one, and any other doubles it.

class ThreadTeam {
 public:
  // INVALID_ARGUMENT names a thread count out of range; OUT_OF_MEMORY when the system refuses a
  // thread.
  static Result<std::unique_ptr<ThreadTeam>> create(const TeamOptions& options);
  // Joins; in a forked child, where the threads do not exist, frees only what is safe to free.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // CLOSED in a child of fork(), where only the calling thread exists. run() checks the same and
  // throws BrokenInvariant.
  Status check_usable() const;

  // Calls f(int index) on all members and returns when all are done. What the caller wrote before
  // run() is visible to every member, and what members wrote is visible to the caller afterwards.
  template <typename F>
  void run(F&& f) {
    run_erased([](void* context,
                  int index) { (*static_cast<std::remove_reference_t<F>*>(context))(index); },
               const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

  // Inside run(), on every member: returns when all members have arrived. Writes before it are
  // visible to all after it.
  void barrier(int index);

 private:
  using Body = void (*)(void* context, int index);
  struct Shared;

  ThreadTeam() = default;
  void run_erased(Body body, void* context);

  int size_ = 1;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lmn::parallel
