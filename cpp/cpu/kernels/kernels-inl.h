// SPDX-License-Identifier: Apache-2.0
//
// All kernels of one instruction set. scalar.cc, avx2.cc and the others define, before including
// this file once:
//   LMN_ISA       their namespace in lmn::cpu
//   LMN_VEC       the header of their vector operations, quoted
//   LMN_BYTE_DOT  the products of bytes: LMN_NO_BYTES, LMN_SHORT_BYTES (16-bit sums, which suffice
//                 for weights of 5 bits), or into int32 LMN_UNSIGNED_BYTES (with signed
//                 activations) or LMN_SIGNED_BYTES, which says how 8-bit weights are stored for
//                 kQA8. Weights of 4 bits have some way everywhere
//   LMN_NO_UNROLL where arrays are not meant to become registers
// Everything but the table at the end has internal linkage (the fence: see isa.h).

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/isa.h"
#include "cpu/kernels/kernel_macros.h"
#include "cpu/panel_layout.h"
#include "cpu/tensor/vector_loop.h"

namespace lmn::cpu::LMN_ISA {
namespace {

// The order is that of use.
// clang-format off
#include LMN_VEC
#include "cpu/kernels/math-inl.h"
#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/elementwise-inl.h"
#include "cpu/kernels/norm-inl.h"
#include "cpu/kernels/floats-inl.h"
#include "cpu/kernels/chain-inl.h"
#include "cpu/kernels/rope-inl.h"
#include "cpu/kernels/linear-inl.h"
#include "cpu/kernels/linear_int-inl.h"
#include "cpu/kernels/linear_row-inl.h"
#include "cpu/kernels/linear_wide-inl.h"
#include "cpu/kernels/linear_types-inl.h"
#include "cpu/kernels/linear_float-inl.h"
#include "cpu/kernels/indirect-inl.h"
#include "cpu/kernels/integer-inl.h"
#include "cpu/kernels/pack-inl.h"
#include "cpu/kernels/attention_chunk-inl.h"
#include "cpu/kernels/attention-inl.h"
// clang-format on

void linear(const LinearTask& t) {
  if (t.input_type == DType::kF32) {
    linear_float(t);
  } else {
    linear_quantized(t);
  }
}

}  // namespace

extern const IsaKernels kKernels = {
    .quant_lanes = kLanes,
    .float_lanes = kFloatLanes,
    .byte_bits = LMN_BYTE_DOT == LMN_NO_BYTES      ? 4
                 : LMN_BYTE_DOT == LMN_SHORT_BYTES ? 5
                                                   : 8,
    .linear = linear,
    .pack = pack_panel,
    .unpack = unpack_row,
    .linear_scratch_bytes = linear_scratch_bytes,
    .attention_scratch_bytes = attention_scratch_bytes,
    .attention_shared_bytes = attention_shared_bytes,
    .rms_norm = rms_norm,
    .quantize = quantize,
    .rms_norm_quantize = rms_norm_quantize,
    .rope = rope,
    .kv_write = kv_write,
    .rope_kv_write = rope_kv_write,
    .attention = attention,
    .silu_mul = silu_mul,
    .add = add_rows,
    .convolution = {.linear = linear_indirect, .depthwise = depthwise},
    .integer = {.bytes = kIntegerBytes, .words = integer_words},
    .floats = {.activate = activate,
               .layer_norm = layer_norm,
               .scores = scores,
               .scale_rows = scale_rows,
               .pack_columns = pack_columns,
               .chain_step = chain::run_step},
};

}  // namespace lmn::cpu::LMN_ISA
