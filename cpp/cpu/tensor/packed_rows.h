// SPDX-License-Identifier: Apache-2.0
//
// A constant float32 matrix whose rows are output channels, in the panels of language models' float
// weights (panel_layout.h), for kernels that multiply by it inside of something else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kernels/isa.h"
#include "cpu/panel_layout.h"

namespace lmn::cpu {

class PackedRows {
 public:
  PackedRows(const IsaKernels& isa, const float* w, int64_t rows, int64_t inner) {
    constexpr size_t kAlignment = 64;
    const int64_t lanes = isa.float_lanes, panel_size = panel_bytes(DType::kF32, inner, lanes);
    const int64_t panels = (rows + lanes - 1) / lanes;
    memory_.resize(static_cast<size_t>(panels * panel_size) + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    std::byte* const data = memory_.data() + (kAlignment - address % kAlignment) % kAlignment;
    for (int64_t i = 0; i < panels && inner > 0; ++i) {
      const auto* const from = reinterpret_cast<const std::byte*>(w + i * lanes * inner);
      isa.pack({DType::kF32, DType::kF32, inner, from, std::min(lanes, rows - i * lanes),
                data + i * panel_size});
    }
    task_.source = task_.input_type = DType::kF32;
    task_.columns = inner;
    task_.panels = data;
    task_.panel_end = panels;
    task_.channels = rows;
    linear_ = isa.linear;
  }
  PackedRows(PackedRows&&) = default;

  // y[r][o] += w[o] . x[r] for all channels o; rows are `stride` elements apart. The order of a sum
  // depends on nothing but the length of the row.
  void add_products(const float* x, int64_t x_stride, int64_t rows, float* y,
                    int64_t y_stride) const {
    LinearTask t = task_;
    t.rows = rows;
    t.x = reinterpret_cast<const std::byte*>(x);
    t.x_row_bytes = x_stride * static_cast<int64_t>(sizeof(float));
    t.residual = t.y = y;
    t.y_stride = y_stride;
    linear_(t);
  }

 private:
  std::vector<std::byte> memory_;
  LinearTask task_{};
  void (*linear_)(const LinearTask&);
};

}  // namespace lmn::cpu
