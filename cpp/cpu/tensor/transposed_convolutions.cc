// SPDX-License-Identifier: Apache-2.0
//
// Kernels of ConvTranspose and Col2Im: outputs gather what windows spread, so that each is written
// once, by one worker, in one order.
#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "cpu/tensor/product.h"
#include "cpu/tensor/windows.h"
#include "ops/infer/convolutions.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

// Outputs o of one residue of (o + pad) modulo stride take the same taps: those whose distance has
// that residue. Taps of every dimension, ordered by residue and then by number.
struct Phases {
  struct Dimension {
    std::vector<int64_t> taps, residues;
    int64_t count;  // residues that occur in the output
  };
  std::vector<Dimension> dimensions;
};

Phases make_phases(const Windows& w) {
  Phases phases;
  for (int d = 0; d < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    Phases::Dimension dimension;
    dimension.taps.resize(static_cast<size_t>(w.kernel[i]));
    std::iota(dimension.taps.begin(), dimension.taps.end(), int64_t{0});
    const auto residue = [&](int64_t tap) { return tap * w.dilation[i] % w.stride[i]; };
    std::stable_sort(dimension.taps.begin(), dimension.taps.end(),
                     [&](int64_t a, int64_t b) { return residue(a) < residue(b); });
    for (int64_t tap : dimension.taps) dimension.residues.push_back(residue(tap));
    dimension.count = std::min(w.stride[i], w.out[i]);
    phases.dimensions.push_back(std::move(dimension));
  }
  return phases;
}

// One phase: outputs first + stride * j, and their taps.
struct Phase {
  SpatialSizes first{}, sizes{}, tap_count{};
  std::array<const int64_t*, ops::kMaxSpatial> taps{};
};

Phase make_phase(const Windows& w, const Phases& phases, int64_t index) {
  Phase phase;
  for (int d = w.rank - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    const Phases::Dimension& dimension = phases.dimensions[i];
    phase.first[i] = index % dimension.count;
    index /= dimension.count;
    phase.sizes[i] = (w.out[i] - phase.first[i] + w.stride[i] - 1) / w.stride[i];
    const int64_t residue = (phase.first[i] + w.pad_begin[i]) % w.stride[i];
    const auto [begin, end] =
        std::equal_range(dimension.residues.begin(), dimension.residues.end(), residue);
    phase.taps[i] = dimension.taps.data() + (begin - dimension.residues.begin());
    phase.tap_count[i] = end - begin;
  }
  return phase;
}

int64_t product(const SpatialSizes& sizes, int rank) {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= sizes[static_cast<size_t>(i)];
  return n;
}

// The tap with these digits, as an index into the kernel.
int64_t tap_index(const Windows& w, const Phase& phase, const SpatialSizes& digits) {
  int64_t index = 0;
  for (int d = 0; d < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    index = index * w.kernel[i] + phase.taps[i][digits[i]];
  }
  return index;
}

// Weights [channels, outputs, taps] as rows of outputs.
template <typename T>
struct WeightPacker {
  const Windows& w;
  const Phase& phase;
  const T* weights;  // of the group's first channel and output
  int64_t outputs;   // of a group
  int64_t taps, all_taps;

  void operator()(int64_t row, int64_t count, int64_t k, int64_t depth, Sum<T>* to) const {
    SpatialSizes digits{};
    unravel(k % taps, phase.tap_count, w.rank, &digits);
    for (int64_t i = 0; i < depth; ++i, advance(phase.tap_count, w.rank, &digits)) {
      const T* const from = weights + (k + i) / taps * outputs * all_taps +
                            tap_index(w, phase, digits) + row * all_taps;
      for (int64_t r = 0; r < count; ++r)
        to[i * kMicroRows + r] = static_cast<Sum<T>>(from[r * all_taps]);
    }
  }
};

// The image, for outputs of one phase: x at (o + pad - tap * dilation) / stride.
template <typename T>
struct SpreadPacker {
  const Windows& w;
  const Phase& phase;
  const T* image;
  int64_t taps;

  void operator()(int64_t position, int64_t count, int64_t k, int64_t depth, Sum<T>* to) const {
    const auto last = static_cast<size_t>(w.rank - 1);
    const int64_t inputs = w.inputs();
    for_rows(phase.sizes, w.rank, position, count,
             [&](const SpatialSizes& at, int64_t column, int64_t n) {
               SpatialSizes digits{};
               unravel(k % taps, phase.tap_count, w.rank, &digits);
               for (int64_t i = 0; i < depth; ++i, advance(phase.tap_count, w.rank, &digits)) {
                 Sum<T>* const out = to + i * kTileColumns + column;
                 int64_t offset = 0;
                 bool inside = true;
                 for (int d = 0; d + 1 < w.rank && inside; ++d) {
                   const auto j = static_cast<size_t>(d);
                   const int64_t from = source(j, at[j], digits[j]);
                   inside = from >= 0 && from < w.in[j];
                   offset = offset * w.in[j] + from;
                 }
                 if (!inside) {
                   std::fill_n(out, n, Sum<T>{});
                   continue;
                 }
                 const int64_t first = source(last, at[last], digits[last]);
                 const auto [begin, end] = reach(first, 1, w.in[last], n);
                 const T* const from =
                     image + (k + i) / taps * inputs + offset * w.in[last] + first;
                 std::fill(out, out + begin, Sum<T>{});
                 for (int64_t j = begin; j < end; ++j) out[j] = static_cast<Sum<T>>(from[j]);
                 std::fill(out + end, out + n, Sum<T>{});
               }
             });
  }
  // An exact quotient: the phase has seen to it.
  int64_t source(size_t d, int64_t at, int64_t digit) const {
    return (phase.first[d] + w.pad_begin[d] - phase.taps[d][digit] * w.dilation[d]) / w.stride[d] +
           at;
  }
};

}  // namespace

Status bind_ConvTranspose(const Binding& b) {
  ops::Convolution c;
  LMN_RETURN_IF_ERROR(read_transposed_convolution(b.node, &c));
  const auto phases = std::make_shared<const Phases>(make_phases(c.windows));
  const bool has_bias = b.node.has(2);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = product_scratch_bytes<Sum<T>>();
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const Windows& w = c.windows;
      const int64_t rows = c.outputs / c.groups, channels = c.channels / c.groups;
      const int64_t all_taps = w.taps(), outputs = w.outputs();
      int64_t phase_count = 1;
      for (const auto& dimension : phases->dimensions) phase_count *= dimension.count;
      const int64_t units = c.batch * c.groups * phase_count;
      const bool whole = units >= 4 * worker.parts;
      const auto [begin, end] = whole ? ops::share_of(units, worker) : ops::Share{0, units};
      const T* const bias = has_bias ? io.input<T>(2) : nullptr;
      T* const out = io.output<T>(0);
      const auto last = static_cast<size_t>(w.rank - 1);
      for (int64_t unit = begin; unit < end; ++unit) {
        const Phase phase = make_phase(w, *phases, unit % phase_count);
        const int64_t image = unit / phase_count, group = image % c.groups;
        const int64_t taps = product(phase.tap_count, w.rank);
        const int64_t positions = product(phase.sizes, w.rank);
        const ProductShare share =
            whole ? ProductShare{0, rows, 0, positions} : share_product(rows, positions, worker);
        const WeightPacker<T> pack_rows{
            w, phase, io.input<T>(1) + group * channels * rows * all_taps, rows, taps, all_taps};
        const SpreadPacker<T> pack_columns{w, phase, io.input<T>(0) + image * channels * w.inputs(),
                                           taps};
        const auto store = [&](int64_t row, int64_t column, int64_t count, Sum<T>* sums) {
          if (bias != nullptr) {
            const Sum<T> value = static_cast<Sum<T>>(bias[group * rows + row]);
            for (int64_t i = 0; i < count; ++i) sums[i] += value;
          }
          T* const plane = out + (image * rows + row) * outputs;
          for_rows(phase.sizes, w.rank, column, count,
                   [&](const SpatialSizes& at, int64_t from, int64_t n) {
                     int64_t offset = 0;
                     for (int d = 0; d < w.rank; ++d) {
                       const auto i = static_cast<size_t>(d);
                       offset = offset * w.out[i] + phase.first[i] + at[i] * w.stride[i];
                     }
                     for (int64_t i = 0; i < n; ++i)
                       plane[offset + i * w.stride[last]] = static_cast<T>(sums[from + i]);
                   });
        };
        blocked_product<Sum<T>>(share.row_begin, share.row_end, share.column_begin,
                                share.column_end, taps == 0 ? 0 : channels * taps, worker.scratch,
                                pack_rows, pack_columns, store);
      }
    });
    return {};
  });
}

Status bind_Col2Im(const Binding& b) {
  Windows w;
  LMN_RETURN_IF_ERROR(read_image(b.node, &w));
  const int64_t planes = b.outputs[0].shape[0] * b.outputs[0].shape[1];
  const auto bind_as = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const int64_t taps = w.taps(), blocks = w.inputs(), outputs = w.outputs();
      const T* const x = io.input<T>(0);
      T* const y = io.output<T>(0);
      const auto [begin, end] = ops::share_of(planes * outputs, worker);
      for (int64_t at = begin; at < end; ++at) {
        const T* const columns = x + at / outputs * taps * blocks;
        SpatialSizes out{}, tap{};
        unravel(at % outputs, w.out, w.rank, &out);
        Sum<T> sum{};
        for (int64_t t = 0; t < taps; ++t, advance(w.kernel, w.rank, &tap)) {
          int64_t block = 0;
          bool inside = true;
          for (int d = 0; d < w.rank && inside; ++d) {
            const auto i = static_cast<size_t>(d);
            const int64_t from = out[i] + w.pad_begin[i] - tap[i] * w.dilation[i];
            inside = from >= 0 && from % w.stride[i] == 0 && from / w.stride[i] < w.in[i];
            block = block * w.in[i] + from / w.stride[i];
          }
          if (inside)
            sum = static_cast<Sum<T>>(sum + static_cast<Sum<T>>(columns[t * blocks + block]));
        }
        y[at] = static_cast<T>(sum);
      }
    });
    return {};
  };
  if (b.node.dtype(0) == DType::kBool) return bind_as(TypeTag<uint8_t>{});
  return with_number(b.node, b.node.dtype(0), bind_as);
}

}  // namespace lmn::cpu
