// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/values.def: sequences and optionals. Of what is in them, only the element
// type is known, and whether it is a tensor, a map or a sequence (TensorType::item).
#include <cinttypes>

#include "ops/infer/axes.h"

namespace lmn::ops {
namespace {

const char* kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kSequence:
      return "a sequence";
    case ValueKind::kOptional:
      return "an optional";
    case ValueKind::kMap:
      break;
  }
  return "a map";
}

Status expect_kind(const TensorNode& node, int i, ValueKind kind) {
  if (!node.has(i) || node.type(i).kind == kind) return {};
  return node.fail("input %d is %s; it takes %s", i, kind_name(node.type(i).kind), kind_name(kind));
}

void make_sequence(DType dtype, ValueKind item, TensorType* out) {
  *out = TensorType{dtype, unknown_shape(), ValueKind::kSequence, item};
}

// Operand i, a position in a sequence, is one integer.
Status expect_position(const TensorNode& node, int i) {
  LMN_RETURN_IF_ERROR(expect_kind(node, i, ValueKind::kTensor));
  LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kI32, DType::kI64}));
  if (node.has(i) && node.type(i).is_known() && node.shape(i).elements() != 1) {
    return node.fail("position is %s; it is one integer", node.shape(i).to_string().c_str());
  }
  return {};
}

Status one_type(const TensorNode& node, int i, DType dtype) {
  if (node.dtype(i) == dtype) return {};
  return node.fail("input %d is %s, and the sequence one of %s; cast it", i,
                   std::string(info(node.dtype(i)).name).c_str(),
                   std::string(info(dtype).name).c_str());
}

}  // namespace

Status infer_SequenceConstruct(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(std::max(1, node.inputs()), node.inputs()));
  for (int i = 0; i < node.inputs(); ++i) {
    LMN_RETURN_IF_ERROR(expect_kind(node, i, ValueKind::kTensor));
    LMN_RETURN_IF_ERROR(one_type(node, i, node.dtype(0)));
  }
  make_sequence(node.dtype(0), ValueKind::kTensor, &outputs[0]);
  return {};
}

Status infer_SequenceEmpty(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(0, 0));
  DType dtype;
  LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("dtype", 1), &dtype));
  make_sequence(dtype, ValueKind::kTensor, &outputs[0]);
  return {};
}

Status infer_SequenceInsert(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_kind(node, 0, ValueKind::kSequence));
  LMN_RETURN_IF_ERROR(expect_kind(node, 1, node.type(0).item));
  LMN_RETURN_IF_ERROR(one_type(node, 1, node.dtype(0)));
  make_sequence(node.dtype(0), node.type(0).item, &outputs[0]);
  return expect_position(node, 2);
}

Status infer_SequenceErase(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  LMN_RETURN_IF_ERROR(expect_kind(node, 0, ValueKind::kSequence));
  make_sequence(node.dtype(0), node.type(0).item, &outputs[0]);
  return expect_position(node, 1);
}

Status infer_SequenceAt(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_kind(node, 0, ValueKind::kSequence));
  outputs[0].dtype = node.dtype(0);
  outputs[0].kind = node.type(0).item;
  return expect_position(node, 1);
}

Status infer_SequenceLength(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = DType::kI64;
  outputs[0].shape = Shape{};
  return expect_kind(node, 0, ValueKind::kSequence);
}

// What `split` says of the sizes is checked where it is used: it may come late.
Status infer_SplitToSequence(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  LMN_RETURN_IF_ERROR(expect_kind(node, 0, ValueKind::kTensor));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI32, DType::kI64}));
  make_sequence(node.dtype(0), ValueKind::kTensor, &outputs[0]);
  if (!node.ranked()) return {};
  if (node.has(1) && node.rank(1) > 1) {
    return node.fail("split has rank %d; it is a number or a list", node.rank(1));
  }
  int64_t axis;
  return node.normalize_axis(node.integer("axis", 0), node.rank(0), &axis);
}

Status infer_ConcatFromSequence(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_kind(node, 0, ValueKind::kSequence));
  if (node.type(0).item != ValueKind::kTensor) return node.fail("a sequence of maps");
  outputs[0].dtype = node.dtype(0);
  const int64_t axis = node.integer("axis", 0);
  if (axis < -kMaxRank || axis >= kMaxRank) return node.fail("axis is %" PRId64, axis);
  return {};
}

Status infer_Optional(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(0, 1));
  outputs[0].kind = ValueKind::kOptional;
  if (node.has(0)) {
    const TensorType& type = node.type(0);
    if (type.kind != ValueKind::kTensor && type.kind != ValueKind::kSequence) {
      return node.fail("input 0 is %s; an optional holds a tensor or a sequence",
                       kind_name(type.kind));
    }
    outputs[0].dtype = type.dtype;
    outputs[0].item = type.kind;
    return {};
  }
  if (node.attributes().find("type") == nullptr) {
    return node.fail("it has neither an input nor the attribute type");
  }
  outputs[0].item = node.integer("sequence", 0) != 0 ? ValueKind::kSequence : ValueKind::kTensor;
  return dtype_of_onnx(node, node.integer("type", 0), &outputs[0].dtype);
}

Status infer_OptionalHasElement(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(0, 1));
  outputs[0].dtype = DType::kBool;
  outputs[0].shape = Shape{};
  return {};
}

Status infer_OptionalGetElement(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0] = node.type(0);
  if (outputs[0].kind == ValueKind::kOptional) {
    outputs[0].kind = outputs[0].item;
    outputs[0].item = ValueKind::kTensor;
  }
  return {};
}

}  // namespace lmn::ops
