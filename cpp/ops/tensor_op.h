// SPDX-License-Identifier: Apache-2.0
//
// Operators of general tensors (tensor_ops.def) as inference and kernels see them: a node is an
// operator, attributes, and what is known of its operands. The same view serves the graph, where
// sizes may be unknown, and a plan, where all are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/tensor.h"
#include "ops/attributes.h"

namespace lmn::ops {

enum class TensorOp : uint16_t {
#define LMN_TENSOR_OP(e, name, attributes) k##e,
#include "ops/tensor_ops.def"
#undef LMN_TENSOR_OP
};
inline constexpr int kTensorOpCount = 0
#define LMN_TENSOR_OP(e, name, attributes) +1
#include "ops/tensor_ops.def"
#undef LMN_TENSOR_OP
    ;
std::string_view name(TensorOp op);
std::string_view attribute_names(TensorOp op);          // separated by blanks
const TensorOp* find_tensor_op(std::string_view name);  // null: there is none

enum class OpClass : uint8_t { kKernel, kValue, kControl };
OpClass op_class(TensorOp op);
// Whether two runs on the same inputs may differ.
bool is_random(TensorOp op);

// What a value of a graph may be. A sequence, an optional and a map have elements of `dtype`. What
// is in a sequence is a tensor or a map, what is in an optional a tensor or a sequence of tensors:
// TensorType::item.
enum class ValueKind : uint8_t { kTensor, kSequence, kOptional, kMap };

inline constexpr int32_t kUnknownRank = -1;
// A size that is not known: kUnknownSize, or, below it, one of several that are known to be equal
// (a symbol). Sizes that are known are 0 or more.
inline constexpr int64_t kUnknownSize = -1;

inline Shape unknown_shape() {
  Shape shape;
  shape.rank = kUnknownRank;
  return shape;
}

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape = unknown_shape();
  ValueKind kind = ValueKind::kTensor;
  ValueKind item = ValueKind::kTensor;

  bool ranked() const { return shape.rank >= 0; }
  bool is_known() const {  // every size
    for (int i = 0; i < shape.rank; ++i) {
      if (shape[i] < 0) return false;
    }
    return ranked() && kind == ValueKind::kTensor;
  }
};

struct Operand {
  TensorType type;
  bool present = false;
  // The elements, where they are known before the plan runs (a constant, or computed from shapes);
  // kernels may read them when they are bound. For LMN_VALUE_OP they are always known.
  const std::byte* data = nullptr;
};

class DenseProducts;  // ops/dense_products.h

// A node under inference or binding. Accessors of operands that are absent are errors of the
// caller, but has().
class TensorNode {
 public:
  TensorNode(TensorOp op, const Attributes& attributes, std::string_view name,
             std::span<const Operand> operands, int outputs, const void* prepared = nullptr,
             const DenseProducts* dense_products = nullptr)
      : op_(op),
        attributes_(attributes),
        name_(name),
        operands_(operands),
        outputs_(outputs),
        prepared_(prepared),
        dense_products_(dense_products) {}

  TensorOp op() const { return op_; }
  const Attributes& attributes() const { return attributes_; }
  std::string_view name() const { return name_; }  // of the node, for messages; may be empty
  int inputs() const { return static_cast<int>(operands_.size()); }  // absent ones included
  int outputs() const {
    return outputs_;
  }  // that the node has; trailing optional ones are left out

  // What TensorKernels::prepare made of the node; null: nothing, or no device has seen it.
  template <typename T>
  const T* prepared() const {
    return static_cast<const T*>(prepared_);
  }

  // What the device may give the node's product to. Null: it has none, or a size of the node's
  // tensors is not the same in every run, so that it must not decide how they are added.
  const DenseProducts* dense_products() const { return dense_products_; }

  bool has(int i) const {
    return i >= 0 && i < inputs() && operands_[static_cast<size_t>(i)].present;
  }
  const Operand& operand(int i) const { return operands_[static_cast<size_t>(i)]; }
  const TensorType& type(int i) const { return operand(i).type; }
  DType dtype(int i) const { return type(i).dtype; }
  const Shape& shape(int i) const { return type(i).shape; }
  int rank(int i) const { return shape(i).rank; }
  // Whether the ranks of all operands that are present are known.
  bool ranked() const {
    for (const Operand& operand : operands_) {
      if (operand.present && !operand.type.ranked()) return false;
    }
    return true;
  }
  bool knows(int i) const { return has(i) && operand(i).data != nullptr; }
  template <typename T>
  const T* data(int i) const {
    return reinterpret_cast<const T*>(operand(i).data);
  }
  // The elements of operand i, an integer tensor of i32 or i64 whose values are known.
  std::vector<int64_t> integers(int i) const;

  // Attributes by their type in ONNX. The value of one that is absent is `fallback`. One of another
  // type was refused by check_attributes() before inference.
  int64_t integer(std::string_view key, int64_t fallback) const;
  float number(std::string_view key, float fallback) const;
  std::string_view text(std::string_view key, std::string_view fallback) const;
  const Ints* integers(std::string_view key) const;   // null: absent
  const Floats* numbers(std::string_view key) const;  // null: absent
  const Strings* texts(std::string_view key) const;   // null: absent
  const Tensor* tensor(std::string_view key) const;   // null: absent

  // Errors that begin with operator and name: "Reshape 'node_12': …".
  [[gnu::format(printf, 2, 3)]] Status fail(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] Status unsupported(const char* format, ...) const;
  // INVALID_ARGUMENT unless between least and most operands are there and the first `least` are
  // present.
  Status expect_inputs(int least, int most) const;
  // UNSUPPORTED names operand and type unless operand i, where present, has one of these.
  Status expect_dtype(int i, std::initializer_list<DType> types) const;
  // Axis `value` of a tensor of this rank, negative ones counted from the end.
  Status normalize_axis(int64_t value, int rank, int64_t* axis) const;

 private:
  TensorOp op_;
  const Attributes& attributes_;
  std::string_view name_;
  std::span<const Operand> operands_;
  int outputs_;
  const void* prepared_;
  const DenseProducts* dense_products_;
};

// Types of the outputs. On entry all are of unknown rank. Contract of infer_<e>: check operands
// (expect_inputs, dtypes); set every output's dtype; then `if (!node.ranked()) return {};`; then
// shapes, as far as sizes and data are known: a size that follows from an unknown one is
// kUnknownSize, or that symbol itself where they are equal. What is known at inference is checked
// there, and only there: kernels trust it.
using TensorTypes = std::span<TensorType>;
Status infer(const TensorNode& node, TensorTypes outputs);
#define LMN_TENSOR_OP(e, name, attributes) \
  Status infer_##e(const TensorNode& node, TensorTypes outputs);
#define LMN_CONTROL_OP(e, name, attributes)
#include "ops/tensor_ops.def"
#undef LMN_CONTROL_OP
#undef LMN_TENSOR_OP

// INVALID_ARGUMENT names an attribute that the operator does not have.
Status check_attributes(TensorOp op, const Attributes& attributes, std::string_view node_name);

}  // namespace lmn::ops
