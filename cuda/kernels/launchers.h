// SPDX-License-Identifier: Apache-2.0
//
// One launcher per operator of ops.def, called launch_op and told apart by its arguments, in
// kernels/<family>/. A launcher reads its arguments and what they point at on the host, queues
// kernels, and returns. What kernels keep: results never depend on the queue's hints, on the number
// of rows, or on which of two kernels a launcher chooses (DESIGN section 7).
//
// Rows that stand for no token fill a step up to the size that a recording was made for
// (engine/device_runner.h): their slot and position are -1. They write no keys and values, and
// attention gives them zeros.
#pragma once

#include <cstdint>

#include "ops/kernel.h"
#include "ops/sample_args.h"

namespace lmn::cuda {

#define LMN_OP(e, name, Args, text) void launch_op(const ops::Args& args, ops::LaunchQueue& queue);
#include "ops/ops.def"
#undef LMN_OP

// No operator of ops.def: rows of logits to tokens (sampling/sample.cu), and its workspace.
void launch_op(const ops::SampleArgs& args, ops::LaunchQueue& queue);
size_t sample_bytes(int64_t rows, int64_t vocab);

// Shared memory of a block that launches ask for at most: sm_86, sm_89 and sm_120 have no more.
inline constexpr uint32_t kMostSharedBytes = 99 * 1024;

// Of a grid's first dimension, which takes 2^31 - 1.
inline uint32_t blocks(int64_t count) { return static_cast<uint32_t>(count); }

// linear/pack.cc: the weights' layout is packed_layout.h's.
Result<ops::PackedMatrix> plan_pack(const ops::PackRequest& request);
void pack(const ops::PackRequest& request, const ops::PackedMatrix& matrix, std::byte* data,
          const ops::Worker& worker);
ops::PackedRange packed_range(const ops::PackedMatrix& matrix, const ops::Worker& worker);

// attention/attention.cu
size_t attention_workspace_bytes(const ops::WorkspaceRequest& request);

// 0, or the device's code for why the current device has no kernels in this library; and what those
// were written for that it has (simt.cuh: code_version).
int32_t find_code();
int32_t code_version();

// The table of this device (table.cc).
const ops::KernelTable& kernel_table();

}  // namespace lmn::cuda
