// SPDX-License-Identifier: Apache-2.0
//
// Types of the convolutions of tensor_ops/products.def.
#include "ops/infer/convolutions.h"

#include <cinttypes>

#include "ops/infer/activation.h"
#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status expect_floats(const TensorNode& node, int inputs) {
  for (int i = 0; i < inputs; ++i) {
    LMN_RETURN_IF_ERROR(
        node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
    if (node.has(i) && node.dtype(i) != node.dtype(0)) {
      return node.fail("input %d is %s and input 0 is %s; cast one", i,
                       std::string(info(node.dtype(i)).name).c_str(),
                       std::string(info(node.dtype(0)).name).c_str());
    }
  }
  return {};
}

// Sizes of the kernel from w or kernel_shape, groups, channels.
Status read_weights(const TensorNode& node, SpatialSizes* kernel, Convolution* c) {
  const Shape &x = node.shape(0), &w = node.shape(1);
  if (x.rank < 3 || w.rank != x.rank) {
    return node.fail("x has shape %s and the weights %s; both are of one rank, 3 at least",
                     x.to_string().c_str(), w.to_string().c_str());
  }
  LMN_RETURN_IF_ERROR(
      read_sizes(node, "kernel_shape", x.rank - 2, 1, kMaxSize, kUnknownSize, kernel->data()));
  for (int i = 0; i + 2 < w.rank; ++i) {
    int64_t& size = (*kernel)[static_cast<size_t>(i)];
    if (size < 0) size = w[i + 2];
    if (w[i + 2] >= 0 && w[i + 2] != size) {
      return node.fail("kernel_shape[%d] is %" PRId64 " and the weights have shape %s", i, size,
                       w.to_string().c_str());
    }
  }
  c->groups = node.integer("group", 1);
  if (c->groups < 1 || c->groups > kMaxSize) {
    return node.fail("group is %" PRId64 "; it is 1 at least", c->groups);
  }
  c->batch = x[0];
  c->channels = x[1];
  return {};
}

Status check_bias(const TensorNode& node, int i, int64_t outputs) {
  if (!node.has(i)) return {};
  const Shape& bias = node.shape(i);
  if (bias.rank != 1 || (bias[0] >= 0 && outputs >= 0 && bias[0] != outputs)) {
    return node.fail("the bias has shape %s; there are %" PRId64 " output channels",
                     bias.to_string().c_str(), outputs);
  }
  return {};
}

Shape output_shape(const Convolution& c) {
  Shape out{c.batch, c.outputs};
  for (int i = 0; i < c.windows.rank; ++i) out[out.rank++] = c.windows.out[static_cast<size_t>(i)];
  return out;
}

Status infer_convolution(const TensorNode& node, int bias, TensorTypes outputs) {
  Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(node, &c));
  LMN_RETURN_IF_ERROR(check_bias(node, bias, c.outputs));
  outputs[0].shape = output_shape(c);
  return check_elements(node, outputs[0].shape);
}

}  // namespace

Status read_convolution(const TensorNode& node, Convolution* convolution) {
  Convolution c;
  SpatialSizes kernel{};
  LMN_RETURN_IF_ERROR(read_weights(node, &kernel, &c));
  const Shape &x = node.shape(0), &w = node.shape(1);
  c.outputs = w[0];
  if (w[1] >= 0 && x[1] >= 0 && (w[1] > kMaxSize || w[1] * c.groups != x[1])) {
    return node.fail("x of shape %s has %" PRId64 " channels; weights of shape %s in %" PRId64
                     " groups need %" PRId64 " times %" PRId64,
                     x.to_string().c_str(), x[1], w.to_string().c_str(), c.groups, w[1], c.groups);
  }
  if (w[0] >= 0 && w[0] % c.groups != 0) {
    return node.fail("%" PRId64 " output channels are not a multiple of %" PRId64 " groups", w[0],
                     c.groups);
  }
  LMN_RETURN_IF_ERROR(read_windows(
      node, x, std::span(kernel).first(static_cast<size_t>(x.rank - 2)), false, &c.windows));
  *convolution = c;
  return {};
}

Status infer_Conv(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_floats(node, 3));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  return infer_convolution(node, 2, outputs);
}

Status infer_FusedConv(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  LMN_RETURN_IF_ERROR(expect_floats(node, 4));
  Activation activation;
  LMN_RETURN_IF_ERROR(read_activation(node, &activation));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(infer_convolution(node, 2, outputs));
  if (!node.has(3)) return {};
  const Shape &z = node.shape(3), &out = outputs[0].shape;
  bool differs = z.rank != out.rank;
  for (int i = 0; i < out.rank && !differs; ++i)
    differs = z[i] >= 0 && out[i] >= 0 && z[i] != out[i];
  if (differs) {
    return node.fail("Z has shape %s and the convolution %s", z.to_string().c_str(),
                     out.to_string().c_str());
  }
  return {};
}

Status read_transposed_convolution(const TensorNode& node, Convolution* convolution) {
  Convolution c;
  Windows& t = c.windows;
  LMN_RETURN_IF_ERROR(read_weights(node, &t.kernel, &c));
  const Shape &x = node.shape(0), &w = node.shape(1);
  t.rank = x.rank - 2;
  if (w[0] >= 0 && x[1] >= 0 && w[0] != x[1]) {
    return node.fail("x of shape %s and weights of shape %s differ in channels",
                     x.to_string().c_str(), w.to_string().c_str());
  }
  if (x[1] >= 0 && x[1] % c.groups != 0) {
    return node.fail("%" PRId64 " channels are not a multiple of %" PRId64 " groups", x[1],
                     c.groups);
  }
  c.outputs = w[1] < 0 ? kUnknownSize : w[1];
  if (c.outputs > 0 && __builtin_mul_overflow(c.outputs, c.groups, &c.outputs)) {
    return node.fail("%" PRId64 " groups of %" PRId64 " output channels are too many", c.groups,
                     w[1]);
  }
  SpatialSizes more{}, wanted{};
  std::array<int64_t, 2 * kMaxSpatial> pads{};
  const int n = t.rank;
  LMN_RETURN_IF_ERROR(read_sizes(node, "strides", n, 1, kMaxSize, 1, t.stride.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "dilations", n, 1, kMaxSize, 1, t.dilation.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "pads", 2 * n, 0, kMaxSize, 0, pads.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "output_padding", n, 0, kMaxSize, 0, more.data()));
  const Ints* given = node.integers("output_shape");
  const bool has_shape = given != nullptr && !given->empty();
  if (has_shape) {
    if (static_cast<int>(given->size()) == n + 2) {  // batch and channels are not looked at
      for (int i = 0; i < n; ++i) {
        const int64_t size = (*given)[static_cast<size_t>(i + 2)];
        if (size < 0 || size > kMaxSize) {
          return node.fail("output_shape[%d] is %" PRId64, i + 2, size);
        }
        wanted[static_cast<size_t>(i)] = size;
      }
    } else {
      LMN_RETURN_IF_ERROR(read_sizes(node, "output_shape", n, 0, kMaxSize, 0, wanted.data()));
    }
  }
  const std::string_view auto_pad = node.text("auto_pad", "NOTSET");
  const bool upper = auto_pad == "SAME_UPPER", same = upper || auto_pad == "SAME_LOWER";
  if (!same && !auto_pad.empty() && auto_pad != "NOTSET" && auto_pad != "VALID") {
    return node.fail("auto_pad is '%.40s'; it is NOTSET, SAME_UPPER, SAME_LOWER or VALID",
                     std::string(auto_pad).c_str());
  }
  for (int d = 0; d < n; ++d) {
    const auto i = static_cast<size_t>(d);
    t.in[i] = x[d + 2];
    if (t.in[i] > kMaxSize) return node.fail("dimension %d of x is %" PRId64, d + 2, t.in[i]);
    if (t.in[i] < 0 || t.kernel[i] < 0) {
      t.out[i] = has_shape ? wanted[i] : kUnknownSize;
      if (same && !has_shape && t.stride[i] == 1) t.out[i] = t.in[i];
      continue;
    }
    const int64_t extent = (t.kernel[i] - 1) * t.dilation[i] + 1;
    int64_t full = 0;
    if (__builtin_mul_overflow(t.stride[i], std::max<int64_t>(0, t.in[i] - 1), &full) ||
        __builtin_add_overflow(full, more[i], &full) ||
        __builtin_add_overflow(full, extent, &full)) {
      return node.fail("dimension %d of the output overflows", d + 2);
    }
    if (has_shape || same) {
      t.out[i] = has_shape ? wanted[i] : t.in[i] * t.stride[i];
      const int64_t pad = std::max<int64_t>(0, full - t.out[i]);
      t.pad_begin[i] = upper ? pad / 2 : pad - pad / 2;
      t.pad_end[i] = pad - t.pad_begin[i];
    } else {
      if (auto_pad != "VALID") {
        t.pad_begin[i] = pads[i];
        t.pad_end[i] = pads[i + static_cast<size_t>(n)];
      }
      t.out[i] = full - t.pad_begin[i] - t.pad_end[i];
    }
    if (t.out[i] < 0) {
      return node.fail("dimension %d of the output would be %" PRId64 "; the padding is %" PRId64
                       " and %" PRId64,
                       d + 2, t.out[i], t.pad_begin[i], t.pad_end[i]);
    }
  }
  *convolution = c;
  return {};
}

Status infer_ConvTranspose(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_floats(node, 3));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  Convolution c;
  LMN_RETURN_IF_ERROR(read_transposed_convolution(node, &c));
  LMN_RETURN_IF_ERROR(check_bias(node, 2, c.outputs));
  outputs[0].shape = output_shape(c);
  return check_elements(node, outputs[0].shape);
}

// Operands: x, w, offset, bias, mask.
Status infer_DeformConv(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 5));
  LMN_RETURN_IF_ERROR(expect_floats(node, 5));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(infer_convolution(node, 3, outputs));
  Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(node, &c));
  const int64_t groups = node.integer("offset_group", 1);
  if (groups < 1 || groups > kMaxSize || (c.channels >= 0 && c.channels % groups != 0)) {
    return node.fail("offset_group is %" PRId64 "; it divides the %" PRId64 " channels", groups,
                     c.channels);
  }
  int64_t taps = groups;
  for (int i = 0; i < c.windows.rank && taps >= 0; ++i) {
    const int64_t size = c.windows.kernel[static_cast<size_t>(i)];
    if (size < 0) {
      taps = kUnknownSize;
    } else if (__builtin_mul_overflow(taps, size, &taps) || taps > kMaxSize) {
      return node.fail("the kernel is too large");
    }
  }
  const auto check = [&](int i, const char* what, int64_t channels) -> Status {
    if (!node.has(i)) return {};
    const Shape& shape = node.shape(i);
    bool fits = shape.rank == c.windows.rank + 2;
    const auto is = [&](int d, int64_t want) {
      return shape[d] < 0 || want < 0 || shape[d] == want;
    };
    fits = fits && is(0, c.batch) && is(1, channels);
    for (int d = 0; fits && d < c.windows.rank; ++d)
      fits = is(d + 2, c.windows.out[static_cast<size_t>(d)]);
    if (fits) return {};
    return node.fail("%s has shape %s; output %s and kernel need %" PRId64 " channels", what,
                     shape.to_string().c_str(), outputs[0].shape.to_string().c_str(), channels);
  };
  LMN_RETURN_IF_ERROR(check(2, "offset", taps < 0 ? taps : taps * c.windows.rank));
  return check(4, "mask", taps);
}

// Operands: x [batch, channels, length], w [channels, 1, k], bias, past [batch, channels, k - 1].
Status infer_CausalConvWithState(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  LMN_RETURN_IF_ERROR(expect_floats(node, 4));
  const std::string_view activation = node.text("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") {
    return node.fail("activation is '%.40s'; it is none, silu or swish",
                     std::string(activation).c_str());
  }
  for (TensorType& output : outputs) output.dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &w = node.shape(1);
  if (x.rank != 3 || w.rank != 3 || (w[1] >= 0 && w[1] != 1) || w[2] == 0 ||
      (w[0] >= 0 && x[1] >= 0 && w[0] != x[1])) {
    return node.fail(
        "x has shape %s and the weights %s; they are [batch, channels, length] and "
        "[channels, 1, k]",
        x.to_string().c_str(), w.to_string().c_str());
  }
  LMN_RETURN_IF_ERROR(check_bias(node, 2, x[1]));
  const Shape state{x[0], x[1], w[2] < 0 ? kUnknownSize : w[2] - 1};
  if (node.has(3)) {
    const Shape& past = node.shape(3);
    bool fits = past.rank == 3;
    for (int i = 0; fits && i < 3; ++i) fits = past[i] < 0 || state[i] < 0 || past[i] == state[i];
    if (!fits) {
      return node.fail("past_state has shape %s, not %s", past.to_string().c_str(),
                       state.to_string().c_str());
    }
  }
  outputs[0].shape = x;
  if (outputs.size() > 1) outputs[1].shape = state;
  return {};
}

Status read_image(const TensorNode& node, Windows* windows) {
  Windows w;
  const std::vector<int64_t> image = node.integers(1), block = node.integers(2);
  w.rank = static_cast<int>(image.size());
  if (w.rank < 1 || w.rank > kMaxSpatial || image.size() != block.size()) {
    return node.fail("image_shape has %zu sizes and block_shape %zu; both have as many, %d at most",
                     image.size(), block.size(), kMaxSpatial);
  }
  std::array<int64_t, 2 * kMaxSpatial> pads{};
  LMN_RETURN_IF_ERROR(read_sizes(node, "strides", w.rank, 1, kMaxSize, 1, w.stride.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "dilations", w.rank, 1, kMaxSize, 1, w.dilation.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "pads", 2 * w.rank, 0, kMaxSize, 0, pads.data()));
  int64_t taps = 1, blocks = 1;
  for (int d = 0; d < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    w.out[i] = image[i];
    w.kernel[i] = block[i];
    w.pad_begin[i] = pads[i];
    w.pad_end[i] = pads[i + static_cast<size_t>(w.rank)];
    if (image[i] < 1 || image[i] > kMaxSize || block[i] < 1 || block[i] > kMaxSize) {
      return node.fail("image_shape[%d] is %" PRId64 " and block_shape[%d] %" PRId64
                       "; they are between 1 and %" PRId64,
                       d, image[i], d, block[i], kMaxSize);
    }
    const int64_t room =
        image[i] + w.pad_begin[i] + w.pad_end[i] - ((block[i] - 1) * w.dilation[i] + 1);
    if (room < 0) return node.fail("a block is larger than the image in dimension %d", d);
    w.in[i] = room / w.stride[i] + 1;
    if (__builtin_mul_overflow(taps, block[i], &taps) ||
        __builtin_mul_overflow(blocks, w.in[i], &blocks)) {
      return node.fail("there are too many blocks");
    }
  }
  const Shape& x = node.shape(0);
  if (x.rank != 3 || (x[1] >= 0 && x[1] % taps != 0) || (x[2] >= 0 && x[2] != blocks)) {
    return node.fail("the input has shape %s; it is [batch, channels times %" PRId64 ", %" PRId64
                     "]",
                     x.to_string().c_str(), taps, blocks);
  }
  *windows = w;
  return {};
}

Status infer_Col2Im(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  if (node.rank(0) != 3 || node.rank(1) != 1 || node.rank(2) != 1) {
    return node.fail("inputs have ranks %d, %d and %d; they are 3, 1 and 1", node.rank(0),
                     node.rank(1), node.rank(2));
  }
  if (!node.knows(1) || !node.knows(2)) {
    Shape sizes = node.shape(1);
    if (sizes[0] >= 0) sizes[0] += 2;
    outputs[0].shape = shape_of_unknown(sizes);
    return {};
  }
  Windows w;
  LMN_RETURN_IF_ERROR(read_image(node, &w));
  const Shape& x = node.shape(0);
  Shape out{x[0], x[1] < 0 ? kUnknownSize : x[1] / w.taps()};
  for (int i = 0; i < w.rank; ++i) out[out.rank++] = w.out[static_cast<size_t>(i)];
  outputs[0].shape = out;
  return check_elements(node, out);
}

}  // namespace lmn::ops
