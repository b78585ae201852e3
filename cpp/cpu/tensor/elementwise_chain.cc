// SPDX-License-Identifier: Apache-2.0
//
// Kernel of lmnative.ElementwiseChain. All steps of a block are done before those of the next: what
// is between them stays in the first-level cache. Work is shared out in elements of the output.
#include "ops/infer/elementwise_chain.h"

#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

using ops::ChainStep;

struct ChainKernel {
  std::vector<ChainStep> steps;
  std::vector<int> buffers;  // of every step but the last
  int buffer_count = 0;
  std::vector<BroadcastWalk<1>> walks;  // of every input
  int64_t count = 0;
  void (*run_step)(const ChainTask& task) = nullptr;

  void assign_buffers();
  void run(const ops::Operands& io, const ops::Worker& worker) const;
};

// A step may write where an operand is that no later step reads.
void ChainKernel::assign_buffers() {
  const size_t last = steps.size() - 1;
  std::vector<size_t> last_use(steps.size(), 0);
  const auto for_results = [&](size_t s, auto f) {
    for (int i = 0; i < ops::info(steps[s].op).operands; ++i) {
      if (!steps[s].operands[i].is_input) f(static_cast<size_t>(steps[s].operands[i].index));
    }
  };
  for (size_t s = 0; s <= last; ++s) for_results(s, [&](size_t t) { last_use[t] = s; });
  std::vector<int> free;
  buffers.assign(last, -1);
  for (size_t s = 0; s < last; ++s) {
    for_results(s, [&](size_t t) {
      if (last_use[t] == s && std::find(free.begin(), free.end(), buffers[t]) == free.end())
        free.push_back(buffers[t]);
    });
    if (free.empty()) free.push_back(buffer_count++);
    buffers[s] = free.back();
    free.pop_back();
    if (last_use[s] == 0) free.push_back(buffers[s]);  // that nobody reads
  }
}

void ChainKernel::run(const ops::Operands& io, const ops::Worker& worker) const {
  float* const scratch = reinterpret_cast<float*>(worker.scratch);
  const float* values[ops::kMaxChainInputs];
  int64_t strides[ops::kMaxChainInputs];
  const auto [begin, end] = ops::share_of(count, worker);
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    for (size_t i = 0; i < walks.size(); ++i) {
      const BroadcastWalk<1>& walk = walks[i];
      const float* const x = io.input<float>(static_cast<int>(i));
      const int64_t stride = strides[i] = walk.inner_stride(0), first = at % walk.inner();
      if (first + n <= walk.inner()) {
        values[i] = x + walk.offsets(at / walk.inner())[0] + first * stride;
        continue;
      }
      float* const gathered = scratch + (buffer_count + static_cast<int64_t>(i)) * kChunk;
      for_runs(walk, at, at + n, [&](int64_t to, const auto& offsets, int64_t run) {
        const float* const from = x + offsets[0];
        float* const out = gathered + (to - at);
        if (stride == 0) {
          std::fill_n(out, run, *from);
        } else {
          std::copy_n(from, run, out);
        }
      });
      values[i] = gathered;
      strides[i] = 1;
    }
    for (size_t s = 0; s < steps.size(); ++s) {
      const ChainStep& step = steps[s];
      ChainTask task{step.op, step.numbers, nullptr, nullptr, 1, 1, nullptr, n};
      const auto find = [&](const ops::ChainOperand& operand, int64_t* stride) -> const float* {
        const auto index = static_cast<size_t>(operand.index);
        if (!operand.is_input) return scratch + buffers[index] * kChunk;
        *stride = strides[index];
        return values[index];
      };
      task.a = find(step.operands[0], &task.a_stride);
      if (ops::info(step.op).operands > 1) task.b = find(step.operands[1], &task.b_stride);
      task.y = s + 1 == steps.size() ? io.output<float>(0) + at : scratch + buffers[s] * kChunk;
      run_step(task);
    }
  }
}

// Rough nanoseconds of an element.
double cost_of(ops::ChainOp op) {
  using Op = ops::ChainOp;
  switch (op) {
    case Op::kElu:
    case Op::kErf:
    case Op::kExp:
    case Op::kGelu:
    case Op::kGeluTanh:
    case Op::kLog:
    case Op::kMish:
    case Op::kSigmoid:
    case Op::kSoftplus:
    case Op::kSwish:
    case Op::kTanh:
      return 0.5;
    default:
      return 0.1;
  }
}

}  // namespace

Status bind_ElementwiseChain(const Binding& b) {
  ChainKernel kernel;
  LMN_RETURN_IF_ERROR(ops::read_chain(b.node, &kernel.steps));
  kernel.assign_buffers();
  kernel.count = b.outputs[0].shape.elements();
  kernel.run_step = b.isa.floats.chain_step;
  double cost = 0.1;
  for (const ChainStep& step : kernel.steps) cost += cost_of(step.op);
  for (int i = 0; i < b.node.inputs(); ++i)
    kernel.walks.push_back(make_walk<1>(b.outputs[0].shape, {&b.node.shape(i)}));
  b.kernel.splits = true;
  b.kernel.in_place = in_place_input(b);
  b.kernel.cost = 20 + cost * static_cast<double>(kernel.count);
  b.kernel.scratch_bytes =
      static_cast<size_t>(kernel.buffer_count + b.node.inputs()) * kChunk * sizeof(float);
  b.kernel.set([kernel = std::move(kernel)](const ops::Operands& io, const ops::Worker& worker) {
    kernel.run(io, worker);
  });
  return {};
}

}  // namespace lmn::cpu
