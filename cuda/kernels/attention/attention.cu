// SPDX-License-Identifier: Apache-2.0
//
// Which kernel takes which rows. Any may take any: results are the same bits.
#include <algorithm>

#include "cuda/kernels/attention/decode.cuh"
#include "cuda/kernels/attention/float32.cuh"
#include "cuda/kernels/attention/prefill.cuh"
#include "cuda/kernels/launchers.h"

namespace lmn::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;  // what is enough, if it holds one row

int64_t splits_of(int64_t context) { return std::max<int64_t>(1, simt::div_up(context, kSplit)); }

// Partial results of a row.
size_t row_bytes(int64_t splits, int64_t heads, int64_t head_dim) {
  return static_cast<size_t>(splits * heads * (head_dim + 2)) * sizeof(float);
}
// Of a row of this launch: none where there is one split, which is done then.
size_t row_bytes(const Attention& a) {
  return a.splits == 1 && a.quantized == nullptr ? 0 : row_bytes(a.splits, a.heads, a.kv.head_dim);
}

// Rows [begin, end), as many at a time as the workspace has room for.
template <DType kType, int kWidth>
void decode(Attention a, int64_t begin, int64_t end, ops::LaunchQueue& queue) {
  constexpr int64_t kMostRows = 65535;  // of a grid's third dimension
  const size_t bytes = row_bytes(a);
  const int64_t fit = bytes == 0 ? kMostRows : static_cast<int64_t>(queue.workspace_bytes / bytes);
  const int64_t at_once = std::min(kMostRows, fit);
  for (int64_t row = begin; row < end; row += at_once) {
    const int64_t rows = std::min(at_once, end - row);
    a.first_row = row;
    if (bytes != 0) {
      a.sums = reinterpret_cast<simt::F32x2*>(queue.workspace);
      a.outputs = reinterpret_cast<float*>(a.sums + rows * a.splits * a.heads);
    }
    simt::LaunchShape shape;
    shape.x = static_cast<uint32_t>(a.splits);
    shape.y = static_cast<uint32_t>(a.kv.kv_heads * simt::div_up(a.group, kDecodeHeads));
    shape.z = static_cast<uint32_t>(rows);
    shape.threads = kAttentionThreads;
    static_assert(kDecodeShared<kType, kWidth> <= kMostSharedBytes);
    shape.shared_bytes = kDecodeShared<kType, kWidth>;
    simt::launch<attention_split<kType, kWidth>>(queue, shape, a);
    if (bytes == 0) continue;
    const auto threads = static_cast<uint32_t>(simt::div_up(a.kv.head_dim, simt::kWarp));
    simt::launch<attention_merge>(
        queue, {blocks(a.heads), static_cast<uint32_t>(rows), 1, threads * simt::kWarp}, a);
  }
}

// Rows from `begin` on.
template <DType kType, int kWidth>
void prefill(Attention a, int64_t begin, ops::LaunchQueue& queue) {
  const int64_t heads = std::min(a.group, kPrefillRows);
  a.first_row = begin;
  simt::LaunchShape shape;
  shape.x = blocks(simt::div_up(a.rows - begin, kPrefillRows / heads));
  shape.y = static_cast<uint32_t>(a.kv.kv_heads * simt::div_up(a.group, heads));
  shape.z = kWidth / kOutputs<kWidth>;
  shape.threads = kAttentionThreads;
  static_assert(kPrefillShared<kType, kWidth> <= kMostSharedBytes);
  shape.shared_bytes = kPrefillShared<kType, kWidth>;
  simt::launch<attention_rows<kType, kWidth>>(queue, shape, a);
}

// A few rows over a long context are better split along it. 64 rows of a KV head take a split in
// about 3 us of a multiprocessor; one row, 64 KB from the L2 cache, 12 ns of all.
constexpr int64_t kFewRows = 128;    // times KV heads
constexpr int64_t kLongContext = 4;  // splits

// Rows from the result on are not quantised.
template <DType kType, int kWidth>
int64_t half(const Attention& a, int64_t single_rows, ops::LaunchQueue& queue) {
  const int64_t others = a.rows - single_rows;
  const bool few = a.splits >= kLongContext && others * a.kv.kv_heads <= kFewRows;
  // Without room for a row's partial results there is the kernel that leaves none.
  const bool room = row_bytes(a) <= queue.workspace_bytes;
  const int64_t split_rows = !room ? 0 : few ? a.rows : single_rows;
  decode<kType, kWidth>(a, 0, split_rows, queue);
  prefill<kType, kWidth>(a, split_rows, queue);
  return split_rows;
}

template <DType kType>
int64_t half_of_type(const Attention& a, ops::LaunchQueue& queue) {
  const int64_t single = std::clamp<int64_t>(queue.single_rows, 0, a.rows);
  if (a.kv.head_dim <= 64) return half<kType, 64>(a, single, queue);
  if (a.kv.head_dim <= 96) return half<kType, 96>(a, single, queue);
  if (a.kv.head_dim <= 128) return half<kType, 128>(a, single, queue);
  return half<kType, 256>(a, single, queue);
}

}  // namespace

size_t attention_workspace_bytes(const ops::WorkspaceRequest& r) {
  const size_t row = row_bytes(splits_of(r.context), r.heads, r.head_dim);
  return std::min(static_cast<size_t>(r.rows) * row, std::max(kWorkspaceBytes, row));
}

void launch_op(const ops::AttentionArgs& args, ops::LaunchQueue& queue) {
  constexpr float kLog2E = 1.44269504f;
  Attention a{};
  a.rows = args.rows;
  a.q = args.q;
  a.q_stride = args.q_stride;
  a.kv = *args.kv;
  a.positions = args.positions;
  a.sequence_index = args.sequence_index;
  a.block_tables = args.block_tables;
  a.table_stride = args.table_stride;
  a.y = args.y;
  a.heads = static_cast<int32_t>(args.heads);
  a.group = a.heads / a.kv.kv_heads;
  a.q_scale = args.scale * kLog2E;
  a.splits = static_cast<int32_t>(splits_of(queue.context));
  const bool blocks_of_32 = a.kv.head_dim % 32 == 0 && a.kv.dtype != DType::kF32;
  if (blocks_of_32) a.quantized = args.y_quantized;
  a.quantized_wide = args.y_quantized_type == DType::kQA16;
  int64_t quantized = 0;  // rows
  if (a.kv.dtype == DType::kF32) {
    constexpr int64_t kMostRows = 65535;  // of a grid's second dimension
    for (; a.first_row < a.rows; a.first_row += kMostRows) {
      const auto rows = static_cast<uint32_t>(std::min(kMostRows, a.rows - a.first_row));
      simt::launch<attention_float32>(
          queue, {blocks(a.heads), rows, 1, kAttentionThreads, sizeof(FloatShared)}, a);
    }
  } else if (a.kv.dtype == DType::kF16) {
    quantized = half_of_type<DType::kF16>(a, queue);
  } else {
    quantized = half_of_type<DType::kQ8_0>(a, queue);
  }
  if (args.y_quantized == nullptr) return;
  if (!blocks_of_32) quantized = 0;
  const int64_t columns = args.heads * a.kv.head_dim;
  launch_op(
      ops::QuantizeArgs{
          a.rows - quantized,
          args.y + quantized * columns,
          {args.y_quantized + quantized * lmn::row_bytes(args.y_quantized_type, columns), 0},
          columns,
          args.y_quantized_type},
      queue);
}

}  // namespace lmn::cuda
