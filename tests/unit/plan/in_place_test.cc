// SPDX-License-Identifier: Apache-2.0
//
// Which buffers a plan lets operators share, as text: a stage a line, with where its operands lie
// ("@64": in the arena) and its result goes. Operators of elements work in place where nobody reads
// the operand afterwards, and only there; results are right either way.
#include <cmath>

#include "../graph/tensor_graph.h"
#include "cpu/cpu_device.h"
#include "ops/kernel.h"
#include "plan/program/program.h"
#include "plan/program/specialization.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace graph_test;
using plan::Program;
using plan::Specialization;

struct Planned {
  Graph g;
  std::shared_ptr<Device> device;
  std::vector<float> x;

  Planned() {
    auto made = cpu::create_cpu_device("");
    ASSERT_OK(made);
    device = std::move(*made);
    for (int i = 0; i < 64; ++i) x.push_back(static_cast<float>(i) / 16.0f - 2.0f);
  }

  std::string text() const {
    auto program = Program::create(g, device, {});
    ASSERT_OK(program);
    ops::TensorType type;
    type.shape = Shape{4, 16};
    auto made = plan::make_specialization(
        g, device->kernels().tensor, {}, {type}, (*program)->allocate(),
        std::make_shared<plan::FrameCache>(0), 1, plan::Runner::kLockstep);
    ASSERT_OK(made);
    const Specialization& s = **made;
    std::string out;
    for (const plan::ProgramStage& stage : s.stages) {
      const Node& n = g.node(stage.node);
      out += std::string(name(n.op)) + "(";
      for (const ValueId& id : n.inputs) out += (&id == &n.inputs[0] ? "" : ", ") + place(s, id);
      out += ") -> " + place(s, n.outputs[0]) + "\n";
    }
    return out + "arena " + std::to_string(s.arena_bytes) + "\n";
  }
  // What the outputs are, by a program that runs twice over the same frame.
  std::vector<std::vector<float>> run() const {
    auto program = Program::create(g, device, {});
    ASSERT_OK(program);
    std::vector<std::vector<float>> values;
    for (int round = 0; round < 2; ++round) {
      auto memory = std::make_shared<std::vector<float>>(x);
      std::vector<ops::RuntimeValue> in(1), out(g.outputs.size());
      in[0].tensor = {DType::kF32, Shape{4, 16}, reinterpret_cast<std::byte*>(memory->data()),
                      memory};
      ASSERT_OK((*program)->run(in, out, {}));
      EXPECT(*memory == x);  // an input is the caller's
      values.clear();
      for (const ops::RuntimeValue& value : out)
        values.emplace_back(value.tensor.as<float>(),
                            value.tensor.as<float>() + value.tensor.shape.elements());
    }
    return values;
  }
  template <typename F>
  void expect(size_t output, F f) const {
    const std::vector<float> have = run()[output];
    ASSERT(have.size() == x.size());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(have[i], f(x[i], i), 1e-5);
  }

 private:
  std::string place(const Specialization& s, ValueId id) const {
    const int32_t root = s.roots[static_cast<size_t>(id)];
    for (const Specialization::Placement& p : s.placements) {
      if (p.root == root) return "@" + std::to_string(p.offset);
    }
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      if (s.output_is_direct[i] && s.roots[static_cast<size_t>(g.outputs[i].value)] == root)
        return g.outputs[i].name;
    }
    return g.value(id).name;
  }
};

TEST(a_chain_of_elements_has_one_buffer) {
  Planned p;
  ValueId y = input(&p.g, {"n", 16});
  y = node(&p.g, "Neg", {node(&p.g, "Sqrt", {node(&p.g, "Abs", {node(&p.g, "Neg", {y})})})});
  p.g.add_output(node(&p.g, "Exp", {y}), "y");
  EXPECT_EQ(p.text(),
            "Neg(x) -> @0\n"
            "Abs(@0) -> @0\n"
            "Sqrt(@0) -> @0\n"
            "Neg(@0) -> @0\n"
            "Exp(@0) -> y\n"
            "arena 256\n");
  p.expect(0, [](float x, size_t) { return std::exp(-std::sqrt(std::abs(x))); });
}

TEST(what_is_read_later_is_kept) {
  Planned p;
  const ValueId a = node(&p.g, "Exp", {input(&p.g, {"n", 16})});
  const ValueId b = node(&p.g, "Neg", {a}), c = node(&p.g, "Mul", {a, b});
  p.g.add_output(node(&p.g, "Abs", {node(&p.g, "Add", {c, c})}), "y");
  EXPECT_EQ(p.text(),
            "Exp(x) -> @0\n"
            "Neg(@0) -> @256\n"  // the product reads the exponentials yet
            "Mul(@0, @256) -> @0\n"
            "Add(@0, @0) -> @0\n"
            "Abs(@0) -> y\n"
            "arena 512\n");
  p.expect(0, [](float x, size_t) { return 2 * std::exp(2 * x); });
}

TEST(outputs_and_inputs_are_not_written_over) {
  Planned p;
  const ValueId x = input(&p.g, {"n", 16});
  const ValueId a = node(&p.g, "Neg", {x});
  p.g.add_output(a, "a");
  p.g.add_output(node(&p.g, "Add", {node(&p.g, "Abs", {a}), x}), "y");
  EXPECT_EQ(p.text(),
            "Neg(x) -> a\n"
            "Abs(a) -> @0\n"
            "Add(@0, x) -> y\n"
            "arena 256\n");
  p.expect(0, [](float v, size_t) { return -v; });
  p.expect(1, [](float v, size_t) { return std::abs(v) + v; });
}

// Of two operands the one of the result's size is taken over; a view is the value it is a view of.
TEST(what_is_broadcast_is_not_written_over) {
  Planned p;
  const ValueId x = input(&p.g, {"n", 16});
  const ValueId row = floats(&p.g, "row", {16}, std::vector<float>(16, 0.5f));
  const ValueId axes = constant<int64_t>(&p.g, "axes", DType::kI64, {1}, {0});
  Attributes flat;
  flat.set("keepdims", int64_t{1});
  const ValueId most = node(&p.g, "ReduceMax", {x, axes}, flat);
  const ValueId sum = node(&p.g, "Add", {most, node(&p.g, "Mul", {x, row})});
  const ValueId shape = constant<int64_t>(&p.g, "shape", DType::kI64, {2}, {-1, 16});
  const ValueId view = node(&p.g, "Reshape", {sum, shape});
  p.g.add_output(node(&p.g, "Abs", {node(&p.g, "Sub", {view, sum})}), "zero");
  p.g.add_output(node(&p.g, "Exp", {node(&p.g, "Neg", {most})}), "most");
  EXPECT_EQ(p.text(),
            "ReduceMax(x, axes) -> @256\n"
            "Mul(x, row) -> @0\n"
            "Add(@256, @0) -> @0\n"
            "Sub(@0, @0) -> @0\n"
            "Abs(@0) -> zero\n"
            "Neg(@256) -> @256\n"
            "Exp(@256) -> most\n"
            "arena 320\n");
  p.expect(0, [](float, size_t) { return 0.0f; });
}

TEST(a_fused_chain_works_in_place) {
  Planned p;
  const ValueId x = node(&p.g, "Tan", {input(&p.g, {"n", 16})});
  const ValueId half = floats(&p.g, "half", Shape{}, {0.5f});
  const ops::Strings steps{"Mul x0 x1", "Exp x1", "Add t0 t1", "Sub t2 x0"};
  const ValueId chain = node(&p.g, "lmnative.ElementwiseChain", {x, half}, {{"steps", steps}});
  p.g.add_output(node(&p.g, "Cos", {chain}), "y");
  EXPECT_EQ(p.text(),
            "Tan(x) -> @0\n"
            "lmnative.ElementwiseChain(@0, half) -> @0\n"
            "Cos(@0) -> y\n"
            "arena 256\n");
  p.expect(0, [](float v, size_t) {
    const float t = std::tan(v);
    return std::cos(0.5f * t + std::exp(0.5f) - t);
  });
}

}  // namespace
