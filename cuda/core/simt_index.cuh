// SPDX-License-Identifier: Apache-2.0
//
// Where a thread is: what both bodies of simt.cuh for devices have alike. Included by them, behind
// the definition of LMN_DEVICE.
#pragma once

namespace lmn::simt {

LMN_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
LMN_DEVICE int block_size() { return static_cast<int>(blockDim.x); }
LMN_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
LMN_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
LMN_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
LMN_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
LMN_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }
LMN_DEVICE int grid_z() { return static_cast<int>(gridDim.z); }
LMN_DEVICE int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
LMN_DEVICE int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

}  // namespace lmn::simt
