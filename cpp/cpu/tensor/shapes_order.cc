// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/shapes.def that compare elements of an axis, or run along it. A NaN counts
// as larger than every number in TopK, and as the extreme in ArgMax and ArgMin; of equal elements
// the first one comes first.
#include "cpu/tensor/lanes.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Where the extreme of each of `width` lanes is.
template <typename T, bool kLargest, bool kLast>
void extremes(const T* x, const Lanes& lanes, int64_t width, int64_t* where) {
  T best[Lanes::kBlock];
  std::copy_n(x, width, best);
  std::fill_n(where, width, int64_t{0});
  for (int64_t a = 1; a < lanes.size; ++a) {
    const T* row = x + a * lanes.inner;
    for (int64_t i = 0; i < width; ++i) {
      const bool beyond = kLargest ? row[i] > best[i] : row[i] < best[i];
      const bool equal = row[i] == best[i] || (is_nan(row[i]) && is_nan(best[i]));
      if ((!is_nan(best[i]) && (beyond || is_nan(row[i]))) || (kLast && equal)) {
        best[i] = row[i];
        where[i] = a;
      }
    }
  }
}

// f(TypeTag<T>, kernel of extremes) for the type and attributes of a node.
template <bool kLargest, typename F>
Status with_extremes(const Binding& b, bool last, F&& f) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    return f(tag, last ? extremes<T, kLargest, true> : extremes<T, kLargest, false>);
  });
}

template <bool kLargest>
Status bind_arg(const Binding& b) {
  int64_t axis = 0;
  const Shape& x = b.node.shape(0);
  if (x.rank > 0) {
    LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), x.rank, &axis));
  }
  const Lanes lanes(x, static_cast<int>(axis));
  const bool last = b.node.integer("select_last_index", 0) != 0;
  return with_extremes<kLargest>(b, last, [&](auto tag, auto find) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([lanes, find](const Operands& io, const Worker& worker) {
      lanes.for_each_block(worker, [&](int64_t first, int64_t width, int64_t lane) {
        find(io.input<T>(0) + first, lanes, width, io.output<int64_t>(0) + lane);
      });
    });
    return {};
  });
}

// Running sums or products of `width` lanes.
template <typename T, bool kProduct>
void run_along(const Lanes& lanes, bool exclusive, bool reverse, const T* x, T* y, int64_t width) {
  TotalOf<T> total[Lanes::kBlock];
  std::fill_n(total, width, TotalOf<T>(kProduct ? 1 : 0));
  for (int64_t n = 0; n < lanes.size; ++n) {
    const int64_t a = (reverse ? lanes.size - 1 - n : n) * lanes.inner;
    for (int64_t i = 0; i < width; ++i) {
      const TotalOf<T> before = total[i], value = static_cast<TotalOf<T>>(x[a + i]);
      total[i] = kProduct ? before * value : before + value;
      y[a + i] = static_cast<T>(exclusive ? before : total[i]);
    }
  }
}

template <bool kProduct>
Status bind_running(const Binding& b) {
  const Shape x = b.node.shape(0);
  const bool knows_axis = b.node.knows(1), wide_axis = b.node.dtype(1) == DType::kI64;
  int64_t axis = 0;
  if (knows_axis) LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integers(1)[0], x.rank, &axis));
  const Lanes known_lanes(x, static_cast<int>(axis));
  const bool exclusive = b.node.integer("exclusive", 0) != 0;
  const bool reverse = b.node.integer("reverse", 0) != 0;
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      Lanes lanes = known_lanes;
      if (!knows_axis) {
        int64_t given = wide_axis ? *io.input<int64_t>(1) : *io.input<int32_t>(1);
        if (given < 0) given += x.rank;
        if (given < 0 || given >= x.rank) return io.fail("axis is out of range");
        lanes = Lanes(x, static_cast<int>(given));
      }
      lanes.for_each_block(worker, [&](int64_t first, int64_t width, int64_t) {
        run_along<T, kProduct>(lanes, exclusive, reverse, io.input<T>(0) + first,
                               io.output<T>(0) + first, width);
      });
    });
    return {};
  });
}

// An element of a lane and where it is.
template <typename T>
struct Ranked {
  T value;
  int64_t index;
};

// Whether `a` comes before `b`: a total order, so that the result is one whatever the algorithm.
template <typename T, bool kLargest>
bool precedes(const Ranked<T>& a, const Ranked<T>& b) {
  const bool nan_a = is_nan(a.value), nan_b = is_nan(b.value);
  if (nan_a != nan_b) return nan_a == kLargest;
  if (!nan_a) {
    if (a.value < b.value) return !kLargest;
    if (b.value < a.value) return kLargest;
  }
  return a.index < b.index;
}

// The first k of a lane, in order, at the front of `items`.
template <typename T, bool kLargest>
void rank_first(Ranked<T>* items, int64_t size, int64_t k) {
  if (k == 0) return;
  // A heap of k beats a partition of all where k is small.
  if (k * 8 <= size) {
    std::partial_sort(items, items + k, items + size, precedes<T, kLargest>);
    return;
  }
  if (k < size) std::nth_element(items, items + (k - 1), items + size, precedes<T, kLargest>);
  std::sort(items, items + k, precedes<T, kLargest>);
}

}  // namespace

Status bind_ArgMax(const Binding& b) { return bind_arg<true>(b); }
Status bind_ArgMin(const Binding& b) { return bind_arg<false>(b); }
Status bind_CumSum(const Binding& b) { return bind_running<false>(b); }
Status bind_CumProd(const Binding& b) { return bind_running<true>(b); }

Status bind_Hardmax(const Binding& b) {
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -1), b.node.rank(0), &axis));
  const Lanes lanes(b.node.shape(0), static_cast<int>(axis));
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([lanes](const Operands& io, const Worker& worker) {
      if (lanes.size == 0) return;
      lanes.for_each_block(worker, [&](int64_t first, int64_t width, int64_t) {
        int64_t where[Lanes::kBlock];
        extremes<T, true, false>(io.input<T>(0) + first, lanes, width, where);
        T* y = io.output<T>(0) + first;
        for (int64_t a = 0; a < lanes.size; ++a) std::fill_n(y + a * lanes.inner, width, T(0.0f));
        for (int64_t i = 0; i < width; ++i) y[where[i] * lanes.inner + i] = T(1.0f);
      });
    });
    return {};
  });
}

Status bind_TopK(const Binding& b) {
  const Shape& x = b.node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -1), x.rank, &axis));
  const Lanes lanes(x, static_cast<int>(axis));
  const int64_t k = b.outputs[0].shape[static_cast<int>(axis)];
  const bool largest = b.node.integer("largest", 1) != 0, has_indices = b.node.outputs() > 1;
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = static_cast<size_t>(lanes.size) * sizeof(Ranked<T>);
    // Comparisons, and cache misses of lanes that are strided.
    b.kernel.cost = 8.0 * static_cast<double>(x.elements());
    const auto rank = largest ? rank_first<T, true> : rank_first<T, false>;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      auto* items = reinterpret_cast<Ranked<T>*>(worker.scratch);
      T* values = io.output<T>(0);
      int64_t* indices = has_indices ? io.output<int64_t>(1) : nullptr;
      const auto [begin, end] = ops::share_of(lanes.count(), worker);
      for (int64_t lane = begin; lane < end; ++lane) {
        const int64_t o = lane / lanes.inner, i = lane % lanes.inner;
        const T* from = io.input<T>(0) + o * lanes.size * lanes.inner + i;
        for (int64_t a = 0; a < lanes.size; ++a) items[a] = {from[a * lanes.inner], a};
        rank(items, lanes.size, k);
        for (int64_t n = 0; n < k; ++n) {
          const int64_t to = (o * k + n) * lanes.inner + i;
          if (values != nullptr) values[to] = items[n].value;
          if (indices != nullptr) indices[to] = items[n].index;
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
