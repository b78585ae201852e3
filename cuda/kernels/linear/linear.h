// SPDX-License-Identifier: Apache-2.0
//
// The launchers of Linear's kernels, a file each, chosen by linear.cu.
#pragma once

#include "cuda/kernels/linear/output.cuh"
#include "ops/worker.h"

namespace lmn::cuda {

// few_rows_qa8.cu, few_rows_qa16.cu, few_rows_float.cu: any number of rows, made for up to eight.
void launch_few_rows_qa8(DType weight, const LinearParams& p, ops::LaunchQueue& queue);
void launch_few_rows_qa16(DType weight, const LinearParams& p, ops::LaunchQueue& queue);
void launch_few_rows_float(DType weight, const LinearParams& p, ops::LaunchQueue& queue);

// tiles_qa8.cu, tiles_qa16.cu, tiles_half.cu: made for many rows; half: f16 and bf16.
void launch_tiles_qa8(DType weight, const LinearParams& p, ops::LaunchQueue& queue);
void launch_tiles_qa16(DType weight, const LinearParams& p, ops::LaunchQueue& queue);
void launch_tiles_half(DType weight, const LinearParams& p, ops::LaunchQueue& queue);

}  // namespace lmn::cuda
