// SPDX-License-Identifier: Apache-2.0
//
// TaskGraph: tasks of which some wait for others; TaskGraphRun: one run of them on a thread team.
// Every task counts what it still waits for; who finishes the last of it makes the task ready, goes
// on with one ready task itself and leaves the others in its own deque, where members without work
// steal them. A task that is worth it may be split in parts while other members have nothing to do.
//
// Which member runs what, and in how many parts, differs from run to run: a task's result must
// depend on neither. Tasks throw nothing.
//
// Memory order: `waiting` of a task is decremented with acq_rel by all that it waits for, and the
// last of them makes it ready; by those decrements (one release sequence) the task sees everything
// that they wrote. `parts_left` does the same for the parts of a task. An item travels to a thief
// by the deque (work_deque.h), to a member that sleeps by the event count. Of `left`, the last
// decrement (acq_rel) comes after all tasks; the members leave, and ThreadTeam::run orders their
// writes before its return.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/event_count.h"
#include "parallel/thread_team.h"
#include "parallel/work_deque.h"

namespace lmn::parallel {

class TaskGraph {
 public:
  // `most_parts`: of every task, 1 to 65535. `edges`: (earlier, later), each once, without a cycle.
  TaskGraph(std::vector<int32_t> most_parts, std::span<const std::pair<int32_t, int32_t>> edges);

  int32_t size() const { return static_cast<int32_t>(most_parts_.size()); }
  int32_t most_parts(int32_t task) const { return most_parts_[at(task)]; }
  int32_t waits_for(int32_t task) const { return waits_for_[at(task)]; }  // so many others
  std::span<const int32_t> followers(int32_t task) const {
    return std::span(followers_)
        .subspan(at(begin_[at(task)]), at(begin_[at(task) + 1] - begin_[at(task)]));
  }
  std::span<const int32_t> roots() const { return roots_; }

 private:
  static size_t at(int32_t i) { return static_cast<size_t>(i); }

  std::vector<int32_t> most_parts_, waits_for_, begin_, followers_, roots_;
};

// Allocates when it is made and never afterwards. The graph outlives it. One run at a time.
class TaskGraphRun {
 public:
  TaskGraphRun(const TaskGraph& graph, int workers);

  // Calls body(task, part, parts, worker) for all parts of all tasks, each once; worker is below
  // team.size(), which is `workers` at most.
  template <typename F>
  void run(ThreadTeam& team, F&& body) {
    run_erased(
        team,
        [](void* context, int32_t task, int part, int parts, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(context))(task, part, parts, worker);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

 private:
  using Body = void (*)(void* context, int32_t task, int part, int parts, int worker);
  struct Counts {
    std::atomic<int32_t> waiting{0}, parts_left{0};
  };

  void run_erased(ThreadTeam& team, Body body, void* context);
  void work(int worker, Body body, void* context);
  bool find(int worker, uint64_t* item);
  bool wait_for_work(int worker, uint64_t* item);
  uint64_t split(int worker, int32_t task, int32_t parts);
  uint64_t finish(int worker, int32_t task);

  const TaskGraph& graph_;
  std::vector<std::unique_ptr<WorkDeque<>>> deques_;
  std::unique_ptr<Counts[]> counts_;
  int workers_ = 0;  // of this run
  alignas(kCacheLine) std::atomic<int32_t> left_{0};
  // Members without work. Relaxed: a hint how far to split.
  alignas(kCacheLine) std::atomic<int32_t> idle_{0};
  // One step when there is work to steal, and one at the end.
  alignas(kCacheLine) EventCount news_;
};

}  // namespace lmn::parallel
