// SPDX-License-Identifier: Apache-2.0
#include "parallel/thread_team.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parallel/clock.h"
#include "parallel/cpu_topology.h"
#include "parallel/event_count.h"
#include "parallel/fork_mark.h"
#include "parallel/os_thread.h"

namespace lmn::parallel {
namespace {

constexpr int kMaxThreads = 1024;
// Leaves f on the members that wait for one that has thrown. Never seen outside this file.
struct LeaveRun {};

}  // namespace

// How one member waits: what its last waits say of how long to spin (kLeastSpinNs in the header).
// What a wait was is judged by its whole length, parked or not: judged by whether it parked, a spin
// that has become too short would stay so, as those that are woken late make the others wait.
class SpinBudget {
 public:
  explicit SpinBudget(int64_t most_ns)
      : most_ns_(most_ns), least_ns_(std::min(most_ns, kLeastSpinNs)), between_ns_(most_ns) {}

  // The count's new value. Between two runs:
  uint32_t wait_between(EventCount& count, uint32_t seen) {
    return wait(count, seen, between_ns_, [this](int64_t start, int64_t end) {
      between_ns_ = end - start <= most_ns_ ? std::min(between_ns_ * 2, most_ns_)
                                            : std::max(between_ns_ / 2, least_ns_);
    });
  }

  // Inside a run:
  uint32_t wait_inside(EventCount& count, uint32_t seen) {
    const int64_t spin_ns = crowded_until_ns_ == 0 ? most_ns_ : least_ns_;
    return wait(count, seen, spin_ns, [this](int64_t start, int64_t end) {
      if (end - start > kLostCpuNs) {
        crowded_until_ns_ = end + kCrowdedNs;
      } else if (end >= crowded_until_ns_) {
        crowded_until_ns_ = 0;
      }
    });
  }

 private:
  template <typename Learn>
  static uint32_t wait(EventCount& count, uint32_t seen, int64_t spin_ns, const Learn& learn) {
    uint32_t now = count.value();
    if (now != seen) return now;
    const int64_t start = now_ns();
    now = count.spin(seen, spin_ns);
    if (now == seen) now = count.park(seen);
    learn(start, now_ns());
    return now;
  }

  int64_t most_ns_;  // <= 0: parks at once
  int64_t least_ns_;
  int64_t between_ns_;
  int64_t crowded_until_ns_ = 0;  // 0: nobody has lost a CPU for a while
};

// Each group has its own cache line, because different members write it.
struct ThreadTeam::Shared {
  // The job: written by member 0 before ticket.advance(), read by workers after they saw the ticket
  // (release/acquire in EventCount). Member 0 writes again only after `done` told it that every
  // worker has read it.
  Body body = nullptr;  // null: leave
  void* context = nullptr;
  // One step per run.
  alignas(kCacheLine) EventCount ticket;
  // One step per worker and run. Orders the workers' writes before member 0's reads.
  alignas(kCacheLine) EventCount done;

  // Members that have arrived at the current barrier. acq_rel: the last one to arrive has seen all
  // writes of the others, and hands them on through phase.advance().
  alignas(kCacheLine) std::atomic<uint32_t> arrived{0};
  // One step per completed barrier, and one per failure.
  alignas(kCacheLine) EventCount phase;

  // A member's f threw in this run. Stored (release) before phase.advance() by the member that
  // throws; loaded (acquire) after phase.value() by the others: who reads the new phase also reads
  // `failed`, who read the old one is woken.
  alignas(kCacheLine) std::atomic<bool> failed{false};
  // The first to set it (relaxed: it only picks one) writes first_error, read by member 0 after
  // `done`.
  std::atomic<bool> error_claimed{false};
  std::exception_ptr first_error;

  int size = 1;
  ForkMark process;

  struct alignas(kCacheLine) Member {
    Shared* shared;
    int index;
    SpinBudget spins;
  };
  std::vector<Member> members;    // each one's own, and read by nobody else
  std::vector<OsThread> threads;  // joined before anything above goes

  void run_member(int index) noexcept {
    try {
      body(context, index);
      return;
    } catch (const LeaveRun&) {
      return;
    } catch (...) {
      if (!error_claimed.exchange(true, std::memory_order_relaxed))
        first_error = std::current_exception();
    }
    failed.store(true, std::memory_order_release);
    phase.advance();
  }

  static void work(void* argument) {
    Member& member = *static_cast<Member*>(argument);
    Shared& shared = *member.shared;
    for (uint32_t seen = 0;;) {
      seen = member.spins.wait_between(shared.ticket, seen);
      if (shared.body == nullptr) return;
      shared.run_member(member.index);
      shared.done.advance();
    }
  }

  ~Shared() {
    body = nullptr;
    ticket.advance();
    threads.clear();  // joins
  }
};

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::create(const TeamOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return error(Code::kInvalidArgument,
                 "threads is %d; give 1 to %d, or 0 for one per usable CPU (%d here)",
                 options.threads, kMaxThreads, default_thread_count());
  }
  std::unique_ptr<ThreadTeam> team(new ThreadTeam);
  team->shared_ = std::make_unique<Shared>();
  Shared& shared = *team->shared_;
  shared.size = team->size_ = options.threads > 0 ? options.threads : default_thread_count();
  // A team larger than the machine must not spin: the member it waits for needs the CPU.
  const int64_t default_spin_ns =
      team->size_ > affinity_cpu_count() ? kLeastSpinNs : kDefaultSpinNs;
  const int64_t spin_ns = options.spin_ns != 0 ? options.spin_ns : default_spin_ns;
  for (int index = 0; index < team->size_; ++index) {
    shared.members.push_back({&shared, index, SpinBudget(spin_ns)});
  }
  shared.threads.reserve(shared.members.size());
  for (int index = 1; index < team->size_; ++index) {
    const std::string name = "lmn-worker-" + std::to_string(index);
    Result<OsThread> thread =
        OsThread::start(name.c_str(), Shared::work, &shared.members[static_cast<size_t>(index)]);
    if (!thread.ok()) return std::move(thread).status();
    shared.threads.push_back(std::move(thread).value());
  }
  return team;
}

ThreadTeam::~ThreadTeam() = default;

Status ThreadTeam::check_usable() const {
  if (size_ == 1 || shared_->process.is_here()) return {};
  return error(Code::kClosed,
               "the thread team was created in process %d and its threads do not exist in this "
               "forked child; create it after fork",
               static_cast<int>(shared_->process.pid()));
}

void ThreadTeam::run_erased(Body body, void* context) {
  if (size_ == 1) return body(context, 0);
  Shared& shared = *shared_;
  // Else every wait below would be for threads that do not exist.
  LMN_CHECK(shared.process.is_here());
  shared.body = body;
  shared.context = context;
  const auto workers = static_cast<uint32_t>(size_ - 1);
  uint32_t done = shared.done.value();
  const uint32_t all_done = done + workers;
  shared.ticket.advance();
  shared.run_member(0);
  while (done != all_done) done = shared.members[0].spins.wait_inside(shared.done, done);

  if (!shared.failed.load(std::memory_order_relaxed)) return;  // ordered by `done`
  shared.failed.store(false, std::memory_order_relaxed);  // and what follows by the next ticket
  shared.arrived.store(0, std::memory_order_relaxed);
  shared.error_claimed.store(false, std::memory_order_relaxed);
  std::exception_ptr first_error;
  std::swap(first_error, shared.first_error);
  std::rethrow_exception(first_error);
}

void ThreadTeam::barrier(int index) {
  if (size_ == 1) return;
  Shared& shared = *shared_;
  // Cannot advance before this member arrives, except by a failure.
  const uint32_t phase = shared.phase.value();
  if (shared.failed.load(std::memory_order_acquire)) throw LeaveRun{};
  if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    // Relaxed: used next by members that have seen the new phase.
    shared.arrived.store(0, std::memory_order_relaxed);
    shared.phase.advance();
    return;
  }
  shared.members[static_cast<size_t>(index)].spins.wait_inside(shared.phase, phase);
  if (shared.failed.load(std::memory_order_acquire)) throw LeaveRun{};
}

}  // namespace lmn::parallel
