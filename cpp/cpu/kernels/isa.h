// SPDX-License-Identifier: Apache-2.0
//
// IsaKernels: what one instruction set's file (scalar.cc, avx2.cc, neon.cc, ...) exports, its only
// symbol. The tasks below are operators cut down to raw pointers: cpu_kernels.cc, compiled for the
// baseline, splits the work and calls these.
//
// The fence (DESIGN section 6): files compiled with flags of a newer chip include intrinsics and
// plain-data headers like this one only, and keep everything in unnamed namespaces, so that no
// inline function compiled for that chip can be picked by the linker for the common path.
// cmake/check_fence.cmake checks their objects.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "ops/elementwise_chain.h"
#include "ops/op_args.h"
#include "ops/worker.h"

namespace lmn::cpu {

// What becomes of a sum, between its bias and its residual.
enum class FloatActivation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu, kTanh, kSigmoid };

// Output channels of panels [panel_begin, panel_end) of one segment, for all rows.
struct LinearTask {
  DType source;      // type in the file
  DType input_type;  // of x: kF32, kQA8 or kQA16
  int64_t columns;
  const std::byte* panels;  // of the segment; panel i at i * panel_bytes(...)
  int64_t panel_begin, panel_end;
  bool gated;  // panels alternate gate and up, both bounds are even, y = silu(gate) * up

  int64_t rows;
  const std::byte* x;
  int64_t x_row_bytes;

  int64_t channels;       // valid output channels of the segment; of each of the two when gated
  const float* bias;      // of the segment's first channel, or null
  const float* bias_up;   // of the first up channel when gated, or null
  const float* residual;  // of the segment's first channel in row 0, or null; rows y_stride apart
  float* y;               // of the segment's first channel in row 0
  int64_t y_stride;       // elements
  FloatActivation activation;  // not of gated ones

  std::byte* scratch;  // linear_scratch_bytes of the columns, 64-byte aligned; or null, and slower
};

// `lanes` rows of a file's tensor (fewer at its end) to one panel.
struct PackTask {
  DType source;
  DType input_type;
  int64_t columns;
  const std::byte* rows;  // first row of the panel, rows one after the other, any alignment
  int64_t valid;          // how many of the lanes exist; the others repeat the last
  std::byte* panel;
  int64_t row_bytes = 0;  // of float rows that do not follow each other; 0: they do
};

// One output channel back to float32 (an embedding row).
struct UnpackTask {
  DType source;
  DType input_type;
  int64_t columns;
  const std::byte* panel;
  int64_t lane;
  float* y;
};

// Convolutions (indirect-inl.h): rows of `segments` pieces of `length` floats, times float panels.
struct IndirectTask {
  const std::byte* panels;
  int64_t panel_bytes, panel_begin, panel_end;
  int64_t segments, length;
  const float* const* pointers;  // [segments][pointer_stride]: of every row, less `offset`
  int64_t pointer_stride, offset;

  int64_t rows, channels;        // of y
  const float *bias, *residual;  // or null; residual's rows are y_stride apart
  float* y;
  int64_t y_stride;
  float low, high;  // what the result is clamped to
};

// The same where each channel is summed for itself.
struct DepthwiseTask {
  const float* weights;          // [taps][channels]
  const float* const* pointers;  // [taps][pointer_stride]
  int64_t taps, pointer_stride, rows, channels;
  const float *bias, *residual;  // or null
  float* y;                      // [rows][channels]
  float low, high;
};

struct ConvolutionKernels {
  void (*linear)(const IndirectTask&) = nullptr;
  void (*depthwise)(const DepthwiseTask&) = nullptr;
};

// Exact products of 8-bit integers (integer-inl.h). A panel is `float_lanes` channels wide: units
// of 4 bytes for each, which hold 4 columns as signed bytes, or 2 as signed words. Rows hold as
// many columns as units do: unsigned bytes, or signed words.
struct IntegerTask {
  const std::byte* panels;
  int64_t panel_bytes, panel_begin, panel_end, units;
  const std::byte* x;
  int64_t x_row_bytes, rows, channels;
  const int32_t* start;        // [panels * float_lanes]: what sums begin with
  const float *scales, *bias;  // of every channel; null: y are the sums, as int32
  void* y;                     // f32: sum * scale + bias; bias may be null
  int64_t y_stride;
};

struct IntegerKernels {
  void (*bytes)(const IntegerTask&) = nullptr;  // null: words are as fast
  void (*words)(const IntegerTask&) = nullptr;
};

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, of each row; y may be x.
struct LayerNormTask {
  const float* x;
  const float *scale, *bias;  // [columns]; bias or null
  float epsilon;
  float* y;
  int64_t rows, columns;
};

// e^(x * scale + mask - the largest of the row), in place; a row has room for whole panels of
// float_lanes, and what is past its columns becomes 0.
struct ScoresTask {
  float* x;
  int64_t rows, columns, stride;
  float scale;
  const float* mask;  // or null; one for each column, or (mask_column 0) one for the row
  int64_t mask_row, mask_column;
  float* inverse_sums;  // [rows]: of what a row became
};

// y = op(a, b) of a block, with strides of 1, or of 0 where one value repeats. y may be a or b, or
// lies apart from them.
struct ChainTask {
  ops::ChainOp op;
  const float* numbers;  // [2]
  const float *a, *b;    // b is not read by operators of one operand
  int64_t a_stride, b_stride;
  float* y;
  int64_t count;
};

// Loops over float32.
struct FloatKernels {
  void (*activate)(FloatActivation activation, const float* x, float* y, int64_t count) = nullptr;
  void (*layer_norm)(const LayerNormTask&) = nullptr;
  void (*scores)(const ScoresTask&) = nullptr;
  // Each row, `stride` apart, times its factor.
  void (*scale_rows)(float* x, int64_t rows, int64_t columns, int64_t stride,
                     const float* factors) = nullptr;
  // A matrix [inner][columns], rows `stride` apart, to panels of float_lanes columns; those past
  // the last are 0.
  void (*pack_columns)(const float* w, int64_t inner, int64_t columns, int64_t stride,
                       std::byte* panels) = nullptr;
  // The same bits from every instruction set.
  void (*chain_step)(const ChainTask&) = nullptr;
};

// A set on top of another (tile_kernels-inl.h) has the same lanes, its own `linear`, and null for
// the rest, which is the other's.
struct IsaKernels {
  int quant_lanes;  // panel width of quantised weights
  int float_lanes;  // and of float weights
  int byte_bits;  // weights of up to so many bits gain from kQA8 activations; the others take kQA16

  void (*linear)(const LinearTask&);
  void (*pack)(const PackTask&) = nullptr;
  void (*unpack)(const UnpackTask&) = nullptr;
  size_t (*linear_scratch_bytes)(int64_t columns) = nullptr;
  size_t (*attention_scratch_bytes)(int64_t head_dim, int64_t heads_per_kv_head) = nullptr;
  size_t (*attention_shared_bytes)(int64_t head_dim, int64_t heads_per_kv_head,
                                   int workers) = nullptr;

  ops::KernelFn rms_norm = nullptr, quantize = nullptr, rms_norm_quantize = nullptr, rope = nullptr,
                kv_write = nullptr, rope_kv_write = nullptr, attention = nullptr,
                silu_mul = nullptr, add = nullptr;

  ConvolutionKernels convolution = {};
  IntegerKernels integer = {};
  FloatKernels floats = {};
};

namespace scalar {
extern const IsaKernels kKernels;
}
namespace avx2 {
extern const IsaKernels kKernels;
}
namespace avx512 {
extern const IsaKernels kKernels;
}
namespace amx {
extern const IsaKernels kKernels;
}
namespace neon {
extern const IsaKernels kKernels;
}
namespace neon_dotprod {
extern const IsaKernels kKernels;
}
namespace neon_i8mm {
extern const IsaKernels kKernels;
}
// For tests: LMN_EMULATED_TARGETS.
namespace scalar_tiles {
extern const IsaKernels kKernels;
}
namespace amx_emulated {
extern const IsaKernels kKernels;
}

}  // namespace lmn::cpu
