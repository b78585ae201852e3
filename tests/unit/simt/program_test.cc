// SPDX-License-Identifier: Apache-2.0
//
// Programs on the CUDA device's kernels: nodes that have one are queued there, the others run on
// the host, and values go to and fro. What they give is what the CPU alone gives.
#include <random>
#include <thread>

#include "program_case.h"

namespace {

using namespace simt_tests;
using graph::Graph;
using graph::Op;
using graph::ValueId;

// Atan has no kernel on the device; Neg between two of them is not worth the way.
TEST(values_go_to_the_host_and_back) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"batch", 16}));
  const ValueId a = node(&g, Op::kMatMul, {x, matrix(&g, 16, 16, 1)});
  const ValueId b = node(&g, Op::kAtan, {node(&g, Op::kRelu, {a})});
  const ValueId c = node(&g, Op::kAtan, {node(&g, Op::kNeg, {b})});
  const ValueId d = node(&g, Op::kMatMul, {c, matrix(&g, 16, 16, 2)});
  g.add_output(node(&g, Op::kAdd, {node(&g, Op::kAdd, {d, a}), b}), "y");
  g.add_output(a, "a");
  g.add_output(a, "again");
  g.add_output(x, "x too");
  const Both both(g);
  both.check({value(DType::kF32, {3, 16}, some_numbers(48, 3))});
  both.expect_places(5, 3);
}

TEST(values_whose_shape_depends_on_data_stay_on_the_host) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n"}));
  const ValueId y = node(&g, Op::kRelu, {node(&g, Op::kAdd, {x, x})});
  const ValueId found = node(&g, Op::kNonZero, {y});
  g.add_output(node(&g, Op::kAdd, {found, found}), "twice");
  g.add_output(y, "y");
  const Both both(g);
  for (int round = 0; round < 3; ++round) both.check({value(DType::kF32, {4}, {0, -3, 1, 2})});
  both.expect_places(2, 2);
}

TEST(an_index_out_of_range_is_the_error_of_its_run) {
  Graph g;
  const ValueId table = g.add_input("table", graph::tensor(DType::kF32, {4, 8}));
  const ValueId ids = g.add_input("ids", graph::tensor(DType::kI64, {"n"}));
  g.add_output(node(&g, Op::kGather, {table, ids}), "rows");
  const Both both(g);
  const ops::RuntimeValue rows = value(DType::kF32, {4, 8}, some_numbers(32, 1));
  for (int round = 0; round < 2; ++round) {
    std::vector<ops::RuntimeValue> out(1);
    const std::vector<ops::RuntimeValue> wrong = {rows, value(DType::kI64, {2}, {1, 4})};
    const Status status = both.on_device->run(wrong, out, {});
    EXPECT(status.code() == Code::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "Gather: an index is out of range");
    both.check({rows, value(DType::kI64, {2}, {3, -4})});
  }
}

TEST(bindings_write_where_the_caller_wants_it) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {2, 16}));
  g.add_output(node(&g, Op::kMatMul, {x, matrix(&g, 16, 4, 1)}), "y");
  const Both both(g);
  const ops::RuntimeValue in = value(DType::kF32, {2, 16}, some_numbers(32, 2));
  const ops::RuntimeValue out = value(DType::kF32, {2, 4}, std::vector<float>(8, 7));
  auto bound = both.on_device->bind({in}, {out}, 1);
  ASSERT_OK(bound);
  for (const float by : {1.0f, -2.0f}) {
    for (int64_t i = 0; i < 32; ++i) in.tensor.as<float>()[i] *= by;
    std::vector<ops::RuntimeValue> want(1);
    ASSERT_OK(both.on_host->run(std::vector{in}, want, {}));
    ASSERT_OK((*bound)->run({}));
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_NEAR(out.tensor.as<float>()[i], want[0].tensor.as<float>()[i], 1e-4);
  }
}

TEST(limits_hold_on_a_device_too) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n"}));
  g.add_output(node(&g, Op::kTanh, {node(&g, Op::kExp, {x})}), "y");
  const Both both(g, {.max_arena_bytes = 4096});
  std::vector<ops::RuntimeValue> out(1);
  const std::vector<ops::RuntimeValue> large = {value(DType::kF32, {4000}, some_numbers(4000, 1))};
  EXPECT(both.on_device->run(large, out, {}).code() == Code::kOutOfMemory);
  both.check({value(DType::kF32, {8}, some_numbers(8, 1))});
  const std::atomic<bool> cancelled{true};
  const std::vector<ops::RuntimeValue> small = {value(DType::kF32, {8}, some_numbers(8, 1))};
  EXPECT(both.on_device->run(small, out, {.cancelled = &cancelled}).code() == Code::kCancelled);
}

TEST(threads_may_run_it_at_once) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n", 8}));
  const ValueId h = node(&g, Op::kAtan, {node(&g, Op::kMatMul, {x, matrix(&g, 8, 8, 1)})});
  g.add_output(node(&g, Op::kMatMul, {h, matrix(&g, 8, 8, 2)}), "y");
  const Both both(g);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&both, t] {
      for (uint32_t round = 0; round < 3; ++round)
        both.check({value(DType::kF32, {2, 8}, some_numbers(16, 10 * t + round))});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Operators of both sides over whatever came before, views, values that are read late or never,
// outputs in the middle: whatever shares bytes must not share them while both are alive.
Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Graph g;
  std::vector<ValueId> values;
  for (const char* name : {"x", "z"})
    values.push_back(g.add_input(name, graph::tensor(DType::kF32, {"n", 8})));
  const ValueId axis = g.add_constant("axis", dense(DType::kI64, {1}, {1}));
  const ValueId flat = g.add_constant("flat", dense(DType::kI64, {1}, {-1}));
  const ValueId back = g.add_constant("back", dense(DType::kI64, {2}, {-1, 8}));
  const ValueId scale = g.add_constant("scale", dense(DType::kF32, {8}, some_numbers(8, seed)));
  const size_t nodes = 3 + pick(24);
  for (size_t i = 0; i < nodes; ++i) {
    const ValueId x = values[pick(values.size())], y = values[pick(values.size())];
    switch (pick(11)) {
      case 0:
        values.push_back(node(&g, Op::kAdd, {x, y}));
        break;
      case 1:
        values.push_back(node(&g, Op::kTanh, {x}));
        break;
      case 2:
        values.push_back(node(&g, Op::kAtan, {x}));  // of the host
        break;
      case 3:
        values.push_back(
            node(&g, Op::kMatMul, {x, matrix(&g, 8, 8, seed + static_cast<uint32_t>(i))}));
        break;
      case 4:
        values.push_back(node(&g, Op::kLayerNormalization, {x, scale}));
        break;
      case 5:
        values.push_back(node(&g, Op::kSoftmax, {x}));
        break;
      case 6:
        values.push_back(node(&g, Op::kSub, {x, node(&g, Op::kReduceMean, {y, axis})}));
        break;
      case 7:
        values.push_back(node(&g, Op::kReshape,
                              {node(&g, Op::kSigmoid, {node(&g, Op::kReshape, {x, flat})}), back}));
        break;
      case 8:
        values.push_back(node(&g, Op::kCumSum, {x, axis}));  // of the host
        break;
      case 9:
        values.push_back(node(&g, Op::kMul, {node(&g, Op::kTanh, {x}), y}));
        break;
      default:
        values.push_back(node(&g, Op::kAtan, {node(&g, Op::kRelu, {node(&g, Op::kAtan, {x})})}));
    }
    if (pick(4) == 0) values.push_back(node(&g, Op::kTanh, {values.back()}));
  }
  g.add_output(values.back(), "last");
  for (size_t i = 0; i < 3; ++i) g.add_output(values[pick(values.size())], "o" + std::to_string(i));
  return g;
}

TEST(random_programs_give_what_the_host_gives) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const Both both(random_graph(seed));
    for (const int64_t rows : {1, 3, 3}) {
      both.check({value(DType::kF32, {rows, 8}, some_numbers(rows * 8, seed)),
                  value(DType::kF32, {rows, 8}, some_numbers(rows * 8, seed + 7))},
                 1e-2);
    }
  }
}

}  // namespace
