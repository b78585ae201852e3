// SPDX-License-Identifier: Apache-2.0
#include "plan/program/batching.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "plan/program/specialization.h"

namespace lmn::plan {
namespace {

using graph::kNone;
using graph::Node;
using graph::ValueId;

using Names = std::unordered_set<std::string_view>;

// An element of the output follows from the elements at its place in the inputs.
bool is_elementwise(std::string_view op) {
  static const Names kOps = {"Abs",
                             "Acos",
                             "Acosh",
                             "Add",
                             "And",
                             "Asin",
                             "Asinh",
                             "Atan",
                             "Atanh",
                             "BitShift",
                             "BitwiseAnd",
                             "BitwiseNot",
                             "BitwiseOr",
                             "BitwiseXor",
                             "Cast",
                             "Ceil",
                             "Celu",
                             "Clip",
                             "Cos",
                             "Cosh",
                             "Div",
                             "Elu",
                             "Equal",
                             "Erf",
                             "Exp",
                             "Floor",
                             "Gelu",
                             "Greater",
                             "GreaterOrEqual",
                             "HardSigmoid",
                             "HardSwish",
                             "Identity",
                             "IsInf",
                             "IsNaN",
                             "LeakyRelu",
                             "Less",
                             "LessOrEqual",
                             "Log",
                             "Max",
                             "Mean",
                             "Min",
                             "Mish",
                             "Mod",
                             "Mul",
                             "Neg",
                             "Not",
                             "Or",
                             "PRelu",
                             "Pow",
                             "Reciprocal",
                             "Relu",
                             "Round",
                             "Selu",
                             "Sigmoid",
                             "Sign",
                             "Sin",
                             "Sinh",
                             "Softplus",
                             "Softsign",
                             "Sqrt",
                             "Sub",
                             "Sum",
                             "Tan",
                             "Tanh",
                             "ThresholdedRelu",
                             "Where",
                             "Xor",
                             "FastGelu",
                             "QuickGelu",
                             "BiasGelu",
                             "lmnative.ElementwiseChain"};
  return kOps.contains(op);
}

// What the first input has along its first dimension never meets; the others are weights.
bool is_per_image(std::string_view op) {
  static const Names kOps = {"Conv",
                             "ConvTranspose",
                             "MaxPool",
                             "AveragePool",
                             "LpPool",
                             "GlobalAveragePool",
                             "GlobalMaxPool",
                             "LRN",
                             "DepthToSpace",
                             "SpaceToDepth",
                             "InstanceNormalization",
                             "BatchNormalization",
                             "lmnative.MaxPool",
                             "lmnative.AveragePool",
                             "lmnative.GlobalAveragePool"};
  return kOps.contains(op);
}

class Analysis {
 public:
  explicit Analysis(const graph::Graph& graph) : graph_(graph) {}

  bool run() {
    if (graph_.inputs.empty() || graph_.outputs.empty()) return false;
    for (const ValueId id : graph_.inputs) {
      const graph::ValueType& type = graph_.value(id).type;
      if (type.kind != graph::Kind::kTensor || !type.ranked || type.dims.empty() ||
          type.dtype == DType::kString || type.dims[0].is_constant() || type.dims[0].symbol == "?")
        return false;
      if (symbol_.empty()) symbol_ = type.dims[0].symbol;
      if (axis_of(id) != 0) return false;
    }
    axes_.assign(graph_.values.size(), kWithout);
    for (const ValueId id : graph_.inputs) axes_[at(id)] = 0;
    for (const Node& node : graph_.nodes) {
      if (!check(node)) return false;
    }
    return std::all_of(graph_.outputs.begin(), graph_.outputs.end(), [&](const auto& output) {
      return axes_[at(output.value)] == 0 &&
             graph_.value(output.value).type.dtype != DType::kString;
    });
  }

 private:
  static constexpr int kWithout = -1, kBad = -2;
  static size_t at(ValueId id) { return static_cast<size_t>(id); }

  // Where the symbol is in the type; kBad: twice, in an expression, or nothing is known.
  int axis_of(ValueId id) const {
    const graph::ValueType& type = graph_.value(id).type;
    if (type.kind != graph::Kind::kTensor || !type.ranked) return kBad;
    int axis = kWithout;
    for (size_t d = 0; d < type.dims.size(); ++d) {
      const graph::Dim& dim = type.dims[d];
      if (dim.is_constant()) continue;
      if (dim.symbol == symbol_) {
        if (axis != kWithout) return kBad;
        axis = static_cast<int>(d);
      } else if (dim.symbol == "?" || dim.symbol.find(symbol_) != std::string::npos) {
        return kBad;
      }
    }
    return axis;
  }
  int rank(ValueId id) const { return static_cast<int>(graph_.value(id).type.dims.size()); }
  bool carries(const Node& node, size_t i) const {
    return i < node.inputs.size() && node.inputs[i] != kNone && axes_[at(node.inputs[i])] >= 0;
  }
  // Counted from the last dimension, which is 1, as broadcasting does.
  int from_end(ValueId id) const { return rank(id) - axes_[at(id)]; }

  // Gives the outputs their axes. False: rows may meet here, or the axis goes astray.
  bool check(const Node& node) {
    if (!is_tensor_op(node.op)) return false;
    const ops::TensorOp op = tensor_op(node.op);
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) any |= carries(node, i);
    for (const ValueId id : node.outputs) axes_[at(id)] = axis_of(id);
    if (!any) {  // of weights alone, whatever it does; but it may not know how many rows there are
      return !ops::is_random(op) && ops::op_class(op) != ops::OpClass::kControl &&
             std::all_of(node.outputs.begin(), node.outputs.end(),
                         [&](ValueId id) { return axes_[at(id)] == kWithout; });
    }
    if (ops::op_class(op) != ops::OpClass::kKernel || ops::is_random(op)) return false;
    for (const ValueId id : node.outputs) {
      if (axes_[at(id)] < 0) return false;
    }
    return keeps_rows(name(op), node);
  }

  bool keeps_rows(std::string_view op, const Node& node) const {
    const ValueId out = node.outputs[0];
    const auto input_axis = [&](size_t i) { return axes_[at(node.inputs[i])]; };
    const auto only_first = [&] {
      for (size_t i = 1; i < node.inputs.size(); ++i) {
        if (carries(node, i)) return false;
      }
      return carries(node, 0);
    };
    const auto attribute = [&](std::string_view key, int64_t missing) {
      return node.attributes.get_or<int64_t>(key, missing);
    };
    const auto axis_attribute = [&](int64_t missing) {
      const int64_t axis = attribute("axis", missing);
      return axis < 0 ? axis + rank(node.inputs[0]) : axis;
    };
    // All that carry rows have them where the output has them, counted from the end.
    const auto aligned = [&] {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (carries(node, i) && from_end(node.inputs[i]) != from_end(out)) return false;
      }
      return true;
    };
    if (is_elementwise(op)) return aligned();
    if (is_per_image(op))
      return only_first() && input_axis(0) == 0 && axes_[at(out)] == 0 &&
             node.outputs.size() == 1 && attribute("training_mode", 0) == 0;
    if (op == "lmnative.Conv") {  // its last operand is added
      return carries(node, 0) && input_axis(0) == 0 && axes_[at(out)] == 0 && !carries(node, 1) &&
             !carries(node, 2) && (node.input(3) == graph::kNone || carries(node, 3)) && aligned();
    }
    if (op == "MatMul") {
      return aligned() && (!carries(node, 0) || from_end(node.inputs[0]) >= 2) &&
             (!carries(node, 1) || from_end(node.inputs[1]) >= 3);
    }
    if (op == "Gemm" || name_is_linear(op)) {
      return carries(node, 0) && !carries(node, 1) && aligned() && from_end(node.inputs[0]) >= 2 &&
             attribute("transA", 0) == 0;
    }
    if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax" || op == "LayerNormalization" ||
        op == "RMSNormalization") {
      return only_first() && input_axis(0) == axes_[at(out)] && axis_attribute(-1) > input_axis(0);
    }
    if (op == "com.microsoft.SkipLayerNormalization") {
      return aligned() && carries(node, 0) && from_end(node.inputs[0]) >= 2 &&
             node.outputs.size() == 1;
    }
    if (op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze")
      return only_first() && input_axis(0) == 0 && axes_[at(out)] == 0;
    if (op == "Transpose") {
      const auto* perm = node.attributes.find_as<ops::Ints>("perm");
      return perm != nullptr && (*perm)[static_cast<size_t>(axes_[at(out)])] == input_axis(0);
    }
    if (op == "Concat") {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!carries(node, i) || input_axis(i) != axes_[at(out)]) return false;
      }
      return axis_attribute(0) != input_axis(0);
    }
    if (op == "Gather") {  // an embedding
      return !carries(node, 0) && carries(node, 1);
    }
    static const Names kReductions = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin",
                                      "ReduceProd", "ReduceL1",  "ReduceL2",  "ReduceSumSquare"};
    return kReductions.contains(op) && only_first();  // the axis that is left is not reduced
  }
  static bool name_is_linear(std::string_view op) {
    return op == name(tensor_op(graph::Op::kFusedLinear));
  }

  const graph::Graph& graph_;
  std::string symbol_;
  std::vector<int> axes_;
};

int64_t row_bytes_of(const Tensor& tensor) {
  int64_t bytes = element_bytes(tensor.dtype);
  for (int i = 1; i < tensor.shape.rank; ++i) bytes *= tensor.shape[i];
  return bytes;
}

}  // namespace

bool is_batchable(const graph::Graph& graph) { return Analysis(graph).run(); }

bool may_join(std::span<const ops::RuntimeValue> a, std::span<const ops::RuntimeValue> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor &x = a[i].tensor, &y = b[i].tensor;
    if (a[i].kind != b[i].kind || x.dtype != y.dtype || x.shape.rank != y.shape.rank ||
        x.shape.rank == 0)
      return false;
    for (int d = 1; d < x.shape.rank; ++d) {
      if (x.shape[d] != y.shape[d]) return false;
    }
  }
  return true;
}

Result<std::vector<ops::RuntimeValue>> join_rows(
    std::span<const std::span<const ops::RuntimeValue>> runs, const ops::AllocateTensor& allocate) {
  std::vector<ops::RuntimeValue> joined(runs[0].size());
  for (size_t i = 0; i < joined.size(); ++i) {
    Shape shape = runs[0][i].tensor.shape;
    shape[0] = 0;
    for (const auto& run : runs) shape[0] += run[i].tensor.shape[0];
    LMN_ASSIGN_OR_RETURN(joined[i].tensor, allocate(runs[0][i].tensor.dtype, shape));
    std::byte* to = joined[i].tensor.data;
    for (const auto& run : runs) {
      const Tensor& from = run[i].tensor;
      const auto bytes = static_cast<size_t>(from.shape[0] * row_bytes_of(from));
      if (bytes > 0) std::memcpy(to, from.data, bytes);
      to += bytes;
    }
  }
  return joined;
}

Status take_rows(const ops::RuntimeValue& from, int64_t first, int64_t count,
                 const ops::AllocateTensor& allocate, ops::RuntimeValue* to) {
  Tensor rows = from.tensor;
  rows.shape[0] = count;
  rows.data += first * row_bytes_of(rows);
  if (to->tensor.data == nullptr) {
    LMN_ASSIGN_OR_RETURN(to->tensor, allocate(rows.dtype, rows.shape));
    to->kind = ops::ValueKind::kTensor;
  } else if (to->kind != from.kind || to->tensor.dtype != rows.dtype ||
             to->tensor.shape != rows.shape) {
    return error(Code::kInvalidArgument, "the buffer of an output is %s, expected %s%s",
                 type_text(type_of(*to)).c_str(), std::string(info(rows.dtype).name).c_str(),
                 rows.shape.to_string().c_str());
  }
  copy_elements(rows, to->tensor);
  return {};
}

}  // namespace lmn::plan
