// SPDX-License-Identifier: Apache-2.0
//
// lmnative.Attention. Keys and values of a batch and head are packed as if they were weights
// (panel_layout.h), wherever they lie: then scores are a product with the keys, y one with the
// values, by the kernel of lmnative.Linear, and a block of scores stays in the cache. A unit of
// work is a block of queries of one batch and head; the result of a row does not depend on its
// block.
#include <algorithm>
#include <utility>

#include "cpu/panel_layout.h"
#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/tensor_kernels.h"
#include "ops/infer/fused.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// A tensor as [batch, head, row, column], in elements; 0 where it repeats.
struct HeadStrides {
  int64_t batch, head, row, column;
};

// Of a tensor of this shape that becomes [batch, head, row, column] by `perm`.
HeadStrides head_strides(const Shape& shape, const std::array<int, 4>& perm) {
  std::array<int64_t, 4> strides{};
  int64_t stride = 1;
  for (int i = 3; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = shape[i] == 1 ? 0 : stride;
    stride *= shape[i];
  }
  const auto at = [&](size_t d) { return strides[static_cast<size_t>(perm[d])]; };
  return {at(0), at(1), at(2), at(3)};
}

struct DotAttention {
  int64_t batches, heads, queries, keys, dim, value_dim;
  HeadStrides q, k, v, y, mask;
  bool has_mask = false;
  float scale = 1.0f;
  int64_t block = 0, blocks = 0;  // queries of a unit; units of a head

  // Of a worker's scratch, in bytes, each aligned to 64.
  int64_t key_bytes, value_bytes, score_stride, q_bytes, y_bytes;
  int64_t score_bytes() const { return align(block * score_stride * 4); }
  int64_t scratch_bytes() const {
    return key_bytes + value_bytes + score_bytes() + q_bytes + y_bytes + align(block * 4);
  }
  static int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

// Rows of a matrix whose columns are not neighbours, side by side.
void gather_rows_of(const float* x, int64_t rows, int64_t columns, const HeadStrides& s, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = x[r * s.row + c * s.column];
  }
}

class AttentionRunner {
 public:
  AttentionRunner(const DotAttention& a, const IsaKernels& isa, const Operands& io,
                  const Worker& worker)
      : a_(a), isa_(isa), io_(io), scale_(a.scale) {
    for (int i : {4, 5}) {
      if (const float* factor = io.input<float>(i)) scale_ *= *factor;
    }
    std::byte* at = worker.scratch;
    const auto take = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
    keys_ = take(a.key_bytes);
    values_ = take(a.value_bytes);
    scores_ = reinterpret_cast<float*>(take(a.score_bytes()));
    q_ = reinterpret_cast<float*>(take(a.q_bytes));
    y_ = reinterpret_cast<float*>(take(a.y_bytes));
    sums_ = reinterpret_cast<float*>(at);
  }

  void pack(int64_t batch, int64_t head) {
    const int64_t lanes = isa_.float_lanes, size = panel_bytes(DType::kF32, a_.dim, lanes);
    const float* k = io_.input<float>(1) + batch * a_.k.batch + head * a_.k.head;
    if (a_.k.column == 1 && (a_.k.row != 0 || a_.keys == 1)) {  // rows; else columns, or one row
      for (int64_t first = 0; first < a_.keys; first += lanes) {
        isa_.pack({DType::kF32, DType::kF32, a_.dim,
                   reinterpret_cast<const std::byte*>(k + first * a_.k.row),
                   std::min(lanes, a_.keys - first), keys_ + first / lanes * size, a_.k.row * 4});
      }
    } else {
      pack_columns(k, a_.dim, a_.keys, {0, 0, a_.k.column, a_.k.row}, keys_);
    }
    const float* v = io_.input<float>(2) + batch * a_.v.batch + head * a_.v.head;
    pack_columns(v, a_.keys, a_.value_dim, a_.v, values_);
  }

  void run(int64_t batch, int64_t head, int64_t first) {
    const int64_t rows = std::min(a_.block, a_.queries - first);
    const float* q = io_.input<float>(0) + batch * a_.q.batch + head * a_.q.head + first * a_.q.row;
    int64_t q_row = a_.q.row;
    if (a_.q.column != 1 && a_.dim > 1) {
      gather_rows_of(q, rows, a_.dim, a_.q, q_);
      q = q_;
      q_row = a_.dim;
    }
    product(q, q_row, rows, a_.dim, keys_, a_.keys, scores_, a_.score_stride);
    const float* mask = !a_.has_mask ? nullptr
                                     : io_.input<float>(3) + batch * a_.mask.batch +
                                           head * a_.mask.head + first * a_.mask.row;
    isa_.floats.scores({scores_, rows, a_.keys, a_.score_stride, scale_, mask, a_.mask.row,
                        a_.mask.column, sums_});
    float* y = io_.output<float>(0) + batch * a_.y.batch + head * a_.y.head + first * a_.y.row;
    const bool direct = a_.y.column == 1;
    float* to = direct ? y : y_;
    const int64_t to_row = direct ? a_.y.row : a_.value_dim;
    product(scores_, a_.score_stride, rows, a_.keys, values_, a_.value_dim, to, to_row);
    isa_.floats.scale_rows(to, rows, a_.value_dim, to_row, sums_);
    for (int64_t r = 0; r < rows && !direct; ++r) {
      for (int64_t c = 0; c < a_.value_dim; ++c)
        y[r * a_.y.row + c * a_.y.column] = y_[r * a_.value_dim + c];
    }
  }

 private:
  void pack_columns(const float* w, int64_t inner, int64_t columns, const HeadStrides& s,
                    std::byte* panels) const {
    if (s.column == 1 || columns == 1)
      return isa_.floats.pack_columns(w, inner, columns, s.row, panels);
    const int64_t lanes = isa_.float_lanes, size = panel_bytes(DType::kF32, inner, lanes);
    for (int64_t c = 0; c < columns; ++c) {
      float* y = reinterpret_cast<float*>(panels + c / lanes * size) + c % lanes;
      for (int64_t k = 0; k < inner; ++k) y[k * lanes] = w[k * s.row + c * s.column];
    }
  }
  void product(const float* x, int64_t x_row, int64_t rows, int64_t inner, const std::byte* panels,
               int64_t columns, float* y, int64_t y_row) const {
    LinearTask t{};
    t.source = DType::kF32;
    t.input_type = DType::kF32;
    t.columns = inner;
    t.panels = panels;
    t.panel_end = (columns + isa_.float_lanes - 1) / isa_.float_lanes;
    t.rows = rows;
    t.x = reinterpret_cast<const std::byte*>(x);
    t.x_row_bytes = x_row * static_cast<int64_t>(sizeof(float));
    t.channels = columns;
    t.y = y;
    t.y_stride = y_row;
    isa_.linear(t);
  }

  const DotAttention& a_;
  const IsaKernels& isa_;
  const Operands& io_;
  float scale_;
  std::byte *keys_, *values_;
  float *scores_, *q_, *y_, *sums_;
};

}  // namespace

Status bind_DotAttention(const Binding& b) {
  std::array<std::array<int, 4>, 4> perms;
  constexpr std::string_view kKeys[] = {"q_perm", "k_perm", "v_perm", "y_perm"};
  for (size_t i = 0; i < 4; ++i)
    LMN_RETURN_IF_ERROR(ops::read_permutation(b.node, kKeys[i], &perms[i]));
  const Shape& out = b.outputs[0].shape;
  std::array<int, 4> back{};  // axes of y, of [batch, head, row, column]
  for (size_t i = 0; i < 4; ++i) back[static_cast<size_t>(perms[3][i])] = static_cast<int>(i);
  const auto size = [&](int operand, size_t d) {
    return b.node.shape(operand)[perms[static_cast<size_t>(operand)][d]];
  };
  DotAttention a{};
  a.batches = out[back[0]];
  a.heads = out[back[1]];
  a.queries = out[back[2]];
  a.value_dim = out[back[3]];
  a.dim = size(0, 3);
  a.keys = size(2, 2);
  a.q = head_strides(b.node.shape(0), perms[0]);
  a.k = head_strides(b.node.shape(1), perms[1]);
  a.v = head_strides(b.node.shape(2), perms[2]);
  a.y = head_strides(out, back);
  if (a.value_dim == 1) a.y.column = 1;
  if (a.dim == 1) a.k.column = 1;
  a.has_mask = b.node.has(3);
  if (a.has_mask) {
    Shape mask{1, 1, 1, 1};
    const Shape& given = b.node.shape(3);
    for (int i = 0; i < given.rank; ++i) mask[4 - given.rank + i] = given[i];
    a.mask = head_strides(mask, {0, 1, 2, 3});
  }
  a.scale = b.node.number("scale", 1.0f);

  const int64_t lanes = b.isa.float_lanes;
  const auto up = [&](int64_t n) { return (n + lanes - 1) / lanes; };
  a.score_stride = up(a.keys) * lanes;
  // Scores of a block are to stay in a second-level cache, beside keys and values.
  constexpr int64_t kScoreBytes = 128 * 1024, kMostQueries = 128, kLeastQueries = 16;
  a.block = std::clamp(kScoreBytes / std::max<int64_t>(4 * a.score_stride, 1), kLeastQueries,
                       kMostQueries);
  a.block = std::min(a.block, std::max<int64_t>(a.queries, 1));
  a.blocks = (a.queries + a.block - 1) / a.block;
  a.key_bytes = up(a.keys) * panel_bytes(DType::kF32, a.dim, lanes);
  a.value_bytes = up(a.value_dim) * panel_bytes(DType::kF32, a.keys, lanes);
  a.q_bytes = a.q.column == 1 ? 0 : DotAttention::align(a.block * a.dim * 4);
  a.y_bytes = a.y.column == 1 ? 0 : DotAttention::align(a.block * a.value_dim * 4);
  b.kernel.splits = true;
  b.kernel.scratch_bytes = static_cast<size_t>(a.scratch_bytes());
  b.kernel.cost = 100 + static_cast<double>(a.batches * a.heads * a.queries * a.keys *
                                            (a.dim + a.value_dim + 16)) /
                            25;
  const IsaKernels* isa = &b.isa;
  b.kernel.set([a, isa](const Operands& io, const Worker& worker) {
    AttentionRunner runner(a, *isa, io, worker);
    const auto [begin, end] = ops::share_of(a.batches * a.heads * a.blocks, worker);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t head = unit / a.blocks % a.heads, batch = unit / a.blocks / a.heads;
      const int64_t block = unit % a.blocks;
      if (unit == begin || block == 0) runner.pack(batch, head);
      runner.run(batch, head, block * a.block);
    }
  });
  return {};
}

}  // namespace lmn::cpu
