// SPDX-License-Identifier: Apache-2.0
#include "plan/barriers.h"

namespace lmn::plan {
namespace {

bool share_bytes(const Interval& a, const Interval& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool conflict(const Layout& layout, const std::vector<bool>& own_copy, const Access& a,
              const Access& b) {
  if (!a.write && !b.write) return false;
  if (a.buffer == b.buffer) {
    if (a.buffer >= 0 && own_copy[static_cast<size_t>(a.buffer)]) return false;
    return a.begin < b.end && b.begin < a.end;
  }
  if (a.buffer < 0 || b.buffer < 0)
    return false;  // a cache or shared memory and something else, or caches of two layers
  return share_bytes(layout.buffers[static_cast<size_t>(a.buffer)].interval,
                     layout.buffers[static_cast<size_t>(b.buffer)].interval);
}

}  // namespace

std::vector<std::vector<Access>> find_accesses(const graph::Graph& graph, const Layout& layout,
                                               const std::vector<int>& kv_layer) {
  std::vector<bool> is_input(graph.values.size(), false);
  for (graph::ValueId id : graph.inputs) is_input[static_cast<size_t>(id)] = true;
  std::vector<std::vector<Access>> out;
  for (graph::NodeId n : layout.stages) {
    const graph::Node& node = graph.node(n);
    std::vector<Access>& accesses = out.emplace_back();
    const auto add = [&](graph::ValueId id, bool write) {
      if (id == graph::kNone) return;
      const int layer = kv_layer[static_cast<size_t>(id)];
      if (layer >= 0) {
        accesses.push_back({-1 - layer, 0, 1, write});
        return;
      }
      const Place& place = layout.place(id);
      if (place.buffer < 0 || is_input[static_cast<size_t>(id)]) return;
      accesses.push_back({place.buffer, place.column, place.column + place.columns, write});
    };
    for (graph::ValueId id : node.inputs) add(id, false);
    for (graph::ValueId id : node.outputs) add(id, true);
    if (node.op == graph::Op::kPagedAttention) accesses.push_back({kSharedMemory, 0, 1, true});
  }
  return out;
}

std::vector<bool> place_barriers(const Layout& layout,
                                 const std::vector<std::vector<Access>>& accesses,
                                 const std::vector<bool>& own_copy) {
  std::vector<bool> before(accesses.size(), false);
  std::vector<Access> since;  // accesses of the stages after the last barrier
  for (size_t s = 0; s < accesses.size(); ++s) {
    for (const Access& now : accesses[s]) {
      for (const Access& earlier : since)
        before[s] = before[s] || conflict(layout, own_copy, earlier, now);
    }
    if (before[s]) since.clear();
    since.insert(since.end(), accesses[s].begin(), accesses[s].end());
  }
  return before;
}

}  // namespace lmn::plan
