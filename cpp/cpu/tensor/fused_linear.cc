// SPDX-License-Identifier: Apache-2.0
//
// lmnative.Linear: the product of language models' float weights, in panels (panel_layout.h), with
// bias, activation and residual while the outputs are in the cache.
#include <algorithm>
#include <cstring>

#include "cpu/panel_layout.h"
#include "cpu/tensor/tensor_kernels.h"
#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

struct PackedWeight {
  int64_t inner, columns, panel_size, panels;
  std::vector<std::byte> memory;
  const std::byte* data;  // in memory, 64-byte aligned
};

// f over `count` floats from x to y, which may be x.
using Activation = void (*)(const float* x, float* y, int64_t count);

template <float (*kFunction)(float)>
void apply(const float* x, float* y, int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = kFunction(x[i]);
}

float relu(float x) { return x < 0 ? 0.0f : x; }  // a NaN stays one
inline float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + vector_math::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

struct NamedActivation {
  std::string_view name;
  Activation apply;
};
constexpr NamedActivation kActivations[] = {
    {"", nullptr},
    {"Relu", apply<relu>},
    {"Gelu", apply<vector_math::gelu>},
    {"GeluTanh", apply<gelu_tanh>},
    {"Silu", apply<vector_math::silu>},
    {"Tanh", apply<vector_math::tanh>},
    {"Sigmoid", apply<vector_math::sigmoid>},
};

}  // namespace

Status prepare_FusedLinear(const Preparation& p) {
  const bool transposed = p.node.integer("transposed", 0) != 0;
  const Shape& shape = p.node.shape(1);
  const float* w = p.node.data<float>(1);
  if (w == nullptr) return p.node.fail("W is no constant");
  auto packed = std::make_shared<PackedWeight>();
  packed->inner = shape[transposed ? 1 : 0];
  packed->columns = shape[transposed ? 0 : 1];
  const int64_t lanes = p.isa.float_lanes;
  packed->panel_size = panel_bytes(DType::kF32, packed->inner, lanes);
  packed->panels = (packed->columns + lanes - 1) / lanes;
  constexpr size_t kAlignment = 64;
  packed->memory.resize(static_cast<size_t>(packed->panels * packed->panel_size) + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(packed->memory.data());
  std::byte* data = packed->memory.data() + (kAlignment - address % kAlignment) % kAlignment;
  packed->data = data;
  std::vector<float> rows;  // of one panel, where the file has columns
  for (int64_t panel = 0; panel < packed->panels && packed->inner > 0; ++panel) {
    const int64_t first = panel * lanes, valid = std::min(lanes, packed->columns - first);
    const float* source = w + first * packed->inner;
    if (!transposed) {
      rows.resize(static_cast<size_t>(lanes * packed->inner));
      for (int64_t k = 0; k < packed->inner; ++k) {
        for (int64_t lane = 0; lane < valid; ++lane)
          rows[static_cast<size_t>(lane * packed->inner + k)] =
              w[k * packed->columns + first + lane];
      }
      source = rows.data();
    }
    p.isa.pack({DType::kF32, DType::kF32, packed->inner, reinterpret_cast<const std::byte*>(source),
                valid, data + panel * packed->panel_size});
  }
  p.prepared = std::move(packed);
  return {};
}

// Rows are shared out where there are enough of them, panels of output columns otherwise.
Status bind_FusedLinear(const Binding& b) {
  const auto* packed = b.node.prepared<PackedWeight>();
  if (packed == nullptr) return b.node.fail("its weights were not packed");
  const std::string_view wanted = b.node.text("activation", "");
  const auto* activation = std::find_if(std::begin(kActivations), std::end(kActivations),
                                        [&](const NamedActivation& a) { return a.name == wanted; });
  if (activation == std::end(kActivations))
    return b.node.unsupported("activation %s", std::string(wanted).c_str());
  const Activation apply = activation->apply;
  const Shape& x = b.node.shape(0);
  const int64_t rows = x.rows(), inner = packed->inner, columns = packed->columns;
  const auto linear = b.isa.linear;
  const int64_t lanes = b.isa.float_lanes;
  const bool has_bias = b.node.has(2), has_residual = b.node.has(3);
  constexpr int64_t kLeastRows = 16;  // of one worker's share
  b.kernel.splits = true;
  b.kernel.cost = 50 + static_cast<double>(rows * inner * columns) / 25;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const bool by_rows = rows >= kLeastRows * worker.parts;
    const auto [row, row_end] = by_rows ? ops::share_of(rows, worker) : ops::Share{0, rows};
    const auto [panel, panel_end] =
        by_rows ? ops::Share{0, packed->panels} : ops::share_of(packed->panels, worker);
    if (row >= row_end || panel >= panel_end) return;
    const float* residual = has_residual ? io.input<float>(3) : nullptr;
    float* y = io.output<float>(0);
    const bool late_residual = apply != nullptr && residual != nullptr;
    LinearTask t{};
    t.source = DType::kF32;
    t.input_type = DType::kF32;
    t.columns = inner;
    t.panels = packed->data;
    t.panel_begin = panel;
    t.panel_end = panel_end;
    t.rows = row_end - row;
    t.x = reinterpret_cast<const std::byte*>(io.input<float>(0) + row * inner);
    t.x_row_bytes = inner * static_cast<int64_t>(sizeof(float));
    t.channels = columns;
    t.bias = has_bias ? io.input<float>(2) : nullptr;
    t.y_stride = columns;
    t.y = y + row * columns;
    t.residual = residual == nullptr || late_residual ? nullptr : residual + row * columns;
    linear(t);
    if (apply == nullptr) return;
    const int64_t first = panel * lanes, count = std::min(panel_end * lanes, columns) - first;
    for (int64_t r = row; r < row_end; ++r) {
      float* at = y + r * columns + first;
      apply(at, at, count);
      if (late_residual) {
        const float* add = residual + r * columns + first;
        for (int64_t i = 0; i < count; ++i) at[i] += add[i];
      }
    }
  });
  return {};
}

}  // namespace lmn::cpu
