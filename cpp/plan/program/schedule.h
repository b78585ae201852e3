// SPDX-License-Identifier: Apache-2.0
//
// Which runner a specialisation has: the thread team in lockstep (stages in order, every stage
// split over all workers, barriers between), or the task graph (stages run whole, side by side,
// when what they wait for is done). Lists and large operators do best in lockstep; many small
// operators that do not wait for each other, in the task graph. Results are the same, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "plan/arena.h"
#include "plan/program/program.h"
#include "plan/program/specialization.h"

namespace lmn::plan {

// Below so much work, waking a team costs more than it saves.
inline constexpr double kTeamNs = 15'000;

using StageEdge = std::pair<int32_t, int32_t>;  // (earlier, later)

// Every pair of stages that may not run side by side: one writes a root that the other touches.
std::vector<StageEdge> stage_edges(const graph::Graph& graph, const Specialization& s);

// The most parts that a stage is worth splitting in, when other workers have nothing to do.
int32_t most_parts(const ProgramStage& stage, int workers);

// `edges`: stage_edges() before buffers are shared. False where a specialisation cannot run as a
// task graph: it has late values, or too many stages to compare all pairs.
bool prefers_task_graph(const Specialization& s, std::span<const StageEdge> edges, int workers,
                        Runner wanted);

// Offsets for stages that run in any order that `edges` allows. `touched`: of every interval, the
// stages that touch it, the first writer first. Returns the size of the arena.
int64_t assign_unordered_offsets(std::span<Interval> intervals,
                                 std::span<const std::vector<int32_t>> touched, int32_t stages,
                                 std::span<const StageEdge> edges);

}  // namespace lmn::plan
