// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/signal.def: transforms and windows.
#include "ops/infer/signal.h"

#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

// Operand i, an integer that is a size of at least `least`: its value, or kUnknownSize.
Status size_of(const TensorNode& node, int i, int64_t least, const char* what, int64_t* size) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kI32, DType::kI64}));
  *size = kUnknownSize;
  if (!node.knows(i)) return {};
  LMN_RETURN_IF_ERROR(scalar_integer(node, i, size));
  if (*size >= least && *size <= kMaxElements) return {};
  return node.fail("%s is %" PRId64 "; it is at least %" PRId64, what, *size, least);
}

Status check_length(const TensorNode& node, int64_t length) {
  if (length <= kMaxTransform) return {};
  return node.unsupported("a transform of %" PRId64 " values; at most %" PRId64, length,
                          kMaxTransform);
}

Status infer_window(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("output_datatype", 1), &outputs[0].dtype));
  int64_t size;
  LMN_RETURN_IF_ERROR(size_of(node, 0, 0, "size", &size));
  outputs[0].shape = Shape{size};
  return check_elements(node, outputs[0].shape);
}

}  // namespace

int64_t dft_axis(const TensorNode& node, int rank) {
  const int64_t axis = node.has(2) ? node.integers(2)[0] : -2;
  return axis < 0 ? axis + rank : axis;
}

// The last dimension is 1 (real) or 2 (complex).
Status infer_DFT(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, kFloats));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kI32, DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  int64_t length;
  LMN_RETURN_IF_ERROR(size_of(node, 1, 1, "dft_length", &length));
  if (!node.ranked()) return {};
  const bool inverse = node.integer("inverse", 0) != 0, onesided = node.integer("onesided", 0) != 0;
  Shape out = node.shape(0);
  if (out.rank < 2) {
    return node.fail("the input is %s; its last dimension is that of real and imaginary parts",
                     out.to_string().c_str());
  }
  int64_t& parts = out[out.rank - 1];
  if (parts >= 0 && parts != 1 && parts != 2) {
    return node.fail("the last dimension is %" PRId64 "; it is 1 (real) or 2 (complex)", parts);
  }
  if (onesided && parts == (inverse ? 1 : 2)) {
    return node.fail(inverse ? "the inverse of a half spectrum takes complex input"
                             : "a half spectrum takes real input; set onesided to 0");
  }
  parts = inverse && onesided ? 1 : 2;
  if (node.has(2) && !node.knows(2)) {
    for (int i = 0; i + 1 < out.rank; ++i) out[i] = kUnknownSize;
    outputs[0].shape = out;
    return {};
  }
  if (node.has(2) && node.shape(2).elements() != 1) return node.fail("axis is one integer");
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.has(2) ? node.integers(2)[0] : -2, out.rank, &axis));
  if (axis == out.rank - 1) return node.fail("axis is that of real and imaginary parts");
  int64_t& size = out[static_cast<int>(axis)];
  if (!node.has(1)) {
    length = size;
    if (inverse && onesided && size >= 0) length = size > kMaxTransform ? size : 2 * (size - 1);
    if (inverse && onesided && size < 0) length = kUnknownSize;
    if (length == 0 || (size >= 0 && length < 0)) {
      return node.fail("a transform of no values: the input is %s",
                       node.shape(0).to_string().c_str());
    }
  }
  LMN_RETURN_IF_ERROR(check_length(node, length));
  size = length;
  if (onesided && !inverse) size = length < 0 ? kUnknownSize : length / 2 + 1;
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_STFT(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, kFloats));
  outputs[0].dtype = node.dtype(0);
  if (node.has(2) && node.dtype(2) != node.dtype(0)) {
    return node.fail("signal and window are of two types; cast one");
  }
  int64_t step, length;
  LMN_RETURN_IF_ERROR(size_of(node, 1, 1, "frame_step", &step));
  LMN_RETURN_IF_ERROR(size_of(node, 3, 1, "frame_length", &length));
  if (!node.ranked()) return {};
  const Shape& signal = node.shape(0);
  if (signal.rank != 3 || (signal[2] >= 0 && signal[2] != 1 && signal[2] != 2)) {
    return node.fail("the signal is %s; it is [batch, length, 1 (real) or 2 (complex)]",
                     signal.to_string().c_str());
  }
  const bool onesided = node.integer("onesided", 1) != 0;
  if (onesided && signal[2] == 2) {
    return node.fail("a half spectrum takes a real signal; set onesided to 0");
  }
  if (node.has(2)) {
    const Shape& window = node.shape(2);
    if (window.rank != 1) return node.fail("window has rank %d, not 1", window.rank);
    if (length >= 0 && window[0] >= 0 && window[0] != length) {
      return node.fail("window has %" PRId64 " values, and frame_length is %" PRId64, window[0],
                       length);
    }
    if (length < 0) length = window[0];
  } else if (!node.has(3)) {
    length = signal[1];
  }
  if (length == 0) return node.fail("frames of no values");
  LMN_RETURN_IF_ERROR(check_length(node, length));
  int64_t frames = kUnknownSize;
  if (length > 0 && signal[1] >= 0) {
    if (length > signal[1]) {
      return node.fail("frames of %" PRId64 " values in a signal of %" PRId64, length, signal[1]);
    }
    if (step > 0) frames = (signal[1] - length) / step + 1;
  }
  const int64_t bins = onesided ? (length < 0 ? kUnknownSize : length / 2 + 1) : length;
  outputs[0].shape = Shape{signal[0], frames, bins, 2};
  return check_elements(node, outputs[0].shape);
}

Status infer_HannWindow(const TensorNode& node, TensorTypes outputs) {
  return infer_window(node, outputs);
}
Status infer_HammingWindow(const TensorNode& node, TensorTypes outputs) {
  return infer_window(node, outputs);
}
Status infer_BlackmanWindow(const TensorNode& node, TensorTypes outputs) {
  return infer_window(node, outputs);
}

Status infer_MelWeightMatrix(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(5, 5));
  LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("output_datatype", 1), &outputs[0].dtype));
  for (int i : {3, 4}) {
    LMN_RETURN_IF_ERROR(node.expect_dtype(i, kFloats));
    if (node.type(i).is_known() && node.shape(i).elements() != 1) {
      return node.fail("input %d is %s; it is one number", i, node.shape(i).to_string().c_str());
    }
  }
  int64_t bands, length, rate;
  LMN_RETURN_IF_ERROR(size_of(node, 0, 0, "num_mel_bins", &bands));
  LMN_RETURN_IF_ERROR(size_of(node, 1, 1, "dft_length", &length));
  LMN_RETURN_IF_ERROR(size_of(node, 2, 1, "sample_rate", &rate));
  outputs[0].shape = Shape{length < 0 ? kUnknownSize : length / 2 + 1, bands};
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
