// SPDX-License-Identifier: Apache-2.0
#include "ops/cost.h"

#include "core/check.h"
#include "core/tensor.h"
#include "ops/packed_matrix.h"

namespace lmn::ops {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kIndex = sizeof(int32_t);

// Of an rms norm: the square and its sum, then times the root and times the weight.
constexpr int64_t kNormOperations = 4;
// Of a quantised element: the comparison with the largest, times the scale, into the sum.
constexpr int64_t kQuantizeOperations = 3;
// Of a rotated element: half of (a cos - b sin, a sin + b cos).
constexpr int64_t kRotateOperations = 3;

// Of the keys and values of so many tokens.
int64_t kv_bytes(const KvLayer& kv, int64_t tokens) {
  return row_bytes(kv.dtype, tokens * 2 * kv.kv_heads * kv.head_dim);
}

}  // namespace

Cost cost(const EmbeddingArgs& a) {
  const int64_t table_row = a.table->bytes / a.table->rows;
  return {a.rows * (kIndex + table_row + a.columns * kFloat), 0};
}

Cost cost(const RmsNormArgs& a) {
  if (a.rows == 0) return {};
  return {(2 * a.rows + 1) * a.columns * kFloat, a.rows * a.columns * kNormOperations};
}

Cost cost(const QuantizeArgs& a) {
  return {a.rows * (a.columns * kFloat + row_bytes(a.y_type, a.columns)),
          a.rows * a.columns * kQuantizeOperations};
}

Cost cost(const RmsNormQuantizeArgs& a) {
  if (a.rows == 0) return {};
  return {a.rows * (a.columns * kFloat + row_bytes(a.y_type, a.columns)) + a.columns * kFloat,
          a.rows * a.columns * (kNormOperations + kQuantizeOperations)};
}

Cost cost(const LinearArgs& a) {
  if (a.rows == 0) return {};
  const PackedMatrix& w = *a.weight;
  const int64_t y_columns = w.interleaved ? w.rows / 2 : w.rows;
  const int64_t row =
      row_bytes(w.input_type, w.columns) + y_columns * kFloat * (a.residual == nullptr ? 1 : 2);
  const int64_t bias = a.bias == nullptr ? 0 : w.rows * kFloat;
  return {w.bytes + bias + a.rows * row, 2 * a.rows * w.rows * w.columns};
}

Cost cost(const RopeTableArgs& a) {
  if (a.rows == 0) return {};
  // The angle, its cosine and sine, and each of them times the magnitude.
  return {a.rows * (kIndex + a.rot_dim * kFloat) + a.rot_dim / 2 * kFloat,
          a.rows * a.rot_dim / 2 * 5};
}

Cost cost(const RopeArgs& a) {
  const int64_t rotated = a.heads * a.rot_dim;
  return {a.rows * (2 * rotated + a.rot_dim) * kFloat, a.rows * rotated * kRotateOperations};
}

Cost cost(const KvWriteArgs& a) {
  const int64_t elements = int64_t{2} * a.kv->kv_heads * a.kv->head_dim;
  return {a.rows * (kIndex + elements * kFloat) + kv_bytes(*a.kv, a.rows), 0};
}

Cost cost(const RopeKvWriteArgs& a) {
  const int64_t rotated_q = a.heads * a.rot_dim;
  const int64_t kv = int64_t{2} * a.kv->kv_heads * a.kv->head_dim;
  return {a.rows * (kIndex + (a.rot_dim + 2 * rotated_q + kv) * kFloat) + kv_bytes(*a.kv, a.rows),
          a.rows * (rotated_q + a.kv->kv_heads * a.rot_dim) * kRotateOperations};
}

Cost cost(const AttentionArgs& a) {
  const int64_t head_dim = a.kv->head_dim;
  int64_t attended = 0;           // positions, by every row
  int64_t cached = 0, pages = 0;  // positions and their pages, of every sequence
  for (int64_t t = 0; t < a.rows; ++t) {
    const int64_t context = int64_t{a.positions[t]} + 1;
    attended += context;
    if (t + 1 < a.rows && a.sequence_index[t + 1] == a.sequence_index[t]) continue;
    cached += context;
    pages += (context + a.kv->page_tokens - 1) / a.kv->page_tokens;
  }
  const int64_t kv = kv_bytes(*a.kv, cached);
  const int64_t rows = a.rows * (2 * a.heads * head_dim * kFloat + 2 * kIndex);
  return {kv + rows + pages * kIndex, 4 * head_dim * a.heads * attended};
}

Cost cost(const SiluMulArgs& a) {
  // exp, 1 +, /, * up
  return {3 * a.rows * a.columns * kFloat, 4 * a.rows * a.columns};
}

Cost cost(const AddArgs& a) { return {3 * a.rows * a.columns * kFloat, a.rows * a.columns}; }

Cost cost(const GatherRowsArgs& a) { return {a.rows * (kIndex + 2 * a.columns * kFloat), 0}; }

Cost cost(Op op, const void* args) {
  switch (op) {
#define LMN_OP(e, name, Args, text) \
  case Op::k##e:                    \
    return cost(*static_cast<const Args*>(args));
#include "ops/ops.def"
#undef LMN_OP
  }
  LMN_CHECK(false);
  return {};
}

}  // namespace lmn::ops
