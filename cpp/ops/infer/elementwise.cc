// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/elementwise.def. Which element types an operator computes is said by its
// kernels; here are those that must agree.
#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

std::string dtype_name(const TensorNode& node, int i) {
  return std::string(info(node.dtype(i)).name);
}

// Operand i, where present, is of the type of operand `as`.
Status expect_same_dtype(const TensorNode& node, int as, int i) {
  if (!node.has(i) || node.dtype(as) == node.dtype(i)) return {};
  return node.fail("inputs are %s and %s; cast one to the type of the other",
                   dtype_name(node, as).c_str(), dtype_name(node, i).c_str());
}

// The output's shape: all operands that are present, broadcast.
Status broadcast_output(const TensorNode& node, TensorTypes outputs) {
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(broadcast_all(node, &outputs[0].shape));
  return check_elements(node, outputs[0].shape);
}

// Operands of one type, broadcast; the output is of their type.
Status broadcast_of(const TensorNode& node, TensorTypes outputs, int inputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(inputs, inputs));
  for (int i = 1; i < inputs; ++i) LMN_RETURN_IF_ERROR(expect_same_dtype(node, 0, i));
  outputs[0].dtype = node.dtype(0);
  return broadcast_output(node, outputs);
}

Status binary(const TensorNode& node, TensorTypes outputs) {
  return broadcast_of(node, outputs, 2);
}

Status comparison(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(binary(node, outputs));
  outputs[0].dtype = DType::kBool;
  return {};
}

Status logic(const TensorNode& node, TensorTypes outputs) {
  for (int i : {0, 1}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kBool}));
  return binary(node, outputs);
}

Status expect_integers(const TensorNode& node) {
  for (int i = 0; i < node.inputs(); ++i) {
    LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                                              DType::kU8, DType::kU16, DType::kU32, DType::kU64}));
  }
  return {};
}

Status bits(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(expect_integers(node));
  return binary(node, outputs);
}

Status variadic(const TensorNode& node, TensorTypes outputs) {
  if (node.inputs() == 0) return node.fail("it has no inputs");
  return broadcast_of(node, outputs, node.inputs());
}

Status unary(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  return same_as_input(node, outputs);
}

// Operand i, where present, has one element, as far as is known.
Status expect_single(const TensorNode& node, int i) {
  if (!node.has(i) || !node.type(i).ranked()) return {};
  const Shape& shape = node.shape(i);
  for (int d = 0; d < shape.rank; ++d) {
    if (shape[d] >= 0 && shape[d] != 1) {
      return node.fail("input %d has shape %s; it is one number", i, shape.to_string().c_str());
    }
  }
  return {};
}

// The second operand repeats along the first, which has the output's shape.
Status broadcast_to_first(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(binary(node, outputs));
  outputs[0].shape = node.shape(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &other = node.shape(1);
  bool fits = other.rank <= x.rank;
  for (int i = 0; fits && i < other.rank; ++i) {
    const int64_t size = x[i + x.rank - other.rank];
    fits = other[i] < 0 || other[i] == 1 || size < 0 || size == other[i];
  }
  if (fits) return {};
  return node.fail("shape %s does not repeat to %s", other.to_string().c_str(),
                   x.to_string().c_str());
}

// Both operands are of one shape, or only the first is there.
Status same_shapes(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(expect_same_dtype(node, 0, 1));
  outputs[0] = node.type(0);
  if (!node.ranked() || !node.has(1)) return {};
  const Shape &x = node.shape(0), &y = node.shape(1);
  bool equal = x.rank == y.rank;
  for (int i = 0; equal && i < x.rank; ++i) equal = same_size(x[i], y[i], &outputs[0].shape[i]);
  if (equal) return {};
  return node.fail("shapes %s and %s differ", x.to_string().c_str(), y.to_string().c_str());
}

int bit_width(DType dtype) {
  switch (dtype) {
    case DType::kI4:
    case DType::kU4:
    case DType::kF4E2M1:
      return 4;
    case DType::kI2:
    case DType::kU2:
      return 2;
    case DType::kString:
      return 0;
    default:
      return 8 * static_cast<int>(info(dtype).block_bytes);
  }
}

// What Cast and CastLike refuse: block-quantised types, and a mode that does not exist.
Status expect_cast(const TensorNode& node) {
  for (int i = 0; i < node.inputs(); ++i) {
    if (node.has(i) && is_block_quantized(node.dtype(i)))
      return node.unsupported("no kernel for %s", dtype_name(node, i).c_str());
  }
  const std::string_view mode = node.text("round_mode", "up");
  if (mode == "up" || mode == "down" || mode == "nearest") return {};
  return node.fail("round_mode is '%.*s'; it is up, down or nearest",
                   static_cast<int>(std::min<size_t>(mode.size(), 40)), mode.data());
}

}  // namespace

#define LMN_INFER(op, function) \
  Status infer_##op(const TensorNode& node, TensorTypes outputs) { return function(node, outputs); }
LMN_INFER(Add, binary)
LMN_INFER(Sub, binary)
LMN_INFER(Mul, binary)
LMN_INFER(Div, binary)
LMN_INFER(Mod, binary)
LMN_INFER(Equal, comparison)
LMN_INFER(Less, comparison)
LMN_INFER(LessOrEqual, comparison)
LMN_INFER(Greater, comparison)
LMN_INFER(GreaterOrEqual, comparison)
LMN_INFER(And, logic)
LMN_INFER(Or, logic)
LMN_INFER(Xor, logic)
LMN_INFER(BitwiseAnd, bits)
LMN_INFER(BitwiseOr, bits)
LMN_INFER(BitwiseXor, bits)
LMN_INFER(Max, variadic)
LMN_INFER(Min, variadic)
LMN_INFER(Sum, variadic)
LMN_INFER(Mean, variadic)
LMN_INFER(Abs, unary)
LMN_INFER(Acos, unary)
LMN_INFER(Acosh, unary)
LMN_INFER(Asin, unary)
LMN_INFER(Asinh, unary)
LMN_INFER(Atan, unary)
LMN_INFER(Atanh, unary)
LMN_INFER(Ceil, unary)
LMN_INFER(Cos, unary)
LMN_INFER(Cosh, unary)
LMN_INFER(Elu, unary)
LMN_INFER(Erf, unary)
LMN_INFER(Exp, unary)
LMN_INFER(Floor, unary)
LMN_INFER(HardSigmoid, unary)
LMN_INFER(HardSwish, unary)
LMN_INFER(LeakyRelu, unary)
LMN_INFER(Log, unary)
LMN_INFER(Mish, unary)
LMN_INFER(MsGelu, unary)
LMN_INFER(Neg, unary)
LMN_INFER(QuickGelu, unary)
LMN_INFER(Reciprocal, unary)
LMN_INFER(Relu, unary)
LMN_INFER(Round, unary)
LMN_INFER(Selu, unary)
LMN_INFER(Shrink, unary)
LMN_INFER(Sigmoid, unary)
LMN_INFER(Sign, unary)
LMN_INFER(Sin, unary)
LMN_INFER(Sinh, unary)
LMN_INFER(Softplus, unary)
LMN_INFER(Softsign, unary)
LMN_INFER(Sqrt, unary)
LMN_INFER(Swish, unary)
LMN_INFER(Tan, unary)
LMN_INFER(Tanh, unary)
LMN_INFER(ThresholdedRelu, unary)
LMN_INFER(PRelu, broadcast_to_first)
LMN_INFER(BiasGelu, broadcast_to_first)
#undef LMN_INFER

Status infer_Celu(const TensorNode& node, TensorTypes outputs) {
  if (node.number("alpha", 1.0f) == 0.0f) return node.fail("alpha is 0; x is divided by it");
  return unary(node, outputs);
}

Status infer_Gelu(const TensorNode& node, TensorTypes outputs) {
  const std::string_view form = node.text("approximate", "none");
  if (form != "none" && form != "tanh") {
    return node.fail("approximate is '%.*s'; it is none or tanh",
                     static_cast<int>(std::min<size_t>(form.size(), 40)), form.data());
  }
  return unary(node, outputs);
}

Status infer_FastGelu(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  return node.has(1) ? broadcast_to_first(node, outputs) : same_as_input(node, outputs);
}

Status infer_SwiGLU(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  return same_shapes(node, outputs);
}

Status infer_Not(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kBool}));
  return unary(node, outputs);
}
Status infer_BitwiseNot(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(expect_integers(node));
  return unary(node, outputs);
}
Status infer_BitShift(const TensorNode& node, TensorTypes outputs) {
  const std::string_view direction = node.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return node.fail("direction is '%.*s'; it is LEFT or RIGHT",
                     static_cast<int>(std::min<size_t>(direction.size(), 40)), direction.data());
  }
  return bits(node, outputs);
}

Status infer_IsNaN(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(unary(node, outputs));
  outputs[0].dtype = DType::kBool;
  return {};
}
Status infer_IsInf(const TensorNode& node, TensorTypes outputs) {
  return infer_IsNaN(node, outputs);
}

Status infer_Pow(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(
      0, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32, DType::kI64}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(
      1, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kI16, DType::kI32,
          DType::kI64, DType::kU8, DType::kU16, DType::kU32, DType::kU64}));
  outputs[0].dtype = node.dtype(0);
  return broadcast_output(node, outputs);
}

Status infer_Clip(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 3));
  for (int i : {1, 2}) {
    LMN_RETURN_IF_ERROR(expect_same_dtype(node, 0, i));
    LMN_RETURN_IF_ERROR(expect_single(node, i));
  }
  return same_as_input(node, outputs);
}

Status infer_Where(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kBool}));
  LMN_RETURN_IF_ERROR(expect_same_dtype(node, 1, 2));
  outputs[0].dtype = node.dtype(1);
  return broadcast_output(node, outputs);
}

Status infer_Dropout(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kBool}));
  for (int i : {1, 2}) LMN_RETURN_IF_ERROR(expect_single(node, i));
  outputs[0] = node.type(0);
  if (outputs.size() > 1) {
    outputs[1] = node.type(0);
    outputs[1].dtype = DType::kBool;
  }
  return {};
}

Status infer_Cast(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_cast(node));
  outputs[0] = node.type(0);
  return dtype_of_onnx(node, node.integer("to", 0), &outputs[0].dtype);
}
Status infer_CastLike(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_cast(node));
  outputs[0] = node.type(0);
  outputs[0].dtype = node.dtype(1);
  return {};
}
Status infer_BitCast(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0] = node.type(0);
  LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("to", 0), &outputs[0].dtype));
  const int have = bit_width(node.dtype(0)), want = bit_width(outputs[0].dtype);
  if (have == 0 || have != want) {
    return node.fail("%s has elements of %d bits and %s of %d; they must be equal",
                     dtype_name(node, 0).c_str(), have,
                     std::string(info(outputs[0].dtype).name).c_str(), want);
  }
  return {};
}

}  // namespace lmn::ops
