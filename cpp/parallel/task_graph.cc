// SPDX-License-Identifier: Apache-2.0
#include "parallel/task_graph.h"

#include <algorithm>

#include "core/check.h"

namespace lmn::parallel {
namespace {

// A member that finds nothing looks again for so long before it parks: as long as a small task.
constexpr int64_t kIdleSpinNs = 20'000;
constexpr uint64_t kNothing = ~uint64_t{0};

// A part of a task, in one word.
uint64_t item_of(int32_t task, int32_t part, int32_t parts) {
  return static_cast<uint64_t>(static_cast<uint32_t>(task)) << 32 |
         static_cast<uint64_t>(part) << 16 | static_cast<uint64_t>(parts);
}

}  // namespace

TaskGraph::TaskGraph(std::vector<int32_t> most_parts,
                     std::span<const std::pair<int32_t, int32_t>> edges)
    : most_parts_(std::move(most_parts)),
      waits_for_(most_parts_.size()),
      begin_(most_parts_.size() + 1),
      followers_(edges.size()) {
  for (const auto& [earlier, later] : edges) {
    ++begin_[at(earlier) + 1];
    ++waits_for_[at(later)];
  }
  for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
  for (const auto& [earlier, later] : edges) followers_[at(next[at(earlier)]++)] = later;
  for (int32_t i = 0; i < size(); ++i) {
    if (waits_for_[at(i)] == 0) roots_.push_back(i);
  }
}

TaskGraphRun::TaskGraphRun(const TaskGraph& graph, int workers)
    : graph_(graph), counts_(std::make_unique<Counts[]>(static_cast<size_t>(graph.size()))) {
  size_t items = 0;
  for (int32_t i = 0; i < graph.size(); ++i)
    items += static_cast<size_t>(std::min(graph.most_parts(i), workers));
  for (int i = 0; i < workers; ++i) deques_.push_back(std::make_unique<WorkDeque<>>(items));
}

void TaskGraphRun::run_erased(ThreadTeam& team, Body body, void* context) {
  workers_ = team.size();
  LMN_CHECK(static_cast<size_t>(workers_) <= deques_.size());
  if (graph_.size() == 0) return;
  // Relaxed: the team starts after this.
  for (int32_t i = 0; i < graph_.size(); ++i)
    counts_[static_cast<size_t>(i)].waiting.store(graph_.waits_for(i), std::memory_order_relaxed);
  left_.store(graph_.size(), std::memory_order_relaxed);
  idle_.store(0, std::memory_order_relaxed);
  for (int i = 0; i < workers_; ++i) deques_[static_cast<size_t>(i)]->reset();
  // Few roots are split for all members; the caller is the owner of all deques until they start.
  const auto roots = static_cast<int>(graph_.roots().size());
  const int share = (workers_ + roots - 1) / roots;
  int next = 0;
  for (const int32_t root : graph_.roots()) {
    const int32_t parts = std::min(graph_.most_parts(root), share);
    counts_[static_cast<size_t>(root)].parts_left.store(parts, std::memory_order_relaxed);
    for (int32_t part = 0; part < parts; ++part)
      deques_[static_cast<size_t>(next++ % workers_)]->push(item_of(root, part, parts));
  }
  team.run([&](int worker) { work(worker, body, context); });
}

void TaskGraphRun::work(int worker, Body body, void* context) {
  uint64_t item = kNothing;
  while (item != kNothing || find(worker, &item) || wait_for_work(worker, &item)) {
    const auto task = static_cast<int32_t>(item >> 32);
    const auto part = static_cast<int>(item >> 16 & 0xffff),
               parts = static_cast<int>(item & 0xffff);
    body(context, task, part, parts, worker);
    item = kNothing;
    if (parts == 1 || counts_[static_cast<size_t>(task)].parts_left.fetch_sub(
                          1, std::memory_order_acq_rel) == 1) {
      item = finish(worker, task);
    }
  }
}

bool TaskGraphRun::find(int worker, uint64_t* item) {
  if (deques_[static_cast<size_t>(worker)]->pop(item)) return true;
  for (int i = 1; i < workers_; ++i) {
    WorkDeque<>& victim = *deques_[static_cast<size_t>((worker + i) % workers_)];
    while (victim.has_items()) {
      if (victim.steal(item)) return true;
    }
  }
  *item = kNothing;
  return false;
}

// False: all tasks are done.
bool TaskGraphRun::wait_for_work(int worker, uint64_t* item) {
  idle_.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    const uint32_t seen = news_.value();
    const bool found = find(worker, item);
    if (found || left_.load(std::memory_order_acquire) == 0) {
      idle_.fetch_sub(1, std::memory_order_relaxed);
      return found;
    }
    news_.wait(seen, kIdleSpinNs);
  }
}

// Leaves all parts but the first in the deque, which is given back.
uint64_t TaskGraphRun::split(int worker, int32_t task, int32_t parts) {
  // Relaxed: an item carries it.
  counts_[static_cast<size_t>(task)].parts_left.store(parts, std::memory_order_relaxed);
  for (int32_t part = parts - 1; part > 0; --part)
    deques_[static_cast<size_t>(worker)]->push(item_of(task, part, parts));
  return item_of(task, 0, parts);
}

// What to go on with.
uint64_t TaskGraphRun::finish(int worker, int32_t task) {
  uint64_t mine = kNothing;
  bool shared = false;
  for (const int32_t follower : graph_.followers(task)) {
    if (counts_[static_cast<size_t>(follower)].waiting.fetch_sub(1, std::memory_order_acq_rel) != 1)
      continue;
    const int32_t idle = idle_.load(std::memory_order_relaxed);
    const int32_t parts = std::min(graph_.most_parts(follower), std::min(idle + 1, workers_));
    const uint64_t item = split(worker, follower, parts);
    if (mine != kNothing) deques_[static_cast<size_t>(worker)]->push(mine);
    shared |= mine != kNothing || parts > 1;
    mine = item;
  }
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1 || shared) news_.advance();
  return mine;
}

}  // namespace lmn::parallel
