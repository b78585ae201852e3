// SPDX-License-Identifier: Apache-2.0
//
// Control operators: which subgraph runs, how often, and on what. A subgraph's inputs are those
// that ONNX gives it and then what it takes from outside, which the node has as its last operands.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "plan/program/program.h"
#include "plan/program/run_context.h"
#include "plan/program/specialization.h"

namespace lmn::plan {
namespace {

using ops::RuntimeValue;
using ops::ValueKind;
using Arguments = std::span<const RuntimeValue* const>;

Status fail(const graph::Node& node, const std::string& what) {
  return error(Code::kInvalidArgument, "%s '%s': %s", std::string(name(node.op)).c_str(),
               node.name.c_str(), what.c_str());
}

template <typename T>
Result<T> scalar(const graph::Node& node, const RuntimeValue& value, DType dtype,
                 const char* what) {
  if (value.kind != ValueKind::kTensor || value.tensor.dtype != dtype ||
      value.tensor.shape.elements() != 1) {
    return fail(node, std::string(what) + " is not one " + std::string(info(dtype).name));
  }
  return *value.tensor.as<T>();
}

template <typename T>
Result<RuntimeValue> make_scalar(const AllocateFn& allocate, DType dtype, T value) {
  RuntimeValue out;
  LMN_ASSIGN_OR_RETURN(out.tensor, allocate(dtype, Shape{}));
  *out.tensor.as<T>() = value;
  return out;
}

// A tensor and one of its dimensions: what lies along it is `count` slices, each `outer` runs of
// `inner` elements.
struct Slices {
  int64_t outer = 1, count = 1, inner = 1;
};
Slices slices_of(const Shape& shape, int axis) {
  Slices s;
  for (int i = 0; i < shape.rank; ++i)
    (i < axis ? s.outer : i == axis ? s.count : s.inner) *= shape[i];
  return s;
}

// Slice `index` of `stack` from or to `single`, which has its elements in the same order.
void copy_slice(const Tensor& stack, const Slices& s, int64_t index, const Tensor& single,
                bool to_stack) {
  for (int64_t run = 0; run < s.outer; ++run) {
    const int64_t there = (run * s.count + index) * s.inner, here = run * s.inner;
    if (stack.dtype == DType::kString) {
      auto *a = stack.as<std::string>() + there, *b = single.as<std::string>() + here;
      to_stack ? std::copy_n(b, s.inner, a) : std::copy_n(a, s.inner, b);
      continue;
    }
    const int64_t size = element_bytes(stack.dtype);
    std::byte *a = stack.data + there * size, *b = single.data + here * size;
    const auto bytes = static_cast<size_t>(s.inner * size);
    if (bytes > 0) to_stack ? std::memcpy(a, b, bytes) : std::memcpy(b, a, bytes);
  }
}

Result<Tensor> take_slice(const AllocateFn& allocate, const Tensor& from, int axis, int64_t index) {
  Shape shape;
  for (int i = 0; i < from.shape.rank; ++i) {
    if (i != axis) shape[shape.rank++] = from.shape[i];
  }
  LMN_ASSIGN_OR_RETURN(Tensor out, allocate(from.dtype, shape));
  copy_slice(from, slices_of(from.shape, axis), index, out, false);
  return out;
}

// What an output of a body was in every iteration, along a new dimension at `axis`.
class Stack {
 public:
  Status add(const graph::Node& node, const RuntimeValue& value) {
    if (value.kind != ValueKind::kTensor) return fail(node, "a scan output is no tensor");
    if (!items_.empty() && (value.tensor.shape != items_[0].shape)) {
      return fail(node, "a scan output is " + items_[0].shape.to_string() + " and then " +
                            value.tensor.shape.to_string());
    }
    items_.push_back(value.tensor);
    return {};
  }
  // `type` is the body's: for no iteration at all.
  Result<RuntimeValue> finish(const graph::Node& node, const AllocateFn& allocate,
                              const graph::ValueType& type, int64_t axis, bool reversed) {
    Shape item;
    DType dtype = type.dtype;
    if (items_.empty()) {
      for (const graph::Dim& dim : type.dims) item[item.rank++] = dim.is_constant() ? dim.size : 0;
    } else {
      item = items_[0].shape;
      dtype = items_[0].dtype;
    }
    const int64_t rank = item.rank + 1;
    if (axis < -rank || axis >= rank || rank > kMaxRank)
      return fail(node, "a scan output axis is out of range");
    if (axis < 0) axis += rank;
    Shape shape;
    for (int64_t i = 0, from = 0; i < rank; ++i) {
      shape[shape.rank++] =
          i == axis ? static_cast<int64_t>(items_.size()) : item[static_cast<int>(from++)];
    }
    RuntimeValue out;
    LMN_ASSIGN_OR_RETURN(out.tensor, allocate(dtype, shape));
    const Slices slices = slices_of(shape, static_cast<int>(axis));
    for (size_t i = 0; i < items_.size(); ++i) {
      const size_t at = reversed ? items_.size() - 1 - i : i;
      copy_slice(out.tensor, slices, static_cast<int64_t>(at), items_[i], true);
    }
    return out;
  }

 private:
  std::vector<Tensor> items_;
};

int64_t entry(const graph::Node& node, std::string_view key, size_t i) {
  const auto* list = node.attributes.find_as<ops::Ints>(key);
  return list == nullptr || i >= list->size() ? 0 : (*list)[i];
}

const graph::ValueType& output_type(const Program& body, size_t i) {
  return body.outputs()[i].type;
}

Status run_loop(const graph::Node& node, const Program& body, Arguments inputs,
                std::span<RuntimeValue> outputs, const RunContext& context) {
  const AllocateFn& allocate = *context.allocate;
  const auto captures = static_cast<size_t>(node.attributes.get_or<int64_t>("captures", 0));
  const size_t carried = inputs.size() - 2 - captures;
  int64_t limit = std::numeric_limits<int64_t>::max();
  bool go_on = true;
  if (inputs[0] != nullptr) {
    LMN_ASSIGN_OR_RETURN(limit, scalar<int64_t>(node, *inputs[0], DType::kI64, "M"));
  }
  if (inputs[1] != nullptr) {
    LMN_ASSIGN_OR_RETURN(go_on, scalar<uint8_t>(node, *inputs[1], DType::kBool, "cond"));
  }
  std::vector<RuntimeValue> arguments(inputs.size());
  for (size_t i = 2; i < inputs.size(); ++i) arguments[i] = *inputs[i];
  std::vector<Stack> stacks(outputs.size() - carried);
  for (int64_t iteration = 0; iteration < limit && go_on; ++iteration) {
    LMN_ASSIGN_OR_RETURN(arguments[0], make_scalar(allocate, DType::kI64, iteration));
    LMN_ASSIGN_OR_RETURN(arguments[1], make_scalar(allocate, DType::kBool, uint8_t{go_on}));
    std::vector<RuntimeValue> results(1 + outputs.size());
    LMN_RETURN_IF_ERROR(body.run_in(arguments, results, context));
    LMN_ASSIGN_OR_RETURN(go_on, scalar<uint8_t>(node, results[0], DType::kBool, "the condition"));
    for (size_t i = 0; i < carried; ++i) arguments[2 + i] = std::move(results[1 + i]);
    for (size_t i = 0; i < stacks.size(); ++i)
      LMN_RETURN_IF_ERROR(stacks[i].add(node, results[1 + carried + i]));
  }
  for (size_t i = 0; i < carried; ++i) outputs[i] = std::move(arguments[2 + i]);
  for (size_t i = 0; i < stacks.size(); ++i) {
    LMN_ASSIGN_OR_RETURN(
        outputs[carried + i],
        stacks[i].finish(node, allocate, output_type(body, 1 + carried + i), 0, false));
  }
  return {};
}

Status run_scan(const graph::Node& node, const Program& body, Arguments inputs,
                std::span<RuntimeValue> outputs, const RunContext& context) {
  const AllocateFn& allocate = *context.allocate;
  const auto captures = static_cast<size_t>(node.attributes.get_or<int64_t>("captures", 0));
  const auto scanned = static_cast<size_t>(node.attributes.get<int64_t>("num_scan_inputs"));
  const size_t states = inputs.size() - captures - scanned;
  std::vector<RuntimeValue> arguments(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) return fail(node, "an input is missing");
    if (i < states || i >= states + scanned) arguments[i] = *inputs[i];
  }
  int64_t iterations = -1;
  std::vector<int> axes;
  for (size_t i = 0; i < scanned; ++i) {
    const Tensor& tensor = inputs[states + i]->tensor;
    int64_t axis = entry(node, "scan_input_axes", i);
    if (inputs[states + i]->kind != ValueKind::kTensor || axis < -tensor.shape.rank ||
        axis >= tensor.shape.rank) {
      return fail(node, "scan input " + std::to_string(i) + " has no such axis");
    }
    if (axis < 0) axis += tensor.shape.rank;
    axes.push_back(static_cast<int>(axis));
    const int64_t length = tensor.shape[axes.back()];
    if (iterations >= 0 && length != iterations)
      return fail(node, "scan inputs are of different lengths");
    iterations = length;
  }
  std::vector<Stack> stacks(outputs.size() - states);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    for (size_t i = 0; i < scanned; ++i) {
      const bool reversed = entry(node, "scan_input_directions", i) != 0;
      RuntimeValue& slice = arguments[states + i];
      LMN_ASSIGN_OR_RETURN(slice.tensor,
                           take_slice(allocate, inputs[states + i]->tensor, axes[i],
                                      reversed ? iterations - 1 - iteration : iteration));
    }
    std::vector<RuntimeValue> results(outputs.size());
    LMN_RETURN_IF_ERROR(body.run_in(arguments, results, context));
    for (size_t i = 0; i < states; ++i) arguments[i] = std::move(results[i]);
    for (size_t i = 0; i < stacks.size(); ++i)
      LMN_RETURN_IF_ERROR(stacks[i].add(node, results[states + i]));
  }
  for (size_t i = 0; i < states; ++i) outputs[i] = std::move(arguments[i]);
  for (size_t i = 0; i < stacks.size(); ++i) {
    LMN_ASSIGN_OR_RETURN(outputs[states + i],
                         stacks[i].finish(node, allocate, output_type(body, states + i),
                                          entry(node, "scan_output_axes", i),
                                          entry(node, "scan_output_directions", i) != 0));
  }
  return {};
}

Status run_sequence_map(const graph::Node& node, const Program& body, Arguments inputs,
                        std::span<RuntimeValue> outputs, const RunContext& context) {
  const auto captures = static_cast<size_t>(node.attributes.get_or<int64_t>("captures", 0));
  const size_t own = inputs.size() - captures;
  if (own == 0 || inputs[0] == nullptr || inputs[0]->kind != ValueKind::kSequence)
    return fail(node, "the first input is no sequence");
  const size_t length = inputs[0]->items.size();
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].kind = ValueKind::kSequence;
    outputs[i].tensor.dtype = output_type(body, i).dtype;
  }
  for (size_t item = 0; item < length; ++item) {
    std::vector<RuntimeValue> arguments, results(outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr) return fail(node, "an input is missing");
      const bool each = i < own && inputs[i]->kind == ValueKind::kSequence;
      if (each && inputs[i]->items.size() != length)
        return fail(node, "sequences are of different lengths");
      arguments.push_back(each ? inputs[i]->items[item] : *inputs[i]);
    }
    LMN_RETURN_IF_ERROR(body.run_in(arguments, results, context));
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].items.push_back(std::move(results[i]));
  }
  return {};
}

}  // namespace

Status Program::run_control(graph::NodeId n, Arguments inputs, std::span<RuntimeValue> outputs,
                            const RunContext& context) const {
  const graph::Node& node = graph_.node(n);
  const std::vector<std::unique_ptr<Program>>& children = children_[static_cast<size_t>(n)];
  switch (tensor_op(node.op)) {
    case ops::TensorOp::kIf: {
      LMN_ASSIGN_OR_RETURN(const uint8_t taken,
                           scalar<uint8_t>(node, *inputs[0], DType::kBool, "the condition"));
      std::vector<RuntimeValue> arguments;
      for (const RuntimeValue* value : inputs.subspan(1)) arguments.push_back(*value);
      // Attributes are in the order of their names: else_branch, then_branch.
      return children[taken != 0 ? 1 : 0]->run_in(arguments, outputs, context);
    }
    case ops::TensorOp::kLoop:
      return run_loop(node, *children[0], inputs, outputs, context);
    case ops::TensorOp::kScan:
      return run_scan(node, *children[0], inputs, outputs, context);
    case ops::TensorOp::kSequenceMap:
      return run_sequence_map(node, *children[0], inputs, outputs, context);
    default:
      break;
  }
  LMN_CHECK(!"a control operator that does not run");
}

}  // namespace lmn::plan
