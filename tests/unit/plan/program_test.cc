// SPDX-License-Identifier: Apache-2.0
//
// Programs of general tensors: known, placed and late values; buffers of the caller; any team.
#include "plan/program/program.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "cpu/cpu_device.h"
#include "ops/kernel.h"
#include "plan/program/specialization.h"
#include "plan/program_fixture.h"
#include "testing.h"

namespace {

using namespace lmn;
using graph::Graph;
using graph::Op;
using graph::ValueId;
using plan::Program;
using program_test::node;

Tensor owned(DType dtype, Shape shape, const void* data) {
  const auto bytes = static_cast<size_t>(shape.elements() * info(dtype).block_bytes);
  auto memory = std::make_shared<std::vector<std::byte>>(bytes + 1);
  if (bytes > 0) std::memcpy(memory->data(), data, bytes);
  return {dtype, shape, memory->data(), memory};
}
template <typename T>
Tensor owned(DType dtype, Shape shape, const std::vector<T>& values) {
  return owned(dtype, shape, values.data());
}
ops::RuntimeValue value(Tensor tensor) {
  ops::RuntimeValue out;
  out.tensor = std::move(tensor);
  return out;
}
template <typename T>
std::vector<T> elements(const ops::RuntimeValue& v) {
  return {v.tensor.as<T>(), v.tensor.as<T>() + v.tensor.shape.elements()};
}

struct Ran {
  std::shared_ptr<Device> device = *cpu::create_cpu_device("");
  std::unique_ptr<Program> program;
  explicit Ran(Graph g) {
    auto made = Program::create(std::move(g), device, {});
    EXPECT(made.ok());
    if (!made.ok()) throw std::runtime_error(std::string(made.status().message()));
    program = std::move(*made);
  }
};

// relu(a @ b + bias), a is [batch, 3]
Graph small() {
  Graph g;
  const ValueId a = g.add_input("a", graph::tensor(DType::kF32, {"batch", 3}));
  const ValueId b = g.add_constant("b", owned<float>(DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6}));
  const ValueId bias = g.add_constant("bias", owned<float>(DType::kF32, {2}, {-10, 1}));
  g.add_output(node(&g, Op::kRelu, {node(&g, Op::kAdd, {node(&g, Op::kMatMul, {a, b}), bias})}),
               "y");
  return g;
}

TEST(every_batch_size_is_one_specialisation) {
  Ran r(small());
  for (int round = 0; round < 2; ++round) {
    for (int64_t batch : {1, 2, 5}) {
      std::vector<float> x(static_cast<size_t>(batch) * 3, 1.0f);
      const std::vector<ops::RuntimeValue> in = {value(owned(DType::kF32, {batch, 3}, x))};
      std::vector<ops::RuntimeValue> out(1);
      EXPECT(r.program->run(in, out, {}).ok());
      EXPECT_EQ(out[0].tensor.shape.to_string(), Shape({batch, 2}).to_string());
      for (int64_t i = 0; i < batch; ++i) {
        EXPECT_EQ(elements<float>(out[0])[static_cast<size_t>(2 * i)], 0.0f);
        EXPECT_EQ(elements<float>(out[0])[static_cast<size_t>(2 * i + 1)], 13.0f);
      }
    }
  }
}

TEST(the_buffer_of_the_caller_is_written_and_its_type_checked) {
  Ran r(small());
  const std::vector<float> x = {1, 1, 1};
  const std::vector<ops::RuntimeValue> in = {value(owned(DType::kF32, {1, 3}, x))};
  std::vector<ops::RuntimeValue> out = {value(owned<float>(DType::kF32, {1, 2}, {7, 7}))};
  const std::byte* mine = out[0].tensor.data;
  EXPECT(r.program->run(in, out, {}).ok());
  EXPECT(out[0].tensor.data == mine);
  EXPECT_EQ(elements<float>(out[0])[1], 13.0f);
  out = {value(owned<float>(DType::kF32, {2, 1}, {7, 7}))};
  EXPECT_EQ(std::string(r.program->run(in, out, {}).message()),
            "the buffer of output 'y' is f32[2, 1], expected f32[1, 2]");
}

TEST(inputs_are_checked_by_name) {
  Ran r(small());
  std::vector<ops::RuntimeValue> out(1);
  const std::vector<float> x(4, 1.0f);
  const std::vector<ops::RuntimeValue> wide = {value(owned(DType::kF32, {1, 4}, x))};
  EXPECT_EQ(std::string(r.program->run(wide, out, {}).message()),
            "input 'a' is f32[1, 4], expected f32[batch, 3]");
  const std::vector<ops::RuntimeValue> ints = {value(owned(DType::kI32, {1, 3}, x))};
  EXPECT_EQ(std::string(r.program->run(ints, out, {}).message()),
            "input 'a' is i32[1, 3], expected f32[batch, 3]");
}

// NonZero's shape depends on data, and what follows from it is late as well.
TEST(late_values) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n"}));
  const ValueId found = node(&g, Op::kNonZero, {x});
  g.add_output(node(&g, Op::kShape, {found}), "shape");
  g.add_output(node(&g, Op::kAdd, {found, found}), "twice");
  g.add_output(x, "x");
  g.add_output(node(&g, Op::kRelu, {x}), "relu");
  Ran r(std::move(g));
  for (int round = 0; round < 3; ++round) {
    const std::vector<ops::RuntimeValue> in = {
        value(owned<float>(DType::kF32, {4}, {0, -3, 0, 2}))};
    std::vector<ops::RuntimeValue> out(4);
    EXPECT(r.program->run(in, out, {}).ok());
    EXPECT(elements<int64_t>(out[0]) == (std::vector<int64_t>{1, 2}));
    EXPECT(elements<int64_t>(out[1]) == (std::vector<int64_t>{2, 6}));
    EXPECT(elements<float>(out[2]) == (std::vector<float>{0, -3, 0, 2}));
    EXPECT(out[2].tensor.data != in[0].tensor.data);
    EXPECT(elements<float>(out[3]) == (std::vector<float>{0, 0, 0, 2}));
  }
}

// Shape arithmetic is folded: the program has one stage, the addition.
TEST(shape_arithmetic_costs_nothing) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"a", "b"}));
  const ValueId y = g.add_input("y", graph::tensor(DType::kF32, {"?"}));
  const ValueId flat = node(&g, Op::kReshape, {y, node(&g, Op::kShape, {x})});
  g.add_output(node(&g, Op::kAdd, {x, flat}), "sum");
  std::unique_ptr<Device> device = *cpu::create_cpu_device("");
  ops::TensorType tx, ty;
  tx.shape = Shape{2, 3};
  ty.shape = Shape{6};
  auto s = plan::make_specialization(
      g, device->kernels().tensor, {}, {tx, ty},
      [](DType dtype, const Shape& shape) -> Result<Tensor> {
        return owned(dtype, shape,
                     std::vector<std::byte>(static_cast<size_t>(shape.elements()) * 8).data());
      },
      std::make_shared<plan::FrameCache>(0));
  EXPECT(s.ok());
  EXPECT_EQ((*s)->stages.size(), size_t{1});
  EXPECT_EQ((*s)->arena_bytes, 0);
}

TEST(if_runs_the_branch_that_is_taken) {
  const auto branch = [](Op op) {
    auto g = std::make_shared<Graph>();
    const ValueId x = g->add_input("x", graph::tensor(DType::kF32, {"n"}));
    g->add_output(op == Op::kAdd ? node(g.get(), op, {x, x}) : node(g.get(), op, {x}), "y");
    return std::shared_ptr<const Graph>(std::move(g));
  };
  Graph g;
  const ValueId c = g.add_input("c", graph::tensor(DType::kBool, {}));
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n"}));
  ops::Attributes attributes;
  attributes.set("then_branch", branch(Op::kAdd));
  attributes.set("else_branch", branch(Op::kIdentity));
  g.add_output(node(&g, Op::kIf, {c, x}, attributes), "y");
  Ran r(std::move(g));
  for (uint8_t taken : {1, 0}) {
    const std::vector<ops::RuntimeValue> in = {
        value(owned<uint8_t>(DType::kBool, Shape{}, {taken})),
        value(owned<float>(DType::kF32, {2}, {1, 2}))};
    std::vector<ops::RuntimeValue> out(1);
    EXPECT(r.program->run(in, out, {}).ok());
    EXPECT(elements<float>(out[0]) ==
           (taken ? std::vector<float>{2, 4} : std::vector<float>{1, 2}));
    EXPECT(out[0].tensor.data != in[1].tensor.data);
  }
}

// A chain and a diamond over large tensors: any number of threads gives the same bytes, and four
// callers at once do not disturb each other.
TEST(threads_do_not_matter) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n", 64}));
  ValueId left = x, right = node(&g, Op::kMul, {x, x});
  for (int i = 0; i < 5; ++i) {
    left = node(&g, Op::kAdd, {left, x});
    right = node(&g, Op::kSub, {right, left});
    left = node(&g, Op::kMul, {left, right});
  }
  g.add_output(node(&g, Op::kAdd, {left, right}), "y");
  Ran r(std::move(g));
  std::vector<float> data(500 * 64);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 17) * 0.125f - 1;
  const std::vector<ops::RuntimeValue> in = {value(owned(DType::kF32, {500, 64}, data))};
  std::vector<ops::RuntimeValue> alone(1);
  EXPECT(r.program->run(in, alone, {}).ok());
  for (int threads : {2, 3, 5}) {
    auto team = *parallel::ThreadTeam::create({.threads = threads});
    std::vector<ops::RuntimeValue> out(1);
    EXPECT(r.program->run(in, out, {.team = team.get()}).ok());
    EXPECT(elements<float>(out[0]) == elements<float>(alone[0]));
  }
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        std::vector<ops::RuntimeValue> out(1);
        if (!r.program->run(in, out, {}).ok() ||
            elements<float>(out[0]) != elements<float>(alone[0]))
          ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// lmnative.Linear, which no file has, against sums in double: every tile height, partial panels,
// activations, residuals, weights either way round; and any number of threads gives the same bits.
TEST(fused_linear) {
  auto pseudo = [seed = 1u](float scale) mutable {
    seed = seed * 1664525u + 1013904223u;
    return scale * (static_cast<float>(seed >> 8) / 8388608.0f - 1.0f);
  };
  const std::pair<const char*, double (*)(double)> activations[] = {
      {"", [](double x) { return x; }},
      {"Relu", [](double x) { return x < 0 ? 0 : x; }},
      {"Gelu", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"GeluTanh",
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {"Silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
  };
  auto team = *parallel::ThreadTeam::create({.threads = 3});
  int which = 0;
  for (int64_t rows : {1, 2, 5, 12, 61}) {
    for (int64_t inner : {1, 7, 64}) {
      for (int64_t columns : {1, 15, 16, 40}) {
        const auto& [name, activation] = activations[which++ % std::size(activations)];
        const bool transposed = which % 2 == 0, residual = which % 3 == 0, bias = which % 5 != 0;
        std::vector<float> x(static_cast<size_t>(rows * inner)),
            w(static_cast<size_t>(inner * columns)), b(static_cast<size_t>(columns)),
            r(static_cast<size_t>(rows * columns));
        for (auto* list : {&x, &w, &b, &r}) {
          for (float& v : *list) v = pseudo(1.5f);
        }
        Graph g;
        const ValueId input = g.add_input("x", graph::tensor(DType::kF32, {"n", inner}));
        const ValueId weight = g.add_constant(
            "w", owned(DType::kF32, transposed ? Shape{columns, inner} : Shape{inner, columns}, w));
        const ValueId vector =
            bias ? g.add_constant("b", owned(DType::kF32, {columns}, b)) : graph::kNone;
        const ValueId add =
            residual ? g.add_input("r", graph::tensor(DType::kF32, {"n", columns})) : graph::kNone;
        ops::Attributes attributes{{"activation", std::string(name)},
                                   {"transposed", int64_t{transposed}}};
        g.add_output(node(&g, Op::kFusedLinear, {input, weight, vector, add}, attributes), "y");
        Ran ran(std::move(g));
        std::vector<ops::RuntimeValue> in(residual ? 2 : 1);
        in[0] = value(owned(DType::kF32, {rows, inner}, x));
        if (residual) in[1] = value(owned(DType::kF32, {rows, columns}, r));
        std::vector<ops::RuntimeValue> out(1), threaded(1);
        EXPECT(ran.program->run(in, out, {}).ok());
        EXPECT(ran.program->run(in, threaded, {.team = team.get()}).ok());
        EXPECT(elements<float>(out[0]) == elements<float>(threaded[0]));
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            double sum = bias ? b[static_cast<size_t>(j)] : 0;
            for (int64_t k = 0; k < inner; ++k) {
              const int64_t at = transposed ? j * inner + k : k * columns + j;
              sum += static_cast<double>(x[static_cast<size_t>(i * inner + k)]) *
                     static_cast<double>(w[static_cast<size_t>(at)]);
            }
            const auto at = static_cast<size_t>(i * columns + j);
            const double want = activation(sum) + (residual ? static_cast<double>(r[at]) : 0.0);
            const double have = static_cast<double>(elements<float>(out[0])[at]);
            EXPECT(std::abs(have - want) < 2e-5 * (1 + std::abs(want)));
          }
        }
      }
    }
  }
}

// The sum with the residual broadcasts as Add does: rows of either repeat.
TEST(fused_linear_with_a_residual_that_repeats) {
  const std::pair<Shape, Shape> cases[] = {
      {{2, 3, 2}, {2}}, {{2, 3, 2}, {3, 2}}, {{2, 3, 2}, {2, 1, 2}}, {{1, 2}, {4, 2}}};
  auto team = *parallel::ThreadTeam::create({.threads = 3});
  for (const auto& [x_shape, r_shape] : cases) {
    const auto counted = [](int64_t count, float by) {
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i + 1) * by);
      return values;
    };
    Graph g;
    graph::Dims x_dims, r_dims;
    for (int i = 0; i < x_shape.rank; ++i)
      x_dims.push_back(i == x_shape.rank - 1 ? graph::Dim(2) : graph::Dim("?"));
    for (int i = 0; i < r_shape.rank; ++i)
      r_dims.push_back(i == r_shape.rank - 1 ? graph::Dim(2) : graph::Dim("?"));
    const ValueId x = g.add_input("x", graph::tensor(DType::kF32, x_dims));
    const ValueId r = g.add_input("r", graph::tensor(DType::kF32, r_dims));
    const ValueId w = g.add_constant("w", owned<float>(DType::kF32, {2, 2}, {1, 2, 3, 4}));
    g.add_output(node(&g, Op::kFusedLinear, {x, w, graph::kNone, r}), "fused");
    g.add_output(node(&g, Op::kAdd, {node(&g, Op::kMatMul, {x, w}), r}), "apart");
    Ran ran(std::move(g));
    const std::vector<ops::RuntimeValue> in = {
        value(owned(DType::kF32, x_shape, counted(x_shape.elements(), 1.0f))),
        value(owned(DType::kF32, r_shape, counted(r_shape.elements(), 0.25f)))};
    for (parallel::ThreadTeam* with : {static_cast<parallel::ThreadTeam*>(nullptr), team.get()}) {
      std::vector<ops::RuntimeValue> out(2);
      ASSERT_OK(ran.program->run(in, out, {.team = with}));
      EXPECT_EQ(out[0].tensor.shape.to_string(), out[1].tensor.shape.to_string());
      EXPECT(elements<float>(out[0]) == elements<float>(out[1]));
    }
  }
}

}  // namespace
