// SPDX-License-Identifier: Apache-2.0
//
// Runs that would take for ever, or all memory, end with the name of the option that ended them.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "cpu/cpu_device.h"
#include "plan/program/program.h"
#include "plan/program_fixture.h"
#include "testing.h"

namespace {

using namespace lmn;
using graph::Graph;
using graph::Op;
using graph::ValueId;
using plan::Program;
using namespace program_test;

Tensor numbers(std::vector<float> values) {
  auto memory = std::make_shared<std::vector<float>>(std::move(values));
  return {DType::kF32,
          {static_cast<int64_t>(memory->size())},
          reinterpret_cast<std::byte*>(memory->data()),
          memory};
}

// while true: x = Concat(x, x) or x = x + x. Without M and cond it never ends by itself.
Graph endless(bool grows) {
  auto body = std::make_shared<Graph>();
  (void)body->add_input("i", graph::tensor(DType::kI64, {}));
  const ValueId cond = body->add_input("cond", graph::tensor(DType::kBool, {}));
  graph::ValueType any;
  any.dtype = DType::kF32;
  any.ranked = false;
  const ValueId x = body->add_input("x", any);
  body->add_output(node(body.get(), Op::kIdentity, {cond}), "cond_out");
  body->add_output(grows ? node(body.get(), Op::kConcat, {x, x}, {{"axis", int64_t{0}}})
                         : node(body.get(), Op::kAdd, {x, x}),
                   "x_out");
  Graph g;
  const ValueId start = g.add_input("start", graph::tensor(DType::kF32, {"n"}));
  ops::Attributes attributes{{"body", std::shared_ptr<const Graph>(std::move(body))}};
  g.add_output(node(&g, Op::kLoop, {graph::kNone, graph::kNone, start}, attributes), "y");
  return g;
}

Status run(const Program& program, std::vector<float> values, const plan::RunOptions& options = {},
           Tensor* result = nullptr) {
  std::vector<ops::RuntimeValue> in(1), out(program.outputs().size());
  in[0].tensor = numbers(std::move(values));
  Status status = program.run(in, out, options);
  if (status.ok() && result != nullptr) *result = out[0].tensor;
  return status;
}

TEST(an_endless_loop_ends_at_the_deadline) {
  const auto p = program(endless(false), {.max_run_ns = 20'000'000});
  for (int i = 0; i < 2; ++i) {  // the program stays usable
    const Status status = run(*p, {1});
    EXPECT(status.code() == Code::kTimeout);
    EXPECT_EQ(std::string(status.message()),
              "the run took longer than the 20 ms that max_run_ms allows");
  }
}

TEST(an_endless_loop_ends_when_it_is_cancelled) {
  const auto p = program(endless(false), {});
  std::atomic<bool> cancelled{false};
  std::thread canceller([&] { cancelled.store(true); });
  EXPECT(run(*p, {1}, {.cancelled = &cancelled}).code() == Code::kCancelled);
  canceller.join();
}

TEST(a_loop_whose_values_grow_meets_the_limit_of_memory) {
  const auto p = program(endless(true), {.max_arena_bytes = 1 << 20});
  for (int i = 0; i < 2; ++i) {
    const Status status = run(*p, {1, 2, 3, 4});
    EXPECT(status.code() == Code::kOutOfMemory);
    EXPECT(status.message().find("max_arena_bytes allows it 1048576") != std::string_view::npos);
  }
}

// What one run holds: 4 kB in, an output of 4 kB and an intermediate of 4 kB, and some.
TEST(outputs_and_intermediate_values_share_one_limit) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n"}));
  const ValueId sum = node(&g, Op::kReduceSum, {x}, {{"keepdims", int64_t{1}}});
  g.add_output(node(&g, Op::kAdd, {node(&g, Op::kMul, {x, x}), sum}), "y");
  const std::vector<float> values(1000, 1.0f);
  EXPECT(run(*program(g, {.max_arena_bytes = 3'000}), values).code() == Code::kOutOfMemory);
  const auto p = program(g, {.max_arena_bytes = 40'000});
  for (int i = 0; i < 100; ++i) {  // nothing adds up
    Tensor out;
    EXPECT(run(*p, values, {}, &out).ok());
    EXPECT_EQ(out.as<float>()[7], 1001.0f);
  }
  std::vector<Tensor> kept(100);
  for (Tensor& out : kept) EXPECT(run(*p, values, {}, &out).ok());  // a run's budget is its own
}

}  // namespace
