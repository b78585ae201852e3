// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/quantized.def: products of matrices. The sums are exact integers; what
// becomes of them (an integer, a code of 8 bits, a float) is the Finish of each operator.
#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/convert.h"
#include "cpu/tensor/integer_product.h"
#include "cpu/tensor/product.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Scales or zero points: one, one for each row or column, or that of each matrix of a batch.
struct PerLine {
  int input = -1;  // -1: none
  int64_t stride = 0, matrix_stride = 0;

  int64_t offset(int64_t matrix) const { return matrix * matrix_stride; }
};
PerLine per_line(const ops::TensorNode& node, int i, int64_t lines, int64_t matrices) {
  PerLine p;
  if (!node.has(i)) return p;
  p.input = i;
  const int64_t elements = node.shape(i).elements();
  p.stride = elements == 1 ? 0 : 1;
  p.matrix_stride = elements == lines * matrices && matrices > 1 && elements > 1 ? lines : 0;
  return p;
}

// One operand of a product: where its lines lie.
struct Factor {
  int input;
  int64_t lines, stride, k_stride;
  int32_t flip;
  PerLine zero;

  BytePacker packer(const Operands& io, int64_t matrix, int64_t inner) const {
    const uint8_t* zeros =
        zero.input < 0 ? nullptr : io.input<uint8_t>(zero.input) + zero.offset(matrix);
    return {io.input<uint8_t>(input) + matrix * lines * inner,
            stride,
            k_stride,
            inner,
            flip,
            zeros,
            zero.stride};
  }
};

struct Product {
  Factor a, w;
  int64_t inner, matrices;  // of the output
  BroadcastWalk<2> walk;    // over matrices
  int64_t a_matrices, w_matrices;

  // Which matrices of a and w output matrix i takes.
  std::array<int64_t, 2> operands(int64_t i) const {
    auto at = walk.offsets(i / walk.inner());
    for (size_t o = 0; o < 2; ++o)
      at[o] += i % walk.inner() * walk.inner_stride(static_cast<int>(o));
    return at;
  }
};

int64_t matrices_of(const Shape& x) {
  int64_t n = 1;
  for (int i = 0; i + 2 < x.rank; ++i) n *= x[i];
  return n;
}

// Operands a and w of a node whose shapes multiply as MatMul's do, with their zero points.
Product make_product(const ops::TensorNode& node, int a, int a_zero, int w, int w_zero) {
  const Shape &x = node.shape(a), &y = node.shape(w);
  Shape batch_x = x, batch_y = y, batch;
  batch_x.rank = std::max(0, x.rank - 2);
  batch_y.rank = std::max(0, y.rank - 2);
  batch.rank = std::max(batch_x.rank, batch_y.rank);
  for (int i = 0; i < batch.rank; ++i) {
    const int in_x = i - (batch.rank - batch_x.rank), in_y = i - (batch.rank - batch_y.rank);
    const int64_t size_x = in_x < 0 ? 1 : x[in_x], size_y = in_y < 0 ? 1 : y[in_y];
    batch[i] = size_x == 1 ? size_y : size_x;
  }
  Product p;
  p.inner = x.last();
  p.matrices = batch.elements();
  p.walk = make_walk<2>(batch, {&batch_x, &batch_y});
  p.a_matrices = matrices_of(x);
  p.w_matrices = matrices_of(y);
  const int64_t rows = x.rank < 2 ? 1 : x[x.rank - 2], columns = y.rank < 2 ? 1 : y.last();
  p.a = {a, rows, p.inner, 1, flip_of(node.dtype(a)), per_line(node, a_zero, rows, p.a_matrices)};
  p.w = {w,
         columns,
         1,
         columns,
         flip_of(node.dtype(w)),
         per_line(node, w_zero, columns, p.w_matrices)};
  return p;
}

// Runs the product of one worker. pack_a(matrix) makes the packer of a's rows; finish(place, row,
// column, count, sums) with place = {output matrix, matrix of a, matrix of w}.
struct Place {
  int64_t matrix, a, w;
};
template <typename PackA, typename Finish>
void run_product(const Product& p, const Operands& io, const Worker& worker, const PackA& pack_a,
                 const Finish& finish) {
  const bool whole = p.matrices >= worker.parts && p.matrices > 1;
  const auto [begin, end] = whole ? ops::share_of(p.matrices, worker) : ops::Share{0, p.matrices};
  const ProductShare share = whole ? ProductShare{0, p.a.lines, 0, p.w.lines}
                                   : share_product(p.a.lines, p.w.lines, worker);
  for (int64_t i = begin; i < end; ++i) {
    const auto [a, w] = p.operands(i);
    const Place place{i, a, w};
    integer_product(share.row_begin, share.row_end, share.column_begin, share.column_end, p.inner,
                    worker.scratch, pack_a(a), p.w.packer(io, w, p.inner),
                    [&](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
                      finish(place, row, column, count, sums);
                    });
  }
}

template <typename Finish>
void bind_product(const Binding& b, const Product& p, Finish finish) {
  b.kernel.splits = true;
  b.kernel.scratch_bytes = integer_product_scratch_bytes(p.inner);
  b.kernel.set([p, finish](const Operands& io, const Worker& worker) {
    run_product(
        p, io, worker, [&](int64_t matrix) { return p.a.packer(io, matrix, p.inner); },
        [&](const Place& place, int64_t row, int64_t column, int64_t count, const int32_t* sums) {
          finish(io, place, row, column, count, sums);
        });
  });
}

// Scales of any float type.
struct Scales {
  PerLine at;
  Decode<float> decode = nullptr;
  int64_t bytes = 0;

  // `count` scales from line `first` on; one where all are equal.
  void load(const Operands& io, int64_t matrix, int64_t first, int64_t count, float* to) const {
    const auto* from =
        io.input<std::byte>(at.input) + (at.offset(matrix) + first * at.stride) * bytes;
    decode(from, to, at.stride == 0 ? 1 : count);
    if (at.stride == 0) std::fill(to + 1, to + count, to[0]);
  }
};
Scales scales_of(const ops::TensorNode& node, int i, int64_t lines, int64_t matrices) {
  return {per_line(node, i, lines, matrices), decoder<float>(node.dtype(i)),
          info(node.dtype(i)).block_bytes};
}

// Sums to codes: (sum + bias) * a_scale * w_scale / y_scale, rounded.
struct ToCodes {
  Scales a, w, y;
  int y_zero;
  int32_t y_flip;
  int64_t rows, columns;

  void operator()(const Operands& io, const Place& place, int64_t row, int64_t column,
                  int64_t count, const int32_t* sums) const {
    float a_scale, y_scale, w_scales[kIntegerTile];
    a.load(io, place.a, row, 1, &a_scale);
    y.load(io, 0, 0, 1, &y_scale);
    w.load(io, place.w, column, count, w_scales);
    const CodeRounding round(y_flip, zero_point(io, y_zero, true, y_flip));
    uint8_t* out = io.output<uint8_t>(0) + (place.matrix * rows + row) * columns + column;
    for (int64_t i = 0; i < count; ++i)
      out[i] = round(static_cast<float>(sums[i]) * (a_scale * w_scales[i] / y_scale));
  }
};

void multiply_out(const int32_t* sums, float a_scale, const float* w_scales, const float* bias,
                  int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(sums[i]) * (a_scale * w_scales[i]);
  if (bias == nullptr) return;
  for (int64_t i = 0; i < count; ++i) out[i] += bias[i];
}

// Sums to floats: sum * a_scale * w_scale + bias.
struct ToFloats {
  Scales a, w;
  int bias;  // -1: none
  int64_t rows, columns;

  void operator()(const Operands& io, const Place& place, int64_t row, int64_t column,
                  int64_t count, const int32_t* sums) const {
    float a_scale, w_scales[kIntegerTile];
    a.load(io, place.a, row, 1, &a_scale);
    w.load(io, place.w, column, count, w_scales);
    multiply_out(sums, a_scale, w_scales, bias < 0 ? nullptr : io.input<float>(bias) + column,
                 count, io.output<float>(0) + (place.matrix * rows + row) * columns + column);
  }
};

}  // namespace

Status bind_MatMulInteger(const Binding& b) {
  const Product p = make_product(b.node, 0, 2, 1, 3);
  bind_product(
      b, p,
      [rows = p.a.lines, columns = p.w.lines](const Operands& io, const Place& place, int64_t row,
                                              int64_t column, int64_t count, const int32_t* sums) {
        std::copy_n(sums, count,
                    io.output<int32_t>(0) + (place.matrix * rows + row) * columns + column);
      });
  return {};
}

Status bind_QLinearMatMul(const Binding& b) {
  const Product p = make_product(b.node, 0, 2, 3, 5);
  bind_product(b, p,
               ToCodes{scales_of(b.node, 1, p.a.lines, p.a_matrices),
                       scales_of(b.node, 4, p.w.lines, p.w_matrices), scales_of(b.node, 6, 1, 1), 7,
                       flip_of(b.outputs[0].dtype), p.a.lines, p.w.lines});
  return {};
}

Status bind_MatMulIntegerToFloat(const Binding& b) {
  const Product p = make_product(b.node, 0, 4, 1, 5);
  bind_product(b, p,
               ToFloats{scales_of(b.node, 2, p.a.lines, p.a_matrices),
                        scales_of(b.node, 3, p.w.lines, p.w_matrices), b.node.has(6) ? 6 : -1,
                        p.a.lines, p.w.lines});
  return {};
}

// Each worker finds the scale of all of A, and quantises the rows that it packs.
Status bind_DynamicQuantizeMatMul(const Binding& b) {
  const Product p = make_product(b.node, 0, -1, 1, 3);
  const Scales w_scales = scales_of(b.node, 2, p.w.lines, p.w_matrices);
  const int64_t numbers = b.node.shape(0).elements();
  const bool has_bias = b.node.has(4);
  b.kernel.splits = true;
  b.kernel.scratch_bytes = integer_product_scratch_bytes(p.inner);
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const float* x = io.input<float>(0);
    const DynamicScale dynamic(x, numbers);
    const CodeRounding round(0, dynamic.zero);
    run_product(
        p, io, worker,
        [&](int64_t matrix) {
          return [&, from = x + matrix * p.a.lines * p.inner](int64_t first, int64_t count,
                                                              int64_t pitch, int16_t* to) {
            for (int64_t i = 0; i < count; ++i) {
              const float* row = from + (first + i) * p.inner;
              for (int64_t k = 0; k < p.inner; ++k) {
                to[i * pitch + k] =
                    static_cast<int16_t>(round(row[k] / dynamic.scale) - dynamic.zero);
              }
            }
          };
        },
        [&](const Place& place, int64_t row, int64_t column, int64_t count, const int32_t* sums) {
          float scales[kIntegerTile];
          w_scales.load(io, place.w, column, count, scales);
          multiply_out(sums, dynamic.scale, scales,
                       has_bias ? io.input<float>(4) + column : nullptr, count,
                       io.output<float>(0) + (place.matrix * p.a.lines + row) * p.w.lines + column);
        });
  });
  return {};
}

Status bind_QGemm(const Binding& b) {
  const Shape &a = b.node.shape(0), &w = b.node.shape(3), &out = b.outputs[0].shape;
  const bool trans_a = b.node.integer("transA", 0) != 0, trans_w = b.node.integer("transB", 0) != 0;
  const int64_t rows = out[0], columns = out[1];
  const Shape one;
  Product p;
  p.inner = trans_a ? a[0] : a[1];
  p.matrices = p.a_matrices = p.w_matrices = 1;
  p.walk = make_walk<2>(one, {&one, &one});
  p.a = {0,
         rows,
         trans_a ? 1 : a[1],
         trans_a ? a[1] : 1,
         flip_of(b.node.dtype(0)),
         per_line(b.node, 2, rows, 1)};
  p.w = {3,
         columns,
         trans_w ? w[1] : 1,
         trans_w ? 1 : w[1],
         flip_of(b.node.dtype(3)),
         per_line(b.node, 5, columns, 1)};
  const Scales w_scales = scales_of(b.node, 4, columns, 1);
  const float alpha = b.node.number("alpha", 1.0f);
  const bool has_bias = b.node.has(6), to_float = !b.node.has(8);
  const Shape bias = has_bias ? b.node.shape(6) : one;
  const int64_t bias_columns = bias.rank > 0 && bias.last() > 1 ? 1 : 0;
  const int64_t bias_rows = bias.rank > 1 && bias[0] > 1 ? bias.last() : 0;
  const int32_t flip = flip_of(b.outputs[0].dtype);
  bind_product(
      b, p,
      [=](const Operands& io, const Place&, int64_t row, int64_t column, int64_t count,
          const int32_t* sums) {
        float scales[kIntegerTile];
        w_scales.load(io, 0, column, count, scales);
        int32_t totals[kIntegerTile];
        for (int64_t i = 0; i < count; ++i) {
          const int32_t add =
              has_bias ? io.input<int32_t>(6)[row * bias_rows + (column + i) * bias_columns] : 0;
          totals[i] =
              static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(add));
        }
        const float a_scale = *io.input<float>(1) * alpha;
        const int64_t at = row * columns + column;
        if (to_float) {
          multiply_out(totals, a_scale, scales, nullptr, count, io.output<float>(0) + at);
          return;
        }
        const float y_scale = *io.input<float>(7);
        const CodeRounding round(flip, zero_point(io, 8, true, flip));
        for (int64_t i = 0; i < count; ++i) {
          io.output<uint8_t>(0)[at + i] =
              round(static_cast<float>(totals[i]) * (a_scale * scales[i] / y_scale));
        }
      });
  return {};
}

}  // namespace lmn::cpu
