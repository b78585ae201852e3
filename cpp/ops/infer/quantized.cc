// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/quantized.def.
#include "ops/infer/quantized.h"

#include <cinttypes>

#include "ops/infer/convolutions.h"
#include "ops/infer/infer.h"
#include "ops/infer/pools.h"

namespace lmn::ops {
namespace {

constexpr std::initializer_list<DType> kBytes = {DType::kI8, DType::kU8};
constexpr std::initializer_list<DType> kScales = {DType::kF32, DType::kF16, DType::kBF16};

bool is_byte_float(DType dtype) {
  return dtype == DType::kF8E4M3FN || dtype == DType::kF8E4M3FNUZ || dtype == DType::kF8E5M2 ||
         dtype == DType::kF8E5M2FNUZ;
}
bool is_code(DType dtype) {  // what QuantizeLinear makes
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
    case DType::kF4E2M1:
      return true;
    default:
      return is_byte_float(dtype);
  }
}

// Operand i, where present, has one element, as far as is known.
Status expect_one(const TensorNode& node, int i) {
  if (!node.has(i) || !node.type(i).is_known() || node.shape(i).elements() == 1) return {};
  return node.fail("input %d has shape %s; it is one number", i, node.shape(i).to_string().c_str());
}
// One element, or `count` (or that many of each matrix of a batch), as far as is known.
Status expect_one_or(const TensorNode& node, int i, int64_t count, int64_t matrices = 1) {
  if (!node.has(i) || !node.type(i).is_known() || count < 0) return {};
  const int64_t elements = node.shape(i).elements();
  int64_t all = count;
  if (elements == 1 || elements == count) return {};
  if (matrices > 1 && !__builtin_mul_overflow(count, matrices, &all) && elements == all) return {};
  return node.fail("input %d has shape %s; it is one number, or %" PRId64, i,
                   node.shape(i).to_string().c_str(), count);
}

Status check_scales(const TensorNode& node) {
  if (node.has(2) && node.type(1).is_known() && node.type(2).is_known()) {
    const Shape &scale = node.shape(1), &zero = node.shape(2);
    if (!(scale == zero) && (scale.elements() != 1 || zero.elements() != 1)) {
      return node.fail("the scale has shape %s and the zero point %s; they are equal",
                       scale.to_string().c_str(), zero.to_string().c_str());
    }
  }
  if (!node.type(0).is_known() || !node.type(1).is_known()) return {};
  ScaleLayout layout;
  return read_scale_layout(node, &layout);
}

}  // namespace

Status read_scale_layout(const TensorNode& node, ScaleLayout* layout) {
  const Shape &x = node.shape(0), &scale = node.shape(1);
  ScaleLayout l;
  l.size = x.elements();
  *layout = l;
  const int64_t block = node.integer("block_size", 0);
  if (block < 0) return node.fail("block_size is %" PRId64 "; it is 0 or more", block);
  // A vector as long as the axis counts as such, also when both have one element.
  if (scale.rank == 0 || (scale.elements() == 1 && block == 0)) return {};
  int64_t axis = 0;
  if (x.rank != 1 || block != 0) {
    LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 1), x.rank, &axis));
  }
  l.size = x[static_cast<int>(axis)];
  for (int i = 0; i < axis; ++i) l.outer *= x[i];
  for (int i = static_cast<int>(axis) + 1; i < x.rank; ++i) l.inner *= x[i];
  if (block == 0) {
    if (scale.rank != 1 || scale[0] != l.size) {
      return node.fail("the scale has shape %s; axis %" PRId64 " of %s has %" PRId64 " elements",
                       scale.to_string().c_str(), axis, x.to_string().c_str(), l.size);
    }
    l.kind = ScaleLayout::Kind::kAxis;
  } else {
    Shape want = x;
    want[static_cast<int>(axis)] = l.size / block + (l.size % block != 0 ? 1 : 0);
    if (!(scale == want)) {
      return node.fail(
          "the scale has shape %s; blocks of %" PRId64 " along axis %" PRId64 " of %s need %s",
          scale.to_string().c_str(), block, axis, x.to_string().c_str(), want.to_string().c_str());
    }
    l.kind = ScaleLayout::Kind::kBlocks;
    l.blocks = want[static_cast<int>(axis)];
    l.block = block;
  }
  *layout = l;
  return {};
}

Status infer_QuantizeLinear(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kF16, DType::kBF16, DType::kI32}));
  LMN_RETURN_IF_ERROR(
      node.expect_dtype(1, {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kF8E8M0}));
  DType to = node.has(2) ? node.dtype(2) : DType::kU8;
  if (const int64_t number = node.integer("output_dtype", 0); number != 0) {
    LMN_RETURN_IF_ERROR(dtype_of_onnx(node, number, &to));
    if (node.has(2) && node.dtype(2) != to) {
      return node.fail("output_dtype is %s and the zero point is %s; they are equal",
                       type_name(to).c_str(), type_name(node.dtype(2)).c_str());
    }
  }
  if (!is_code(to)) return node.unsupported("no quantisation to %s", type_name(to).c_str());
  if (const int64_t number = node.integer("precision", 0); number != 0) {
    DType precision;
    LMN_RETURN_IF_ERROR(dtype_of_onnx(node, number, &precision));
    if (precision != DType::kF32 && precision != DType::kF16 && precision != DType::kBF16) {
      return node.unsupported("precision %s; it is f32, f16 or bf16", type_name(precision).c_str());
    }
  }
  outputs[0] = node.type(0);
  outputs[0].dtype = to;
  return node.ranked() ? check_scales(node) : Status();
}

Status infer_DequantizeLinear(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  if (!is_code(node.dtype(0)) && node.dtype(0) != DType::kI32) {
    return node.unsupported("no values of %s", type_name(node.dtype(0)).c_str());
  }
  LMN_RETURN_IF_ERROR(
      node.expect_dtype(1, {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E8M0}));
  if (node.has(2) && node.dtype(2) != node.dtype(0)) {
    return node.fail("x is %s and the zero point %s; they are equal",
                     type_name(node.dtype(0)).c_str(), type_name(node.dtype(2)).c_str());
  }
  outputs[0] = node.type(0);
  outputs[0].dtype = node.dtype(1);
  if (const int64_t number = node.integer("output_dtype", 0); number != 0)
    LMN_RETURN_IF_ERROR(dtype_of_onnx(node, number, &outputs[0].dtype));
  const DType to = outputs[0].dtype;
  if (to != DType::kF32 && to != DType::kF16 && to != DType::kBF16) {
    return node.unsupported("output type %s; it is f32, f16 or bf16", type_name(to).c_str());
  }
  return node.ranked() ? check_scales(node) : Status();
}

Status infer_DynamicQuantizeLinear(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32}));
  const DType types[] = {DType::kU8, DType::kF32, DType::kU8};
  for (size_t i = 0; i < outputs.size() && i < 3; ++i) {
    outputs[i].dtype = types[i];
    outputs[i].shape = i == 0 ? node.shape(0) : Shape{};
  }
  return {};
}

namespace {

// a times w, with batch dimensions in front of the last two.
Status product_shape(const TensorNode& node, const Shape& a, const Shape& w, Shape* shape) {
  if (a.rank == 0 || w.rank == 0) return node.fail("a matrix is a scalar");
  const int64_t inner_a = a.last(), inner_w = w[w.rank == 1 ? 0 : w.rank - 2];
  if (inner_a >= 0 && inner_w >= 0 && inner_a != inner_w) {
    return node.fail("%s times %s: the inner sizes differ", a.to_string().c_str(),
                     w.to_string().c_str());
  }
  Shape batch_a = a, batch_w = w, out;
  batch_a.rank = std::max(0, a.rank - 2);
  batch_w.rank = std::max(0, w.rank - 2);
  LMN_RETURN_IF_ERROR(broadcast(node, batch_a, batch_w, &out));
  if (a.rank > 1) out[out.rank++] = a[a.rank - 2];
  if (w.rank > 1) out[out.rank++] = w.last();
  *shape = out;
  return check_elements(node, out);
}

int64_t matrices_of(const Shape& x) { return size_product(x, 0, std::max(0, x.rank - 2)); }
int64_t rows_of(const Shape& x) { return x.rank < 2 ? 1 : x[x.rank - 2]; }
int64_t columns_of(const Shape& x) { return x.rank < 2 ? 1 : x.last(); }

// Operands with one number for all, or one for each row of `a` or column of `w`.
Status check_row_operand(const TensorNode& node, int i, int a) {
  if (!node.type(a).is_known()) return {};
  return expect_one_or(node, i, rows_of(node.shape(a)), matrices_of(node.shape(a)));
}
Status check_column_operand(const TensorNode& node, int i, int w) {
  if (!node.type(w).is_known()) return {};
  return expect_one_or(node, i, columns_of(node.shape(w)), matrices_of(node.shape(w)));
}
// Operand i has the type of operand `as`.
Status expect_type_of(const TensorNode& node, int i, int as) {
  if (!node.has(i) || node.dtype(i) == node.dtype(as)) return {};
  return node.fail("input %d is %s and input %d is %s; they are equal", i,
                   type_name(node.dtype(i)).c_str(), as, type_name(node.dtype(as)).c_str());
}
Status check_vector(const TensorNode& node, int i, int64_t count) {
  if (!node.has(i) || !node.type(i).is_known() || count < 0) return {};
  if (node.rank(i) == 1 && node.shape(i)[0] == count) return {};
  return node.fail("input %d has shape %s; it has %" PRId64 " elements", i,
                   node.shape(i).to_string().c_str(), count);
}

}  // namespace

Status infer_MatMulInteger(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  for (int i : {0, 1}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kBytes));
  for (int i : {2, 3}) LMN_RETURN_IF_ERROR(expect_type_of(node, i, i - 2));
  outputs[0].dtype = DType::kI32;
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(check_row_operand(node, 2, 0));
  LMN_RETURN_IF_ERROR(check_column_operand(node, 3, 1));
  return product_shape(node, node.shape(0), node.shape(1), &outputs[0].shape);
}

Status infer_QLinearMatMul(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(8, 8));
  for (int i : {0, 3, 7}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kBytes));
  for (int i : {1, 4, 6}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kScales));
  for (int i : {2, 5}) LMN_RETURN_IF_ERROR(expect_type_of(node, i, i - 2));
  outputs[0].dtype = node.dtype(7);
  if (!node.ranked()) return {};
  for (int i : {1, 2}) LMN_RETURN_IF_ERROR(check_row_operand(node, i, 0));
  for (int i : {4, 5}) LMN_RETURN_IF_ERROR(check_column_operand(node, i, 3));
  for (int i : {6, 7}) LMN_RETURN_IF_ERROR(expect_one(node, i));
  return product_shape(node, node.shape(0), node.shape(3), &outputs[0].shape);
}

// A, B, b_scale, b_zero_point, bias.
Status infer_DynamicQuantizeMatMul(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 5));
  for (int i : {0, 2, 4}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, kBytes));
  LMN_RETURN_IF_ERROR(expect_type_of(node, 3, 1));
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  for (int i : {2, 3}) LMN_RETURN_IF_ERROR(check_column_operand(node, i, 1));
  LMN_RETURN_IF_ERROR(check_vector(node, 4, columns_of(node.shape(1))));
  return product_shape(node, node.shape(0), node.shape(1), &outputs[0].shape);
}

// A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias.
Status infer_MatMulIntegerToFloat(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(4, 7));
  for (int i : {0, 1}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kBytes));
  for (int i : {2, 3, 6}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  for (int i : {4, 5}) LMN_RETURN_IF_ERROR(expect_type_of(node, i, i - 4));
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  for (int i : {2, 4}) LMN_RETURN_IF_ERROR(check_row_operand(node, i, 0));
  for (int i : {3, 5}) LMN_RETURN_IF_ERROR(check_column_operand(node, i, 1));
  LMN_RETURN_IF_ERROR(check_vector(node, 6, columns_of(node.shape(1))));
  return product_shape(node, node.shape(0), node.shape(1), &outputs[0].shape);
}

// A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point.
Status infer_QGemm(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(6, 9));
  for (int i : {0, 3, 8}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kBytes));
  for (int i : {1, 4, 7}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  for (int i : {2, 5}) LMN_RETURN_IF_ERROR(expect_type_of(node, i, i - 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(6, {DType::kI32}));
  if (node.has(7) != node.has(8)) return node.fail("y_scale and y_zero_point come together");
  outputs[0].dtype = node.has(8) ? node.dtype(8) : DType::kF32;
  if (!node.ranked()) return {};
  Shape a = node.shape(0), w = node.shape(3);
  if (a.rank != 2 || w.rank != 2) return node.fail("A and B are matrices");
  if (node.integer("transA", 0) != 0) std::swap(a[0], a[1]);
  if (node.integer("transB", 0) != 0) std::swap(w[0], w[1]);
  for (int i : {1, 2, 7, 8}) LMN_RETURN_IF_ERROR(expect_one(node, i));
  for (int i : {4, 5}) LMN_RETURN_IF_ERROR(expect_one_or(node, i, w[1]));
  LMN_RETURN_IF_ERROR(product_shape(node, a, w, &outputs[0].shape));
  if (!node.has(6)) return {};
  Shape with_bias;
  LMN_RETURN_IF_ERROR(broadcast(node, outputs[0].shape, node.shape(6), &with_bias));
  for (int i = 0; i < with_bias.rank; ++i) {
    const int64_t size = i < 2 ? outputs[0].shape[i] : 0;
    if (with_bias.rank != 2 || (size >= 0 && with_bias[i] > size)) {
      return node.fail("C has shape %s and the product %s", node.shape(6).to_string().c_str(),
                       outputs[0].shape.to_string().c_str());
    }
  }
  return {};
}

namespace {
Status infer_integer_convolution(const TensorNode& node, TensorTypes outputs, int w, int x_zero,
                                 int w_zero) {
  if (!node.ranked()) return {};
  const OperandView view(node, {0, w});
  Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(view.node(), &c));
  LMN_RETURN_IF_ERROR(expect_one(node, x_zero));
  LMN_RETURN_IF_ERROR(expect_one_or(node, w_zero, c.outputs));
  Shape out{c.batch, c.outputs};
  for (int i = 0; i < c.windows.rank; ++i) out[out.rank++] = c.windows.out[static_cast<size_t>(i)];
  outputs[0].shape = out;
  return check_elements(node, out);
}
}  // namespace

Status infer_ConvInteger(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  for (int i : {0, 1}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kBytes));
  for (int i : {2, 3}) LMN_RETURN_IF_ERROR(expect_type_of(node, i, i - 2));
  outputs[0].dtype = DType::kI32;
  return infer_integer_convolution(node, outputs, 1, 2, 3);
}

// x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B.
Status infer_QLinearConv(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(8, 9));
  for (int i : {0, 3, 7}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, kBytes));
  for (int i : {1, 4, 6}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  for (int i : {2, 5}) LMN_RETURN_IF_ERROR(expect_type_of(node, i, i - 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(8, {DType::kI32}));
  outputs[0].dtype = node.dtype(7);
  LMN_RETURN_IF_ERROR(infer_integer_convolution(node, outputs, 3, 2, 5));
  if (!node.ranked()) return {};
  for (int i : {1, 6, 7}) LMN_RETURN_IF_ERROR(expect_one(node, i));
  LMN_RETURN_IF_ERROR(expect_one_or(node, 4, node.shape(3)[0]));
  return check_vector(node, 8, node.shape(3)[0]);
}

namespace {
// Operands `first`: codes, scale, zero point (which may be absent).
Status expect_codes(const TensorNode& node, int first) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(first, kBytes));
  LMN_RETURN_IF_ERROR(node.expect_dtype(first + 1, {DType::kF32}));
  LMN_RETURN_IF_ERROR(expect_type_of(node, first + 2, first));
  for (int i : {first + 1, first + 2}) LMN_RETURN_IF_ERROR(expect_one(node, i));
  return {};
}
// Operands `first`: scale and zero point (which may be absent) of the output, of x's type.
Status expect_output_scale(const TensorNode& node, int first) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(first, {DType::kF32}));
  LMN_RETURN_IF_ERROR(expect_type_of(node, first + 1, 0));
  for (int i : {first, first + 1}) LMN_RETURN_IF_ERROR(expect_one(node, i));
  return {};
}

// A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point.
Status quantized_binary(const TensorNode& node, TensorTypes outputs) {
  if (node.inputs() < 7 || node.inputs() > 8) {
    return node.fail("it has %d inputs and takes 7 or 8", node.inputs());
  }
  for (int i : {0, 1, 3, 4, 6}) {
    if (!node.has(i)) return node.fail("input %d is missing", i);
  }
  for (int i : {0, 3}) LMN_RETURN_IF_ERROR(expect_codes(node, i));
  LMN_RETURN_IF_ERROR(expect_type_of(node, 3, 0));
  LMN_RETURN_IF_ERROR(expect_output_scale(node, 6));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(broadcast(node, node.shape(0), node.shape(3), &outputs[0].shape));
  return check_elements(node, outputs[0].shape);
}

// X, X_scale, X_zero_point, Y_scale, Y_zero_point; the output has X's type.
Status quantized_unary(const TensorNode& node, TensorTypes outputs) {
  if (node.inputs() < 4 || node.inputs() > 5) {
    return node.fail("it has %d inputs and takes 4 or 5", node.inputs());
  }
  for (int i : {0, 1, 3}) {
    if (!node.has(i)) return node.fail("input %d is missing", i);
  }
  LMN_RETURN_IF_ERROR(expect_codes(node, 0));
  LMN_RETURN_IF_ERROR(expect_output_scale(node, 3));
  return same_as_input(node, outputs);
}
}  // namespace

Status infer_QLinearAdd(const TensorNode& node, TensorTypes outputs) {
  return quantized_binary(node, outputs);
}
Status infer_QLinearMul(const TensorNode& node, TensorTypes outputs) {
  return quantized_binary(node, outputs);
}
Status infer_QLinearSigmoid(const TensorNode& node, TensorTypes outputs) {
  return quantized_unary(node, outputs);
}
Status infer_QLinearLeakyRelu(const TensorNode& node, TensorTypes outputs) {
  return quantized_unary(node, outputs);
}

Status infer_QLinearGlobalAveragePool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(quantized_unary(node, outputs));
  Shape& out = outputs[0].shape;
  if (!node.ranked()) return {};
  if (out.rank < 3) {
    return node.fail("the input has shape %s; it is [batch, channels, spatial...]",
                     out.to_string().c_str());
  }
  const int first = node.integer("channels_last", 0) != 0 ? 1 : 2;
  for (int i = 0; i < out.rank - 2; ++i) out[first + i] = 1;
  return {};
}

Status infer_QLinearAveragePool(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(quantized_unary(node, outputs));
  if (node.integer("channels_last", 0) != 0) {
    return node.unsupported("channels_last; transpose x to [batch, channels, spatial...]");
  }
  if (!node.ranked()) return {};
  Windows w;
  LMN_RETURN_IF_ERROR(read_pool(node, &w));
  Shape out{node.shape(0)[0], node.shape(0)[1]};
  for (int i = 0; i < w.rank; ++i) out[out.rank++] = w.out[static_cast<size_t>(i)];
  outputs[0].shape = out;
  return check_elements(node, out);
}

// Y_scale, Y_zero_point, then for each tensor its codes, scale and zero point.
Status infer_QLinearConcat(const TensorNode& node, TensorTypes outputs) {
  if (node.inputs() < 5 || node.inputs() % 3 != 2) {
    return node.fail("it has %d inputs; it takes 2, and 3 for each tensor", node.inputs());
  }
  LMN_RETURN_IF_ERROR(node.expect_inputs(node.inputs(), node.inputs()));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, kBytes));
  for (int i : {0, 1}) LMN_RETURN_IF_ERROR(expect_one(node, i));
  for (int i = 2; i < node.inputs(); i += 3) {
    LMN_RETURN_IF_ERROR(expect_codes(node, i));
    LMN_RETURN_IF_ERROR(expect_type_of(node, i, 1));
  }
  outputs[0].dtype = node.dtype(1);
  if (!node.ranked()) return {};
  Shape out = node.shape(2);
  int64_t axis = 0;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), out.rank, &axis));
  for (int i = 5; i < node.inputs(); i += 3) {
    const Shape& x = node.shape(i);
    bool fits = x.rank == out.rank;
    for (int d = 0; fits && d < out.rank; ++d) {
      if (d != axis) fits = same_size(out[d], x[d], &out[d]);
    }
    if (!fits) {
      return node.fail("input %d has shape %s and input 2 %s; they differ only along axis %" PRId64,
                       i, x.to_string().c_str(), node.shape(2).to_string().c_str(), axis);
    }
    int64_t& size = out[static_cast<int>(axis)];
    const int64_t more = x[static_cast<int>(axis)];
    if (size < 0 || more < 0 || __builtin_add_overflow(size, more, &size)) size = kUnknownSize;
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

}  // namespace lmn::ops
