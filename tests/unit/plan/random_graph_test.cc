// SPDX-License-Identifier: Apache-2.0
//
// A property of layout, barriers and run loop together: random graphs, run by teams of several
// sizes in one arena with reused and changed bytes, give what an evaluator gives that keeps every
// value apart.
#include <cmath>
#include <cstring>
#include <random>

#include "core/float16.h"
#include "graph/builder.h"
#include "plan/plan_fixture.h"
#include "plan/split_kernels.h"

using namespace lmn;
using namespace lmn::graph;
using namespace plan_test;

namespace {

constexpr int64_t kRows = 6, kColumns = 32;

struct RandomGraph {
  Graph graph;
  std::vector<ValueId> inputs;
};

// Adds, norms, Linears with and without residual or quantised inputs, gates of views, and gathers,
// over whatever came before; values that are read late or never, and outputs in the middle.
RandomGraph make_graph(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Builder b;
  RandomGraph out;
  std::vector<ValueId> values;
  for (const char* name : {"x", "z"}) {
    out.inputs.push_back(b.input(name, tensor(DType::kF32, {"tokens", kColumns})));
    values.push_back(out.inputs.back());
  }
  const ValueId order = b.input("order", tensor(DType::kI32, {"tokens"}));
  const auto matrix = [&](int64_t rows) {
    std::vector<float> w(static_cast<size_t>(rows * kColumns));
    for (float& v : w) v = normal(random);
    Constant constant = owned_constant("w", std::move(w));
    constant.pieces[0].view.shape = Shape{rows, kColumns};
    return b.constant(std::move(constant));
  };
  const auto quantised_matrix = [&] {  // q8_0: blocks of a float16 scale and 32 integers
    auto bytes = std::make_shared<std::vector<std::byte>>(kColumns * kColumns / 32 * 34);
    for (size_t i = 0; i < bytes->size(); ++i) {
      const uint16_t scale = f32_to_f16(0.004f);
      (*bytes)[i] = i % 34 < 2 ? std::byte(scale >> (8 * (i % 34))) : std::byte(random() % 256);
    }
    TensorView view;
    view.dtype = DType::kQ8_0;
    view.shape = Shape{kColumns, kColumns};
    view.data = bytes->data();
    return b.constant(Piece{"q", view, bytes});
  };
  const ValueId norm = b.constant(owned_constant("norm", std::vector<float>(kColumns, 1.0f)));
  const size_t nodes = 3 + pick(25);
  for (size_t i = 0; i < nodes; ++i) {
    const ValueId x = values[pick(values.size())], y = values[pick(values.size())];
    switch (pick(7)) {
      case 0:
        values.push_back(b.add(x, y, "add"));
        break;
      case 1:
        values.push_back(b.rms_norm(x, norm, 1e-5f, "norm"));
        break;
      case 2:
        values.push_back(b.linear(x, matrix(kColumns), kNone, false, "linear"));
        break;
      case 3:
        values.push_back(b.node(Op::kLinear, {x, matrix(kColumns), kNone, y}, {}, "residual"));
        break;
      case 4: {
        const ValueId wide = b.linear(x, matrix(2 * kColumns), kNone, false, "wide");
        const auto half = [&](int64_t begin) {
          return b.node(Op::kColumns, {wide}, {{"begin", begin}, {"count", kColumns}}, "half");
        };
        const ValueId first = half(0), second = half(kColumns);
        values.push_back(b.silu_mul(first, pick(2) ? second : first, "gate"));
        break;
      }
      case 5: {
        const ValueId q = b.node(Op::kQuantize, {x}, {{"type", std::string("qa16")}}, "quantize");
        values.push_back(b.linear(q, quantised_matrix(), kNone, true, "quantised"));
        break;
      }
      default:
        values.push_back(b.gather_rows(x, order, "gather"));
    }
    if (pick(6) == 0) b.output(values.back(), "middle" + std::to_string(i));
  }
  b.output(values.back(), "end");
  auto graph = b.finish();
  ASSERT_OK(graph);
  out.graph = std::move(graph).value();
  return out;
}

using Matrix = std::vector<float>;

double weight_at(const TensorView& view, size_t i) {
  if (view.dtype == DType::kF32) return view.as<float>()[i];
  return f16_to_f32(f32_to_f16(0.004f)) * static_cast<int8_t>(view.data[i / 32 * 34 + 2 + i % 32]);
}

// Every value in a vector of its own.
std::vector<Matrix> evaluate(const Graph& graph, const std::vector<Matrix>& inputs,
                             const std::vector<int32_t>& order) {
  std::vector<Matrix> values(graph.values.size());
  size_t next = 0;
  for (ValueId id : graph.inputs) {
    if (graph.value(id).type.dtype == DType::kF32) values[static_cast<size_t>(id)] = inputs[next++];
  }
  for (const Node& node : graph.nodes) {
    const auto width = static_cast<size_t>(graph.value(node.outputs[0]).type.dims[1].size);
    Matrix& y = values[static_cast<size_t>(node.outputs[0])];
    y.resize(kRows * width);
    const Matrix& a = values[static_cast<size_t>(node.inputs[0])];
    const size_t from = a.size() / kRows;
    for (size_t r = 0; r < kRows; ++r) {
      double squares = 0;
      for (size_t c = 0; c < from; ++c)
        squares += static_cast<double>(a[r * from + c]) * a[r * from + c];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(from) + 1e-5f);
      for (size_t c = 0; c < width; ++c) {
        const size_t i = r * width + c;
        switch (node.op) {
          case Op::kResidualAdd:
            y[i] = a[i] + values[static_cast<size_t>(node.inputs[1])][i];
            break;
          case Op::kRmsNorm:
            y[i] = static_cast<float>(a[i] * scale);
            break;
          case Op::kLinear: {
            const TensorView& view = graph.value(node.inputs[1]).constant->pieces[0].view;
            double sum = 0;
            for (size_t k = 0; k < from; ++k)
              sum += static_cast<double>(a[r * from + k]) * weight_at(view, c * from + k);
            y[i] = static_cast<float>(sum);
            if (node.input(3) != kNone) y[i] += values[static_cast<size_t>(node.inputs[3])][i];
            break;
          }
          case Op::kQuantize:
            y[i] = a[i];
            break;
          case Op::kColumns:
            y[i] = a[r * from + static_cast<size_t>(node.attributes.get<int64_t>("begin")) + c];
            break;
          case Op::kSiluMul: {
            const double gate = a[i];
            y[i] = static_cast<float>(gate / (1 + std::exp(-gate)) *
                                      values[static_cast<size_t>(node.inputs[1])][i]);
            break;
          }
          default:
            y[i] = a[static_cast<size_t>(order[r]) * width + c];
        }
      }
    }
  }
  return values;
}

}  // namespace

TEST(random_graphs_in_one_arena_give_what_separate_values_give) {
  const ops::KernelTable table = split_kernels();
  HostDevice device(table);
  const std::vector<int32_t> order{2, 1, 0, 1, 2, 0};  // within the fewest rows
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const RandomGraph random = make_graph(seed);
    std::mt19937 noise(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<Matrix> inputs(2, Matrix(kRows * kColumns));
    for (Matrix& m : inputs) {
      for (float& v : m) v = normal(noise);
    }
    const std::vector<Matrix> want = evaluate(random.graph, inputs, order);
    auto team = make_team(1 + static_cast<int>(seed % 3));
    auto plan = make_plan(random.graph, device, *team, plan_options(kRows));
    for (size_t i = 0; i < 2; ++i)
      std::memcpy(plan->input<float>(i ? "z" : "x"), inputs[i].data(), inputs[i].size() * 4);
    std::copy(order.begin(), order.end(), plan->input<int32_t>("order"));
    // Inputs survive a run; few rows and many take turns.
    for (int64_t rows : {kRows, int64_t{3}, kRows, int64_t{4}, int64_t{3}}) {
      plan->set_symbol("tokens", rows);
      EXPECT(plan->run(*team).ok());
      for (const Output& output : random.graph.outputs) {
        const Matrix& expected = want[static_cast<size_t>(output.value)];
        const float* got = plan->output(output.name);
        double difference = 0, size = 1e-12;
        for (size_t i = 0; i < expected.size() / kRows * static_cast<size_t>(rows); ++i) {
          difference += std::abs(static_cast<double>(got[i]) - expected[i]);
          size += std::abs(expected[i]);
        }
        if (!(difference / size < 1e-3)) {
          testing::report_failure(__FILE__, __LINE__,
                                  "seed " + std::to_string(seed) + " output " + output.name +
                                      " differs by " + std::to_string(difference / size) + "\n" +
                                      to_text(random.graph) + plan->dump());
          return;
        }
      }
    }
  }
}
