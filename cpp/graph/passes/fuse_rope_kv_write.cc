// SPDX-License-Identifier: Apache-2.0
//
// rope on q, rope on k and kv_write, all on column views of one matrix [q | k | v], are one stage:
// q is turned in place, k is turned on its way to the cache, and two barriers go.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

struct Match {
  ValueId qkv, cos_sin;
  const Node* rope_q;
  const Node* rope_k;
  const Node* kv_write;
};

// The producer of `id`, if it is an `op` and nothing else reads `id`.
const Node* sole(const Graph& graph, const Uses& uses, ValueId id, Op op) {
  const Node* node = graph.producer(id);
  return node != nullptr && node->op == op && uses.only_one(id) ? node : nullptr;
}

std::optional<Match> match(const Graph& graph, const Uses& uses, const Node& kv_write) {
  const Node* rope_k = sole(graph, uses, kv_write.inputs[0], Op::kRope);
  const Node* v = sole(graph, uses, kv_write.inputs[1], Op::kColumns);
  const Node* k = rope_k == nullptr ? nullptr : sole(graph, uses, rope_k->inputs[0], Op::kColumns);
  if (k == nullptr || v == nullptr || k->inputs[0] != v->inputs[0]) return std::nullopt;

  const ValueId qkv = k->inputs[0];
  if (uses.is_output(qkv) || uses.of(qkv).size() != 3) return std::nullopt;
  const Node* q = nullptr;
  for (NodeId user : uses.of(qkv)) {
    const Node& node = graph.node(user);
    if (&node != k && &node != v) q = &node;
  }
  if (q == nullptr || q->op != Op::kColumns || !uses.only_one(q->outputs[0])) return std::nullopt;
  const Node* rope_q = &graph.node(uses.of(q->outputs[0])[0]);
  if (rope_q->op != Op::kRope || rope_q->inputs[1] != rope_k->inputs[1] ||
      uses.is_output(rope_q->outputs[0]) ||
      rope_q->attributes.get<std::string>("style") !=
          rope_k->attributes.get<std::string>("style")) {
    return std::nullopt;
  }

  const Dims& cache = graph.value(kv_write.inputs[3]).type.dims;
  const int64_t kv_heads = cache[0].size, head_dim = cache[1].size;
  const int64_t heads = rope_q->attributes.get<int64_t>("heads");
  const auto covers = [&](const Node* view, int64_t first_head, int64_t count) {
    return view->attributes.get<int64_t>("begin") == first_head * head_dim &&
           view->attributes.get<int64_t>("count") == count * head_dim;
  };
  if (rope_k->attributes.get<int64_t>("heads") != kv_heads || !covers(q, 0, heads) ||
      !covers(k, heads, kv_heads) || !covers(v, heads + kv_heads, kv_heads) ||
      graph.value(qkv).type.dims[1] != Dim((heads + 2 * kv_heads) * head_dim)) {
    return std::nullopt;
  }
  return Match{qkv, rope_q->inputs[1], rope_q, rope_k, &kv_write};
}

Status emit(const Match& m, Rewriter* rewriter) {
  const int64_t heads = m.rope_q->attributes.get<int64_t>("heads");
  const std::vector<ValueId> inputs{rewriter->map(m.qkv), rewriter->map(m.cos_sin),
                                    rewriter->map(m.kv_write->inputs[2]),
                                    rewriter->map(m.kv_write->inputs[3])};
  LMN_ASSIGN_OR_RETURN(const ValueId qkv, rewriter->add(Op::kRopeKvWrite, inputs,
                                                        m.rope_q->attributes, m.kv_write->name));
  const Node& fused = *rewriter->to().producer(qkv);
  rewriter->replace(m.kv_write->outputs[0], fused.outputs[1]);
  const int64_t count = heads * rewriter->to().value(fused.inputs[3]).type.dims[1].size;
  LMN_ASSIGN_OR_RETURN(const ValueId q,
                       rewriter->add(Op::kColumns, {qkv}, {{"begin", int64_t{0}}, {"count", count}},
                                     m.rope_q->name));
  rewriter->replace(m.rope_q->outputs[0], q);
  return {};
}

}  // namespace

Result<Graph> fuse_rope_kv_write(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  std::vector<std::optional<Match>> at(
      graph.nodes.size());  // the last of the three: there the fused node goes
  std::vector<bool> gone(graph.nodes.size(), false);
  const auto index = [&](const Node* node) { return node - graph.nodes.data(); };
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kKvWrite) continue;
    std::optional<Match> m = match(graph, uses, node);
    if (!m) continue;
    const auto last = std::max(index(m->rope_q), index(m->kv_write));
    bool read_too_early = false;
    for (ValueId id : {m->rope_q->outputs[0], node.outputs[0]}) {
      for (NodeId user : uses.of(id)) read_too_early |= user < last;
    }
    if (read_too_early) continue;
    for (const Node* fused : {m->rope_q, m->rope_k, m->kv_write})
      gone[static_cast<size_t>(index(fused))] = true;
    at[static_cast<size_t>(last)] = m;
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (at[n]) {
      LMN_RETURN_IF_ERROR(emit(*at[n], &rewriter));
    } else if (!gone[n]) {
      LMN_RETURN_IF_ERROR(rewriter.copy(graph.nodes[n]));
    }
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
