// SPDX-License-Identifier: Apache-2.0
#include "models/onnx/import.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/check.h"
#include "graph/schema.h"
#include "models/onnx/tensors.h"
#include "models/onnx/upgrade.h"

namespace lmn::models {
namespace {

using formats::OnnxAttribute;
using formats::OnnxFile;
using formats::OnnxFunction;
using formats::OnnxGraph;
using formats::OnnxNode;
using graph::Graph;
using graph::kNone;
using graph::ValueId;

// Functions that call each other, and subgraphs in subgraphs, end somewhere; a hostile file's need
// not, or may grow without bound.
constexpr int kMaxDepth = 64;
constexpr size_t kMaxNodes = size_t{1} << 20;

using Opsets = std::map<std::string, int64_t, std::less<>>;

std::string domain_of(std::string_view domain) {
  return domain == "ai.onnx" ? std::string() : std::string(domain);
}

Opsets to_opsets(const std::vector<formats::OnnxOpset>& imports) {
  Opsets out;
  for (const formats::OnnxOpset& opset : imports) out[domain_of(opset.domain)] = opset.version;
  return out;
}

// What the whole import shares.
struct Import {
  const OnnxFile& file;
  std::map<std::pair<std::string, std::string>, const OnnxFunction*> functions;  // domain, name
  size_t nodes = 0;
};

// Names of values, and what stands for the attributes of a function, at one place of the file.
struct Scope {
  std::unordered_map<std::string, ValueId> values;
  std::unordered_map<std::string, const OnnxAttribute*> arguments;  // of a function
  const Scope* arguments_of = nullptr;  // where the arguments' own references are looked up
  const Opsets* opsets = nullptr;
};

// Builds one graph: the model's, or that of a subgraph, which may look at the values of `outer`.
class GraphImporter final : NodeSink {
 public:
  GraphImporter(Import& import, GraphImporter* outer, Scope* outer_scope, int depth)
      : import_(import), outer_(outer), outer_scope_(outer_scope), depth_(depth) {}

  Status import_model(const OnnxGraph& g, const Opsets& opsets);
  // `types`: of the inputs, where the node that runs the subgraph knows them.
  Status import_subgraph(const OnnxGraph& g, const Opsets& opsets,
                         const std::vector<graph::ValueType>& types);

  Graph take() { return std::move(graph_); }
  // Values of the outer graph that the subgraph takes, in the order of its last inputs.
  const std::vector<ValueId>& captures() const { return captures_; }

 private:
  Status constants(const OnnxGraph& g, Scope* scope);
  Status nodes(const std::vector<OnnxNode>& nodes, Scope* scope);
  Status outputs(const OnnxGraph& g, Scope* scope);
  Status node(const OnnxNode& n, Scope* scope);
  Status call(const OnnxNode& n, const OnnxFunction& function, Scope* scope);
  Status constant_node(const OnnxNode& n, Scope* scope);
  Status subgraphs(const OnnxNode& n, Scope* scope, ImportedNode* node);
  Status set_outputs(const OnnxNode& n, const ImportedNode& node, graph::NodeId id, Scope* scope);
  Result<bool> attribute(const OnnxAttribute& a, const Scope& scope, ops::Attributes* out);
  Result<ValueId> find(std::string_view name, Scope* scope, const OnnxNode& reader);
  ValueId find_outside(const std::string& name);
  ValueId capture(const std::string& name, ValueId outside);
  int64_t version(const Scope& scope, const std::string& domain) const;

  ValueId constant(const std::string& name, const Tensor& tensor) override {
    return graph_.add_constant(name, tensor);
  }
  Result<ValueId> add(const std::string& op, std::vector<ValueId> inputs,
                      ops::Attributes attributes, const std::string& name) override {
    const ops::TensorOp* found = ops::find_tensor_op(op);
    if (found == nullptr) return error(Code::kUnsupported, "operator %s is not known", op.c_str());
    LMN_ASSIGN_OR_RETURN(const graph::NodeId id, graph_.add(graph::op_of(*found), std::move(inputs),
                                                            std::move(attributes), name));
    return graph_.node(id).outputs[0];
  }
  const graph::ValueType& type(ValueId id) const override { return graph_.value(id).type; }

  Import& import_;
  GraphImporter* const outer_;
  Scope* const outer_scope_;
  int depth_;
  Graph graph_;
  Scope* root_scope_ = nullptr;
  std::vector<ValueId> captures_;
  std::unordered_map<ValueId, ValueId> captured_;  // outer value -> input here
};

std::string label(const OnnxNode& n) {
  std::string out(n.op_type);
  if (!n.name.empty()) {
    out += " '" + std::string(n.name) + "'";
  } else if (!n.outputs.empty()) {
    out += " (of '" + std::string(n.outputs[0]) + "')";
  }
  return out;
}

Status GraphImporter::import_model(const OnnxGraph& g, const Opsets& opsets) {
  Scope scope;
  scope.opsets = &opsets;
  root_scope_ = &scope;
  LMN_RETURN_IF_ERROR(constants(g, &scope));
  for (const formats::OnnxValueInfo& input : g.inputs) {
    const std::string name(input.name);
    if (scope.values.contains(name)) continue;  // an initialiser: a constant, as all others
    LMN_ASSIGN_OR_RETURN(graph::ValueType type, to_type(input.type, input.name));
    scope.values[name] = graph_.add_input(name, std::move(type));
  }
  LMN_RETURN_IF_ERROR(nodes(g.nodes, &scope));
  return outputs(g, &scope);
}

Status GraphImporter::import_subgraph(const OnnxGraph& g, const Opsets& opsets,
                                      const std::vector<graph::ValueType>& types) {
  Scope scope;
  scope.opsets = &opsets;
  scope.arguments = outer_scope_->arguments;
  scope.arguments_of = outer_scope_->arguments_of;
  root_scope_ = &scope;
  LMN_RETURN_IF_ERROR(constants(g, &scope));
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const formats::OnnxValueInfo& input = g.inputs[i];
    // Shapes differ from one iteration to the next, whatever the file says; element types do not.
    graph::ValueType type;
    if (input.type.kind != formats::OnnxType::Kind::kUnset) {
      LMN_ASSIGN_OR_RETURN(type, to_type(input.type, input.name));
    }
    if (i < types.size()) {
      type.dtype = types[i].dtype;
      type.kind = types[i].kind;
    }
    type.dims.clear();
    type.ranked = type.kind != graph::Kind::kTensor;
    const std::string name =
        input.name.empty() ? "input." + std::to_string(i) : std::string(input.name);
    scope.values[name] = graph_.add_input(name, std::move(type));
  }
  LMN_RETURN_IF_ERROR(nodes(g.nodes, &scope));
  return outputs(g, &scope);
}

Status GraphImporter::constants(const OnnxGraph& g, Scope* scope) {
  for (const formats::OnnxTensor& tensor : g.initializers) {
    LMN_ASSIGN_OR_RETURN(const Tensor converted, to_tensor(import_.file, tensor));
    scope->values[std::string(tensor.name)] = constant(std::string(tensor.name), converted);
  }
  for (const formats::OnnxSparseTensor& tensor : g.sparse_initializers) {
    LMN_ASSIGN_OR_RETURN(const Tensor converted, to_tensor(import_.file, tensor));
    scope->values[std::string(tensor.values.name)] =
        constant(std::string(tensor.values.name), converted);
  }
  return {};
}

Status GraphImporter::outputs(const OnnxGraph& g, Scope* scope) {
  OnnxNode reader;
  reader.op_type = "the graph's output";
  for (const formats::OnnxValueInfo& output : g.outputs) {
    LMN_ASSIGN_OR_RETURN(const ValueId id, find(output.name, scope, reader));
    if (id == kNone)  // a name that is empty, or that a function was not given
      return error(Code::kCorrupt, "output '%s' of the graph is a value that is left out",
                   std::string(output.name).c_str());
    graph_.add_output(id, std::string(output.name));
  }
  return {};
}

Status GraphImporter::nodes(const std::vector<OnnxNode>& nodes, Scope* scope) {
  for (const OnnxNode& n : nodes) {
    if (++import_.nodes > kMaxNodes) {
      return error(Code::kUnsupported,
                   "the model has more than %zu nodes with its functions inlined", kMaxNodes);
    }
    LMN_RETURN_IF_ERROR(node(n, scope));
  }
  return {};
}

int64_t GraphImporter::version(const Scope& scope, const std::string& domain) const {
  const auto found = scope.opsets->find(domain);
  return found == scope.opsets->end() ? 1 : found->second;
}

// A value of the graph around this one, as an input of this one; constants come along as they are.
ValueId GraphImporter::capture(const std::string& name, ValueId outside) {
  const auto known = captured_.find(outside);
  if (known != captured_.end()) return known->second;
  const graph::Value& value = outer_->graph_.value(outside);
  ValueId id;
  if (value.constant != nullptr) {
    id = graph_.add_constant(*value.constant);
  } else {
    id = graph_.add_input(name, value.type);
    captures_.push_back(outside);
  }
  captured_.emplace(outside, id);
  return id;
}

ValueId GraphImporter::find_outside(const std::string& name) {
  if (outer_ == nullptr) return kNone;
  ValueId outside = kNone;
  const auto found = outer_scope_->values.find(name);
  outside = found != outer_scope_->values.end() ? found->second : outer_->find_outside(name);
  return outside == kNone ? kNone : capture(name, outside);
}

Result<ValueId> GraphImporter::find(std::string_view name, Scope* scope, const OnnxNode& reader) {
  if (name.empty()) return kNone;
  const std::string key(name);
  const auto found = scope->values.find(key);
  if (found != scope->values.end()) return found->second;
  // The body of a function sees nothing around it.
  const ValueId outside = scope == root_scope_ ? find_outside(key) : kNone;
  if (outside != kNone) {
    scope->values.emplace(key, outside);
    return outside;
  }
  return error(Code::kCorrupt,
               "%s reads '%s', which nothing before it computes; the nodes of a model are sorted",
               label(reader).c_str(), key.c_str());
}

// False: the attribute stands for one of the function that is absent.
Result<bool> GraphImporter::attribute(const OnnxAttribute& a, const Scope& scope,
                                      ops::Attributes* out) {
  const std::string name(a.name);
  if (!a.ref_attr_name.empty()) {
    const auto found = scope.arguments.find(std::string(a.ref_attr_name));
    if (found == scope.arguments.end()) return false;
    const OnnxAttribute& given = *found->second;
    const bool direct = given.ref_attr_name.empty() || scope.arguments_of == nullptr;
    const Scope nothing;
    ops::Attributes one;
    LMN_ASSIGN_OR_RETURN(const bool there,
                         attribute(given, direct ? nothing : *scope.arguments_of, &one));
    if (!there) return false;
    const ops::Attribute* value = one.find(given.name);
    if (value == nullptr) {
      return error(Code::kUnsupported, "attribute '%s' is a graph that a function is given",
                   name.c_str());
    }
    out->set(name, *value);
    return true;
  }
  switch (a.type) {
    case OnnxAttribute::FLOAT:
      out->set(name, a.f);
      return true;
    case OnnxAttribute::INT:
      out->set(name, a.i);
      return true;
    case OnnxAttribute::STRING:
      out->set(name, std::string(a.s));
      return true;
    case OnnxAttribute::FLOATS:
      out->set(name, a.floats);
      return true;
    case OnnxAttribute::INTS:
      out->set(name, a.ints);
      return true;
    case OnnxAttribute::STRINGS:
      out->set(name, ops::Strings(a.strings.begin(), a.strings.end()));
      return true;
    case OnnxAttribute::TENSOR: {
      if (a.t == nullptr) break;
      LMN_ASSIGN_OR_RETURN(Tensor tensor, to_tensor(import_.file, *a.t));
      out->set(name, std::shared_ptr<const Tensor>(std::make_shared<Tensor>(std::move(tensor))));
      return true;
    }
    case OnnxAttribute::SPARSE_TENSOR: {
      if (a.sparse_tensor == nullptr) break;
      LMN_ASSIGN_OR_RETURN(Tensor tensor, to_tensor(import_.file, *a.sparse_tensor));
      out->set(name, std::shared_ptr<const Tensor>(std::make_shared<Tensor>(std::move(tensor))));
      return true;
    }
    case OnnxAttribute::TYPE_PROTO: {  // the number of its element type
      const formats::OnnxType* type = a.type_proto.get();
      if (type != nullptr && type->kind == formats::OnnxType::Kind::kSequence)
        out->set("sequence", int64_t{1});
      while (type != nullptr && !type->element.empty()) type = &type->element[0];
      out->set(name, int64_t{type == nullptr ? 0 : type->elem_type});
      return true;
    }
    case OnnxAttribute::GRAPH:  // subgraphs() takes them
      return true;
    default:
      break;
  }
  return error(Code::kUnsupported, "attribute '%s' is of type %d, or has no value", name.c_str(),
               a.type);
}

// Constant: its value, whichever attribute has it.
Status GraphImporter::constant_node(const OnnxNode& n, Scope* scope) {
  ops::Attributes attributes;
  for (const OnnxAttribute& a : n.attributes) {
    Result<bool> there = attribute(a, *scope, &attributes);
    if (!there.ok()) return std::move(there).status().with_context(label(n));
  }
  if (attributes.entries().size() != 1 || n.outputs.size() != 1) {
    return error(Code::kCorrupt, "%s has %zu values and %zu outputs, not one of each",
                 label(n).c_str(), attributes.entries().size(), n.outputs.size());
  }
  struct Visitor {
    Result<Tensor> operator()(int64_t v) const {
      return tensor_of(DType::kI64, Shape{}, std::vector<int64_t>{v});
    }
    Result<Tensor> operator()(float v) const {
      return tensor_of(DType::kF32, Shape{}, std::vector<float>{v});
    }
    Result<Tensor> operator()(const std::string& v) const {
      return tensor_of(DType::kString, Shape{}, std::vector<std::string>{v});
    }
    Result<Tensor> operator()(const ops::Ints& v) const {
      return tensor_of(DType::kI64, Shape{static_cast<int64_t>(v.size())}, v);
    }
    Result<Tensor> operator()(const ops::Floats& v) const {
      return tensor_of(DType::kF32, Shape{static_cast<int64_t>(v.size())}, v);
    }
    Result<Tensor> operator()(const ops::Strings& v) const {
      return tensor_of(DType::kString, Shape{static_cast<int64_t>(v.size())}, v);
    }
    Result<Tensor> operator()(const std::shared_ptr<const Tensor>& v) const { return *v; }
    Result<Tensor> operator()(const std::shared_ptr<const Graph>&) const {
      return error(Code::kCorrupt, "a Constant is a graph");
    }
  };
  LMN_ASSIGN_OR_RETURN(const Tensor tensor, std::visit(Visitor{}, attributes.entries()[0].second));
  const std::string name(n.outputs[0]);
  scope->values[name] = constant(name, tensor);
  return {};
}

// Imports the subgraphs of a control operator; all of them take the same values from outside.
Status GraphImporter::subgraphs(const OnnxNode& n, Scope* scope, ImportedNode* node) {
  std::vector<const OnnxAttribute*> graphs;
  for (const OnnxAttribute& a : n.attributes) {
    if (a.type == OnnxAttribute::GRAPH && a.g != nullptr) graphs.push_back(&a);
  }
  if (graphs.empty()) return {};
  if (depth_ >= kMaxDepth)
    return error(Code::kUnsupported, "subgraphs are nested deeper than %d", kMaxDepth);
  std::vector<graph::ValueType> types;
  for (size_t i = 0; i < node->inputs.size() && node->op != "If"; ++i) {
    graph::ValueType type = graph::tensor(i == 0 ? DType::kI64 : DType::kBool, {});
    if (node->inputs[i] != kNone) type = graph_.value(node->inputs[i]).type;
    if (node->op == "SequenceMap") type.kind = graph::Kind::kTensor;
    types.push_back(std::move(type));
  }
  std::vector<Graph> built;
  std::vector<std::vector<ValueId>> captures;
  std::vector<ValueId> all;
  for (const OnnxAttribute* a : graphs) {
    GraphImporter importer(import_, this, scope, depth_ + 1);
    LMN_RETURN_IF_ERROR(importer.import_subgraph(*a->g, *scope->opsets, types));
    captures.push_back(importer.captures());
    built.push_back(importer.take());
    for (ValueId id : captures.back()) {
      if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
    }
  }
  for (size_t i = 0; i < graphs.size(); ++i) {
    // The captures in the order of all of them; a branch that does without one ignores it.
    Graph& g = built[i];
    const size_t own = g.inputs.size() - captures[i].size();
    std::vector<ValueId> inputs(g.inputs.begin(), g.inputs.begin() + static_cast<ptrdiff_t>(own));
    for (ValueId id : all) {
      const auto at = std::find(captures[i].begin(), captures[i].end(), id);
      if (at == captures[i].end()) {
        g.add_input("unused." + std::to_string(id), graph_.value(id).type);
        inputs.push_back(g.inputs.back());
      } else {
        inputs.push_back(g.inputs[own + static_cast<size_t>(at - captures[i].begin())]);
      }
    }
    g.inputs = std::move(inputs);
    node->attributes.set(graphs[i]->name,
                         std::shared_ptr<const Graph>(std::make_shared<Graph>(std::move(g))));
  }
  node->attributes.set("captures", static_cast<int64_t>(all.size()));
  node->inputs.insert(node->inputs.end(), all.begin(), all.end());
  return {};
}

Status GraphImporter::node(const OnnxNode& n, Scope* scope) {
  const std::string domain = domain_of(n.domain);
  const auto function = import_.functions.find({domain, std::string(n.op_type)});
  if (function != import_.functions.end()) return call(n, *function->second, scope);
  if (domain.empty() && n.op_type == "Constant") return constant_node(n, scope);

  ImportedNode node;
  node.op = domain.empty() ? std::string(n.op_type) : domain + "." + std::string(n.op_type);
  node.name =
      n.name.empty() && !n.outputs.empty() ? std::string(n.outputs[0]) : std::string(n.name);
  node.outputs = n.outputs.size();
  while (node.outputs > 1 && n.outputs[node.outputs - 1].empty()) --node.outputs;
  if (node.outputs == 0) return error(Code::kCorrupt, "%s has no outputs", label(n).c_str());
  for (std::string_view input : n.inputs) {
    LMN_ASSIGN_OR_RETURN(const ValueId id, find(input, scope, n));
    node.inputs.push_back(id);
  }
  while (!node.inputs.empty() && node.inputs.back() == kNone && node.op != "Loop")
    node.inputs.pop_back();
  for (const OnnxAttribute& a : n.attributes) {
    Result<bool> there = attribute(a, *scope, &node.attributes);
    if (!there.ok()) return std::move(there).status().with_context(label(n));
  }
  LMN_RETURN_IF_ERROR(
      graph::check_attribute_types(node.attributes, node.op, node.name, graph::OperatorSets::kAll));
  ValueId result = kNone;
  LMN_RETURN_IF_ERROR(upgrade(version(*scope, domain), &node, *this, &result));
  if (result != kNone) {
    scope->values[std::string(n.outputs[0])] = result;
    return {};
  }
  const ops::TensorOp* op = ops::find_tensor_op(node.op);
  if (op == nullptr) {  // what check_ops() let pass because it is rewritten
    return error(Code::kUnsupported, "operators that are not supported: %s (from %s)",
                 node.op.c_str(), label(n).c_str());
  }
  LMN_RETURN_IF_ERROR(subgraphs(n, scope, &node));
  LMN_ASSIGN_OR_RETURN(const graph::NodeId id,
                       graph_.add(graph::op_of(*op), node.inputs, node.attributes, node.name,
                                  static_cast<int>(node.outputs)));
  return set_outputs(n, node, id, scope);
}

Status GraphImporter::set_outputs(const OnnxNode& n, const ImportedNode& node, graph::NodeId id,
                                  Scope* scope) {
  for (size_t i = 0; i < node.outputs; ++i) {
    if (n.outputs[i].empty()) continue;
    scope->values[std::string(n.outputs[i])] = graph_.node(id).outputs[i];
  }
  return {};
}

// The body of a function of the model, in place of the node that calls it.
Status GraphImporter::call(const OnnxNode& n, const OnnxFunction& function, Scope* scope) {
  if (depth_ >= kMaxDepth)
    return error(Code::kUnsupported, "%s: functions call each other deeper than %d",
                 label(n).c_str(), kMaxDepth);
  const Opsets opsets = to_opsets(function.opset_imports);
  Scope body;
  body.opsets = &opsets;
  body.arguments_of = scope;
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    if (i >= n.inputs.size() || n.inputs[i].empty()) continue;
    LMN_ASSIGN_OR_RETURN(const ValueId id, find(n.inputs[i], scope, n));
    body.values[std::string(function.inputs[i])] = id;
  }
  // Inputs that the caller leaves out are left out in the body.
  for (std::string_view input : function.inputs) body.values.emplace(std::string(input), kNone);
  for (const OnnxAttribute& a : function.attribute_protos) body.arguments[std::string(a.name)] = &a;
  for (const OnnxAttribute& a : n.attributes) body.arguments[std::string(a.name)] = &a;
  ++depth_;
  LMN_RETURN_IF_ERROR(nodes(function.nodes, &body));
  --depth_;
  for (size_t i = 0; i < n.outputs.size() && i < function.outputs.size(); ++i) {
    if (n.outputs[i].empty()) continue;
    LMN_ASSIGN_OR_RETURN(const ValueId id, find(function.outputs[i], &body, n));
    scope->values[std::string(n.outputs[i])] = id;
  }
  return {};
}

// The operators of `nodes` and their subgraphs that nobody knows.
void find_unknown_ops(const std::vector<OnnxNode>& nodes, const Import& import,
                      std::set<std::string>* unknown) {
  for (const OnnxNode& n : nodes) {
    const std::string domain = domain_of(n.domain);
    const bool rewritten = domain.empty() && (n.op_type == "Constant" || n.op_type == "Upsample" ||
                                              n.op_type == "Scatter");
    const std::string op =
        domain.empty() ? std::string(n.op_type) : domain + "." + std::string(n.op_type);
    if (!rewritten && ops::find_tensor_op(op) == nullptr &&
        !import.functions.contains({domain, std::string(n.op_type)})) {
      unknown->insert(op);
    }
    for (const OnnxAttribute& a : n.attributes) {
      if (a.g != nullptr) find_unknown_ops(a.g->nodes, import, unknown);
    }
  }
}

Status check_ops(const Import& import) {
  const formats::OnnxModel& model = import.file.model();
  std::set<std::string> unknown;
  find_unknown_ops(model.graph.nodes, import, &unknown);
  for (const OnnxFunction& function : model.functions)
    find_unknown_ops(function.nodes, import, &unknown);
  if (unknown.empty()) return {};
  std::string list;
  for (const std::string& op : unknown) list += (list.empty() ? "" : ", ") + op;
  return error(Code::kUnsupported, "operators that are not supported: %s", list.c_str());
}

}  // namespace

Result<Graph> import_onnx(const OnnxFile& file) {
  const formats::OnnxModel& model = file.model();
  Import import{file, {}, 0};
  for (const OnnxFunction& function : model.functions)
    import.functions[{domain_of(function.domain), std::string(function.name)}] = &function;
  const Opsets opsets = to_opsets(model.opset_imports);
  const auto version = opsets.find("");
  if (version != opsets.end() && version->second < 7) {
    return error(Code::kUnsupported,
                 "%s is of operator set %lld; 7 is the oldest that is supported: convert it with "
                 "onnx.version_converter",
                 file.path().c_str(), static_cast<long long>(version->second));
  }
  GraphImporter importer(import, nullptr, nullptr, 0);
  Status status = check_ops(import);
  if (status.ok()) status = importer.import_model(model.graph, opsets);
  if (!status.ok()) return std::move(status).with_context(file.path());
  return importer.take();
}

}  // namespace lmn::models
