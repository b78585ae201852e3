// SPDX-License-Identifier: Apache-2.0
//
// Operands that kernels read when they are bound, given at the run instead of as constants, where
// the type of the result does not tell them apart: rank 0, all axes, no axes, sizes that are known.
#include <cstring>
#include <string>

#include "cpu/cpu_device.h"
#include "plan/program/program.h"
#include "testing.h"

namespace {

using namespace lmn;
using graph::Graph;
using graph::Op;
using graph::ValueId;

template <typename T>
Tensor tensor_of(DType dtype, Shape shape, std::vector<T> values) {
  auto memory = std::make_shared<std::vector<T>>(std::move(values));
  return {dtype, shape, reinterpret_cast<std::byte*>(memory->data()), memory};
}
Tensor floats_of(Shape shape, std::vector<float> values) {
  return tensor_of<float>(DType::kF32, shape, std::move(values));
}
Tensor list(std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return tensor_of<int64_t>(DType::kI64, {count}, std::move(values));
}
Tensor one(int64_t number) { return tensor_of<int64_t>(DType::kI64, {}, {number}); }

// The elements of op(operands); operand i is an input of the graph where bit i is set, or else a
// constant.
std::vector<float> run(Op op, const ops::Attributes& attributes, const std::vector<Tensor>& given,
                       unsigned at_run) {
  Graph g;
  std::vector<ValueId> inputs;
  std::vector<ops::RuntimeValue> in, out(1);
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    if ((at_run >> i & 1u) == 0) {
      inputs.push_back(g.add_constant(name, given[i]));
      continue;
    }
    graph::ValueType type;
    type.dtype = given[i].dtype;
    for (int d = 0; d < given[i].shape.rank; ++d) type.dims.emplace_back(given[i].shape[d]);
    inputs.push_back(g.add_input(name, type));
    in.emplace_back().tensor = given[i];
  }
  const auto id = g.add(op, std::move(inputs), attributes, "n");
  ASSERT_OK(id);
  g.add_output(g.node(*id).outputs[0], "y");
  auto program = plan::Program::create(std::move(g), *cpu::create_cpu_device(""), {});
  ASSERT_OK(program);
  for (int round = 0; round < 2; ++round) ASSERT_OK((*program)->run(in, out, {}));
  const Tensor& y = out[0].tensor;
  return {y.as<float>(), y.as<float>() + y.shape.elements()};
}

void check(Op op, const ops::Attributes& attributes, const std::vector<Tensor>& given,
           const std::vector<float>& want) {
  EXPECT(run(op, attributes, given, 1) == want);
  EXPECT(run(op, attributes, given, ~0u) == want);
}

TEST(operands_of_a_run_a_reduction_of_all_axes) {
  const Tensor x = floats_of({2, 3}, {1, 2, 3, 4, 5, 6});
  check(Op::kReduceSum, {{"keepdims", int64_t{0}}}, {x, list({1, 0})}, {21});
  check(Op::kReduceMax, {{"keepdims", int64_t{0}}}, {x, list({0, -1})}, {6});
  check(Op::kReduceMean, {}, {floats_of({}, {7}), list({})}, {7});
}

TEST(operands_of_a_run_rank_0) {
  const Tensor x = floats_of({}, {7});
  check(Op::kTile, {}, {x, list({})}, {7});
  check(Op::kPad, {}, {x, list({})}, {7});
  check(Op::kSlice, {}, {x, list({}), list({})}, {7});
  check(Op::kCenterCropPad, {}, {x, list({})}, {7});
}

TEST(operands_of_a_run_that_do_not_fit_are_errors) {
  for (const bool constants : {true, false}) {
    for (const auto& [op, more] : std::vector<std::pair<Op, std::vector<Tensor>>>{
             {Op::kPad, {list({1, 1})}},
             {Op::kTile, {list({2})}},
             {Op::kSlice, {list({0}), list({1})}},
             {Op::kSlice, {list({0}), list({1}), list({})}}}) {
      Graph g;
      std::vector<ops::RuntimeValue> in(1), out(1);
      graph::ValueType any;
      any.dtype = DType::kF32;
      any.ranked = false;
      std::vector<ValueId> inputs = {g.add_input("x", any)};
      in[0].tensor = floats_of({}, {7});
      for (const Tensor& tensor : more) {
        if (constants) {
          inputs.push_back(g.add_constant("c" + std::to_string(inputs.size()), tensor));
        } else {
          inputs.push_back(g.add_input("c" + std::to_string(inputs.size()),
                                       graph::tensor(DType::kI64, {tensor.shape[0]})));
          in.emplace_back().tensor = tensor;
        }
      }
      const auto id = g.add(op, std::move(inputs), {}, "n");
      ASSERT_OK(id);
      g.add_output(g.node(*id).outputs[0], "y");
      auto program = plan::Program::create(std::move(g), *cpu::create_cpu_device(""), {});
      ASSERT_OK(program);
      EXPECT((*program)->run(in, out, {}).code() == Code::kInvalidArgument);
    }
  }
}

// Bands over the bins of a transform: which bins are in one depends on the rate.
TEST(operands_of_a_run_the_rate_of_mel_weights) {
  const auto mel = [](int64_t rate, unsigned at_run) {
    return run(Op::kMelWeightMatrix, {},
               {one(2), one(64), one(rate), floats_of({}, {0}), floats_of({}, {4000})}, at_run);
  };
  EXPECT(mel(8000, 1u << 2) == mel(8000, 0));
  EXPECT(mel(16000, 1u << 2) == mel(16000, 0));
  EXPECT(mel(8000, 1u << 2) != mel(16000, 1u << 2));
}

}  // namespace
