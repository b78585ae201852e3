// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/shapes.def that put elements where indices say. Every worker owns a part of
// the output and applies what belongs there in the order of the updates, so that sums are the same
// for every split. An index that is out of range is an error of the run and writes nothing.
#include <string>

#include "cpu/tensor/box_copy.h"
#include "cpu/tensor/indices.h"
#include "cpu/tensor/lanes.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// What an update does to the element that is there.
struct Replace {
  template <typename T>
  static void apply(T& to, const T& x) {
    to = x;
  }
};
struct Add {
  template <typename T>
  static void apply(T& to, const T& x) {
    to = static_cast<T>(static_cast<TotalOf<T>>(to) + static_cast<TotalOf<T>>(x));
  }
};
struct Multiply {
  template <typename T>
  static void apply(T& to, const T& x) {
    to = static_cast<T>(static_cast<TotalOf<T>>(to) * static_cast<TotalOf<T>>(x));
  }
};
struct Maximum {
  template <typename T>
  static void apply(T& to, const T& x) {
    if (x > to || is_nan(x)) to = x;
  }
};
struct Minimum {
  template <typename T>
  static void apply(T& to, const T& x) {
    if (x < to || is_nan(x)) to = x;
  }
};

// f(TypeTag<T>, Update) for the element type and the reduction of a node.
template <typename F>
Status with_update(const ops::TensorNode& node, F&& f) {
  const std::string_view reduction = node.text("reduction", "none");
  if (reduction == "none") {
    return with_element(node, node.dtype(0), [&](auto tag) { return f(tag, Replace{}); });
  }
  return with_number(node, node.dtype(0), [&](auto tag) {
    return reduction == "add"   ? f(tag, Add{})
           : reduction == "mul" ? f(tag, Multiply{})
           : reduction == "max" ? f(tag, Maximum{})
                                : f(tag, Minimum{});
  });
}

}  // namespace

// Lanes of indices and updates lie on lanes of the data with the same place in all other
// dimensions. Where these are the same, lanes are shared out; where indices cover a part only, one
// worker does all.
Status bind_ScatterElements(const Binding& b) {
  const Shape x = b.node.shape(0), indices = b.node.shape(1);
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), x.rank, &axis));
  const Lanes lanes(x, static_cast<int>(axis)), from(indices, static_cast<int>(axis));
  const bool narrow = b.node.dtype(1) == DType::kI32;
  bool whole = true;
  for (int i = 0; i < x.rank; ++i) whole = whole && (i == axis || indices[i] == x[i]);
  const auto strides = dense_strides(x);
  Box box;  // first elements of the lanes of indices, in the data, when they are a part
  for (int i = 0; i < x.rank && !whole; ++i) {
    if (i != axis) box.add(indices[i], strides[static_cast<size_t>(i)], 0);
  }
  return with_update(b.node, [&](auto tag, auto update) -> Status {
    using T = typename decltype(tag)::type;
    using Update = decltype(update);
    b.kernel.splits = whole;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const T *data = io.input<T>(0), *updates = io.input<T>(2);
      const Indices index(io, 1, narrow);
      T* y = io.output<T>(0);
      const auto apply = [&](int64_t at, T* lane) {
        int64_t target;
        if (resolve_index(index[at], lanes.size, &target)) {
          Update::apply(lane[target * lanes.inner], updates[at]);
        } else {
          io.fail("ScatterElements: an index is out of range");
        }
      };
      if (whole) {
        lanes.for_each_block(worker, [&](int64_t first, int64_t width, int64_t lane) {
          for (int64_t a = 0; a < lanes.size && data != y; ++a) {
            const int64_t at = first + a * lanes.inner;
            std::copy_n(data + at, width, y + at);
          }
          const int64_t source = lane / lanes.inner * from.size * lanes.inner + lane % lanes.inner;
          for (int64_t a = 0; a < from.size; ++a) {
            for (int64_t i = 0; i < width; ++i) apply(source + a * lanes.inner + i, y + first + i);
          }
        });
        return;
      }
      if (data != y) std::copy_n(data, lanes.count() * lanes.size, y);
      if (from.count() == 0) return;
      box_copy::Odometer at(box, box.rank, -1, 0);
      for (int64_t lane = 0; lane < from.count(); ++lane, at.next()) {
        const int64_t source = lane / from.inner * from.size * from.inner + lane % from.inner;
        for (int64_t a = 0; a < from.size; ++a) apply(source + a * from.inner, y + at.from());
      }
    });
    return {};
  });
}

Status bind_ScatterND(const Binding& b) {
  const Shape &x = b.node.shape(0), &indices = b.node.shape(1);
  const int depth = static_cast<int>(indices.last());
  const bool narrow = b.node.dtype(1) == DType::kI32;
  const int64_t elements = x.elements();
  std::array<int64_t, kMaxRank> sizes{};
  int64_t slice = 1, tuples = 1;
  for (int i = 0; i < depth; ++i) sizes[static_cast<size_t>(i)] = x[i];
  for (int i = depth; i < x.rank; ++i) slice *= x[i];
  for (int i = 0; i + 1 < indices.rank; ++i) tuples *= indices[i];
  return with_update(b.node, [&](auto tag, auto update) -> Status {
    using T = typename decltype(tag)::type;
    using Update = decltype(update);
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const T *data = io.input<T>(0), *updates = io.input<T>(2);
      const Indices index(io, 1, narrow);
      T* y = io.output<T>(0);
      const auto [begin, end] = ops::share_of(elements, worker);
      if (data != y) std::copy(data + begin, data + end, y + begin);
      for (int64_t t = 0; t < tuples; ++t) {
        int64_t row = 0;
        bool inside = true;
        for (int i = 0; i < depth; ++i) {
          int64_t at;
          const int64_t size = sizes[static_cast<size_t>(i)];
          inside = resolve_index(index[t * depth + i], size, &at) && inside;
          row = inside ? row * size + at : 0;
        }
        if (!inside) {
          io.fail("ScatterND: an index is out of range");
          continue;
        }
        // What of the slice is this worker's.
        const int64_t first = std::max(begin, row * slice), last = std::min(end, (row + 1) * slice);
        const T* from = updates + t * slice - row * slice;
        for (int64_t i = first; i < last; ++i) Update::apply(y[i], from[i]);
      }
    });
    return {};
  });
}

Status bind_TensorScatter(const Binding& b) {
  const Shape &x = b.node.shape(0), &update = b.node.shape(1);
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -2), x.rank, &axis));
  const Lanes lanes(x, static_cast<int>(axis));
  const int64_t steps = update[static_cast<int>(axis)];
  const int64_t per_batch = x[0] == 0 ? 1 : lanes.outer / x[0];
  const bool circular = b.node.text("mode", "linear") == "circular", indexed = b.node.has(2);
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const int64_t row = lanes.size * lanes.inner;
      const auto [begin, end] = ops::share_of(lanes.outer, worker);
      for (int64_t o = begin; o < end; ++o) {
        const T *data = io.input<T>(0) + o * row, *from = io.input<T>(1) + o * steps * lanes.inner;
        T* y = io.output<T>(0) + o * row;
        if (data != y) std::copy_n(data, row, y);
        const int64_t first = indexed ? io.input<int64_t>(2)[o / per_batch] : 0;
        if (first < 0 || (!circular && first > lanes.size - steps)) {
          io.fail("TensorScatter: a write index is out of range");
          continue;
        }
        for (int64_t s = 0; s < steps; ++s) {
          const int64_t to = circular ? (first % lanes.size + s) % lanes.size : first + s;
          std::copy_n(from + s * lanes.inner, lanes.inner, y + to * lanes.inner);
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
