// SPDX-License-Identifier: Apache-2.0
//
// A node as the steps that elementwise.cuh computes: which they are for each operator, where their
// results lie in between, and whether the operator is there for integers, too. Types, shapes and
// launches are elementwise.cu's.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/status.h"
#include "cuda/kernels/tensor/element_op.h"
#include "ops/tensor_kernel.h"

namespace lmn::cuda::tensor {

struct ElementProgram {
  std::vector<ElementStep> steps;
  int buffers = 0;
  bool takes_integers = false;
  bool moves = false;       // elements are not looked at, but the condition of Where
  std::vector<int> inputs;  // of the node: what operands of steps are numbers of

  // `alpha` of the last one's numbers.
  void add(ElementOp op, std::initializer_list<int> operands, float alpha = 0, float beta = 0) {
    ElementStep step;
    step.op = op;
    step.operand_count = 0;
    for (const int operand : operands)
      step.operands[step.operand_count++] = static_cast<int8_t>(operand);
    step.numbers[0] = alpha;
    step.numbers[1] = beta;
    steps.push_back(step);
  }
  // The last step's result is the first operand of the next.
  void then(ElementOp op, std::initializer_list<int> more, float alpha = 0, float beta = 0) {
    steps.back().to = 0;
    buffers = 1;
    add(op, {~0}, alpha, beta);
    for (const int operand : more)
      steps.back().operands[steps.back().operand_count++] = static_cast<int8_t>(operand);
  }
};

// UNSUPPORTED where the operator, or so many operands, are not there.
Status make_program(const ops::TensorNode& node, ElementProgram* program);

}  // namespace lmn::cuda::tensor
