// SPDX-License-Identifier: Apache-2.0
//
// Types of control operators: what their subgraphs say of their outputs. Sizes may differ from one
// run of a subgraph to the next, so only ranks and element types are relied upon.
#include "graph/schema.h"

namespace lmn::graph {
namespace {

const Graph* subgraph(const Node& node, std::string_view key) {
  const auto* found = node.attributes.find_as<std::shared_ptr<const Graph>>(key);
  return found == nullptr ? nullptr : found->get();
}

Status fail(const Node& node, const std::string& what) {
  return error(Code::kInvalidArgument, "%s '%s': %s", std::string(name(node.op)).c_str(),
               node.name.c_str(), what.c_str());
}

// A type of which only what two branches agree on is known.
ValueType common(const ValueType& a, const ValueType& b) {
  if (a == b) return a;
  ValueType out = a;
  if (!a.ranked || !b.ranked || a.dims.size() != b.dims.size()) {
    out.dims.clear();
    out.ranked = false;
    return out;
  }
  for (size_t i = 0; i < out.dims.size(); ++i) {
    if (!(a.dims[i] == b.dims[i])) out.dims[i] = Dim("?");
  }
  return out;
}

Status infer_if(const Node& node, std::vector<ValueType>* outputs) {
  const Graph *then_branch = subgraph(node, "then_branch"),
              *else_branch = subgraph(node, "else_branch");
  if (then_branch == nullptr || else_branch == nullptr) return fail(node, "a branch is missing");
  if (node.inputs.empty()) return fail(node, "the condition is missing");
  for (const Graph* branch : {then_branch, else_branch}) {
    if (branch->outputs.size() != outputs->size()) {
      return fail(node, "a branch has " + std::to_string(branch->outputs.size()) +
                            " outputs, the node has " + std::to_string(outputs->size()));
    }
  }
  for (size_t i = 0; i < outputs->size(); ++i) {
    const ValueType& a = then_branch->value(then_branch->outputs[i].value).type;
    const ValueType& b = else_branch->value(else_branch->outputs[i].value).type;
    if (a.kind == Kind::kTensor && b.kind == Kind::kTensor && a.dtype != b.dtype) {
      return fail(node, "output " + std::to_string(i) + " is " + a.to_string() +
                            " in one branch and " + b.to_string() + " in the other");
    }
    (*outputs)[i] = common(a, b);
  }
  return {};
}

}  // namespace

Status infer_control_op(const Graph&, const Node& node, std::vector<ValueType>* outputs) {
  switch (tensor_op(node.op)) {
    case ops::TensorOp::kIf:
      return infer_if(node, outputs);
    default:
      break;
  }
  LMN_CHECK(!"a control operator without types");
}

}  // namespace lmn::graph
