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

// Output i of a body as one of its node: element type and rank; sizes change from one iteration to
// the next. `stacked`: with one more dimension, along which iterations lie.
void body_output(const Graph& body, size_t i, bool stacked, ValueType* out) {
  *out = body.value(body.outputs[i].value).type;
  for (Dim& dim : out->dims) dim = Dim("?");
  if (stacked && out->ranked) out->dims.insert(out->dims.begin(), Dim("?"));
}

// Loop and Scan: `carried` values come in as operands `first` and go out as outputs 0 and on;
// the body has `own` outputs before them.
Status infer_iteration(const Graph& graph, const Node& node, const Graph& body, size_t first,
                       size_t carried, size_t own, std::vector<ValueType>* outputs) {
  if (body.inputs.size() != node.inputs.size()) {
    return fail(node, "the body has " + std::to_string(body.inputs.size()) + " inputs, the node " +
                          std::to_string(node.inputs.size()));
  }
  if (body.outputs.size() != outputs->size() + own || outputs->size() < carried) {
    return fail(node, "the body has " + std::to_string(body.outputs.size()) +
                          " outputs, the node " + std::to_string(outputs->size()) + ", of which " +
                          std::to_string(carried) + " are carried from one iteration to the next");
  }
  for (size_t i = 0; i < outputs->size(); ++i) {
    body_output(body, i + own, i >= carried, &(*outputs)[i]);
    if (i >= carried) continue;
    const ValueId initial = node.input(first + i);
    if (initial == kNone) return fail(node, "an initial value is missing");
    const ValueType& start = graph.value(initial).type;
    ValueType& type = (*outputs)[i];
    if (start.kind != type.kind || start.dtype != type.dtype) {
      return fail(node, "a value is " + start.to_string() + " before the first iteration and " +
                            type.to_string() + " after it");
    }
    if (type.kind == Kind::kTensor && type.dims.size() != start.dims.size()) {
      type.ranked = false;
      type.dims.clear();
    }
  }
  return {};
}

Status infer_loop(const Graph& graph, const Node& node, std::vector<ValueType>* outputs) {
  const Graph* body = subgraph(node, "body");
  const auto captures = static_cast<size_t>(node.attributes.get_or<int64_t>("captures", 0));
  if (body == nullptr || node.inputs.size() < 2 + captures)
    return fail(node, "the body or an input is missing");
  return infer_iteration(graph, node, *body, 2, node.inputs.size() - 2 - captures, 1, outputs);
}

Status infer_scan(const Graph& graph, const Node& node, std::vector<ValueType>* outputs) {
  const Graph* body = subgraph(node, "body");
  const auto captures = static_cast<size_t>(node.attributes.get_or<int64_t>("captures", 0));
  const int64_t scanned = node.attributes.get_or<int64_t>("num_scan_inputs", 0);
  if (body == nullptr || scanned < 1 ||
      node.inputs.size() < captures + static_cast<size_t>(scanned))
    return fail(node, "the body or an input is missing");
  const size_t states = node.inputs.size() - captures - static_cast<size_t>(scanned);
  return infer_iteration(graph, node, *body, 0, states, 0, outputs);
}

Status infer_sequence_map(const Node& node, std::vector<ValueType>* outputs) {
  const Graph* body = subgraph(node, "body");
  if (body == nullptr || body->inputs.size() != node.inputs.size() ||
      body->outputs.size() != outputs->size()) {
    return fail(node, "the body does not have the inputs and outputs of the node");
  }
  for (size_t i = 0; i < outputs->size(); ++i) {
    (*outputs)[i] = ValueType{};
    (*outputs)[i].kind = Kind::kSequence;
    (*outputs)[i].dtype = body->value(body->outputs[i].value).type.dtype;
  }
  return {};
}

}  // namespace

Status infer_control_op(const Graph& graph, const Node& node, std::vector<ValueType>* outputs) {
  switch (tensor_op(node.op)) {
    case ops::TensorOp::kIf:
      return infer_if(node, outputs);
    case ops::TensorOp::kLoop:
      return infer_loop(graph, node, outputs);
    case ops::TensorOp::kScan:
      return infer_scan(graph, node, outputs);
    case ops::TensorOp::kSequenceMap:
      return infer_sequence_map(node, outputs);
    default:
      break;
  }
  LMN_CHECK(!"a control operator without types");
}

}  // namespace lmn::graph
