// SPDX-License-Identifier: Apache-2.0
//
// The intermediate representation between model files and plans: SSA. A graph is a list of values
// and a list of nodes in an order in which every value is defined before it is used. It knows
// operators and shapes, never devices or addresses of results. Graphs are values: passes take one
// and return another; constants are shared between copies.
//
// Three things a value may be: an input (bound from step to step), a constant (bytes in a mapped
// file or owned), or the output of a node. Everything a caller may get wrong is a Status from add()
// or verify() (schema.h has the rules).
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"
#include "core/dtype.h"
#include "core/status.h"
#include "core/tensor.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "ops/tensor_op.h"

namespace lmn::graph {

// The operators of ops.def, which language models are made of; after them those that only shape the
// graph and have no kernel; after them those of tensor_ops.def.
enum class Op : uint16_t {
#define LMN_OP(e, name, args, text) k##e,
#include "ops/ops.def"
#undef LMN_OP
  // A view of neighbouring columns of a matrix; plans turn it into a pointer and a stride.
  kColumns,
#define LMN_TENSOR_OP(e, name, attributes) k##e,
#include "ops/tensor_ops.def"
#undef LMN_TENSOR_OP
};
inline constexpr int kFirstTensorOp = static_cast<int>(Op::kColumns) + 1;
inline constexpr int kOpCount = kFirstTensorOp + ops::kTensorOpCount;

inline constexpr bool is_tensor_op(Op op) { return static_cast<int>(op) >= kFirstTensorOp; }
inline constexpr ops::TensorOp tensor_op(Op op) {
  return static_cast<ops::TensorOp>(static_cast<int>(op) - kFirstTensorOp);
}
inline constexpr Op op_of(ops::TensorOp op) {
  return static_cast<Op>(kFirstTensorOp + static_cast<int>(op));
}

// The kernel of ops.def that computes `op`; none for the others.
inline constexpr std::optional<ops::Op> kernel_of(Op op) {
  if (static_cast<int>(op) >= ops::kOpCount) return std::nullopt;
  return static_cast<ops::Op>(op);
}
std::string_view name(Op op);

// Indices into Graph::values and Graph::nodes. kNone stands for an optional operand that is absent.
using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

// One dimension: a size, or the name of a size that changes from step to step ("tokens",
// "sequences", "outputs", "pages"; "batch" and whatever an ONNX file calls them). "?" is a size of
// which nothing is known, not even whether it is that of another "?".
struct Dim {
  int64_t size = 0;
  std::string symbol;  // empty: `size` counts

  template <std::integral T>
  Dim(T value)
      : size(static_cast<int64_t>(value)) {}  // NOLINT: implicit by design, Dims{"tokens", 576}
  Dim(const char* name) : symbol(name) {}     // NOLINT: as above
  explicit Dim(std::string name) : symbol(std::move(name)) {}

  bool is_constant() const { return symbol.empty(); }
  bool operator==(const Dim&) const = default;
};
using Dims = std::vector<Dim>;

enum class Kind : uint8_t {
  kTensor,
  // One layer of the KV cache, [kv_heads, head_dim]. State is threaded through the graph as a
  // value: a write takes the cache and returns it, so that order is a dependency like any other.
  // Its element type is the cache's own affair.
  kKvCache,
  // Of `dtype` elements, and of no dimensions.
  kSequence,
  kOptional,
  kMap,
};

struct ValueType {
  Kind kind = Kind::kTensor;
  DType dtype = DType::kF32;
  Dims dims;
  bool ranked = true;         // else nothing is known of the shape, and dims is empty
  Kind item = Kind::kTensor;  // what is in a sequence (or a map) or an optional (or a sequence)

  bool operator==(const ValueType&) const = default;
  std::string to_string() const;  // "f32[tokens, 576]", "kv[3, 64]", "i64[...]", "sequence f32"
};
inline ValueType tensor(DType dtype, Dims dims) { return {Kind::kTensor, dtype, std::move(dims)}; }
inline ValueType kv_cache(int64_t kv_heads, int64_t head_dim) {
  return {Kind::kKvCache, DType::kF32, {kv_heads, head_dim}};
}

// One tensor of a file. `owner` keeps its bytes alive and unmoved (usually the mapping of the
// file).
struct Piece {
  std::string name;
  TensorView view;
  std::shared_ptr<const void> owner;
};

// Pieces merged along the first dimension; all else is equal, save that matrices may differ in
// element type.
struct Constant {
  std::vector<Piece> pieces;
};
// A constant of `values`, owned by the graph.
Constant owned_constant(std::string name, std::vector<float> values);

struct Value {
  std::string name;  // of inputs and constants; the outputs of nodes go without
  ValueType type;
  NodeId producer = kNone;                   // kNone: an input or a constant
  std::shared_ptr<const Constant> constant;  // null: an input or the output of a node
};

using ops::Attribute;
using ops::Attributes;

struct Node {
  Op op;
  std::vector<ValueId>
      inputs;  // kNone where an optional operand is absent; trailing ones may be left out
  std::vector<ValueId> outputs;  // all of them, used or not
  Attributes attributes;
  std::string name;  // where it comes from ("blk.0.attn_q"): for messages, dumps and profiles

  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : kNone; }
};

struct Output {
  std::string name;
  ValueId value = kNone;
};

// The vectors are open: passes and tests may build what they like, and verify() judges it.
struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;      // in order of definition
  std::vector<ValueId> inputs;  // what a caller binds, KV caches included (layer 0 first)
  std::vector<Output> outputs;  // kept by every pass

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  // The node that computes `id`, or null for inputs and constants.
  const Node* producer(ValueId id) const {
    return id == kNone || value(id).producer == kNone ? nullptr : &node(value(id).producer);
  }

  ValueId add_input(std::string name, ValueType type);
  ValueId add_constant(Constant constant);  // its name and type follow from its pieces
  ValueId add_constant(std::string name, const Tensor& tensor);  // shares the tensor's memory
  // Appends a node and its outputs, whose types the schema infers. INVALID_ARGUMENT names node and
  // operand. `output_count` is for operators of tensor_ops.def, which may have optional ones.
  Result<NodeId> add(Op op, std::vector<ValueId> inputs, Attributes attributes, std::string name,
                     int output_count = 1);
  void add_output(ValueId id, std::string name) { outputs.push_back({std::move(name), id}); }
};

// For every value, the nodes that read it, in order; a node that reads a value twice is listed
// twice.
std::vector<std::vector<NodeId>> users_of(const Graph& graph);

// One line per input, constant, node and output:
//   %12 : f32[tokens, 576] = rms_norm(%3, blk.0.attn_norm.weight) {eps=1e-05}
std::string to_text(const Graph& graph);

}  // namespace lmn::graph
