// SPDX-License-Identifier: Apache-2.0
//
// KernelTable: one device's kernels, one entry per operator of ops.def. A null entry means that the
// device lacks the operator, which a plan reports when it is built.
//
// A kernel is called by every worker of a thread team with the same arguments and does its part of
// the work: it splits its whole output elements among `parts`. It allocates nothing, throws
// nothing, and never waits for another worker; the runner puts barriers between stages. The split
// never changes a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "core/tensor.h"
#include "ops/op.h"
#include "ops/op_args.h"
#include "ops/packed_matrix.h"
#include "ops/tensor_kernel.h"
#include "ops/worker.h"

namespace lmn::ops {

struct PackRequest {
  std::span<const TensorView> pieces;  // [rows_i, columns], merged along rows; same columns
  DType input_type = DType::kF32;      // as linear_input_type said: kF32, kQA8 or kQA16
  bool interleaved = false;            // two pieces of equal shape and type: alternate their panels
};

// Bytes of a packed matrix.
struct PackedRange {
  int64_t begin = 0, end = 0;
  int64_t bytes() const { return end - begin; }
};

// The largest of what a plan's kernels will be asked for.
struct WorkspaceRequest {
  int64_t rows = 0;
  int64_t heads = 0, head_dim = 0;
  int64_t context = 0;  // positions that a row attends to
};

struct KernelTable {
  KernelFn run[kOpCount] = {};

  // Scratch that one worker's kernels need at most, for heads of head_dim, groups of query heads
  // per KV head, and weights of up to `columns` columns.
  size_t (*scratch_bytes)(int64_t head_dim, int64_t heads_per_kv_head, int64_t columns) = nullptr;
  // Memory that so many workers' kernels have in common: ops::Worker::shared.
  size_t (*shared_bytes)(int64_t head_dim, int64_t heads_per_kv_head, int workers) = nullptr;

  // What LaunchQueue::workspace has to hold; null where kernels run on the workers.
  size_t (*workspace_bytes)(const WorkspaceRequest& request) = nullptr;

  // What a Linear with a weight of this type reads: kF32 for float weights; for quantised ones
  // kQA8, or kQA16 where the model asks for a precise product (the inputs that int8 activations
  // hurt most) or where this device multiplies 16-bit activations as fast. Pieces may be merged
  // when one input type suits all of them: kQA16 suits every quantised type. UNSUPPORTED names the
  // type.
  Result<DType> (*linear_input_type)(DType weight, int64_t columns, bool precise) = nullptr;

  // Whether Linear and PagedAttention take the Quantize behind them along (their y_quantized).
  bool fuses_quantize = false;

  // Layout of a packed matrix: everything but `data`. UNSUPPORTED or INVALID_ARGUMENT names type or
  // shape.
  Result<PackedMatrix> (*plan_pack)(const PackRequest& request) = nullptr;
  // Fills `data` (matrix.bytes, 64-byte aligned): every worker writes its own panels.
  void (*pack)(const PackRequest& request, const PackedMatrix& matrix, std::byte* data,
               const Worker& worker) = nullptr;
  // What pack() fills for a worker, where that is in one piece, for devices whose memory the host
  // does not address; null on others.
  PackedRange (*packed_range)(const PackedMatrix& matrix, const Worker& worker) = nullptr;

  // Of SampleArgs, by the first worker, and the workspace it needs for rows of `vocab` logits.
  // Null: the host samples.
  KernelFn sample = nullptr;
  size_t (*sample_bytes)(int64_t rows, int64_t vocab) = nullptr;

  TensorKernels tensor;  // of tensor_ops.def
};

}  // namespace lmn::ops
