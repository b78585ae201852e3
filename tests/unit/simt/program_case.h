// SPDX-License-Identifier: Apache-2.0
//
// A graph as a program on a device with the CUDA device's kernels and as one on the CPU, which must
// agree.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "plan/program/program.h"
#include "tensor_case.h"

namespace simt_tests {

inline graph::ValueId node(graph::Graph* g, graph::Op op, std::vector<graph::ValueId> inputs,
                           ops::Attributes attributes = {}) {
  auto id = g->add(op, std::move(inputs), std::move(attributes), "n", 1);
  ASSERT_OK(id);
  return g->node(*id).outputs[0];
}

inline Tensor dense(DType dtype, const Shape& shape, const std::vector<float>& values) {
  const Tensor tensor = allocate_tensor(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) set_number(tensor, static_cast<int64_t>(i), values[i]);
  return tensor;
}
inline graph::ValueId matrix(graph::Graph* g, int64_t rows, int64_t columns, uint32_t seed) {
  return g->add_constant(
      "w" + std::to_string(seed),
      dense(DType::kF32, {rows, columns}, some_numbers(rows * columns, seed, 0.5f)));
}
inline ops::RuntimeValue value(DType dtype, const Shape& shape, const std::vector<float>& values) {
  ops::RuntimeValue out;
  out.tensor = dense(dtype, shape, values);
  return out;
}
inline std::vector<float> numbers_of(const ops::RuntimeValue& v) {
  std::vector<float> out;
  for (int64_t i = 0; i < v.tensor.shape.elements(); ++i)
    out.push_back(static_cast<float>(number_at(v.tensor, i)));
  return out;
}

struct Both {
  std::unique_ptr<plan::Program> on_device, on_host;

  explicit Both(const graph::Graph& g, plan::ProgramOptions options = {},
                std::shared_ptr<Device> device = test_device()) {
    auto host = plan::Program::create(g, *cpu::create_cpu_device(""), options);
    ASSERT_OK(host);
    on_host = std::move(*host);
    options.accelerator = std::move(device);
    auto other = plan::Program::create(g, *cpu::create_cpu_device(""), options);
    ASSERT_OK(other);
    on_device = std::move(*other);
  }

  void check(const std::vector<ops::RuntimeValue>& inputs, double tolerance = 1e-4) const {
    std::vector<ops::RuntimeValue> have(on_host->outputs().size()), want = have;
    ASSERT_OK(on_host->run(inputs, want, {}));
    ASSERT_OK(on_device->run(inputs, have, {}));
    for (size_t o = 0; o < have.size(); ++o) {
      EXPECT_EQ(have[o].tensor.shape.to_string(), want[o].tensor.shape.to_string());
      const std::vector<float> a = numbers_of(have[o]), b = numbers_of(want[o]);
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance);
    }
  }
  void expect_places(int64_t on_the_device, int64_t on_the_host) const {
    EXPECT_EQ(on_device->place_counts().device, on_the_device);
    EXPECT_EQ(on_device->place_counts().host, on_the_host);
  }
};

}  // namespace simt_tests
