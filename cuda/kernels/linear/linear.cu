// SPDX-License-Identifier: Apache-2.0
//
// Linear: a launch for each run of segments of one type. Which kernel, only the number of rows
// says, and the bits are the same (product.cuh).
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/linear.h"
#include "ops/packed_matrix.h"

namespace lmn::cuda {
namespace {

// Whether the second begins where the first ends, in memory and in the rows.
bool adjoins(const ops::PackedSegment& a, const ops::PackedSegment& b) {
  return a.source == b.source && a.rows % kPanel == 0 && a.offset + a.bytes == b.offset;
}

ActivationRows activations(const ops::LinearArgs& a) {
  const ops::PackedMatrix& w = *a.weight;
  const int64_t bytes = row_bytes(w.input_type, w.columns);
  // Of quantised rows, the scales of every step, too.
  const int64_t unit = w.input_type == DType::kF32 ? 4 : kStep;
  return {a.x.base, bytes, w.columns,
          reinterpret_cast<uintptr_t>(a.x.base) % 16 == 0 && w.columns % unit == 0};
}

// Where few_rows.cuh would read weights, from the cache, more often than arithmetic on a tile of 64
// rows takes.
constexpr int64_t kFewRows = 32;

void launch_segment(DType weight, DType input, const LinearParams& p, ops::LaunchQueue& queue) {
  const bool few = p.rows <= kFewRows;
  if (input == DType::kQA16)
    return few ? launch_few_rows_qa16(weight, p, queue) : launch_tiles_qa16(weight, p, queue);
  if (input == DType::kQA8)
    return few ? launch_few_rows_qa8(weight, p, queue) : launch_tiles_qa8(weight, p, queue);
  if (few || weight == DType::kF32) return launch_few_rows_float(weight, p, queue);
  launch_tiles_half(weight, p, queue);
}

}  // namespace

void launch_op(const ops::LinearArgs& a, ops::LaunchQueue& queue) {
  if (a.rows == 0) return;
  const ops::PackedMatrix& w = *a.weight;
  const int64_t outputs = w.interleaved ? w.rows / 2 : w.rows;
  // By the kernel of few rows, where it has all of them.
  const bool quantizes =
      a.y_quantized != nullptr && a.rows <= kFewRows && (w.interleaved || w.segments.size() == 1);
  for (size_t i = 0; i < w.segments.size();) {
    const ops::PackedSegment& first = w.segments[i];
    int64_t rows = 0, bytes = 0;
    do {
      rows += w.segments[i].rows;
      bytes += w.segments[i].bytes;
    } while (++i < w.segments.size() && adjoins(w.segments[i - 1], w.segments[i]));
    LinearParams p{};
    p.weights = w.data + first.offset;
    p.panel_bytes = panel_bytes(first.source, w.columns);
    p.panels = bytes / p.panel_bytes;
    p.x = activations(a);
    p.rows = a.rows;
    p.gated = w.interleaved;
    p.outputs = w.interleaved ? rows / 2 : rows;
    if (a.bias != nullptr) p.bias = a.bias + first.row_begin;
    if (a.bias != nullptr && p.gated) p.bias_up = a.bias + outputs;
    if (a.residual != nullptr) p.residual = a.residual + first.row_begin;
    p.y = a.y + first.row_begin;
    p.stride = outputs;
    if (quantizes) {
      p.quantized = a.y_quantized;
      p.quantized_wide = a.y_quantized_type == DType::kQA16;
    }
    launch_segment(first.source, w.input_type, p, queue);
  }
  if (a.y_quantized == nullptr || quantizes) return;
  launch_op(ops::QuantizeArgs{a.rows, a.y, {a.y_quantized, 0}, outputs, a.y_quantized_type}, queue);
}

}  // namespace lmn::cuda
