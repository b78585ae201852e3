// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/shapes.def: parts of tensors, joined, cut and padded, and tensors made from
// numbers.
#include <cinttypes>
#include <cmath>

#include "core/float16.h"
#include "ops/infer/axes.h"
#include "ops/infer/infer.h"
#include "ops/ranges.h"

namespace lmn::ops {
namespace {

// A pad for every axis of x; the sizes that result.
Shape padded(const Shape& x, const PadAxes& axes) {
  Shape out = x;
  for (int i = 0; i < x.rank; ++i) {
    const auto [begin, end] = axes[static_cast<size_t>(i)];
    if (begin != 0 || end != 0) out[i] = x[i] < 0 ? kUnknownSize : x[i] + begin + end;
  }
  return out;
}

}  // namespace

Status infer_Concat(const TensorNode& node, TensorTypes outputs) {
  const int count = node.inputs();
  LMN_RETURN_IF_ERROR(node.expect_inputs(std::max(count, 1), count));
  outputs[0].dtype = node.dtype(0);
  for (int i = 1; i < count; ++i) {
    if (node.dtype(i) != node.dtype(0)) {
      return node.fail("input 0 is %s and input %d is %s", type_name(node.dtype(0)).c_str(), i,
                       type_name(node.dtype(i)).c_str());
    }
  }
  if (node.attributes().find("axis") == nullptr) return node.fail("attribute 'axis' is missing");
  if (!node.ranked()) return {};
  Shape out = node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), out.rank, &axis));
  const int along = static_cast<int>(axis);
  for (int i = 1; i < count; ++i) {
    const Shape& x = node.shape(i);
    bool fits = x.rank == out.rank;
    for (int d = 0; fits && d < out.rank; ++d) {
      if (d == along) {
        if (x[d] < 0 || out[d] < 0) {
          out[d] = x[d] == 0 ? out[d] : out[d] == 0 ? x[d] : kUnknownSize;
        } else if (__builtin_add_overflow(out[d], x[d], &out[d])) {
          return node.fail("the output is too large");
        }
      } else {
        fits = same_size(out[d], x[d], &out[d]);
      }
    }
    if (!fits) {
      return node.fail("input %d is %s, which does not join %s along axis %d", i,
                       x.to_string().c_str(), node.shape(0).to_string().c_str(), along);
    }
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_Split(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  for (TensorType& out : outputs) out.dtype = node.dtype(0);
  const auto parts = static_cast<int64_t>(outputs.size());
  const int64_t wanted = node.integer("num_outputs", parts);
  if (wanted != parts) {
    return node.fail("num_outputs is %" PRId64 ", and it has %" PRId64 " outputs", wanted, parts);
  }
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.rank, &axis));
  const int along = static_cast<int>(axis);
  for (TensorType& out : outputs) {
    out.shape = x;
    out.shape[along] = parts == 1 ? x[along] : kUnknownSize;
  }
  if (!node.has(1)) {
    if (x[along] < 0) return {};
    const int64_t each = x[along] / parts + (x[along] % parts != 0);
    const int64_t last = x[along] - each * (parts - 1);
    if (last < 0) {
      return node.fail("%" PRId64 " elements do not split into %" PRId64 " parts of %" PRId64
                       " and a smaller last one",
                       x[along], parts, each);
    }
    for (TensorType& out : outputs) out.shape[along] = each;
    outputs.back().shape[along] = last;
    return {};
  }
  if (!knows_list(node, 1)) return {};
  const std::vector<int64_t> sizes = node.integers(1);
  if (sizes.size() != outputs.size()) {
    return node.fail("split has %zu sizes, and it has %zu outputs", sizes.size(), outputs.size());
  }
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || __builtin_add_overflow(sum, sizes[i], &sum)) {
      return node.fail("split[%zu] is %" PRId64, i, sizes[i]);
    }
    outputs[i].shape[along] = sizes[i];
  }
  if (x[along] >= 0 && sum != x[along]) {
    return node.fail("split has %" PRId64 " elements together, and axis %d has %" PRId64, sum,
                     along, x[along]);
  }
  return {};
}

Status infer_Slice(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 5));
  outputs[0].dtype = node.dtype(0);
  bool known = true;
  for (int i = 1; i < node.inputs(); ++i) {
    LMN_RETURN_IF_ERROR(expect_list(node, i));
    known = known && (!node.has(i) || knows_list(node, i));
  }
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  Shape out = x;
  if (known) {
    SliceAxes axes;
    LMN_RETURN_IF_ERROR(slice_axes(node, &axes));
    for (int i = 0; i < x.rank; ++i) out[i] = axes[static_cast<size_t>(i)].count;
  } else if (node.has(3) && knows_list(node, 3)) {
    uint32_t bits;
    LMN_RETURN_IF_ERROR(axis_bits(node, node.integers(3), x.rank, &bits));
    for (int i = 0; i < x.rank; ++i) {
      if ((bits >> i & 1u) != 0) out[i] = kUnknownSize;
    }
  } else {
    out = unknown_sizes(x.rank);
  }
  outputs[0].shape = out;
  return {};
}

Status infer_Pad(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  LMN_RETURN_IF_ERROR(expect_list(node, 3));
  PadMode mode;
  LMN_RETURN_IF_ERROR(pad_mode(node, &mode));
  outputs[0].dtype = node.dtype(0);
  if (node.has(2) && node.dtype(2) != node.dtype(0)) {
    return node.fail("constant_value is %s, and the input %s", type_name(node.dtype(2)).c_str(),
                     type_name(node.dtype(0)).c_str());
  }
  if (!node.ranked()) return {};
  if (node.has(2) && node.type(2).is_known() && node.shape(2).elements() != 1) {
    return node.fail("constant_value has shape %s; it is one element",
                     node.shape(2).to_string().c_str());
  }
  const Shape& x = node.shape(0);
  if (!knows_list(node, 1) || (node.has(3) && !knows_list(node, 3))) {
    outputs[0].shape = unknown_sizes(x.rank);
    return {};
  }
  PadAxes axes;
  LMN_RETURN_IF_ERROR(pad_axes(node, &axes));
  for (int i = 0; i < x.rank && mode != PadMode::kConstant; ++i) {
    const auto [begin, end] = axes[static_cast<size_t>(i)];
    if (x[i] < 0 || (begin <= 0 && end <= 0)) continue;
    if (x[i] + std::min<int64_t>(begin, 0) + std::min<int64_t>(end, 0) == 0) {
      return node.fail("axis %d has no element to fill its padding with", i);
    }
  }
  outputs[0].shape = padded(x, axes);
  return check_elements(node, outputs[0].shape);
}

Status infer_CenterCropPad(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  outputs[0].shape = unknown_sizes(x.rank);
  if (!knows_list(node, 1)) return {};
  PadAxes pads;
  LMN_RETURN_IF_ERROR(center_axes(node, &pads));
  Shape out = x;
  const Ints* axes = node.integers("axes");
  const std::vector<int64_t> sizes = node.integers(1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t axis = axes == nullptr ? static_cast<int64_t>(i) : (*axes)[i];
    out[static_cast<int>(axis < 0 ? axis + x.rank : axis)] = sizes[i];
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_Range(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kI64, DType::kF32, DType::kI32, DType::kF64,
                                            DType::kI16, DType::kF16, DType::kBF16}));
  outputs[0] = {node.dtype(0), unknown_sizes(1)};
  if (node.dtype(1) != node.dtype(0) || node.dtype(2) != node.dtype(0)) {
    return node.fail("start, limit and delta are not of one type");
  }
  if (!node.ranked() || !node.knows(0) || !node.knows(1) || !node.knows(2)) return {};
  int64_t count = 0;
  switch (node.dtype(0)) {
    case DType::kI64:
    case DType::kI32:
    case DType::kI16: {
      int64_t start, limit, delta;
      LMN_RETURN_IF_ERROR(scalar_integer(node, 0, &start));
      LMN_RETURN_IF_ERROR(scalar_integer(node, 1, &limit));
      LMN_RETURN_IF_ERROR(scalar_integer(node, 2, &delta));
      if (delta == 0) return node.fail("delta is 0");
      const bool up = delta > 0;
      if (up ? start >= limit : start <= limit) break;
      const uint64_t from = static_cast<uint64_t>(start), to = static_cast<uint64_t>(limit);
      const uint64_t step = up ? static_cast<uint64_t>(delta) : 0 - static_cast<uint64_t>(delta);
      count = static_cast<int64_t>(
          std::min<uint64_t>(((up ? to - from : from - to) - 1) / step + 1, INT64_MAX));
      break;
    }
    default: {
      double values[3];
      for (int i = 0; i < 3; ++i) {
        if (node.shape(i).elements() != 1) return node.fail("input %d is not one number", i);
        values[i] = node.dtype(i) == DType::kF64   ? *node.data<double>(i)
                    : node.dtype(i) == DType::kF32 ? *node.data<float>(i)
                    : node.dtype(i) == DType::kF16 ? f16_to_f32(*node.data<uint16_t>(i))
                                                   : bf16_to_f32(*node.data<uint16_t>(i));
      }
      const double steps = std::ceil((values[1] - values[0]) / values[2]);
      if (std::isnan(steps) || steps > 0x1p62) {
        return node.fail("from %g to %g by %g has no end", values[0], values[1], values[2]);
      }
      count = steps > 0 ? static_cast<int64_t>(steps) : 0;
    }
  }
  outputs[0].shape = Shape{count};
  return check_elements(node, outputs[0].shape);
}

Status infer_EyeLike(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = node.dtype(0);
  if (node.attributes().find("dtype") != nullptr) {
    LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("dtype", 1), &outputs[0].dtype));
  }
  if (!node.ranked()) return {};
  if (node.rank(0) != 2) return node.fail("the input has rank %d, not 2", node.rank(0));
  outputs[0].shape = node.shape(0);
  return {};
}

Status infer_Trilu(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  if (node.rank(0) < 2) return node.fail("the input has rank %d, below 2", node.rank(0));
  if (node.has(1) && node.type(1).is_known() && node.shape(1).elements() != 1) {
    return node.fail("k has shape %s; it is one number", node.shape(1).to_string().c_str());
  }
  outputs[0].shape = node.shape(0);
  return {};
}

}  // namespace lmn::ops
