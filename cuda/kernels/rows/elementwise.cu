// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/rows/elementwise.cuh"

namespace lmn::cuda {
namespace {

simt::LaunchShape elements(int64_t count) {
  return {blocks(simt::div_up(count, kElementThreads)), 1, 1, kElementThreads};
}

}  // namespace

// All are compiled for the same.
int32_t find_code() { return simt::find_code<residual_add>(); }
int32_t code_version() { return simt::code_version<residual_add>(); }

void launch_op(const ops::SiluMulArgs& a, ops::LaunchQueue& queue) {
  simt::launch<silu_mul>(queue, elements(a.rows * a.columns), a);
}
void launch_op(const ops::AddArgs& a, ops::LaunchQueue& queue) {
  simt::launch<residual_add>(queue, elements(a.rows * a.columns), a);
}
void launch_op(const ops::GatherRowsArgs& a, ops::LaunchQueue& queue) {
  simt::launch<gather_rows>(queue, elements(a.rows * a.columns), a);
}

}  // namespace lmn::cuda
