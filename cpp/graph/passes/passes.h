// SPDX-License-Identifier: Apache-2.0
//
// The optimiser: functions Graph -> Graph, listed in order in passes.cc and nowhere else. A pass
// keeps results: what it returns computes the same outputs. Merging, hoisting and elimination keep
// every bit; fusion may keep an intermediate value unrounded in a register; lower_quantize rounds.
// A pass knows no device: what it has to know of one is asked through PassOptions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace lmn::graph {

struct PassOptions {
  // What a Linear reads whose weight has this type and so many columns: kF32, kQA8 or kQA16.
  // UNSUPPORTED names the type. Callers pass KernelTable::linear_input_type of the device that the
  // graph is for.
  std::function<Result<DType>(DType weight, int64_t columns, bool precise)> linear_input_type;
  // Computes a tensor operator whose inputs are all known; null: nothing is folded. Callers pass
  // what the device of the graph computes.
  std::function<Result<std::vector<Tensor>>(const ops::TensorNode& node,
                                            std::span<const TensorView> inputs)>
      evaluate;
  // Called with the graph before the first pass (name "input") and after each pass. May be null.
  std::function<void(std::string_view pass, const Graph& graph)> observe;
};

using PassFn = Result<Graph> (*)(const Graph& graph, const PassOptions& options);

struct Pass {
  std::string_view name;
  PassFn run;
};

// All passes, in the order in which optimize() runs them.
std::span<const Pass> passes();

// Runs all passes, on subgraphs first, and verifies what each returns (a pass that breaks a graph
// is INTERNAL, by name).
Result<Graph> optimize(Graph graph, const PassOptions& options);

// Tensor operators whose inputs are constants, and Shape of known shapes -> constants.
Result<Graph> fold_constants(const Graph& graph, const PassOptions& options);
// What is cut out of Shapes and put together to shapes, where sizes are names: Reshapes to named
// sizes, and no Expands to the sizes that are there.
Result<Graph> fold_shapes(const Graph& graph, const PassOptions& options);
// Tensor operators that do nothing -> their input: Identity, Dropout of inference, Cast to the same
// type, x + 0, x - 0, x * 1, x / 1, Slice of everything; two Transposes -> one or none, or a
// Reshape where only sizes of 1 move; Reshape of a Reshape -> the last.
Result<Graph> simplify_tensors(const Graph& graph, const PassOptions& options);
// x * 0.5 * (1 + erf(x / sqrt(2))), in the orders that exporters write it -> Gelu.
Result<Graph> fuse_gelu(const Graph& graph, const PassOptions& options);
// Means, root and quotient of rows, their factor and addend, in the orders that exporters write
// them -> LayerNormalization, RMSNormalization.
Result<Graph> fuse_layer_norm(const Graph& graph, const PassOptions& options);
// The product of one-hot rows with a constant matrix -> Gather.
Result<Graph> gather_one_hot(const Graph& graph, const PassOptions& options);
// BatchNormalization(Conv(x)) with constant statistics -> Conv with other constants.
Result<Graph> fold_batch_norm(const Graph& graph, const PassOptions& options);
// Conv with constant weights, and the poolings and operators of elements that follow, -> the same
// over [batch, spatial..., channels], with Transposes where such a chain begins and ends.
Result<Graph> use_channels_last(const Graph& graph, const PassOptions& options);
// lmnative.Conv, what is added, and an activation -> one lmnative.Conv.
Result<Graph> fuse_convolution(const Graph& graph, const PassOptions& options);
// softmax(scale q k^T + mask) v with the Transposes around it -> lmnative.Attention.
Result<Graph> fuse_attention(const Graph& graph, const PassOptions& options);
// MatMul or Gemm with a constant matrix, bias, activation and what is added to the result ->
// lmnative.Linear.
Result<Graph> fuse_linear(const Graph& graph, const PassOptions& options);
// MatMulInteger with constant weights, its scales, bias and activation -> lmnative.IntegerLinear;
// DynamicQuantizeLinear -> lmnative.BlockRanges, QuantizeByRanges.
Result<Graph> fuse_integer_linear(const Graph& graph, const PassOptions& options);
// LayerNormalization(a + b) -> com.microsoft.SkipLayerNormalization.
Result<Graph> fuse_skip_norm(const Graph& graph, const PassOptions& options);
// Operators of elements on float32 that read each other -> lmnative.ElementwiseChain.
Result<Graph> fuse_elementwise(const Graph& graph, const PassOptions& options);
// gather_rows(f(x, y), i) -> f(gather_rows(x, i), gather_rows(y, i)) for row-wise f: logits, and
// what follows the attention of the last layer, are computed for the rows that are asked for.
Result<Graph> hoist_gather(const Graph& graph, const PassOptions& options);
// silu_mul(linear(x, gate), linear(x, up)) -> one interleaved Linear. Needs equal types and shapes
// and no bias.
Result<Graph> merge_gate_up(const Graph& graph, const PassOptions& options);
// Linears on one x (q, k and v) -> one Linear over the pieces of all and a column view for each.
// Needs equal input types and readers that take strides.
Result<Graph> merge_linears(const Graph& graph, const PassOptions& options);
// rope(q), rope(k) and kv_write on the column views of one matrix -> rope_kv_write.
Result<Graph> fuse_rope_kv_write(const Graph& graph, const PassOptions& options);
// add(linear(x, w), r) -> linear(x, w, residual = r).
Result<Graph> fuse_residual(const Graph& graph, const PassOptions& options);
// linear(x, w) -> linear(quantize(x), w) where the device reads blocks of small integers. Changes
// results by the rounding of x.
Result<Graph> lower_quantize(const Graph& graph, const PassOptions& options);
// quantize(rms_norm(x)) -> rms_norm_quantize(x), where nothing else reads the norm.
Result<Graph> fuse_norm_quantize(const Graph& graph, const PassOptions& options);
// Nodes with the same operator, operands and attributes become one.
Result<Graph> eliminate_common_subexpressions(const Graph& graph, const PassOptions& options);
// Nodes and constants that no output and no state needs go.
Result<Graph> eliminate_dead_code(const Graph& graph, const PassOptions& options);

}  // namespace lmn::graph
