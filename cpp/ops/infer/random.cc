// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/signal.def: random numbers.
#include <cinttypes>
#include <cmath>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

// The attribute dtype, or `fallback`.
Status output_dtype(const TensorNode& node, DType fallback, DType* dtype) {
  if (node.attributes().find("dtype") == nullptr) {
    *dtype = fallback;
    return {};
  }
  return dtype_of_onnx(node, node.integer("dtype", 1), dtype);
}

Status expect_float(const TensorNode& node, DType dtype) {
  for (const DType type : kFloats) {
    if (dtype == type) return {};
  }
  return node.unsupported("random numbers of %s; they are floats; set dtype",
                          std::string(info(dtype).name).c_str());
}

Status infer_generator(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(0, 0));
  LMN_RETURN_IF_ERROR(output_dtype(node, DType::kF32, &outputs[0].dtype));
  LMN_RETURN_IF_ERROR(expect_float(node, outputs[0].dtype));
  const Ints* sizes = node.integers("shape");
  if (sizes == nullptr) return node.fail("the attribute shape is missing");
  if (sizes->size() > kMaxRank) {
    return node.unsupported("rank %zu; at most %d", sizes->size(), kMaxRank);
  }
  Shape out;
  for (const int64_t size : *sizes) {
    if (size < 0) return node.fail("a size of shape is %" PRId64, size);
    out[out.rank++] = size;
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_like(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(output_dtype(node, node.dtype(0), &outputs[0].dtype));
  LMN_RETURN_IF_ERROR(expect_float(node, outputs[0].dtype));
  outputs[0].shape = node.shape(0);
  return {};
}

Status check_range(const TensorNode& node) {
  const float low = node.number("low", 0), high = node.number("high", 1);
  if (low <= high && std::isfinite(high - low)) return {};
  return node.fail("numbers between %g and %g", static_cast<double>(low),
                   static_cast<double>(high));
}

}  // namespace

Status infer_RandomNormal(const TensorNode& node, TensorTypes outputs) {
  return infer_generator(node, outputs);
}
Status infer_RandomUniform(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(check_range(node));
  return infer_generator(node, outputs);
}
Status infer_RandomNormalLike(const TensorNode& node, TensorTypes outputs) {
  return infer_like(node, outputs);
}
Status infer_RandomUniformLike(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(check_range(node));
  return infer_like(node, outputs);
}

Status infer_Bernoulli(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, kFloats));
  LMN_RETURN_IF_ERROR(output_dtype(node, node.dtype(0), &outputs[0].dtype));
  outputs[0].shape = node.shape(0);
  return {};
}

Status infer_Multinomial(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, kFloats));
  LMN_RETURN_IF_ERROR(output_dtype(node, DType::kI32, &outputs[0].dtype));
  if (outputs[0].dtype != DType::kI32 && outputs[0].dtype != DType::kI64) {
    return node.unsupported("dtype is i32 or i64");
  }
  const int64_t samples = node.integer("sample_size", 1);
  if (samples < 1) return node.fail("sample_size is %" PRId64, samples);
  outputs[0].shape = Shape{kUnknownSize, samples};
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  if (x.rank != 2)
    return node.fail("the input is %s; it is [batch, classes]", x.to_string().c_str());
  if (x[1] == 0) return node.fail("there are no classes to choose from");
  outputs[0].shape[0] = x[0];
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
