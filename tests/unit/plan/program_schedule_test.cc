// SPDX-License-Identifier: Apache-2.0
//
// Task graphs and batches: which graphs get them, and that results are the same, bit for bit.
#include <cstring>
#include <thread>

#include "cpu/cpu_device.h"
#include "parallel/clock.h"
#include "plan/program/batching.h"
#include "plan/program/program.h"
#include "plan/program/submitter.h"
#include "plan/program_fixture.h"
#include "testing.h"

namespace {

using namespace lmn;
using graph::Graph;
using graph::Op;
using graph::ValueId;
using plan::Program;
using plan::Runner;
using namespace program_test;

Tensor numbers(Shape shape, uint32_t seed) {
  auto memory = std::make_shared<std::vector<float>>(static_cast<size_t>(shape.elements()) + 1);
  for (float& x : *memory) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return {DType::kF32, shape, reinterpret_cast<std::byte*>(memory->data()), memory};
}

// `towers` of `depth` products with a weight of their own, over rows of `width`, added up.
Graph towers(int count, int depth, int64_t width) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n", width}));
  ValueId sum = graph::kNone;
  for (int t = 0; t < count; ++t) {
    ValueId y = x;
    for (int d = 0; d < depth; ++d) {
      const ValueId w =
          g.add_constant("w", numbers({width, width}, static_cast<uint32_t>(t * 100 + d)));
      y = node(&g, Op::kTanh, {node(&g, Op::kMatMul, {y, w})});
    }
    sum = sum == graph::kNone ? y : node(&g, Op::kAdd, {sum, y});
  }
  g.add_output(sum, "y");
  return g;
}

std::vector<float> run(const Program& p, const Tensor& input, parallel::ThreadTeam* team) {
  std::vector<ops::RuntimeValue> in(1), out(p.outputs().size());
  in[0].tensor = input;
  ASSERT_OK(p.run(in, out, {.team = team}));
  const Tensor& y = out[0].tensor;
  return {y.as<float>(), y.as<float>() + y.shape.elements()};
}

TEST(both_runners_give_the_same_bits) {
  for (const auto& [count, depth, width] : {std::tuple(8, 4, 48), {3, 1, 200}, {1, 5, 64}}) {
    for (int threads : {2, 3}) {
      auto team = *parallel::ThreadTeam::create({.threads = threads});
      const Graph g = towers(count, depth, width);
      const auto alone = program(g, {});
      const auto lockstep = program(g, {.workers = threads, .runner = Runner::kLockstep});
      const auto tasks = program(g, {.workers = threads, .runner = Runner::kTaskGraph});
      for (int64_t rows : {1, 7, 40}) {
        const Tensor x = numbers({rows, width}, 5);
        const std::vector<float> want = run(*alone, x, nullptr);
        EXPECT(run(*lockstep, x, team.get()) == want);
        for (int i = 0; i < 20; ++i) EXPECT(run(*tasks, x, team.get()) == want);
        EXPECT(run(*tasks, x, nullptr) == want);
      }
      EXPECT_EQ(tasks->runner_counts().task_graph, 3);
      EXPECT_EQ(lockstep->runner_counts().lockstep, 3);
    }
  }
}

TEST(towers_run_as_a_task_graph_and_a_chain_in_lockstep) {
  auto team = *parallel::ThreadTeam::create({.threads = 2});
  const auto wide = program(towers(8, 6, 64), {.workers = 2});
  (void)run(*wide, numbers({4, 64}, 1), team.get());
  EXPECT_EQ(wide->runner_counts().task_graph, 1);
  const auto chain = program(towers(1, 6, 256), {.workers = 2});
  (void)run(*chain, numbers({64, 256}, 1), team.get());
  EXPECT_EQ(chain->runner_counts().lockstep, 1);
}

TEST(models_whose_rows_meet_are_not_batched) {
  EXPECT(plan::is_batchable(towers(2, 2, 8)));
  const auto with = [](auto&& add) {
    Graph g;
    const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n", 8}));
    g.add_output(add(&g, x), "y");
    return plan::is_batchable(g);
  };
  const auto axis = [](int64_t a) { return ops::Attributes{{"axis", a}}; };
  EXPECT(with([&](Graph* g, ValueId x) { return node(g, Op::kSoftmax, {x}, axis(1)); }));
  EXPECT(!with([&](Graph* g, ValueId x) { return node(g, Op::kSoftmax, {x}, axis(0)); }));
  EXPECT(!with([&](Graph* g, ValueId x) {
    return node(g, Op::kMatMul, {x, node(g, Op::kTranspose, {x}, {{"perm", ops::Ints{1, 0}}})});
  }));
  EXPECT(!with([&](Graph* g, ValueId x) {
    return node(g, Op::kTranspose, {x}, {{"perm", ops::Ints{1, 0}}});
  }));
  EXPECT(!with([&](Graph* g, ValueId x) {
    const ValueId mean = node(g, Op::kReduceMean, {x}, {{"keepdims", int64_t{1}}});
    return node(g, Op::kSub, {x, mean});
  }));
  EXPECT(!with([&](Graph* g, ValueId x) { return node(g, Op::kShape, {x}); }));
  // What passes make of several operators.
  EXPECT(with([&](Graph* g, ValueId x) {
    return node(g, Op::kElementwiseChain, {x}, {{"steps", ops::Strings{"Exp x0", "Mul t0 x0"}}});
  }));
  const auto images = [&](Graph* g, ValueId x, bool residual) {
    auto sizes = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 2, 4});
    const ValueId shape = g->add_constant(
        "shape", {DType::kI64, {3}, reinterpret_cast<std::byte*>(sizes->data()), sizes});
    const ValueId image = node(g, Op::kReshape, {x, shape});
    std::vector<ValueId> inputs{image, g->add_constant("w", numbers({4, 4, 1}, 3))};
    if (residual) inputs.insert(inputs.end(), {graph::kNone, image});
    const ValueId y = node(g, Op::kChannelsLastConv, std::move(inputs));
    return node(g, Op::kChannelsLastGlobalAveragePool, {y});
  };
  EXPECT(with([&](Graph* g, ValueId x) { return images(g, x, false); }));
  EXPECT(with([&](Graph* g, ValueId x) { return images(g, x, true); }));
  EXPECT(with([&](Graph* g, ValueId x) {
    const ValueId gamma = g->add_constant(graph::owned_constant("gamma", std::vector<float>(8)));
    return node(g, Op::kSkipLayerNormalization, {x, node(g, Op::kRelu, {x}), gamma});
  }));
}

// Rows that run together are what they are alone, each in its own submission.
TEST(batched_runs_give_the_same_bits) {
  const auto p = program(towers(2, 3, 24), {});
  std::atomic<int> runs{0};
  plan::Submitter submitter(
      *p,
      [&](std::span<const ops::RuntimeValue> in, std::span<ops::RuntimeValue> out,
          const std::atomic<bool>* cancelled) {
        runs.fetch_add(1);
        return p->run(in, out, {.cancelled = cancelled});
      },
      {.batch_window_ns = 20'000'000, .max_batch = 16});
  EXPECT(submitter.batches());
  std::vector<std::shared_ptr<plan::Submission>> submitted;
  for (int i = 0; i < 12; ++i) {
    auto s = std::make_shared<plan::Submission>();
    s->inputs.resize(1);
    s->outputs.resize(1);
    s->inputs[0].tensor = numbers({1 + i % 3, i == 7 ? 23 : 24}, static_cast<uint32_t>(i));
    ASSERT_OK(submitter.submit(s));
    submitted.push_back(s);
  }
  for (int i = 0; i < 12; ++i) {
    const auto& s = submitted[static_cast<size_t>(i)];
    const Status status = s->wait(parallel::kNoDeadline);
    EXPECT_EQ(status.ok(), i != 7);  // a wrong one fails alone
    if (i == 7) continue;
    const Tensor& y = s->outputs[0].tensor;
    EXPECT_EQ(y.shape[0], 1 + i % 3);
    EXPECT(std::vector<float>(y.as<float>(), y.as<float>() + y.shape.elements()) ==
           run(*p, numbers({1 + i % 3, 24}, static_cast<uint32_t>(i)), nullptr));
  }
  EXPECT(runs.load() < 12);
}

TEST(a_full_queue_is_refused_and_the_end_cancels) {
  const auto p = program(towers(1, 1, 8), {});
  std::atomic<bool> hold{true};
  std::atomic<int> called{0};
  std::vector<std::shared_ptr<plan::Submission>> submitted;
  {
    plan::Submitter submitter(*p,
                              [&](std::span<const ops::RuntimeValue>, std::span<ops::RuntimeValue>,
                                  const std::atomic<bool>* cancelled) -> Status {
                                while (hold.load() && !cancelled->load()) std::this_thread::yield();
                                return cancelled->load() ? error(Code::kCancelled, "cancelled")
                                                         : Status();
                              },
                              {.max_queue = 3});
    EXPECT(!submitter.batches());
    for (int i = 0; i < 4; ++i) {
      auto s = std::make_shared<plan::Submission>();
      s->inputs.resize(1);
      s->outputs.resize(1);
      s->callback = [&](const std::shared_ptr<plan::Submission>&) { called.fetch_add(1); };
      const Status status = submitter.submit(s);
      EXPECT(status.code() == (i < 3 ? Code::kOk : Code::kQueueFull));
      if (status.ok()) submitted.push_back(s);
    }
    EXPECT(submitted[0]->wait(0).code() == Code::kTimeout);
  }
  EXPECT_EQ(called.load(), 3);
  for (const auto& s : submitted) EXPECT(s->wait(parallel::kNoDeadline).code() == Code::kCancelled);
}

}  // namespace
