// SPDX-License-Identifier: Apache-2.0
#include "graph/schema.h"

#include <array>

namespace lmn::graph {
namespace {

// One node under inspection. Checks return a Status that names the node and both sides of what does
// not fit.
class Checker {
 public:
  Checker(const Graph& graph, const Node& node)
      : graph_(graph), node_(node), spec_(schema(node.op)) {}

  bool has(size_t i) const { return node_.input(i) != kNone; }
  const ValueType& type(size_t i) const { return graph_.value(node_.inputs[i]).type; }
  const Dim& dim(size_t i, size_t d) const { return type(i).dims[d]; }
  int64_t size(size_t i, size_t d) const { return dim(i, d).size; }
  int64_t integer(std::string_view key) const { return node_.attributes.get<int64_t>(key); }

  Status fail(const std::string& what) const {
    std::string where(name(node_.op));
    if (!node_.name.empty()) where += " '" + node_.name + "'";
    return error(Code::kInvalidArgument, "%s: %s", where.c_str(), what.c_str());
  }
  Status expect(bool condition, size_t i, const std::string& expected) const {
    if (condition) return {};
    return fail(std::string(spec_.operands[i].name) + " is " + type(i).to_string() + ", expected " +
                expected);
  }

  Status matrix(size_t i, DType dtype) const {
    const ValueType& t = type(i);
    return expect(t.kind == Kind::kTensor && t.dtype == dtype && t.dims.size() == 2 &&
                      t.dims[1].is_constant(),
                  i, std::string(info(dtype).name) + "[rows, columns]");
  }
  Status indices(size_t i) const {
    const ValueType& t = type(i);
    return expect(t.kind == Kind::kTensor && t.dtype == DType::kI32 && t.dims.size() == 1, i,
                  "i32[rows]");
  }
  Status same_rows(size_t i, size_t as) const {
    return expect(
        dim(i, 0) == dim(as, 0), i,
        "the rows of " + std::string(spec_.operands[as].name) + ", " + type(as).to_string());
  }
  Status same_type(size_t i, const ValueType& want) const {
    return expect(type(i) == want, i, want.to_string());
  }
  // A constant matrix in any type a file may store.
  Status weight(size_t i) const {
    const ValueType& t = type(i);
    return expect(
        is_constant(i) && t.dims.size() == 2 && t.dims[0].is_constant() && t.dims[1].is_constant(),
        i, "a constant matrix");
  }
  // A constant vector of floats.
  Status vector(size_t i, int64_t length) const {
    const ValueType& t = type(i);
    const bool floats = t.dtype == DType::kF32 || t.dtype == DType::kF16 || t.dtype == DType::kBF16;
    return expect(is_constant(i) && floats && t.dims.size() == 1 && t.dims[0] == Dim(length), i,
                  "a constant f32[" + std::to_string(length) + "]");
  }
  Status cache(size_t i) const {
    const ValueType& t = type(i);
    return expect(t.kind == Kind::kKvCache && t.dims.size() == 2 && t.dims[0].is_constant() &&
                      t.dims[1].is_constant(),
                  i, "kv[kv_heads, head_dim]");
  }
  // Operand i is [rows, heads * head_dim]; head_dim is 0 where any will do.
  Status heads(size_t i, int64_t heads, int64_t head_dim) const {
    LMN_RETURN_IF_ERROR(matrix(i, DType::kF32));
    if (heads <= 0)
      return fail("heads is " + std::to_string(heads) + ", expected a positive number");
    if (head_dim == 0)
      return expect(size(i, 1) % heads == 0, i, "columns for " + std::to_string(heads) + " heads");
    return expect(size(i, 1) == heads * head_dim, i,
                  std::to_string(heads) + " * " + std::to_string(head_dim) + " columns");
  }
  Status rope_attributes(size_t cos_sin, int64_t head_dim) const {
    LMN_RETURN_IF_ERROR(matrix(cos_sin, DType::kF32));
    LMN_RETURN_IF_ERROR(same_rows(cos_sin, 0));
    LMN_RETURN_IF_ERROR(expect(size(cos_sin, 1) % 2 == 0 && size(cos_sin, 1) <= head_dim, cos_sin,
                               "an even number of columns, at most " + std::to_string(head_dim)));
    const std::string& style = node_.attributes.get<std::string>("style");
    if (style == "interleaved" || style == "halves") return {};
    return fail("style is '" + style + "', expected interleaved or halves");
  }

 private:
  bool is_constant(size_t i) const { return graph_.value(node_.inputs[i]).constant != nullptr; }

  const Graph& graph_;
  const Node& node_;
  const Schema& spec_;
};

using Types = std::vector<ValueType>;

Status infer_embedding(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.indices(0));
  LMN_RETURN_IF_ERROR(c.weight(1));
  *out = {tensor(DType::kF32, {c.dim(0, 0), c.dim(1, 1)})};
  return {};
}

Status infer_rms_norm(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.matrix(0, DType::kF32));
  LMN_RETURN_IF_ERROR(c.vector(1, c.size(0, 1)));
  *out = {c.type(0)};
  return {};
}

bool is_activation_format(DType type) { return type == DType::kQA8 || type == DType::kQA16; }

Status infer_linear(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(
      c.matrix(0, is_activation_format(c.type(0).dtype) ? c.type(0).dtype : DType::kF32));
  LMN_RETURN_IF_ERROR(c.weight(1));
  LMN_RETURN_IF_ERROR(
      c.expect(c.dim(1, 1) == c.dim(0, 1), 1, "the columns of x, " + c.type(0).to_string()));
  int64_t n = c.size(1, 0);
  if (c.has(2)) LMN_RETURN_IF_ERROR(c.vector(2, n));
  if (node.attributes.get_or<int64_t>("interleaved", 0) != 0) {
    const std::vector<Piece>& pieces = graph.value(node.inputs[1]).constant->pieces;
    LMN_RETURN_IF_ERROR(c.expect(pieces.size() == 2 &&
                                     pieces[0].view.shape == pieces[1].view.shape &&
                                     pieces[0].view.dtype == pieces[1].view.dtype,
                                 1, "two pieces of equal shape and type, for it is interleaved"));
    if (c.has(2)) return c.fail("an interleaved weight takes no bias");
    n /= 2;
  }
  *out = {tensor(DType::kF32, {c.dim(0, 0), n})};
  if (c.has(3)) LMN_RETURN_IF_ERROR(c.same_type(3, out->front()));
  return {};
}

Status infer_rope_table(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.indices(0));
  LMN_RETURN_IF_ERROR(
      c.expect(c.type(1).dims.size() == 1 && c.size(1, 0) > 0, 1, "a constant f32[rot_dim / 2]"));
  LMN_RETURN_IF_ERROR(c.vector(1, c.size(1, 0)));
  *out = {tensor(DType::kF32, {c.dim(0, 0), 2 * c.size(1, 0)})};
  return {};
}

Status infer_rope(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  const int64_t heads = c.integer("heads");
  LMN_RETURN_IF_ERROR(c.heads(0, heads, 0));
  LMN_RETURN_IF_ERROR(c.rope_attributes(1, c.size(0, 1) / heads));
  *out = {c.type(0)};
  return {};
}

Status infer_kv_write(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.cache(3));
  for (size_t i : {0, 1}) {
    LMN_RETURN_IF_ERROR(c.heads(i, c.size(3, 0), c.size(3, 1)));
    LMN_RETURN_IF_ERROR(c.same_rows(i, 0));
  }
  LMN_RETURN_IF_ERROR(c.indices(2));
  LMN_RETURN_IF_ERROR(c.same_rows(2, 0));
  *out = {c.type(3)};
  return {};
}

Status infer_attention(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  const int64_t heads = c.integer("heads");
  LMN_RETURN_IF_ERROR(c.cache(1));
  LMN_RETURN_IF_ERROR(c.heads(0, heads, c.size(1, 1)));
  LMN_RETURN_IF_ERROR(c.expect(heads % c.size(1, 0) == 0, 1,
                               "KV heads that divide " + std::to_string(heads) + " heads"));
  for (size_t i : {2, 3}) {
    LMN_RETURN_IF_ERROR(c.indices(i));
    LMN_RETURN_IF_ERROR(c.same_rows(i, 0));
  }
  LMN_RETURN_IF_ERROR(c.expect(c.type(4).kind == Kind::kTensor && c.type(4).dtype == DType::kI32 &&
                                   c.type(4).dims.size() == 2,
                               4, "i32[sequences, pages]"));
  *out = {c.type(0)};
  return {};
}

Status infer_same_pair(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.matrix(0, DType::kF32));
  LMN_RETURN_IF_ERROR(c.same_type(1, c.type(0)));
  *out = {c.type(0)};
  return {};
}

Status infer_gather_rows(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.matrix(0, DType::kF32));
  LMN_RETURN_IF_ERROR(c.indices(1));
  *out = {tensor(DType::kF32, {c.dim(1, 0), c.dim(0, 1)})};
  return {};
}

Status quantized(const Checker& c, const Node& node, Types* out) {
  const std::string& name = node.attributes.get<std::string>("type");
  for (DType type : {DType::kQA8, DType::kQA16}) {
    if (name != info(type).name) continue;
    LMN_RETURN_IF_ERROR(
        c.expect(c.size(0, 1) % info(type).block_elements == 0, 0,
                 "a multiple of " + std::to_string(info(type).block_elements) + " columns"));
    *out = {tensor(type, c.type(0).dims)};
    return {};
  }
  return c.fail("type is '" + name + "', expected qa8 or qa16");
}

Status infer_quantize(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.matrix(0, DType::kF32));
  return quantized(c, node, out);
}

Status infer_rms_norm_quantize(const Graph& graph, const Node& node, Types* out) {
  LMN_RETURN_IF_ERROR(infer_rms_norm(graph, node, out));
  return quantized(Checker(graph, node), node, out);
}

Status infer_rope_kv_write(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.cache(3));
  const int64_t head_dim = c.size(3, 1);
  LMN_RETURN_IF_ERROR(c.heads(0, c.integer("heads") + 2 * c.size(3, 0), head_dim));
  LMN_RETURN_IF_ERROR(c.rope_attributes(1, head_dim));
  LMN_RETURN_IF_ERROR(c.indices(2));
  LMN_RETURN_IF_ERROR(c.same_rows(2, 0));
  *out = {c.type(0), c.type(3)};
  return {};
}

Status infer_columns(const Graph& graph, const Node& node, Types* out) {
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(c.matrix(0, DType::kF32));
  const int64_t begin = c.integer("begin"), count = c.integer("count");
  if (begin < 0 || count <= 0 || begin > c.size(0, 1) || count > c.size(0, 1) - begin) {
    return c.fail(std::to_string(count) + " columns from " + std::to_string(begin) + " of " +
                  c.type(0).to_string());
  }
  *out = {tensor(DType::kF32, {c.dim(0, 0), count})};
  return {};
}

Schema make_schema(Op op) {
  using enum AttributeKind;
  constexpr bool kOptional = true, kStrided = true;
  constexpr bool kRowWise = true, kInPlace = true;
  switch (op) {
    case Op::kEmbedding:
      return {{{"ids"}, {"table"}}, {}, kRowWise, false, infer_embedding};
    case Op::kRmsNorm:
      return {{{"x"}, {"weight"}}, {{"eps", kFloat}}, kRowWise, false, infer_rms_norm};
    case Op::kLinear:
      // interleaved: silu(first piece) * second piece. precise: asks the device for its more exact
      // input type.
      return {{{"x"}, {"weight"}, {"bias", kOptional}, {"residual", kOptional}},
              {{"interleaved", kInt, kOptional}, {"precise", kInt, kOptional}},
              kRowWise,
              false,
              infer_linear};
    case Op::kRopeTable:
      return {{{"positions"}, {"inv_freq"}},
              {{"magnitude", kFloat}},
              kRowWise,
              false,
              infer_rope_table};
    case Op::kRope:
      return {{{"x", false, kStrided}, {"cos_sin"}},
              {{"heads", kInt}, {"style", kString}},
              false,
              kInPlace,
              infer_rope};
    case Op::kKvWrite:
      return {{{"k", false, kStrided}, {"v", false, kStrided}, {"slots"}, {"kv"}},
              {},
              false,
              false,
              infer_kv_write};
    case Op::kPagedAttention:
      return {{{"q", false, kStrided}, {"kv"}, {"positions"}, {"sequence_index"}, {"block_tables"}},
              {{"heads", kInt}, {"scale", kFloat}},
              false,
              false,
              infer_attention};
    case Op::kSiluMul:
      return {{{"gate", false, kStrided}, {"up", false, kStrided}},
              {},
              kRowWise,
              false,
              infer_same_pair};
    case Op::kResidualAdd:
      return {{{"a"}, {"b"}}, {}, kRowWise, false, infer_same_pair};
    case Op::kGatherRows:
      return {{{"x"}, {"indices"}}, {}, false, false, infer_gather_rows};
    case Op::kQuantize:
      return {{{"x"}}, {{"type", kString}}, kRowWise, false, infer_quantize};
    case Op::kRmsNormQuantize:
      return {{{"x"}, {"weight"}},
              {{"eps", kFloat}, {"type", kString}},
              kRowWise,
              false,
              infer_rms_norm_quantize};
    case Op::kRopeKvWrite:
      return {{{"qkv"}, {"cos_sin"}, {"slots"}, {"kv"}},
              {{"heads", kInt}, {"style", kString}},
              false,
              kInPlace,
              infer_rope_kv_write};
    case Op::kColumns:
      return {{{"x", false, kStrided}},
              {{"begin", kInt}, {"count", kInt}},
              kRowWise,
              false,
              infer_columns};
#define LMN_TENSOR_OP(e, name, attributes) case Op::k##e:
#include "ops/tensor_ops.def"
#undef LMN_TENSOR_OP
      break;
  }
  LMN_CHECK(!"an operator without a schema");
}

Status check_operands(const Graph& graph, const Node& node, const Schema& spec, const Checker& c) {
  if (node.inputs.size() > spec.operands.size()) {
    return c.fail(std::to_string(node.inputs.size()) + " operands, expected at most " +
                  std::to_string(spec.operands.size()));
  }
  for (size_t i = 0; i < spec.operands.size(); ++i) {
    const ValueId id = node.input(i);
    const std::string operand(spec.operands[i].name);
    if (id == kNone) {
      if (!spec.operands[i].optional) return c.fail("operand " + operand + " is missing");
    } else if (id < 0 || id >= static_cast<ValueId>(graph.values.size())) {
      return c.fail("operand " + operand + " is value " + std::to_string(id) + " of " +
                    std::to_string(graph.values.size()));
    }
  }
  return {};
}

Status check_attributes(const Node& node, const Schema& spec, const Checker& c) {
  for (const auto& [key, value] : node.attributes.entries()) {
    bool known = false;
    for (const AttributeSpec& attribute : spec.attributes) known |= attribute.name == key;
    if (!known) return c.fail("attribute '" + key + "' is not one of this operator");
  }
  constexpr std::string_view kKinds[] = {"an integer", "a float", "a string"};
  for (const AttributeSpec& attribute : spec.attributes) {
    const Attribute* found = node.attributes.find(attribute.name);
    if (found == nullptr && attribute.optional) continue;
    if (found == nullptr)
      return c.fail("attribute '" + std::string(attribute.name) + "' is missing");
    const auto kind = static_cast<size_t>(attribute.kind);
    if (found->index() != kind) {
      return c.fail("attribute '" + std::string(attribute.name) + "' is not " +
                    std::string(kKinds[kind]));
    }
  }
  return {};
}

}  // namespace

const Schema& schema(Op op) {
  LMN_CHECK(!is_tensor_op(op));
  static const std::array<Schema, kFirstTensorOp> all = [] {
    std::array<Schema, kFirstTensorOp> out;
    for (int i = 0; i < kFirstTensorOp; ++i)
      out[static_cast<size_t>(i)] = make_schema(static_cast<Op>(i));
    return out;
  }();
  return all[static_cast<size_t>(op)];
}

Status infer(const Graph& graph, const Node& node, std::vector<ValueType>* outputs) {
  if (is_tensor_op(node.op)) return infer_tensor_op(graph, node, outputs);
  const Schema& spec = schema(node.op);
  const Checker c(graph, node);
  LMN_RETURN_IF_ERROR(check_operands(graph, node, spec, c));
  LMN_RETURN_IF_ERROR(check_attributes(node, spec, c));
  return spec.infer(graph, node, outputs);
}

}  // namespace lmn::graph
