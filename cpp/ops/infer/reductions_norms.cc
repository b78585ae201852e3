// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/reductions.def: normalisations.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status expect_floats(const TensorNode& node) {
  for (int i = 0; i < node.inputs(); ++i) {
    LMN_RETURN_IF_ERROR(
        node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  }
  return {};
}

// Operand i is a vector of one value for each channel.
Status expect_channels(const TensorNode& node, int i, int64_t channels) {
  int64_t size;
  if (node.rank(i) == 1 && same_size(node.shape(i)[0], channels, &size)) return {};
  return node.fail("input %d is %s; it is one value for each of %" PRId64 " channels", i,
                   node.shape(i).to_string().c_str(), channels);
}

// Operand i broadcasts to operand 0 and does not enlarge it.
Status expect_broadcast(const TensorNode& node, int i) {
  const Shape &x = node.shape(0), &other = node.shape(i);
  bool fits = other.rank <= x.rank;
  for (int d = 1; fits && d <= other.rank; ++d) {
    const int64_t a = other[other.rank - d], b = x[x.rank - d];
    fits = a == 1 || a < 0 || b < 0 || a == b;
  }
  if (fits) return {};
  return node.fail("input %d is %s and does not broadcast to %s", i, other.to_string().c_str(),
                   x.to_string().c_str());
}

// [N, C, …] with scale and bias of C values.
Status per_channel(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(expect_floats(node));
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  if (node.rank(0) < 2) return node.fail("the input has rank %d, below 2", node.rank(0));
  LMN_RETURN_IF_ERROR(expect_channels(node, 1, node.shape(0)[1]));
  return expect_channels(node, 2, node.shape(0)[1]);
}

}  // namespace

Status infer_LayerNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_floats(node));
  outputs[0] = node.type(0);
  DType stash;
  LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("stash_type", 1), &stash));
  if (stash != DType::kF32 && stash != DType::kBF16) {
    return node.fail("stash_type %s; it is f32 or bf16", std::string(info(stash).name).c_str());
  }
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].dtype = stash;
  if (!node.ranked()) return {};
  Shape moments = node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", -1), moments.rank, &axis));
  for (int i = static_cast<int>(axis); i < moments.rank; ++i) moments[i] = 1;
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].shape = moments;
  LMN_RETURN_IF_ERROR(expect_broadcast(node, 1));
  return node.has(2) ? expect_broadcast(node, 2) : Status();
}

Status infer_RMSNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_floats(node));
  outputs[0] = node.type(0);
  outputs[0].dtype = node.dtype(1);
  if (!node.ranked()) return {};
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", -1), node.rank(0), &axis));
  return expect_broadcast(node, 1);
}

Status infer_GroupNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(per_channel(node, outputs));
  const int64_t groups = node.integer("num_groups", 0);
  if (groups < 1) return node.fail("num_groups is %" PRId64, groups);
  if (node.ranked() && node.shape(0)[1] >= 0 && node.shape(0)[1] % groups != 0) {
    return node.fail("%" PRId64 " channels in %" PRId64 " groups", node.shape(0)[1], groups);
  }
  return {};
}

Status infer_InstanceNormalization(const TensorNode& node, TensorTypes outputs) {
  return per_channel(node, outputs);
}

Status infer_BatchNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(5, 5));
  LMN_RETURN_IF_ERROR(expect_floats(node));
  outputs[0] = node.type(0);
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].dtype = node.dtype(3);
  if (outputs.size() > 1 && node.integer("training_mode", 0) == 0) {
    return node.fail("statistics are outputs only when training_mode is 1");
  }
  if (outputs.size() > 3) return node.fail("it has %zu outputs; at most 3", outputs.size());
  if (!node.ranked()) return {};
  if (node.rank(0) < 1) return node.fail("the input is a scalar");
  const int64_t channels = node.rank(0) == 1 ? 1 : node.shape(0)[1];
  for (int i = 1; i < 5; ++i) LMN_RETURN_IF_ERROR(expect_channels(node, i, channels));
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].shape = Shape{channels};
  return {};
}

Status infer_MeanVarianceNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_floats(node));
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  const Ints fallback{0, 2, 3}, *axes = node.integers("axes");
  uint32_t bits;
  return axis_bits(node, axes == nullptr ? fallback : *axes, node.rank(0), &bits);
}

}  // namespace lmn::ops
