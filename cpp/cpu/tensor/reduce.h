// SPDX-License-Identifier: Apache-2.0
//
// What reductions are made of: accumulation along a row and along columns, in an order that the
// sizes alone decide. A row is taken by kStripes interleaved partial results, which then meet in
// pairs; columns take their rows one after the other.
#pragma once

#include <cmath>
#include <limits>

#include "cpu/tensor/box_copy.h"
#include "cpu/tensor/float_io.h"
#include "cpu/tensor/lanes.h"

namespace lmn::cpu {

// Operations over values of C. A step takes one more element in, merge another partial result.
template <typename C>
struct SumOp {
  using Acc = TotalOf<C>;
  static constexpr Acc kStart = 0;
  static void step(Acc& a, C x) { a += static_cast<Acc>(x); }
  static void merge(Acc& a, Acc b) { a += b; }
};
template <typename C>
struct SquareOp : SumOp<C> {
  using Acc = TotalOf<C>;
  static void step(Acc& a, C x) { a += static_cast<Acc>(x) * static_cast<Acc>(x); }
};
template <typename C>
struct AbsoluteOp : SumOp<C> {
  using Acc = TotalOf<C>;
  static void step(Acc& a, C x) {
    if constexpr (std::is_integral_v<C>) {
      a += x < C(0) ? Acc{0} - static_cast<Acc>(x) : static_cast<Acc>(x);
    } else {
      a += std::fabs(x);
    }
  }
};
template <typename C>
struct ProductOp {
  using Acc = TotalOf<C>;
  static constexpr Acc kStart = 1;
  static void step(Acc& a, C x) { a *= static_cast<Acc>(x); }
  static void merge(Acc& a, Acc b) { a *= b; }
};
template <typename C>
struct MaxOp {  // a NaN wins
  using Acc = C;
  static constexpr Acc kStart = std::numeric_limits<C>::has_infinity
                                    ? -std::numeric_limits<C>::infinity()
                                    : std::numeric_limits<C>::lowest();
  static void step(Acc& a, C x) { a = x > a || is_nan(x) ? x : a; }
  static void merge(Acc& a, Acc b) { step(a, b); }
};
template <typename C>
struct MinOp {
  using Acc = C;
  static constexpr Acc kStart = std::numeric_limits<C>::has_infinity
                                    ? std::numeric_limits<C>::infinity()
                                    : std::numeric_limits<C>::max();
  static void step(Acc& a, C x) { a = x < a || is_nan(x) ? x : a; }
  static void merge(Acc& a, Acc b) { step(a, b); }
};

inline constexpr int64_t kStripes =
    16;  // one to four vectors: enough to hide an addition's latency
static_assert(kFloatChunk % kStripes == 0);

// Partial results of rows; element i of a row goes to stripe i % kStripes.
template <typename Op, typename C>
class Stripes {
 public:
  using Acc = typename Op::Acc;

  Stripes() { std::fill_n(acc_, kStripes, Op::kStart); }
  // Elements of a row from a multiple of kStripes on.
  void take(const C* x, int64_t count) {
    Acc acc[kStripes];
    std::copy_n(acc_, kStripes, acc);
    int64_t i = 0;
    for (; i + kStripes <= count; i += kStripes) {
      for (int64_t s = 0; s < kStripes; ++s) Op::step(acc[s], x[i + s]);
    }
    for (int64_t s = 0; i + s < count; ++s) Op::step(acc[s], x[i + s]);
    std::copy_n(acc, kStripes, acc_);
  }
  void take(const Source<C>& x, int64_t first, int64_t count) {
    for_chunks(x, first, count, [&](const C* values, int64_t, int64_t n) { take(values, n); });
  }
  Acc result() const {
    Acc acc[kStripes];
    std::copy_n(acc_, kStripes, acc);
    for (int64_t half = kStripes / 2; half > 0; half /= 2) {
      for (int64_t s = 0; s < half; ++s) Op::merge(acc[s], acc[s + half]);
    }
    return acc[0];
  }

 private:
  Acc acc_[kStripes];
};

template <typename Op, typename C>
typename Op::Acc reduce_row(const Source<C>& x, int64_t first, int64_t count) {
  Stripes<Op, C> stripes;
  stripes.take(x, first, count);
  return stripes.result();
}

// The dimensions of a tensor that stay and those that are reduced, merged where they adjoin. The
// innermost of all is either a row that is reduced, or columns that stay.
struct ReducePlan {
  Box kept, reduced;    // all but the innermost; strides are in `from`
  bool by_rows = true;  // the innermost is reduced
  int64_t inner = 1;    // its size
  int64_t outputs = 1;  // elements of the output
  int64_t terms = 1;    // elements that make one of them

  ReducePlan() = default;
  ReducePlan(const Shape& x, uint32_t bits) {
    const auto strides = dense_strides(x);
    int innermost = -1;
    for (int i = 0; i < x.rank; ++i) {
      const bool is_reduced = (bits >> i & 1u) != 0;
      (is_reduced ? terms : outputs) *= x[i];
      if (x[i] == 1) continue;
      (is_reduced ? reduced : kept).add(x[i], strides[static_cast<size_t>(i)], 0);
      innermost = i;
    }
    if (innermost < 0) return;
    by_rows = (bits >> innermost & 1u) != 0;
    Box& box = by_rows ? reduced : kept;
    inner = box.sizes[static_cast<size_t>(--box.rank)];
  }

  static constexpr int64_t kColumns = 256;  // at a time

  // f(first output, first element in x, columns of it, at most kColumns): of a worker's share.
  template <typename F>
  void for_each_output(const ops::Worker& worker, F&& f) const {
    const auto [begin, end] = ops::share_of(outputs, worker);
    if (begin == end) return;
    const int64_t width = by_rows ? 1 : inner;
    box_copy::Odometer at(kept, kept.rank, -1, begin / width);
    int64_t column = begin % width;
    for (int64_t o = begin; o < end;) {
      const int64_t n = std::min({kColumns, width - column, end - o});
      f(o, at.from() + column, n);
      o += n;
      column += n;
      if (column == width) {
        column = 0;
        at.next();
      }
    }
  }
  // f(offset) of every row that goes into an output, in order.
  template <typename F>
  void for_each_row(F&& f) const {
    const int64_t rows = reduced.elements(reduced.rank);
    if (rows == 0) return;
    box_copy::Odometer at(reduced, reduced.rank, -1, 0);
    for (int64_t r = 0; r < rows; ++r, at.next()) f(at.from());
  }
  // f(first element in x, count, of) for the runs that go into `width` outputs whose first elements
  // are at `base`: of(values, i) is the one of element i among values of these outputs.
  template <typename F>
  void for_each_run(int64_t base, int64_t width, F&& f) const {
    for_each_row([&](int64_t offset) {
      if (!by_rows) {
        f(base + offset, width, [](const auto* values, int64_t i) { return values[i]; });
        return;
      }
      for (int64_t at = 0; at < inner; at += kFloatChunk) {
        f(base + offset + at, std::min(kFloatChunk, inner - at),
          [](const auto* values, int64_t) { return values[0]; });
      }
    });
  }
  // Accumulators of `width` outputs, over what transform(first element in x, values, count, buffer,
  // of) makes of their elements: a pointer to as many, for example into the buffer.
  template <typename Op, typename C, typename F>
  void accumulate_of(const Source<C>& x, int64_t base, int64_t width, typename Op::Acc* acc,
                     F&& transform) const {
    C buffer[kFloatChunk];
    Stripes<Op, C> stripes;
    if (!by_rows) std::fill_n(acc, width, Op::kStart);
    for_each_run(base, width, [&](int64_t at, int64_t count, auto of) {
      const C* values = transform(at, x.read(at, count, buffer), count, buffer, of);
      if (by_rows) {
        stripes.take(values, count);
      } else {
        for (int64_t i = 0; i < count; ++i) Op::step(acc[i], values[i]);
      }
    });
    if (by_rows) acc[0] = stripes.result();
  }
  template <typename Op, typename C>
  void accumulate(const Source<C>& x, int64_t base, int64_t width, typename Op::Acc* acc) const {
    accumulate_of<Op>(x, base, width, acc,
                      [](int64_t, const C* values, int64_t, C*, auto) { return values; });
  }
};

}  // namespace lmn::cpu
