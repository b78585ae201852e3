// SPDX-License-Identifier: Apache-2.0
//
// The reference kernels with the work shared out as real kernels do it: rows among the parts, and
// for Linear the output columns, so that a barrier that a plan leaves out is a race that
// ThreadSanitizer sees and results show.
#pragma once

#include <vector>

#include "ops/reference.h"

namespace plan_test {

using namespace lmn;

namespace split_detail {

struct Range {
  int64_t begin, end;
};

inline Range share(int64_t n, const ops::Worker& worker) {
  return {n * worker.part / worker.parts, n * (worker.part + 1) / worker.parts};
}

// Moves the arguments to row `r`.
inline void skip(ops::EmbeddingArgs& a, int64_t r) { a.ids += r, a.y += r * a.columns; }
inline void skip(ops::RmsNormArgs& a, int64_t r) { a.x += r * a.columns, a.y += r * a.columns; }
inline void skip(ops::QuantizeArgs& a, int64_t r) {
  a.x += r * a.columns, a.y.base += r * row_bytes(a.y_type, a.columns);
}
inline void skip(ops::RmsNormQuantizeArgs& a, int64_t r) {
  a.x += r * a.columns, a.y.base += r * row_bytes(a.y_type, a.columns);
}
inline void skip(ops::RopeTableArgs& a, int64_t r) { a.positions += r, a.cos_sin += r * a.rot_dim; }
inline void skip(ops::RopeArgs& a, int64_t r) { a.x += r * a.x_stride, a.cos_sin += r * a.rot_dim; }
inline void skip(ops::KvWriteArgs& a, int64_t r) {
  a.k += r * a.k_stride, a.v += r * a.v_stride, a.slots += r;
}
inline void skip(ops::RopeKvWriteArgs& a, int64_t r) {
  a.qkv += r * (a.heads + 2 * a.kv->kv_heads) * a.kv->head_dim, a.cos_sin += r * a.rot_dim,
      a.slots += r;
}
inline void skip(ops::AttentionArgs& a, int64_t r) {
  a.q += r * a.q_stride, a.positions += r, a.sequence_index += r,
      a.y += r * a.heads * a.kv->head_dim;
}
inline void skip(ops::SiluMulArgs& a, int64_t r) {
  a.gate += r * a.gate_stride, a.up += r * a.up_stride, a.y += r * a.columns;
}
inline void skip(ops::AddArgs& a, int64_t r) {
  a.a += r * a.columns, a.b += r * a.columns, a.y += r * a.columns;
}
inline void skip(ops::GatherRowsArgs& a, int64_t r) { a.indices += r, a.y += r * a.columns; }

template <ops::Op kOp, typename Args>
void run(const void* args, const ops::Worker& worker) {
  Args mine = *static_cast<const Args*>(args);
  const Range rows = share(mine.rows, worker);
  skip(mine, rows.begin);
  mine.rows = rows.end - rows.begin;
  ops::Worker alone = worker;
  alone.part = 0;
  alone.parts = 1;
  ops::reference_kernels().run[static_cast<int>(kOp)](&mine, alone);
}

inline void linear(const void* args, const ops::Worker& worker) {
  const ops::LinearArgs& a = *static_cast<const ops::LinearArgs*>(args);
  const int64_t columns = a.weight->interleaved ? a.weight->rows / 2 : a.weight->rows;
  std::vector<float> all(static_cast<size_t>(a.rows * columns));  // a test may allocate
  ops::LinearArgs product = a;
  product.y = all.data();
  product.residual = nullptr;  // others are writing theirs
  ops::Worker alone = worker;
  alone.part = 0;
  alone.parts = 1;
  ops::reference_kernels().run[static_cast<int>(ops::Op::kLinear)](&product, alone);
  const Range mine = share(columns, worker);
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t n = mine.begin; n < mine.end; ++n) {
      const int64_t i = t * columns + n;
      a.y[i] = all[static_cast<size_t>(i)] + (a.residual == nullptr ? 0 : a.residual[i]);
    }
  }
}

}  // namespace split_detail

inline ops::KernelTable split_kernels() {
  ops::KernelTable table = ops::reference_kernels();
  const auto set = [&](ops::Op op, ops::KernelFn fn) { table.run[static_cast<int>(op)] = fn; };
  using ops::Op;
  set(Op::kEmbedding, split_detail::run<Op::kEmbedding, ops::EmbeddingArgs>);
  set(Op::kRmsNorm, split_detail::run<Op::kRmsNorm, ops::RmsNormArgs>);
  set(Op::kLinear, split_detail::linear);
  set(Op::kRopeTable, split_detail::run<Op::kRopeTable, ops::RopeTableArgs>);
  set(Op::kRope, split_detail::run<Op::kRope, ops::RopeArgs>);
  set(Op::kKvWrite, split_detail::run<Op::kKvWrite, ops::KvWriteArgs>);
  set(Op::kPagedAttention, split_detail::run<Op::kPagedAttention, ops::AttentionArgs>);
  set(Op::kSiluMul, split_detail::run<Op::kSiluMul, ops::SiluMulArgs>);
  set(Op::kResidualAdd, split_detail::run<Op::kResidualAdd, ops::AddArgs>);
  set(Op::kGatherRows, split_detail::run<Op::kGatherRows, ops::GatherRowsArgs>);
  set(Op::kQuantize, split_detail::run<Op::kQuantize, ops::QuantizeArgs>);
  set(Op::kRmsNormQuantize, split_detail::run<Op::kRmsNormQuantize, ops::RmsNormQuantizeArgs>);
  set(Op::kRopeKvWrite, split_detail::run<Op::kRopeKvWrite, ops::RopeKvWriteArgs>);
  return table;
}

}  // namespace plan_test
