// SPDX-License-Identifier: Apache-2.0
//
// A kernel set that multiplies quantised weights on tile registers where there are rows enough, and
// else is another set. amx.cc and the emulations define, before including this file once:
//   LMN_ISA       their namespace in lmn::cpu
//   LMN_TILES     that of the other set, whose packed layout and width of vectors they share
//   LMN_VEC, LMN_BYTE_DOT, LMN_NO_UNROLL  as that set does (kernels-inl.h)
//   LMN_EMULATE_TILES where tiles are to be plain memory
// Everything but the table at the end has internal linkage (the fence: see isa.h).

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/isa.h"
#include "cpu/kernels/kernel_macros.h"
#include "cpu/panel_layout.h"

namespace lmn::cpu::LMN_ISA {
namespace {

// The order is that of use.
// clang-format off
#include LMN_VEC
#include "cpu/kernels/math-inl.h"
#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/linear-inl.h"
#include "cpu/kernels/linear_int-inl.h"
#include "cpu/kernels/tiles.h"
#include "cpu/kernels/linear_tiles-inl.h"
#include "cpu/kernels/linear_types-inl.h"
// clang-format on

// For 8 rows with a block unpacked for them alone, the counts of linear_tiles-inl.h give tiles
// about half the instructions of the vector kernel; for 4, as many.
constexpr int64_t kLeastTileRows = 8;

void linear(const LinearTask& t) {
  if (t.input_type == DType::kF32 || t.rows < kLeastTileRows) {
    LMN_TILES::kKernels.linear(t);
  } else {
    linear_quantized(t);
  }
}

}  // namespace

extern const IsaKernels kKernels = {
    .quant_lanes = kLanes,
    .float_lanes = 2 * kLanes,
    .byte_bits = 0,
    .linear = linear,
};

}  // namespace lmn::cpu::LMN_ISA
