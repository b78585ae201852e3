// SPDX-License-Identifier: Apache-2.0
#include "plan/program/schedule.h"

#include <algorithm>

namespace lmn::plan {
namespace {

// Ancestors are kept as bits, 512 kB for so many stages.
constexpr size_t kMostStages = 2048;
// A barrier of the team, half of it waiting for the later member, and what a task costs beside its
// kernel: measured with two members.
constexpr double kBarrierNs = 1'500, kTaskNs = 150;
// A part of a task is worth handing over from here on.
constexpr double kPartNs = 20'000;
// Estimates are rough: the list is left only for a clear gain.
constexpr double kClearGain = 0.85;

size_t at(int32_t i) { return static_cast<size_t>(i); }

double lockstep_ns(const Specialization& s, std::span<const StageEdge> edges, int workers) {
  std::vector<int32_t> latest(s.stages.size(), -1);  // stage that a stage waits for
  for (const auto& [earlier, later] : edges)
    latest[at(later)] = std::max(latest[at(later)], earlier);
  double sum = 0;
  std::vector<double> whole(at(workers));
  int32_t begin = 0;
  const auto close = [&] {
    sum += *std::max_element(whole.begin(), whole.end());
    std::fill(whole.begin(), whole.end(), 0);
  };
  for (int32_t i = 0; i < static_cast<int32_t>(s.stages.size()); ++i) {
    if (latest[at(i)] >= begin && i > begin) {
      close();
      sum += kBarrierNs;
      begin = i;
    }
    const ProgramStage& stage = s.stages[at(i)];
    if (stage.kernel.splits) {
      for (double& ns : whole) ns += stage.cost / workers;
    } else {
      whole[at(i % workers)] += stage.cost;
    }
  }
  close();
  return sum;
}

// Graham's bound for list scheduling: what a chain costs, and the rest shared out.
double task_graph_ns(const Specialization& s, std::span<const StageEdge> edges, int workers) {
  std::vector<double> chain(s.stages.size());
  double total = 0, longest = 0;
  size_t edge = 0;  // edges are in the order of their later stage
  for (int32_t i = 0; i < static_cast<int32_t>(s.stages.size()); ++i) {
    double before = 0;
    for (; edge < edges.size() && edges[edge].second == i; ++edge)
      before = std::max(before, chain[at(edges[edge].first)]);
    const ProgramStage& stage = s.stages[at(i)];
    total += stage.cost + kTaskNs;
    chain[at(i)] = before + kTaskNs + stage.cost / most_parts(stage, workers);
    longest = std::max(longest, chain[at(i)]);
  }
  return total / workers + longest * (workers - 1) / workers;
}

}  // namespace

std::vector<StageEdge> stage_edges(const graph::Graph& graph, const Specialization& s) {
  std::vector<StageEdge> edges;
  std::vector<int32_t> writer(s.roots.size(), -1);
  std::vector<std::vector<int32_t>> readers(s.roots.size());
  std::vector<int32_t> before;
  for (int32_t i = 0; i < static_cast<int32_t>(s.stages.size()); ++i) {
    const graph::Node& node = graph.node(s.stages[at(i)].node);
    before.clear();
    for (const graph::ValueId id : node.inputs) {
      if (id == graph::kNone) continue;
      const size_t root = at(s.roots[at(id)]);
      if (writer[root] >= 0) before.push_back(writer[root]);
      readers[root].push_back(i);
    }
    for (const graph::ValueId id : node.outputs) {
      const size_t root = at(s.roots[at(id)]);
      if (writer[root] >= 0) before.push_back(writer[root]);
      for (const int32_t reader : readers[root]) {
        if (reader != i) before.push_back(reader);
      }
      readers[root].clear();
      writer[root] = i;
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const int32_t earlier : before) edges.emplace_back(earlier, i);
  }
  return edges;
}

int32_t most_parts(const ProgramStage& stage, int workers) {
  if (!stage.kernel.splits) return 1;
  return static_cast<int32_t>(std::clamp(stage.cost / kPartNs, 1.0, static_cast<double>(workers)));
}

bool prefers_task_graph(const Specialization& s, std::span<const StageEdge> edges, int workers,
                        Runner wanted) {
  if (wanted == Runner::kLockstep || workers < 2 || s.has_late || s.stages.empty() ||
      s.stages.size() > kMostStages) {
    return false;
  }
  if (wanted == Runner::kTaskGraph) return true;
  double total = 0;
  for (const ProgramStage& stage : s.stages) total += stage.cost;
  return total >= kTeamNs &&
         task_graph_ns(s, edges, workers) < kClearGain * lockstep_ns(s, edges, workers);
}

int64_t assign_unordered_offsets(std::span<Interval> intervals,
                                 std::span<const std::vector<int32_t>> touched, int32_t stages,
                                 std::span<const StageEdge> edges) {
  const size_t words = (at(stages) + 63) / 64;
  std::vector<uint64_t> ancestors(at(stages) * words);
  for (const auto& [earlier, later] : edges) {  // in the order of the later
    uint64_t* row = ancestors.data() + at(later) * words;
    const uint64_t* from = ancestors.data() + at(earlier) * words;
    for (size_t w = 0; w < words; ++w) row[w] |= from[w];
    row[at(earlier) / 64] |= uint64_t{1} << (earlier % 64);
  }
  // Nobody touches `a` any more when `b` is first written, whatever the order.
  const auto is_over = [&](size_t a, size_t b) {
    const uint64_t* row = ancestors.data() + at(touched[b][0]) * words;
    return std::all_of(touched[a].begin(), touched[a].end(), [&](int32_t stage) {
      return (row[at(stage) / 64] >> (stage % 64) & 1) != 0;
    });
  };
  return assign_offsets(intervals,
                        [&](size_t a, size_t b) { return !is_over(a, b) && !is_over(b, a); });
}

}  // namespace lmn::plan
