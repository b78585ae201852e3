// SPDX-License-Identifier: Apache-2.0
//
// Kernels of Einsum and Det. One or two operands are a batch of matrix products whose rows, columns
// and inner dimension are several dimensions each; more operands are summed element by element.
#include "ops/infer/einsum.h"

#include <cmath>
#include <memory>

#include "cpu/tensor/product.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Some of the equation's labels, walked as one index: strides for the two factors and the output.
struct Group {
  std::vector<int64_t> sizes;
  std::array<std::vector<int64_t>, 3> strides;

  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : sizes) n *= size;
    return n;
  }
  int64_t offset(int64_t index, size_t operand) const {
    int64_t at = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      at += index % sizes[d] * strides[operand][d];
      index /= sizes[d];
    }
    return at;
  }
};

struct Contraction {
  Group batch, rows, columns, inner;
};

std::array<int64_t, ops::kMaxLabels> output_strides(const ops::Einsum& e) {
  std::array<int64_t, ops::kMaxLabels> strides{};
  int64_t stride = 1;
  for (int i = e.output_labels - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= e.size[static_cast<size_t>(i)];
  }
  return strides;
}

Contraction make_contraction(const ops::Einsum& e) {
  Contraction c;
  const auto out = output_strides(e);
  const bool two = e.strides.size() > 1;
  for (size_t i = 0; i < static_cast<size_t>(e.labels); ++i) {
    const bool in_x = e.strides[0][i] != 0, in_w = two && e.strides[1][i] != 0;
    const bool is_output = i < static_cast<size_t>(e.output_labels);
    Group& group = !is_output ? c.inner : in_x && in_w ? c.batch : in_w ? c.columns : c.rows;
    group.sizes.push_back(e.size[i]);
    group.strides[0].push_back(e.strides[0][i]);
    group.strides[1].push_back(two ? e.strides[1][i] : 0);
    group.strides[2].push_back(is_output ? out[i] : 0);
  }
  return c;
}

// pack_rows and pack_columns: elements are wherever the groups say.
template <typename T, int64_t kWidth>
struct GatherPacker {
  const T* data;
  const Group &outer, &inner;
  size_t operand;

  void operator()(int64_t first, int64_t count, int64_t k, int64_t depth, Sum<T>* to) const {
    std::array<int64_t, kTileDepth> at;
    for (int64_t i = 0; i < depth; ++i) at[static_cast<size_t>(i)] = inner.offset(k + i, operand);
    for (int64_t o = 0; o < count; ++o) {
      const T* const from = data + outer.offset(first + o, operand);
      for (int64_t i = 0; i < depth; ++i)
        to[i * kWidth + o] = static_cast<Sum<T>>(from[at[static_cast<size_t>(i)]]);
    }
  }
};

template <typename T>
void contract(const Contraction& c, const T* x, const T* w, T* y, const Worker& worker) {
  const int64_t batch = c.batch.count(), rows = c.rows.count(), columns = c.columns.count();
  const bool whole = batch >= 4 * worker.parts;
  const auto [begin, end] = whole ? ops::share_of(batch, worker) : ops::Share{0, batch};
  const ProductShare share =
      whole ? ProductShare{0, rows, 0, columns} : share_product(rows, columns, worker);
  for (int64_t i = begin; i < end; ++i) {
    T* const out = y + c.batch.offset(i, 2);
    blocked_product<Sum<T>>(
        share.row_begin, share.row_end, share.column_begin, share.column_end, c.inner.count(),
        worker.scratch, GatherPacker<T, kMicroRows>{x + c.batch.offset(i, 0), c.rows, c.inner, 0},
        GatherPacker<T, kTileColumns>{w + c.batch.offset(i, 1), c.columns, c.inner, 1},
        [&](int64_t row, int64_t column, int64_t count, const Sum<T>* sums) {
          T* const to = out + c.rows.offset(row, 2);
          for (int64_t j = 0; j < count; ++j)
            to[c.columns.offset(column + j, 2)] = static_cast<T>(sums[j]);
        });
  }
}

// Any number of operands.
template <typename T>
void sum_products(const ops::Einsum& e, const Operands& io, const Worker& worker) {
  const auto labels = static_cast<size_t>(e.labels), kept = static_cast<size_t>(e.output_labels);
  int64_t outputs = 1, terms = 1;
  for (size_t i = 0; i < labels; ++i) (i < kept ? outputs : terms) *= e.size[i];
  const auto [begin, end] = ops::share_of(outputs, worker);
  for (int64_t out = begin; out < end; ++out) {
    Sum<T> sum{};
    for (int64_t term = 0; term < terms; ++term) {
      std::array<int64_t, ops::kMaxLabels> digits{};
      int64_t rest = term;
      for (size_t i = labels; i-- > kept; rest /= e.size[i]) digits[i] = rest % e.size[i];
      rest = out;
      for (size_t i = kept; i-- > 0; rest /= e.size[i]) digits[i] = rest % e.size[i];
      Sum<T> product = 1;
      for (size_t o = 0; o < e.strides.size(); ++o) {
        int64_t at = 0;
        for (size_t i = 0; i < labels; ++i) at += digits[i] * e.strides[o][i];
        product *= static_cast<Sum<T>>(io.input<T>(static_cast<int>(o))[at]);
      }
      sum += product;
    }
    io.output<T>(0)[out] = static_cast<T>(sum);
  }
}

}  // namespace

Status bind_Einsum(const Binding& b) {
  ops::Einsum e;
  LMN_RETURN_IF_ERROR(read_einsum(b.node, &e));
  return with_factor(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    if (e.strides.size() > 2) {
      b.kernel.set([equation = std::make_shared<const ops::Einsum>(e)](const Operands& io,
                                                                       const Worker& worker) {
        sum_products<T>(*equation, io, worker);
      });
      return {};
    }
    b.kernel.scratch_bytes = product_scratch_bytes<Sum<T>>();
    const bool two = e.strides.size() > 1;
    b.kernel.set([two, c = std::make_shared<const Contraction>(make_contraction(e))](
                     const Operands& io, const Worker& worker) {
      const T one = static_cast<T>(1);
      contract(*c, io.input<T>(0), two ? io.input<T>(1) : &one, io.output<T>(0), worker);
    });
    return {};
  });
}

// By elimination with the largest pivot of each column; matrices are shared out.
Status bind_Det(const Binding& b) {
  const Shape& x = b.node.shape(0);
  const int64_t n = x.last(), matrices = b.outputs[0].shape.elements();
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = sizeof(S) * static_cast<size_t>(n * n);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      S* const a = reinterpret_cast<S*>(worker.scratch);
      const auto [begin, end] = ops::share_of(matrices, worker);
      for (int64_t m = begin; m < end; ++m) {
        for (int64_t i = 0; i < n * n; ++i) a[i] = static_cast<S>(io.input<T>(0)[m * n * n + i]);
        S det = 1;
        for (int64_t k = 0; k < n; ++k) {
          int64_t pivot = k;
          for (int64_t i = k + 1; i < n; ++i) {
            if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
          }
          if (pivot != k) {
            std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
            det = -det;
          }
          det *= a[k * n + k];
          if (a[k * n + k] == 0) break;
          for (int64_t i = k + 1; i < n; ++i) {
            const S factor = a[i * n + k] / a[k * n + k];
            for (int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
          }
        }
        io.output<T>(0)[m] = static_cast<T>(det);
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
