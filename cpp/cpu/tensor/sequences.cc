// SPDX-License-Identifier: Apache-2.0
//
// Evaluation of tensor_ops/values.def: sequences and optionals.
#include <cinttypes>

#include "cpu/tensor/tensor_kernels.h"
#include "cpu/tensor/values.h"

namespace lmn::cpu {
namespace {

using ops::RuntimeValue;
using ops::ValueKind;

constexpr int64_t kMaxItems = int64_t{1} << 24;  // of one sequence

int64_t integer_of(const Tensor& tensor) {
  return tensor.dtype == DType::kI64 ? *tensor.as<int64_t>() : *tensor.as<int32_t>();
}

// Position in [0, limit) that operand i names, negative ones counted from the end of `size` items;
// `otherwise` where it is absent.
Status position_of(const ops::TensorNode& node, const ops::EvaluateContext& context, int i,
                   int64_t size, int64_t limit, int64_t otherwise, int64_t* position) {
  *position = otherwise;
  if (node.has(i)) {
    const int64_t value = integer_of(context.tensor(i));
    *position = value < 0 ? value + size : value;
  }
  if (*position >= 0 && *position < limit) return {};
  return node.fail("position %" PRId64 " in a sequence of %" PRId64,
                   node.has(i) ? integer_of(context.tensor(i)) : otherwise, size);
}

void start_sequence(DType dtype, RuntimeValue* out) {
  out->kind = ValueKind::kSequence;
  out->tensor.dtype = dtype;
}

}  // namespace

Status evaluate_SequenceConstruct(const ops::TensorNode& node,
                                  const ops::EvaluateContext& context) {
  RuntimeValue& out = context.output(0);
  start_sequence(node.dtype(0), &out);
  for (int i = 0; i < node.inputs(); ++i) {
    LMN_ASSIGN_OR_RETURN(RuntimeValue item, owned_value(context.input(i), context.allocate));
    out.items.push_back(std::move(item));
  }
  return {};
}

Status evaluate_SequenceEmpty(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  ops::TensorType type;
  LMN_RETURN_IF_ERROR(ops::infer(node, {&type, 1}));
  start_sequence(type.dtype, &context.output(0));
  return {};
}

Status evaluate_SequenceInsert(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  RuntimeValue& out = context.output(0);
  out = context.input(0);
  const auto size = static_cast<int64_t>(out.items.size());
  if (size >= kMaxItems) return node.unsupported("a sequence of more than 2^24 items");
  int64_t position;
  LMN_RETURN_IF_ERROR(position_of(node, context, 2, size, size + 1, size, &position));
  LMN_ASSIGN_OR_RETURN(RuntimeValue item, owned_value(context.input(1), context.allocate));
  out.items.insert(out.items.begin() + position, std::move(item));
  return {};
}

Status evaluate_SequenceErase(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  RuntimeValue& out = context.output(0);
  out = context.input(0);
  const auto size = static_cast<int64_t>(out.items.size());
  int64_t position;
  LMN_RETURN_IF_ERROR(position_of(node, context, 1, size, size, size - 1, &position));
  out.items.erase(out.items.begin() + position);
  return {};
}

Status evaluate_SequenceAt(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const std::vector<RuntimeValue>& items = context.input(0).items;
  const auto size = static_cast<int64_t>(items.size());
  int64_t position;
  LMN_RETURN_IF_ERROR(position_of(node, context, 1, size, size, 0, &position));
  context.output(0) = items[static_cast<size_t>(position)];
  return {};
}

Status evaluate_SequenceLength(const ops::TensorNode&, const ops::EvaluateContext& context) {
  LMN_ASSIGN_OR_RETURN(int64_t* const out, context.make<int64_t>(0, DType::kI64, {}));
  *out = static_cast<int64_t>(context.input(0).items.size());
  return {};
}

Status evaluate_SplitToSequence(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.shape.rank, &axis));
  const int along = static_cast<int>(axis);
  const int64_t size = x.shape[along];
  std::vector<int64_t> parts;
  if (node.has(1) && context.tensor(1).shape.rank == 1) {
    const Tensor& split = context.tensor(1);
    int64_t left = size;
    for (int64_t i = 0; i < split.shape[0]; ++i) {
      const int64_t part =
          split.dtype == DType::kI64 ? split.as<int64_t>()[i] : split.as<int32_t>()[i];
      if (part < 0 || part > left) break;
      left -= part;
      parts.push_back(part);
    }
    if (left != 0 || static_cast<int64_t>(parts.size()) != split.shape[0]) {
      return node.fail("split is no list of sizes whose sum is %" PRId64, size);
    }
  } else {
    const int64_t part = node.has(1) ? integer_of(context.tensor(1)) : 1;
    if (part < 1) return node.fail("split is %" PRId64 "; it is 1 or more", part);
    if (size / part >= kMaxItems) return node.unsupported("a sequence of more than 2^24 items");
    for (int64_t at = 0; at < size; at += std::min(part, size - at)) {
      parts.push_back(std::min(part, size - at));
    }
  }
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.shape.rank; ++i) {
    if (i != along) (i < along ? outer : inner) *= x.shape[i];
  }
  const bool squeeze = !node.has(1) && node.integer("keepdims", 1) == 0;
  RuntimeValue& out = context.output(0);
  start_sequence(x.dtype, &out);
  int64_t begin = 0;
  for (const int64_t part : parts) {
    Shape shape = x.shape;
    shape[along] = part;
    if (squeeze) {
      for (int i = along; i + 1 < shape.rank; ++i) shape[i] = shape[i + 1];
      --shape.rank;
    }
    RuntimeValue item;
    LMN_ASSIGN_OR_RETURN(item.tensor, context.allocate(x.dtype, shape));
    for (int64_t o = 0; o < outer; ++o) {
      copy_elements(x, (o * size + begin) * inner, part * inner, item.tensor, o * part * inner);
    }
    out.items.push_back(std::move(item));
    begin += part;
  }
  return {};
}

Status evaluate_ConcatFromSequence(const ops::TensorNode& node,
                                   const ops::EvaluateContext& context) {
  const std::vector<RuntimeValue>& items = context.input(0).items;
  if (items.empty()) return node.fail("the sequence is empty");
  const bool stack = node.integer("new_axis", 0) != 0;
  Shape out = items[0].tensor.shape;
  int64_t axis;
  LMN_RETURN_IF_ERROR(
      node.normalize_axis(node.integer("axis", 0), out.rank + (stack ? 1 : 0), &axis));
  const int along = static_cast<int>(axis);
  int64_t sum = 0;
  for (const RuntimeValue& item : items) {
    Shape shape = item.tensor.shape, first = items[0].tensor.shape;
    const bool grows = !stack && shape.rank == first.rank;
    const int64_t size = grows ? shape[along] : 1;
    if (grows) shape[along] = first[along] = 0;
    if (!(shape == first) || item.tensor.dtype != items[0].tensor.dtype) {
      return node.fail("items of %s and %s", items[0].tensor.shape.to_string().c_str(),
                       item.tensor.shape.to_string().c_str());
    }
    if (__builtin_add_overflow(sum, size, &sum)) return node.fail("the sizes overflow");
  }
  if (stack) {
    if (out.rank == kMaxRank) return node.unsupported("rank above %d", kMaxRank);
    for (int i = out.rank++; i > along; --i) out[i] = out[i - 1];
  }
  out[along] = sum;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < out.rank; ++i) {
    if (i != along) (i < along ? outer : inner) *= out[i];
  }
  LMN_ASSIGN_OR_RETURN(const Tensor y, context.allocate(items[0].tensor.dtype, out));
  context.output(0).tensor = y;
  int64_t begin = 0;
  for (const RuntimeValue& item : items) {
    const int64_t size = stack ? 1 : item.tensor.shape[along];
    for (int64_t o = 0; o < outer; ++o) {
      copy_elements(item.tensor, o * size * inner, size * inner, y, (o * sum + begin) * inner);
    }
    begin += size;
  }
  return {};
}

Status evaluate_Optional(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  RuntimeValue& out = context.output(0);
  ops::TensorType type;
  LMN_RETURN_IF_ERROR(ops::infer(node, {&type, 1}));
  out.kind = ValueKind::kOptional;
  out.tensor.dtype = type.dtype;
  if (!node.has(0)) return {};
  LMN_ASSIGN_OR_RETURN(RuntimeValue item, owned_value(context.input(0), context.allocate));
  out.items.push_back(std::move(item));
  return {};
}

Status evaluate_OptionalHasElement(const ops::TensorNode& node,
                                   const ops::EvaluateContext& context) {
  LMN_ASSIGN_OR_RETURN(uint8_t* const out, context.make<uint8_t>(0, DType::kBool, {}));
  *out = node.has(0) &&
         (context.input(0).kind != ValueKind::kOptional || !context.input(0).items.empty());
  return {};
}

Status evaluate_OptionalGetElement(const ops::TensorNode& node,
                                   const ops::EvaluateContext& context) {
  const RuntimeValue* value = &context.input(0);
  if (value->kind == ValueKind::kOptional) {
    if (value->items.empty()) return node.fail("the optional is empty");
    value = &value->items[0];
  }
  LMN_ASSIGN_OR_RETURN(context.output(0), owned_value(*value, context.allocate));
  return {};
}

}  // namespace lmn::cpu
