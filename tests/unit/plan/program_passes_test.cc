// SPDX-License-Identifier: Apache-2.0
//
// Graphs of convolutions and of quantised products before and after all passes: the same results,
// and these the same bits for every batch and team.
#include <cmath>
#include <cstring>

#include "../graph/tensor_graph.h"
#include "cpu/cpu_device.h"
#include "graph/passes/passes.h"
#include "ops/kernel.h"
#include "parallel/thread_team.h"
#include "plan/program/program.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace graph_test;
using plan::Program;

std::vector<float> draw(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1.0f);
  }
  return values;
}

std::vector<float> run(const Graph& g, std::string_view target, const Shape& shape,
                       const std::vector<float>& x, int workers = 1) {
  auto device = cpu::create_cpu_device(target);
  ASSERT(device.ok());
  auto program = Program::create(g, std::move(*device), {});
  ASSERT_OK(program.status());
  auto memory = std::make_shared<std::vector<float>>(x);
  std::vector<ops::RuntimeValue> in(1), out(1);
  in[0].tensor = {DType::kF32, shape, reinterpret_cast<std::byte*>(memory->data()), memory};
  auto team = parallel::ThreadTeam::create({.threads = workers});
  ASSERT(team.ok());
  ASSERT_OK((*program)->run(in, out, {.team = workers > 1 ? team->get() : nullptr}));
  const Tensor& y = out[0].tensor;
  return {y.as<float>(), y.as<float>() + y.shape.elements()};
}

Graph optimized(const Graph& g) {
  PassOptions options;
  options.linear_input_type = [](DType, int64_t, bool) -> Result<DType> { return DType::kF32; };
  Result<Graph> result = optimize(g, options);
  ASSERT_OK(result.status());
  return std::move(*result);
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT(a.size() == b.size());
  float most = 0;
  for (float v : a) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) EXPECT(std::abs(a[i] - b[i]) <= 1e-5f * most);
}

// Images one by one, in one batch, by one worker and by several: the same bits.
void expect_same_for_all(const Graph& g, std::string_view target, const Shape& one,
                         const std::vector<float>& x, const std::vector<float>& want) {
  const auto inner = static_cast<size_t>(one.elements());
  for (int workers : {1, 2, 3}) {
    Shape all = one;
    all[0] = static_cast<int64_t>(x.size() / inner);
    const std::vector<float> together = run(g, target, all, x, workers);
    EXPECT(std::memcmp(together.data(), want.data(), want.size() * sizeof(float)) == 0);
    std::vector<float> apart;
    for (size_t i = 0; i < x.size(); i += inner) {
      const std::vector<float> image(x.begin() + static_cast<ptrdiff_t>(i),
                                     x.begin() + static_cast<ptrdiff_t>(i + inner));
      const std::vector<float> y = run(g, target, one, image, workers);
      apart.insert(apart.end(), y.begin(), y.end());
    }
    EXPECT(apart == want);
  }
}

ValueId constant_of(Graph* g, const char* name, const Shape& shape, uint32_t seed) {
  return floats(g, name, shape, draw(shape.elements(), seed));
}

TEST(a_residual_network_keeps_its_results) {
  Graph g;
  ValueId x = input(&g, {"n", 3, 15, 13});
  Attributes three;
  three.set("pads", ops::Ints{1, 1, 1, 1});
  Attributes stem = three;
  stem.set("strides", ops::Ints{2, 2});
  x = node(&g, "Conv", {x, constant_of(&g, "w0", {16, 3, 3, 3}, 1)}, stem);
  std::vector<float> variance = draw(16, 5);
  for (float& v : variance) v = v * v + 0.5f;
  x = node(&g, "BatchNormalization",
           {x, constant_of(&g, "s", {16}, 2), constant_of(&g, "b", {16}, 3),
            constant_of(&g, "m", {16}, 4), floats(&g, "v", {16}, variance)});
  x = node(&g, "Relu", {x});
  Attributes pool = three;
  pool.set("kernel_shape", ops::Ints{3, 3});
  x = node(&g, "MaxPool", {x}, pool);
  ValueId y = node(&g, "Conv", {x, constant_of(&g, "w1", {16, 16, 3, 3}, 6)}, three);
  y = node(&g, "Relu", {node(&g, "Add", {y, x})});
  Attributes own = three;
  own.set("group", int64_t{16});
  y = node(&g, "Conv", {y, constant_of(&g, "w2", {16, 1, 3, 3}, 7)}, own);
  y = node(&g, "HardSwish", {y});
  const ValueId gate = node(&g, "Sigmoid", {node(&g, "GlobalAveragePool", {y})});
  y = node(&g, "Concat", {node(&g, "Mul", {y, gate}), x}, {{"axis", int64_t{1}}});
  y = node(&g, "Conv", {y, constant_of(&g, "w3", {8, 32, 1, 1}, 8), constant_of(&g, "b3", {8}, 9)});
  g.add_output(y, "y");
  const Shape one{1, 3, 15, 13}, all{3, 3, 15, 13};
  const std::vector<float> images = draw(all.elements(), 10);
  const std::vector<float> want = run(g, "", all, images);
  const Graph after = optimized(g);
  for (std::string_view target : cpu::available_targets()) {
    const std::vector<float> have = run(after, target, all, images);
    expect_close(want, have);
    expect_same_for_all(after, target, one, images, have);
  }
}

// Whose scales follow from the whole input: not the same in every batch, but for every team.
TEST(a_quantised_product_keeps_its_results) {
  for (const bool is_signed : {true, false}) {
    Graph g;
    const ValueId x = input(&g, {"n", 37});
    const auto made = g.add(op_of(*ops::find_tensor_op("DynamicQuantizeLinear")), {x}, {}, "q", 3);
    ASSERT(made.ok());
    const std::vector<ValueId> q = g.node(*made).outputs;
    const DType type = is_signed ? DType::kI8 : DType::kU8;
    std::vector<uint8_t> bytes, zeros;
    for (uint32_t i = 0; i < 37 * 70; ++i) bytes.push_back(static_cast<uint8_t>(i * 97 + i / 13));
    for (uint32_t i = 0; i < 70; ++i) zeros.push_back(static_cast<uint8_t>(is_signed ? 0 : i * 3));
    const ValueId w = constant<uint8_t>(&g, "w", type, {37, 70}, bytes);
    const ValueId zero = constant<uint8_t>(&g, "zero", type, {70}, zeros);
    const ValueId sums = node(&g, "MatMulInteger", {q[0], w, q[2], zero});
    const ValueId scales = node(&g, "Mul", {q[1], constant_of(&g, "scale", {70}, 1)});
    ValueId y = node(&g, "Mul", {node(&g, "Cast", {sums}, {{"to", int64_t{1}}}), scales});
    y = node(&g, "Relu", {node(&g, "Add", {y, constant_of(&g, "b", {70}, 2)})});
    g.add_output(y, "y");
    const Graph after = optimized(g);
    EXPECT(to_text(after).find("lmnative.IntegerLinear") != std::string::npos);
    for (const int64_t rows : {1, 2, 29, 67}) {
      const Shape shape{rows, 37};
      const std::vector<float> values = draw(shape.elements(), 3);
      const std::vector<float> want = run(g, "", shape, values);
      for (std::string_view target : cpu::available_targets()) {
        for (int workers : {1, 2, 3})  // integers, and the same operations on their sums
          EXPECT(run(after, target, shape, values, workers) == want);
      }
    }
  }
}

}  // namespace
