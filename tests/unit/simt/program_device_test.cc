// SPDX-License-Identifier: Apache-2.0
//
// What programs ask of a device, which the runtime of tests counts, and what becomes of them when
// it fails, which that does when it is told to.
#include "fake_gpu.h"
#include "program_case.h"

namespace {

using namespace simt_tests;
using graph::Graph;
using graph::Op;
using graph::ValueId;
using plan::Program;

TEST(a_graph_that_the_device_has_kernels_for_waits_once) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"batch", 16}));
  const ValueId h = node(&g, Op::kTanh, {node(&g, Op::kMatMul, {x, matrix(&g, 16, 24, 1)})});
  const ValueId y = node(&g, Op::kSoftmax, {node(&g, Op::kMatMul, {h, matrix(&g, 24, 8, 2)})});
  g.add_output(y, "y");
  g.add_output(y, "again");
  g.add_output(x, "x too");
  const auto gpu = std::make_shared<fake_cuda::FakeGpu>();
  const Both both(g, {}, fake_cuda::shared_device(gpu));
  for (const int64_t rows : {1, 5, 1}) {
    const int64_t waits = gpu->counters().waits;
    both.check({value(DType::kF32, {rows, 16}, some_numbers(rows * 16, 3))});
    both.expect_places(4, 0);
    if (waits > 0 && rows == 1) EXPECT_EQ(gpu->counters().waits, waits + 1);
  }
}

TEST(a_device_that_fails_ends_runs_and_nothing_else) {
  Graph g;
  const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n"}));
  g.add_output(node(&g, Op::kTanh, {node(&g, Op::kExp, {x})}), "y");
  const auto gpu = std::make_shared<fake_cuda::FakeGpu>();
  const Both both(g, {}, fake_cuda::shared_device(gpu));
  const std::vector<ops::RuntimeValue> in = {value(DType::kF32, {8}, some_numbers(8, 1))};
  both.check(in);
  gpu->fail_kernel(2);
  std::vector<ops::RuntimeValue> out(1);
  EXPECT(both.on_device->run(in, out, {}).code() == Code::kInternal);
  EXPECT(both.on_device->run(in, out, {}).code() == Code::kClosed);
  ASSERT_OK(both.on_host->run(in, out, {}));
}

TEST(memory_of_the_device_returns) {
  const auto gpu = std::make_shared<fake_cuda::FakeGpu>();
  {
    Graph g;
    const ValueId x = g.add_input("x", graph::tensor(DType::kF32, {"n", 16}));
    g.add_output(node(&g, Op::kMatMul, {x, matrix(&g, 16, 4, 1)}), "y");
    auto program = Program::create(g, *cpu::create_cpu_device(""),
                                   {.accelerator = fake_cuda::shared_device(gpu)});
    ASSERT_OK(program);
    for (const int64_t rows : {1, 2}) {
      std::vector<ops::RuntimeValue> out(1);
      const std::vector<ops::RuntimeValue> in = {
          value(DType::kF32, {rows, 16}, some_numbers(rows * 16, 1))};
      ASSERT_OK((*program)->run(in, out, {}));
    }
    EXPECT(gpu->bytes_in_use() > 0);
  }
  EXPECT_EQ(gpu->bytes_in_use(), 0);
}

}  // namespace
