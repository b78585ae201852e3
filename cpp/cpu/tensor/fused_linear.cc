// SPDX-License-Identifier: Apache-2.0
//
// lmnative.Linear: the product of language models' float weights, in panels (panel_layout.h), with
// bias, activation and residual while the outputs are in the cache.
#include <algorithm>

#include "cpu/panel_layout.h"
#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/tensor_kernels.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

struct PackedWeight {
  int64_t inner, columns, panel_size, panels;
  std::vector<std::byte> memory;
  const std::byte* data;  // in memory, 64-byte aligned
};

struct NamedActivation {
  std::string_view name;
  FloatActivation activation;
};
constexpr NamedActivation kActivations[] = {
    {"", FloatActivation::kNone},           {"Relu", FloatActivation::kRelu},
    {"Gelu", FloatActivation::kGelu},       {"GeluTanh", FloatActivation::kGeluTanh},
    {"Silu", FloatActivation::kSilu},       {"Tanh", FloatActivation::kTanh},
    {"Sigmoid", FloatActivation::kSigmoid},
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

// Rows are shared out where there are enough of them, panels of output columns otherwise. Where the
// residual broadcasts, or the product does, every row of y is a product of its own.
Status bind_FusedLinear(const Binding& b) {
  const auto* packed = b.node.prepared<PackedWeight>();
  if (packed == nullptr) return b.node.fail("its weights were not packed");
  const std::string_view wanted = b.node.text("activation", "");
  const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                   [&](const NamedActivation& a) { return a.name == wanted; });
  if (found == std::end(kActivations))
    return b.node.unsupported("activation %s", std::string(wanted).c_str());
  const bool has_bias = b.node.has(2), has_residual = b.node.has(3);
  const int64_t columns = packed->columns, rows = b.outputs[0].shape.rows();
  Shape product = b.node.shape(0);
  product[product.rank - 1] = columns;
  const bool row_by_row =
      has_residual && (product != b.outputs[0].shape || b.node.shape(3) != b.outputs[0].shape);
  BroadcastWalk<2> walk;  // over rows
  if (row_by_row) {
    Shape of_rows = b.outputs[0].shape, x_rows = product, residual_rows = b.node.shape(3);
    for (Shape* shape : {&of_rows, &x_rows, &residual_rows}) shape->rank -= 1;
    walk = make_walk<2>(of_rows, {&x_rows, &residual_rows});
  }
  LinearTask task{};
  task.source = DType::kF32;
  task.input_type = DType::kF32;
  task.columns = packed->inner;
  task.panels = packed->data;
  task.x_row_bytes = packed->inner * static_cast<int64_t>(sizeof(float));
  task.channels = columns;
  task.y_stride = columns;
  task.activation = found->activation;
  const auto linear = b.isa.linear;
  const int64_t panels = packed->panels;
  constexpr int64_t kLeastRows = 16;  // of one worker's share
  b.kernel.splits = true;
  b.kernel.cost = 50 + static_cast<double>(rows * packed->inner * columns) / 25;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const bool by_rows = rows >= kLeastRows * worker.parts;
    const auto [row, row_end] = by_rows ? ops::share_of(rows, worker) : ops::Share{0, rows};
    LinearTask t = task;
    t.panel_begin = by_rows ? 0 : ops::share_of(panels, worker).begin;
    t.panel_end = by_rows ? panels : ops::share_of(panels, worker).end;
    if (row >= row_end || t.panel_begin >= t.panel_end) return;
    t.bias = has_bias ? io.input<float>(2) : nullptr;
    const auto run = [&](int64_t x_row, int64_t residual_row, int64_t y_row, int64_t count) {
      t.rows = count;
      t.x = io.input<std::byte>(0) + x_row * t.x_row_bytes;
      t.residual = has_residual ? io.input<float>(3) + residual_row * columns : nullptr;
      t.y = io.output<float>(0) + y_row * columns;
      linear(t);
    };
    if (!row_by_row) return run(row, row, row, row_end - row);
    for (int64_t r = row; r < row_end; ++r) {
      const auto offsets = walk.offsets(r / walk.inner());
      const int64_t in_run = r % walk.inner();
      run(offsets[0] + in_run * walk.inner_stride(0), offsets[1] + in_run * walk.inner_stride(1), r,
          1);
    }
  });
  return {};
}

}  // namespace lmn::cpu
