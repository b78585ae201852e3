// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and poolings work on [batch, spatial..., channels], and so does what lies between
// them: a value is turned where it enters such a chain, and turned back where somebody reads it who
// wants channels first. float32 only.
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

Op op_named(std::string_view name) {
  const ops::TensorOp* found = ops::find_tensor_op(name);
  LMN_CHECK(found != nullptr);
  return op_of(*found);
}

// The operator over channels last of one over channels first; null: none.
const char* turned_pool(const Node& node) {
  const std::string_view op = name(node.op);
  if (op == "MaxPool" && node.outputs.size() == 1) return "lmnative.MaxPool";
  if (op == "AveragePool") return "lmnative.AveragePool";
  if (op == "GlobalAveragePool") return "lmnative.GlobalAveragePool";
  return nullptr;
}

// Operators of elements: any order of dimensions is as good, if it is that of all operands.
bool is_of_elements(std::string_view op) {
  static const std::unordered_set<std::string_view> kOps = {
      "Abs",         "Add",       "Clip",      "Div",      "Elu",  "Erf",  "Exp",   "Gelu",
      "HardSigmoid", "HardSwish", "LeakyRelu", "Max",      "Min",  "Mish", "Mul",   "Neg",
      "Pow",         "Relu",      "Sigmoid",   "Softplus", "Sqrt", "Sub",  "Swish", "Tanh"};
  return kOps.contains(op);
}

class ChannelsTurner {
 public:
  explicit ChannelsTurner(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      LMN_ASSIGN_OR_RETURN(const bool turned, is_tensor_op(node.op) ? turn(node) : false);
      if (turned) continue;
      for (ValueId id : node.inputs) LMN_RETURN_IF_ERROR(make_first(id));
      LMN_RETURN_IF_ERROR(rewriter_.copy(node));
    }
    for (const Output& output : graph_.outputs) LMN_RETURN_IF_ERROR(make_first(output.value));
    return rewriter_.finish();
  }

 private:
  const ValueType& type(ValueId id) const { return graph_.value(id).type; }
  bool is_image(ValueId id) const {
    return id != kNone && type(id).kind == Kind::kTensor && type(id).ranked &&
           type(id).dtype == DType::kF32 && type(id).dims.size() >= 3 &&
           type(id).dims.size() <= kMaxRank;
  }
  bool is_last(ValueId id) const { return id != kNone && last_.contains(id); }

  Result<bool> turn(const Node& node) {
    if (name(node.op) == "Conv" && suits(node)) return turn_convolution(node);
    // What is not part of a chain of convolutions stays as it is.
    bool any = false;
    for (ValueId id : node.inputs) any |= is_last(id);
    if (!any) return false;
    if (const char* op = turned_pool(node); op != nullptr) {
      Attributes attributes = node.attributes;
      attributes.erase("storage_order");  // of indices, which it has none of
      LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter_.add(op_named(op), {last_[node.inputs[0]]},
                                                          attributes, node.name));
      last_[node.outputs[0]] = y;
      return true;
    }
    if (name(node.op) == "ReduceMean") return turn_mean(node);
    if (name(node.op) == "Concat") return turn_concat(node);
    return is_of_elements(name(node.op)) ? turn_elementwise(node) : false;
  }

  // The device packs constant weights. Few outputs of a group are summed better as they are.
  bool suits(const Node& node) const {
    const TensorView* w = constant_of(graph_, node.inputs[1]);
    if (!is_image(node.inputs[0]) || w == nullptr || w->dtype != DType::kF32 ||
        w->shape.rank != static_cast<int>(type(node.inputs[0]).dims.size()) ||
        w->shape.elements() == 0) {
      return false;
    }
    const auto groups = node.attributes.get_or<int64_t>("group", 1);
    if (groups < 1 || w->shape[0] % groups != 0) return false;
    const int64_t outputs = w->shape[0] / groups;
    return groups == 1 ? outputs >= 4 : (w->shape[1] == 1 && outputs == 1) || w->shape[1] >= 4;
  }

  Result<bool> turn_convolution(const Node& node) {
    LMN_ASSIGN_OR_RETURN(const ValueId x, make_last(node.inputs[0]));
    std::vector<ValueId> inputs{x, rewriter_.map(node.inputs[1])};
    if (node.input(2) != kNone) {
      LMN_RETURN_IF_ERROR(make_first(node.inputs[2]));
      inputs.push_back(rewriter_.map(node.inputs[2]));
    }
    LMN_ASSIGN_OR_RETURN(
        last_[node.outputs[0]],
        rewriter_.add(op_named("lmnative.Conv"), std::move(inputs), node.attributes, node.name));
    return true;
  }

  // The mean over all spatial dimensions.
  Result<bool> turn_mean(const Node& node) {
    const size_t rank = type(node.inputs[0]).dims.size();
    const TensorView* axes = constant_of(graph_, node.input(1));
    if (!is_image(node.inputs[0]) || axes == nullptr || axes->dtype != DType::kI64 ||
        axes->shape.elements() != static_cast<int64_t>(rank) - 2) {
      return false;
    }
    std::vector<bool> seen(rank, false);
    for (int64_t i = 0; i < axes->shape.elements(); ++i) {
      const int64_t axis = axes->as<int64_t>()[i];
      const auto at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
      if (at < 2 || at >= rank || seen[at]) return false;
      seen[at] = true;
    }
    const bool keeps = node.attributes.get_or<int64_t>("keepdims", 1) != 0;
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter_.add(op_named("lmnative.GlobalAveragePool"),
                                                        {last_[node.inputs[0]]}, {}, node.name));
    if (keeps) {
      last_[node.outputs[0]] = y;
      return true;
    }
    const Dim& channels = type(node.inputs[0]).dims[1];
    LMN_ASSIGN_OR_RETURN(const ValueId flat,
                         reshape(y, {0, channels.is_constant() ? channels.size : -1}, node.name));
    rewriter_.replace(node.outputs[0], flat);
    return true;
  }

  Result<bool> turn_concat(const Node& node) {
    const auto rank = static_cast<int64_t>(type(node.outputs[0]).dims.size());
    for (ValueId id : node.inputs) {
      if (!is_image(id) || static_cast<int64_t>(type(id).dims.size()) != rank) return false;
    }
    auto axis = node.attributes.get_or<int64_t>("axis", 0);
    if (axis < 0) axis += rank;
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      LMN_ASSIGN_OR_RETURN(const ValueId x, make_last(id));
      inputs.push_back(x);
    }
    Attributes attributes;
    attributes.set("axis", axis == 0 ? int64_t{0} : axis == 1 ? rank - 1 : axis - 1);
    LMN_ASSIGN_OR_RETURN(last_[node.outputs[0]],
                         rewriter_.add(node.op, std::move(inputs), attributes, node.name));
    return true;
  }

  Result<bool> turn_elementwise(const Node& node) {
    size_t rank = 0;
    for (ValueId id : node.inputs) {
      if (is_last(id)) rank = std::max(rank, type(id).dims.size());
    }
    for (ValueId id : node.inputs) {
      if (id == kNone || is_single(id)) continue;
      if (!is_image(id) || type(id).dims.size() > rank) return false;
      if (type(id).dims.size() < rank && constant_of(graph_, id) == nullptr) return false;
    }
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      if (id == kNone || is_single(id)) {
        inputs.push_back(rewriter_.map(id));
        continue;
      }
      LMN_ASSIGN_OR_RETURN(const ValueId x,
                           type(id).dims.size() < rank ? make_last_of(id, rank) : make_last(id));
      inputs.push_back(x);
    }
    LMN_ASSIGN_OR_RETURN(last_[node.outputs[0]],
                         rewriter_.add(node.op, std::move(inputs), node.attributes, node.name));
    return true;
  }

  // A constant of one element, which goes with any shape.
  bool is_single(ValueId id) const {
    const TensorView* view = constant_of(graph_, id);
    return view != nullptr && view->shape.elements() == 1 && view->shape.rank <= 1;
  }

  // A constant [channels, 1...] of one dimension less: its turned form is a vector.
  Result<ValueId> make_last_of(ValueId id, size_t rank) {
    const TensorView& view = *constant_of(graph_, id);
    const bool is_vector =
        view.shape.rank + 1 == static_cast<int>(rank) && view.shape[0] == view.shape.elements();
    if (is_vector) return reshape(rewriter_.map(id), {view.shape[0]}, "");
    std::vector<int64_t> padded(rank - static_cast<size_t>(view.shape.rank), 1);
    for (int i = 0; i < view.shape.rank; ++i) padded.push_back(view.shape[i]);
    LMN_ASSIGN_OR_RETURN(const ValueId wide, reshape(rewriter_.map(id), padded, ""));
    return turn_value(wide, true);
  }

  Result<ValueId> reshape(ValueId x, const std::vector<int64_t>& shape, const std::string& name) {
    return rewriter_.add(Op::kReshape, {x, add_integers(&rewriter_, shape)}, {}, name);
  }

  // A value of the new graph with its channels moved to the end, or back to dimension 1.
  Result<ValueId> turn_value(ValueId x, bool to_last) {
    const Dims dims = rewriter_.to().value(x).type.dims;
    const size_t rank = dims.size();
    ops::Ints perm(rank);
    for (size_t i = 0; i < rank; ++i) {
      const size_t from = i == 0    ? 0
                          : to_last ? (i + 1 == rank ? 1 : i + 1)
                                    : (i == 1 ? rank - 1 : i - 1);
      perm[i] = static_cast<int64_t>(from);
    }
    // What moves past dimensions of size 1 only keeps its place in memory.
    const auto is_one = [&](size_t i) { return dims[i].is_constant() && dims[i].size == 1; };
    const bool one_channel = is_one(to_last ? 1 : rank - 1);
    bool one_position = true;
    std::vector<int64_t> shape;
    int unknown = 0;
    for (size_t i = 0; i < rank; ++i) {
      const auto from = static_cast<size_t>(perm[i]);
      const bool is_channel = from == (to_last ? 1 : rank - 1);
      one_position = one_position && (i == 0 || is_channel || is_one(from));
      shape.push_back(dims[from].is_constant() ? dims[from].size : i == 0 ? 0 : -1);
      unknown += shape.back() < 0 ? 1 : 0;
      if (i > 0 && shape.back() == 0) unknown = 2;  // an empty tensor: 0 would mean another size
    }
    if (dims[0].is_constant() && dims[0].size == 0) unknown = 2;
    if ((one_channel || one_position) && unknown <= 1) return reshape(x, shape, "");
    Attributes attributes;
    attributes.set("perm", perm);
    return rewriter_.add(op_named("Transpose"), {x}, attributes, "");
  }

  Result<ValueId> make_last(ValueId id) {
    if (const auto found = last_.find(id); found != last_.end()) return found->second;
    LMN_ASSIGN_OR_RETURN(const ValueId x, turn_value(rewriter_.map(id), true));
    last_[id] = x;
    first_.insert(id);
    return x;
  }
  // Makes rewriter_.map(id) possible.
  Status make_first(ValueId id) {
    const auto found = id == kNone ? last_.end() : last_.find(id);
    if (found == last_.end() || !first_.insert(id).second) return {};
    LMN_ASSIGN_OR_RETURN(const ValueId x, turn_value(found->second, false));
    rewriter_.replace(id, x);
    return {};
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::unordered_map<ValueId, ValueId> last_;  // old values, and their new form, channels last
  std::unordered_set<ValueId> first_;          // of these, those that are there channels first too
};

}  // namespace

Result<Graph> use_channels_last(const Graph& graph, const PassOptions&) {
  return ChannelsTurner(graph).run();
}

}  // namespace lmn::graph
