// SPDX-License-Identifier: Apache-2.0
//
// Types of the poolings of tensor_ops/windows.def.
#include "ops/infer/pools.h"

#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status infer_pool(const TensorNode& node, TensorTypes outputs) {
  if (!node.ranked()) return {};
  Windows w;
  LMN_RETURN_IF_ERROR(read_pool(node, &w));
  const Shape& x = node.shape(0);
  Shape out{x[0], x[1]};
  for (int i = 0; i < w.rank; ++i) out[out.rank++] = w.out[static_cast<size_t>(i)];
  for (TensorType& output : outputs) output.shape = out;
  return check_elements(node, out);
}

Status check_power(const TensorNode& node) {
  const int64_t p = node.integer("p", 2);
  if (p < 1 || p > 1024) return node.fail("p is %" PRId64 "; it is between 1 and 1024", p);
  return {};
}

Status infer_global_pool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(same_as_input(node, outputs));
  Shape& out = outputs[0].shape;
  if (!node.ranked()) return {};
  if (out.rank < 2) {
    return node.fail("the input has shape %s; it is [batch, channels, spatial...]",
                     out.to_string().c_str());
  }
  for (int i = 2; i < out.rank; ++i) out[i] = 1;
  return {};
}

}  // namespace

Status read_pool(const TensorNode& node, Windows* windows) {
  const Ints* kernel = node.integers("kernel_shape");
  if (kernel == nullptr) return node.fail("attribute kernel_shape is missing");
  int64_t taps = 1;
  for (int64_t size : *kernel) {
    if (size < 1 || size > kMaxSize || __builtin_mul_overflow(taps, size, &taps))
      return node.fail("kernel_shape has a size of %" PRId64 ", or is too large", size);
  }
  return read_windows(node, node.shape(0), *kernel, node.integer("ceil_mode", 0) != 0, windows);
}

Status infer_MaxPool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(
      0, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kU8}));
  outputs[0].dtype = node.dtype(0);
  if (outputs.size() > 1) outputs[1].dtype = DType::kI64;
  return infer_pool(node, outputs);
}

Status infer_AveragePool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  outputs[0].dtype = node.dtype(0);
  return infer_pool(node, outputs);
}

Status infer_LpPool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(check_power(node));
  outputs[0].dtype = node.dtype(0);
  return infer_pool(node, outputs);
}

Status infer_GlobalAveragePool(const TensorNode& node, TensorTypes outputs) {
  return infer_global_pool(node, outputs);
}
Status infer_GlobalMaxPool(const TensorNode& node, TensorTypes outputs) {
  return infer_global_pool(node, outputs);
}
Status infer_GlobalLpPool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(check_power(node));
  return infer_global_pool(node, outputs);
}

// The shape that the indices count in: what a MaxPool with these attributes would have had.
Status read_unpooled(const TensorNode& node, Shape* shape) {
  const Shape& x = node.shape(0);
  const Ints* kernel = node.integers("kernel_shape");
  if (x.rank < 3 || kernel == nullptr || static_cast<int>(kernel->size()) != x.rank - 2) {
    return node.fail("x has shape %s, and kernel_shape one size for each spatial dimension of it",
                     x.to_string().c_str());
  }
  const int n = x.rank - 2;
  SpatialSizes sizes{}, stride{};
  std::array<int64_t, 2 * kMaxSpatial> pads{};
  LMN_RETURN_IF_ERROR(read_sizes(node, "kernel_shape", n, 1, kMaxSize, 1, sizes.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "strides", n, 1, kMaxSize, 1, stride.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "pads", 2 * n, 0, kMaxSize, 0, pads.data()));
  *shape = x;
  for (int i = 0; i < n; ++i) {
    const auto d = static_cast<size_t>(i);
    int64_t& size = (*shape)[i + 2];
    if (size < 0) {
      size = kUnknownSize;
      continue;
    }
    if (size > kMaxSize) return node.fail("dimension %d is %" PRId64, i + 2, size);
    size = (size - 1) * stride[d] + sizes[d] - pads[d] - pads[d + static_cast<size_t>(n)];
    if (size < 0) return node.fail("dimension %d of the output would be %" PRId64, i + 2, size);
  }
  return check_elements(node, *shape);
}

Status infer_MaxUnpool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &indices = node.shape(1);
  Shape out;
  LMN_RETURN_IF_ERROR(read_unpooled(node, &out));
  bool fits = indices.rank == x.rank;
  for (int i = 0; fits && i < x.rank; ++i) fits = x[i] < 0 || indices[i] < 0 || x[i] == indices[i];
  if (!fits) {
    return node.fail("x has shape %s and the indices %s", x.to_string().c_str(),
                     indices.to_string().c_str());
  }
  if (node.has(2)) {
    if (node.rank(2) != 1 || (node.shape(2)[0] >= 0 && node.shape(2)[0] != x.rank)) {
      return node.fail("output_shape has shape %s; it is one size for each of %d dimensions",
                       node.shape(2).to_string().c_str(), x.rank);
    }
    if (!node.knows(2)) {
      for (int i = 0; i < x.rank; ++i) out[i] = i < 2 ? x[i] : kUnknownSize;
    } else {
      const std::vector<int64_t> wanted = node.integers(2);
      for (int i = 0; i < x.rank; ++i) {
        const int64_t size = wanted[static_cast<size_t>(i)];
        if (size < 0 || size > kMaxSize || (i < 2 && x[i] >= 0 && size != x[i]) ||
            (out[i] >= 0 && size < out[i])) {
          return node.fail("output_shape[%d] is %" PRId64 "; the unpooled shape is %s", i, size,
                           out.to_string().c_str());
        }
      }
      std::copy(wanted.begin(), wanted.end(), out.dims.begin());
    }
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_LRN(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  const int64_t size = node.integer("size", 0);
  if (size < 1 || size > kMaxSize) return node.fail("size is %" PRId64 "; it is 1 at least", size);
  if (node.type(0).ranked() && node.rank(0) < 2) {
    return node.fail("the input has shape %s; it is [batch, channels, ...]",
                     node.shape(0).to_string().c_str());
  }
  return same_as_input(node, outputs);
}

namespace {

Status read_blocks(const TensorNode& node, int64_t* size) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  *size = node.integer("blocksize", 0);
  if (*size < 1 || *size > 32768) {
    return node.fail("blocksize is %" PRId64 "; it is between 1 and 32768", *size);
  }
  const std::string_view mode = node.text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return node.fail("mode is '%.40s'; it is DCR or CRD", std::string(mode).c_str());
  if (node.type(0).ranked() && node.rank(0) != 4) {
    return node.fail("the input has shape %s; it is [batch, channels, height, width]",
                     node.shape(0).to_string().c_str());
  }
  return {};
}

int64_t times(int64_t size, int64_t by) {
  int64_t out = 0;
  if (size < 0) return by == 1 ? size : kUnknownSize;
  return __builtin_mul_overflow(size, by, &out) ? INT64_MAX : out;
}

}  // namespace

Status infer_DepthToSpace(const TensorNode& node, TensorTypes outputs) {
  int64_t block = 0;
  LMN_RETURN_IF_ERROR(read_blocks(node, &block));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  if (x[1] >= 0 && x[1] % (block * block) != 0) {
    return node.fail("%" PRId64 " channels are not a multiple of %" PRId64 " times %" PRId64, x[1],
                     block, block);
  }
  const int64_t channels = x[1] < 0 ? (block == 1 ? x[1] : kUnknownSize) : x[1] / block / block;
  outputs[0].shape = Shape{x[0], channels, times(x[2], block), times(x[3], block)};
  return check_elements(node, outputs[0].shape);
}

Status infer_SpaceToDepth(const TensorNode& node, TensorTypes outputs) {
  int64_t block = 0;
  LMN_RETURN_IF_ERROR(read_blocks(node, &block));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  Shape out{x[0], times(x[1], block * block), 0, 0};
  for (int i = 2; i < 4; ++i) {
    if (x[i] >= 0 && x[i] % block != 0) {
      return node.fail("%" PRId64 " in dimension %d is not a multiple of %" PRId64, x[i], i, block);
    }
    out[i] = x[i] < 0 ? (block == 1 ? x[i] : kUnknownSize) : x[i] / block;
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

}  // namespace lmn::ops
