// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/graph.h: callers' graphs, in the meaning of the newest operator set. What a
// graph may be is judged by the graph room (Graph::add, verify); here, arguments are read.
#include <algorithm>
#include <cctype>
#include <span>

#include "capi/graph_attributes.h"
#include "capi/graph_object.h"
#include "capi/options.h"
#include "capi/session_object.h"
#include "capi/session_value.h"
#include "graph/schema.h"
#include "ops/tensor_op.h"

namespace lmn::capi {
namespace {

constexpr size_t kMaxOutputs = 4096;  // of one node; a larger number is an uninitialised variable

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

Result<ops::TensorOp> find_op(const char* name) {
  if (const ops::TensorOp* found = ops::find_tensor_op(name)) return *found;
  for (int i = 0; i < ops::kTensorOpCount; ++i) {
    const auto op = static_cast<ops::TensorOp>(i);
    if (same_letters(ops::name(op), name)) return op;
  }
  return error(Code::kNotFound,
               "there is no operator '%s'; they have ONNX's names (https://onnx.ai/onnx/operators)",
               name);
}

// The graphs of an operator have the inputs that it will give them.
Status check_subgraphs(const graph::Graph& graph, ops::TensorOp op, std::span<const int32_t> inputs,
                       const ops::Attributes& attributes) {
  const size_t skipped = op == ops::TensorOp::kIf ? 1 : 0;  // its condition
  for (const auto& [key, value] : attributes.entries()) {
    const auto* found = std::get_if<std::shared_ptr<const graph::Graph>>(&value);
    if (found == nullptr) continue;
    const graph::Graph& body = **found;
    const std::string where = std::string(ops::name(op)) + ": graph '" + key + "'";
    if (body.inputs.size() + skipped != inputs.size()) {
      return error(Code::kInvalidArgument, "%s has %zu inputs, and the node gives it %zu",
                   where.c_str(), body.inputs.size(),
                   inputs.size() - std::min(skipped, inputs.size()));
    }
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      const graph::ValueId id = inputs[i + skipped];
      if (id < 0 || id >= static_cast<graph::ValueId>(graph.values.size())) continue;
      const graph::ValueType& outer = graph.value(id).type;
      const graph::ValueType& inner = body.value(body.inputs[i]).type;
      if (outer.dtype == inner.dtype) continue;
      return error(Code::kInvalidArgument, "%s: input %zu is %s, and the node gives it %s",
                   where.c_str(), i, inner.to_string().c_str(), outer.to_string().c_str());
    }
  }
  return {};
}

bool has_value(const graph::Graph& graph, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < graph.values.size();
}

Status check_value(const graph::Graph& graph, int32_t id) {
  if (has_value(graph, id)) return {};
  return error(Code::kNotFound, "value %d; the graph has %zu", id, graph.values.size());
}

Result<graph::ValueType> read_type(const char* name, const char* dtype, int32_t ndim,
                                   const int64_t* shape, const char* const* symbols) {
  graph::ValueType type;
  LMN_ASSIGN_OR_RETURN(type.dtype, find_dtype(dtype));
  if (ndim < -1 || ndim > kMaxRank)
    return error(Code::kInvalidArgument, "input '%s': ndim is %d; it is -1 to %d", name, ndim,
                 kMaxRank);
  if (ndim > 0) LMN_REQUIRE_ONE(shape);
  type.ranked = ndim >= 0;
  for (int i = 0; i < ndim; ++i) {
    const char* symbol = symbols == nullptr ? nullptr : symbols[i];
    if (shape[i] < -1)
      return error(Code::kInvalidArgument, "input '%s': shape[%d] is %lld; it is -1 or more", name,
                   i, static_cast<long long>(shape[i]));
    if (shape[i] >= 0) {
      type.dims.emplace_back(shape[i]);
    } else {
      type.dims.emplace_back(symbol == nullptr || *symbol == 0 ? std::string("?")
                                                               : std::string(symbol));
    }
  }
  return type;
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_graph_create(lmn_graph** graph, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    *graph = new lmn_graph;
    return {};
  });
}

void lmn_graph_destroy(lmn_graph* graph) {
  guard_destroy([&] { delete graph; });
}

lmn_status lmn_graph_input_create(lmn_graph* graph, const char* name, const char* dtype,
                                  int32_t ndim, const int64_t* shape, const char* const* symbols,
                                  int32_t* value, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    LMN_REQUIRE_ONE(name);
    LMN_REQUIRE_ONE(dtype);
    LMN_REQUIRE_ONE(value);
    if (*name == 0) return error(Code::kInvalidArgument, "an input has no name");
    for (const graph::ValueId id : graph->object.inputs) {
      if (graph->object.value(id).name == name)
        return error(Code::kInvalidArgument, "there is an input '%s' already", name);
    }
    LMN_ASSIGN_OR_RETURN(graph::ValueType type, read_type(name, dtype, ndim, shape, symbols));
    *value = graph->object.add_input(name, std::move(type));
    return {};
  });
}

lmn_status lmn_graph_constant_create(lmn_graph* graph, const char* name,
                                     const lmn_session_value* tensor, int32_t* value,
                                     lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    LMN_REQUIRE_ONE(tensor);
    LMN_REQUIRE_ONE(value);
    if (tensor->object.kind != ops::ValueKind::kTensor)
      return error(Code::kInvalidArgument, "the constant is not a tensor");
    const std::string given = name == nullptr ? "" : name;
    const std::string label =
        given.empty() ? "constant." + std::to_string(graph->object.values.size()) : given;
    *value = graph->object.add_constant(label, tensor->object.tensor);
    return {};
  });
}

lmn_status lmn_graph_node_create(lmn_graph* graph, const char* op, const int32_t* inputs,
                                 size_t input_count, const lmn_attribute* attributes,
                                 size_t attribute_count, int32_t* outputs, size_t output_count,
                                 lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    LMN_REQUIRE_ONE(op);
    if (input_count > 0) LMN_REQUIRE_ONE(inputs);
    if (attribute_count > 0) LMN_REQUIRE_ONE(attributes);
    LMN_REQUIRE_ONE(outputs);
    if (output_count < 1 || output_count > kMaxOutputs)
      return error(Code::kInvalidArgument, "%s: output_count is %zu; it is 1 to %zu", op,
                   output_count, kMaxOutputs);
    LMN_ASSIGN_OR_RETURN(const ops::TensorOp found, find_op(op));
    std::vector<graph::ValueId> operands(inputs, inputs + input_count);
    while (!operands.empty() && operands.back() == graph::kNone && found != ops::TensorOp::kLoop)
      operands.pop_back();
    LMN_ASSIGN_OR_RETURN(
        ops::Attributes named,
        read_attributes(std::string(ops::name(found)).c_str(), attributes, attribute_count));
    LMN_RETURN_IF_ERROR(check_subgraphs(graph->object, found, operands, named));
    std::string label =
        std::string(ops::name(found)) + "." + std::to_string(graph->object.nodes.size());
    LMN_ASSIGN_OR_RETURN(
        const graph::NodeId node,
        graph->object.add(graph::op_of(found), std::move(operands), std::move(named),
                          std::move(label), static_cast<int>(output_count)));
    const std::vector<graph::ValueId>& made = graph->object.node(node).outputs;
    std::copy(made.begin(), made.end(), outputs);
    return {};
  });
}

lmn_status lmn_graph_output_create(lmn_graph* graph, const char* name, int32_t value,
                                   lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    LMN_REQUIRE_ONE(name);
    LMN_RETURN_IF_ERROR(check_value(graph->object, value));
    if (*name == 0) return error(Code::kInvalidArgument, "an output has no name");
    for (const graph::Output& output : graph->object.outputs) {
      if (output.name == name)
        return error(Code::kInvalidArgument, "there is an output '%s' already", name);
    }
    graph->object.add_output(value, name);
    return {};
  });
}

lmn_status lmn_graph_value_get(const lmn_graph* graph, int32_t value, lmn_port_info* info,
                               lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_port_info"));
    LMN_RETURN_IF_ERROR(check_value(graph->object, value));
    const graph::Value& found = graph->object.value(value);
    write_output(port_info_of(found.name, found.type), info);
    return {};
  });
}

lmn_status lmn_graph_session_create(const lmn_graph* graph, const lmn_session_options* options,
                                    lmn_session** session, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(graph);
    LMN_REQUIRE_ONE(session);
    lmn_session_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_session_options", &given));
    if (graph->object.outputs.empty())
      return error(Code::kInvalidArgument,
                   "the graph has no outputs: add one before a session is made of it");
    LMN_RETURN_IF_ERROR(graph::verify(graph->object));
    return create_session(graph->object, given, session);
  });
}

}  // extern "C"
