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
#include "ops/op_args.h"
#include "ops/worker.h"

namespace lmn::cpu {

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
