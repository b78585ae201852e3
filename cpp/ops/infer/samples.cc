// SPDX-License-Identifier: Apache-2.0
//
// Types of GridSample, AffineGrid, RoiAlign and MaxRoiPool.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"
#include "ops/infer/spatial.h"

namespace lmn::ops {
Status infer_GridSample(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_float(node, 1));
  const std::string_view mode = node.text("mode", "linear");
  const std::string_view padding = node.text("padding_mode", "zeros");
  if (mode != "linear" && mode != "bilinear" && mode != "nearest" && mode != "cubic" &&
      mode != "bicubic") {
    return node.fail("mode is '%.40s'; it is linear, nearest or cubic", std::string(mode).c_str());
  }
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    return node.fail("padding_mode is '%.40s'; it is zeros, border or reflection",
                     std::string(padding).c_str());
  }
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &grid = node.shape(1);
  if (x.rank < 3 || grid.rank != x.rank || differ(grid.last(), x.rank - 2) ||
      differ(grid[0], x[0])) {
    return node.fail(
        "x has shape %s and the grid %s; they are [batch, channels, spatial...] and "
        "[batch, spatial..., rank]",
        x.to_string().c_str(), grid.to_string().c_str());
  }
  if (x.rank > 5) return node.unsupported("%d spatial dimensions; at most 3", x.rank - 2);
  Shape out = x;
  out[0] = x[0] >= 0 ? x[0] : grid[0];
  for (int i = 2; i < x.rank; ++i) {
    out[i] = grid[i - 1];
    if (x[i] == 0 && out[i] > 0) return node.fail("x of shape %s is empty", x.to_string().c_str());
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

// Operands: theta [batch, n, n + 1], size [batch, channels, spatial...].
Status infer_AffineGrid(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &theta = node.shape(0), &size = node.shape(1);
  if (theta.rank != 3 || size.rank != 1)
    return node.fail("theta has shape %s and size %s; they are of ranks 3 and 1",
                     theta.to_string().c_str(), size.to_string().c_str());
  const int64_t given = size[0] >= 0 ? size[0] : theta[1] >= 0 ? theta[1] + 2 : kUnknownSize;
  if (given < 0) return {};
  const int64_t n = given - 2;
  if ((n != 2 && n != 3) || differ(theta[1], n) || differ(theta[2], n + 1)) {
    return node.fail("theta has shape %s and size %" PRId64
                     " numbers; they are [batch, 2, 3] and 4, or [batch, 3, 4] and 5",
                     theta.to_string().c_str(), given);
  }
  Shape out = unknown_sizes(static_cast<int>(n) + 2);
  out[0] = theta[0];
  out[out.rank - 1] = n;
  if (node.knows(1)) {
    const std::vector<int64_t> sizes = node.integers(1);
    if (differ(sizes[0], theta[0]))
      return node.fail("size is of %" PRId64 " grids, theta of %" PRId64, sizes[0], theta[0]);
    out[0] = sizes[0];
    for (int i = 0; i < n; ++i) {
      out[i + 1] = sizes[static_cast<size_t>(i) + 2];
      if (out[i + 1] < 0 || out[i + 1] > kMaxSize)
        return node.fail("size[%d] is %" PRId64, i + 2, out[i + 1]);
    }
    if (out[0] < 0) return node.fail("size[0] is %" PRId64, out[0]);
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_RoiAlign(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {node.dtype(0)}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kI64}));
  const std::string_view mode = node.text("mode", "avg");
  const std::string_view shift = node.text("coordinate_transformation_mode", "half_pixel");
  const int64_t height = node.integer("output_height", 1), width = node.integer("output_width", 1);
  const int64_t ratio = node.integer("sampling_ratio", 0);
  if (mode != "avg" && mode != "max")
    return node.fail("mode is '%.40s'; it is avg or max", std::string(mode).c_str());
  if (shift != "half_pixel" && shift != "output_half_pixel") {
    return node.fail("coordinate_transformation_mode '%.40s' is not known",
                     std::string(shift).c_str());
  }
  if (height < 1 || width < 1 || height > kMaxSize || width > kMaxSize || ratio < 0 ||
      ratio > 32768) {
    return node.fail("output_height is %" PRId64 ", output_width %" PRId64
                     " and sampling_ratio %" PRId64,
                     height, width, ratio);
  }
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &rois = node.shape(1), &batch = node.shape(2);
  if (x.rank != 4 || rois.rank != 2 || batch.rank != 1 || differ(rois[1], 4) ||
      differ(rois[0], batch[0])) {
    return node.fail(
        "inputs have shapes %s, %s and %s; they are [batch, channels, height, width], "
        "[regions, 4] and [regions]",
        x.to_string().c_str(), rois.to_string().c_str(), batch.to_string().c_str());
  }
  outputs[0].shape = Shape{rois[0] >= 0 ? rois[0] : batch[0], x[1], height, width};
  return check_elements(node, outputs[0].shape);
}

Status infer_MaxRoiPool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {node.dtype(0)}));
  int64_t pooled[2] = {};
  if (node.integers("pooled_shape") == nullptr)
    return node.fail("attribute pooled_shape is missing");
  LMN_RETURN_IF_ERROR(read_sizes(node, "pooled_shape", 2, 1, kMaxSize, 1, pooled));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &rois = node.shape(1);
  if (x.rank != 4 || rois.rank != 2 || differ(rois[1], 5)) {
    return node.fail(
        "inputs have shapes %s and %s; they are [batch, channels, height, width] and [regions, 5]",
        x.to_string().c_str(), rois.to_string().c_str());
  }
  outputs[0].shape = Shape{rois[0], x[1], pooled[0], pooled[1]};
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
