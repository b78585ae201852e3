// SPDX-License-Identifier: Apache-2.0
//
// The rules of every operator as a graph sees it: operands, attributes, and how types of outputs
// follow from those of inputs. Plans and passes rely on these rules and check nothing twice.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "ops/attribute_types.h"

namespace lmn::graph {

struct OperandSpec {
  std::string_view name;
  bool optional = false;
  // kernels read it with a row stride: it may be a view of some columns of a wider matrix
  bool strided = false;
};

// In the order of Attribute's alternatives.
enum class AttributeKind : uint8_t { kInt, kFloat, kString };

struct AttributeSpec {
  std::string_view name;
  AttributeKind kind;
  bool optional = false;
};

struct Schema {
  std::vector<OperandSpec> operands;
  std::vector<AttributeSpec> attributes;
  // Row i of every output depends on row i of the operands that have rows and on constants, so that
  // a choice of rows may be made before the operator as well as after it.
  bool row_wise = false;
  // Output 0 is operand 0, changed in place: what is a view stays one, and nothing may read the
  // operand afterwards.
  bool in_place = false;
  // Types of the outputs. Operands and attributes are present and of their kind when it is called.
  Status (*infer)(const Graph& graph, const Node& node, std::vector<ValueType>* outputs);
};

// Not for operators of tensor_ops.def, whose rules are ops::infer's.
const Schema& schema(Op op);

// Checks operands and attributes of `node` against its schema and infers the types of its outputs.
// INVALID_ARGUMENT names the node, what it has and what was expected. For operators of
// tensor_ops.def, `outputs` has as many entries as the node has outputs.
Status infer(const Graph& graph, const Node& node, std::vector<ValueType>* outputs);

// What attributes are by their names, for who reads them from elsewhere.
using ops::check_attribute_types;
using ops::OperatorSets;

// infer() of an operator of tensor_ops.def (infer_tensor_op.cc).
Status infer_tensor_op(const Graph& graph, const Node& node, std::vector<ValueType>* outputs);
// Types of a control operator's outputs from its subgraphs (control.cc).
Status infer_control_op(const Graph& graph, const Node& node, std::vector<ValueType>* outputs);

// SSA order, ids in range, one producer per value, constants that are whole, and types that the
// schemas agree with.
Status verify(const Graph& graph);

}  // namespace lmn::graph
