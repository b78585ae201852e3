// SPDX-License-Identifier: Apache-2.0
//
// Control operators: which subgraph runs, how often, and on what. A subgraph's inputs are those
// that ONNX gives it and then what it takes from outside, which the node has as its last operands.
#include "core/check.h"
#include "plan/program/program.h"
#include "plan/program/specialization.h"

namespace lmn::plan {
namespace {

using ops::RuntimeValue;

Status fail(const graph::Node& node, const char* what) {
  return error(Code::kInvalidArgument, "%s '%s': %s", std::string(name(node.op)).c_str(),
               node.name.c_str(), what);
}

Result<bool> condition(const graph::Node& node, const RuntimeValue& value) {
  if (value.kind != ops::ValueKind::kTensor || value.tensor.dtype != DType::kBool ||
      value.tensor.shape.elements() != 1) {
    return fail(node, "the condition is not one bool");
  }
  return *value.tensor.as<uint8_t>() != 0;
}

}  // namespace

Status Program::run_control(graph::NodeId n, std::span<const RuntimeValue* const> inputs,
                            std::span<RuntimeValue> outputs, parallel::ThreadTeam* team) const {
  const graph::Node& node = graph_.node(n);
  const std::vector<std::unique_ptr<Program>>& children = children_[static_cast<size_t>(n)];
  switch (tensor_op(node.op)) {
    case ops::TensorOp::kIf: {
      LMN_ASSIGN_OR_RETURN(const bool taken, condition(node, *inputs[0]));
      // Attributes are in the order of their names: else_branch, then_branch.
      const Program& branch = *children[taken ? 1 : 0];
      std::vector<RuntimeValue> arguments;
      for (const RuntimeValue* value : inputs.subspan(1)) arguments.push_back(*value);
      return branch.run(arguments, outputs, team);
    }
    default:
      break;
  }
  LMN_CHECK(!"a control operator that does not run");
}

}  // namespace lmn::plan
