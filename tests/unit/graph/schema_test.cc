// SPDX-License-Identifier: Apache-2.0
//
// Inference of every operator on operands that fit and on operands that do not; then graphs that no
// builder would make.
#include "graph/schema.h"

#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

// One operator on operands of given types. An operand of dims that are all constant becomes a
// constant when asked.
struct Case {
  Graph graph;
  std::vector<ValueId> operands;

  Case& input(ValueType type) {
    operands.push_back(graph.add_input("in" + std::to_string(operands.size()), std::move(type)));
    return *this;
  }
  Case& f32(Dims dims) { return input(tensor(DType::kF32, std::move(dims))); }
  Case& i32(Dims dims) { return input(tensor(DType::kI32, std::move(dims))); }
  Case& kv(int64_t heads, int64_t head_dim) { return input(kv_cache(heads, head_dim)); }
  Case& none() {
    operands.push_back(kNone);
    return *this;
  }
  Case& weight(DType type, const Shape& shape) {
    Constant constant;
    constant.pieces.push_back(piece("w", type, shape));
    operands.push_back(graph.add_constant(constant));
    return *this;
  }
  Case& weights(DType type, const Shape& a, const Shape& b) {
    Constant constant;
    constant.pieces = {piece("w0", type, a), piece("w1", type, b)};
    operands.push_back(graph.add_constant(constant));
    return *this;
  }

  // The types of the outputs, or the error.
  std::string infer(Op op, Attributes attributes = {}) {
    Result<NodeId> id = graph.add(op, operands, std::move(attributes), "n");
    if (!id.ok()) {
      EXPECT(id.status().code() == Code::kInvalidArgument);
      return std::string(id.status().message());
    }
    std::string out;
    for (ValueId value : graph.node(*id).outputs)
      out += (out.empty() ? "" : " ") + graph.value(value).type.to_string();
    return out;
  }
};

void expect(const std::string& got, const std::string& want) { EXPECT_EQ(got, want); }

const Attributes kRope{{"heads", int64_t{4}}, {"style", std::string("halves")}};
const Attributes kAttention{{"heads", int64_t{4}}, {"scale", 0.25f}};
const Attributes kNorm{{"eps", 1e-5f}};

}  // namespace

TEST(infers_embedding) {
  expect(Case().i32({"tokens"}).weight(DType::kQ4_1, {100, 64}).infer(Op::kEmbedding),
         "f32[tokens, 64]");
  expect(Case().f32({"tokens"}).weight(DType::kQ4_1, {100, 64}).infer(Op::kEmbedding),
         "embedding 'n': ids is f32[tokens], expected i32[rows]");
  expect(Case().i32({"tokens"}).f32({100, 64}).infer(Op::kEmbedding),
         "embedding 'n': table is f32[100, 64], expected a constant matrix");
}

TEST(infers_rms_norm) {
  expect(Case().f32({"tokens", 64}).weight(DType::kBF16, {64}).infer(Op::kRmsNorm, kNorm),
         "f32[tokens, 64]");
  expect(Case().f32({"tokens", 64}).weight(DType::kF32, {32}).infer(Op::kRmsNorm, kNorm),
         "rms_norm 'n': weight is f32[32], expected a constant f32[64]");
  expect(Case().f32({"tokens"}).weight(DType::kF32, {32}).infer(Op::kRmsNorm, kNorm),
         "rms_norm 'n': x is f32[tokens], expected f32[rows, columns]");
}

TEST(infers_linear) {
  expect(Case().f32({"tokens", 64}).weight(DType::kQ4_0, {96, 64}).infer(Op::kLinear),
         "f32[tokens, 96]");
  expect(Case()
             .input(tensor(DType::kQA16, {"tokens", 64}))
             .weight(DType::kQ4_0, {96, 64})
             .infer(Op::kLinear),
         "f32[tokens, 96]");
  expect(Case()
             .f32({"outputs", 64})
             .weight(DType::kF16, {96, 64})
             .weight(DType::kF32, {96})
             .f32({"outputs", 96})
             .infer(Op::kLinear),
         "f32[outputs, 96]");
  expect(Case()
             .f32({"tokens", 64})
             .weights(DType::kQ4_0, {96, 64}, {96, 64})
             .infer(Op::kLinear, {{"interleaved", int64_t{1}}}),
         "f32[tokens, 96]");
  expect(Case().f32({"tokens", 32}).weight(DType::kF32, {96, 64}).infer(Op::kLinear),
         "linear 'n': weight is f32[96, 64], expected the columns of x, f32[tokens, 32]");
  expect(Case()
             .f32({"tokens", 64})
             .weight(DType::kF32, {96, 64})
             .weight(DType::kF32, {64})
             .infer(Op::kLinear),
         "linear 'n': bias is f32[64], expected a constant f32[96]");
  expect(Case()
             .f32({"tokens", 64})
             .weight(DType::kF32, {96, 64})
             .none()
             .f32({"outputs", 96})
             .infer(Op::kLinear),
         "linear 'n': residual is f32[outputs, 96], expected f32[tokens, 96]");
  expect(Case()
             .f32({"tokens", 64})
             .weights(DType::kF32, {96, 64}, {64, 64})
             .infer(Op::kLinear, {{"interleaved", int64_t{1}}}),
         "linear 'n': weight is f32[160, 64], expected two pieces of equal shape and type, for it "
         "is interleaved");
  expect(Case()
             .f32({"tokens", 64})
             .weights(DType::kF32, {8, 64}, {8, 64})
             .weight(DType::kF32, {16})
             .infer(Op::kLinear, {{"interleaved", int64_t{1}}}),
         "linear 'n': an interleaved weight takes no bias");
}

TEST(infers_rope) {
  expect(
      Case().i32({"tokens"}).weight(DType::kF32, {8}).infer(Op::kRopeTable, {{"magnitude", 1.0f}}),
      "f32[tokens, 16]");
  expect(Case().i32({"tokens"}).f32({8}).infer(Op::kRopeTable, {{"magnitude", 1.0f}}),
         "rope_table 'n': inv_freq is f32[8], expected a constant f32[8]");
  expect(Case().f32({"tokens", 64}).f32({"tokens", 16}).infer(Op::kRope, kRope), "f32[tokens, 64]");
  expect(Case().f32({"tokens", 62}).f32({"tokens", 16}).infer(Op::kRope, kRope),
         "rope 'n': x is f32[tokens, 62], expected columns for 4 heads");
  expect(Case().f32({"tokens", 64}).f32({"tokens", 32}).infer(Op::kRope, kRope),
         "rope 'n': cos_sin is f32[tokens, 32], expected an even number of columns, at most 16");
  expect(Case().f32({"tokens", 64}).f32({"outputs", 16}).infer(Op::kRope, kRope),
         "rope 'n': cos_sin is f32[outputs, 16], expected the rows of x, f32[tokens, 64]");
  expect(Case()
             .f32({"tokens", 64})
             .f32({"tokens", 16})
             .infer(Op::kRope, {{"heads", int64_t{4}}, {"style", std::string("mirrored")}}),
         "rope 'n': style is 'mirrored', expected interleaved or halves");
  expect(Case()
             .f32({"tokens", 64})
             .f32({"tokens", 16})
             .infer(Op::kRope, {{"heads", int64_t{0}}, {"style", std::string("halves")}}),
         "rope 'n': heads is 0, expected a positive number");
}

TEST(infers_kv_write_and_attention) {
  expect(
      Case().f32({"tokens", 32}).f32({"tokens", 32}).i32({"tokens"}).kv(2, 16).infer(Op::kKvWrite),
      "kv[2, 16]");
  expect(
      Case().f32({"tokens", 32}).f32({"tokens", 48}).i32({"tokens"}).kv(2, 16).infer(Op::kKvWrite),
      "kv_write 'n': v is f32[tokens, 48], expected 2 * 16 columns");
  expect(Case()
             .f32({"tokens", 32})
             .f32({"tokens", 32})
             .i32({"tokens"})
             .f32({2, 16})
             .infer(Op::kKvWrite),
         "kv_write 'n': kv is f32[2, 16], expected kv[kv_heads, head_dim]");
  const auto attention = [](Dims q, int64_t kv_heads, Dims tables) {
    return Case()
        .f32(std::move(q))
        .kv(kv_heads, 16)
        .i32({"tokens"})
        .i32({"tokens"})
        .i32(std::move(tables))
        .infer(Op::kPagedAttention, kAttention);
  };
  expect(attention({"tokens", 64}, 2, {"sequences", "pages"}), "f32[tokens, 64]");
  expect(attention({"tokens", 64}, 3, {"sequences", "pages"}),
         "paged_attention 'n': kv is kv[3, 16], expected KV heads that divide 4 heads");
  expect(attention({"tokens", 48}, 2, {"sequences", "pages"}),
         "paged_attention 'n': q is f32[tokens, 48], expected 4 * 16 columns");
  expect(attention({"outputs", 64}, 2, {"sequences", "pages"}),
         "paged_attention 'n': positions is i32[tokens], expected the rows of q, f32[outputs, 64]");
  expect(attention({"tokens", 64}, 2, {"sequences"}),
         "paged_attention 'n': block_tables is i32[sequences], expected i32[sequences, pages]");
}

TEST(infers_fused_rope_kv_write) {
  expect(Case()
             .f32({"tokens", 128})
             .f32({"tokens", 16})
             .i32({"tokens"})
             .kv(2, 16)
             .infer(Op::kRopeKvWrite, kRope),
         "f32[tokens, 128] kv[2, 16]");
  expect(Case()
             .f32({"tokens", 96})
             .f32({"tokens", 16})
             .i32({"tokens"})
             .kv(2, 16)
             .infer(Op::kRopeKvWrite, kRope),
         "rope_kv_write 'n': qkv is f32[tokens, 96], expected 8 * 16 columns");
}

TEST(infers_pointwise_and_rows) {
  for (Op op : {Op::kResidualAdd, Op::kSiluMul}) {
    expect(Case().f32({"tokens", 8}).f32({"tokens", 8}).infer(op), "f32[tokens, 8]");
  }
  expect(Case().f32({"tokens", 8}).f32({"outputs", 8}).infer(Op::kResidualAdd),
         "residual_add 'n': b is f32[outputs, 8], expected f32[tokens, 8]");
  expect(Case().f32({"tokens", 8}).i32({"outputs"}).infer(Op::kGatherRows), "f32[outputs, 8]");
  expect(
      Case().f32({"tokens", 8}).infer(Op::kColumns, {{"begin", int64_t{2}}, {"count", int64_t{6}}}),
      "f32[tokens, 6]");
  expect(
      Case().f32({"tokens", 8}).infer(Op::kColumns, {{"begin", int64_t{3}}, {"count", int64_t{6}}}),
      "columns 'n': 6 columns from 3 of f32[tokens, 8]");
  expect(Case()
             .f32({"tokens", 8})
             .infer(Op::kColumns, {{"begin", INT64_MAX}, {"count", int64_t{1}}})
             .substr(0, 12),
         "columns 'n':");
}

TEST(infers_quantize) {
  const std::string qa16 = "qa16";
  expect(Case().f32({"tokens", 64}).infer(Op::kQuantize, {{"type", qa16}}), "qa16[tokens, 64]");
  expect(Case()
             .f32({"tokens", 64})
             .weight(DType::kF32, {64})
             .infer(Op::kRmsNormQuantize, {{"eps", 1e-5f}, {"type", std::string("qa8")}}),
         "qa8[tokens, 64]");
  expect(Case().f32({"tokens", 48}).infer(Op::kQuantize, {{"type", qa16}}),
         "quantize 'n': x is f32[tokens, 48], expected a multiple of 32 columns");
  expect(Case().f32({"tokens", 64}).infer(Op::kQuantize, {{"type", std::string("q4_0")}}),
         "quantize 'n': type is 'q4_0', expected qa8 or qa16");
}

TEST(refuses_missing_and_unknown_operands_and_attributes) {
  expect(Case().f32({"tokens", 8}).infer(Op::kResidualAdd),
         "residual_add 'n': operand b is missing");
  expect(Case().f32({"tokens", 8}).none().infer(Op::kResidualAdd),
         "residual_add 'n': operand b is missing");
  expect(Case().f32({"tokens", 8}).f32({"tokens", 8}).f32({"tokens", 8}).infer(Op::kResidualAdd),
         "residual_add 'n': 3 operands, expected at most 2");
  expect(Case().f32({"tokens", 8}).weight(DType::kF32, {8}).infer(Op::kRmsNorm),
         "rms_norm 'n': attribute 'eps' is missing");
  expect(
      Case().f32({"tokens", 8}).weight(DType::kF32, {8}).infer(Op::kRmsNorm, {{"eps", int64_t{1}}}),
      "rms_norm 'n': attribute 'eps' is not a float");
  expect(Case().f32({"tokens", 8}).f32({"tokens", 8}).infer(Op::kResidualAdd, kNorm),
         "residual_add 'n': attribute 'eps' is not one of this operator");
  Case out_of_range;
  out_of_range.operands = {0, 7};
  expect(out_of_range.f32({"tokens", 8}).infer(Op::kQuantize),
         "quantize 'n': 3 operands, expected at most 1");
  Case dangling;
  dangling.f32({"tokens", 8}).operands.push_back(7);
  expect(dangling.infer(Op::kResidualAdd), "residual_add 'n': operand b is value 7 of 1");
}

namespace {

Graph sound() {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 8}));
  const ValueId w = b.constant(piece("w", DType::kF32, {8, 8}));
  const ValueId y = b.linear(x, w, kNone, false, "first");
  b.output(b.add(y, x, "second"), "z");
  return finish(b);
}

void expect_refused(const Graph& graph, const std::string& want) {
  const Status status = verify(graph);
  EXPECT(status.code() == Code::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), want);
}

}  // namespace

TEST(verify_accepts_what_the_builder_made) { EXPECT(verify(sound()).ok()); }

TEST(verify_refuses_broken_order_and_types) {
  Graph swapped = sound();
  std::swap(swapped.nodes[0], swapped.nodes[1]);
  expect_refused(swapped, "residual_add 'second' reads %2 before it is defined");

  Graph two_producers = sound();
  two_producers.nodes[1].outputs = two_producers.nodes[0].outputs;
  expect_refused(two_producers, "residual_add 'second': output 0 is %2, which is not its own");

  Graph missing_output = sound();
  missing_output.nodes[1].outputs.clear();
  expect_refused(missing_output, "residual_add 'second' has 0 outputs, expected 1");

  Graph wrong_type = sound();
  wrong_type.values[3].type = tensor(DType::kF32, {"tokens", 9});
  expect_refused(wrong_type,
                 "residual_add 'second': %3 is declared as f32[tokens, 9] and is f32[tokens, 8]");

  Graph undefined = sound();
  undefined.outputs[0].value = 17;
  expect_refused(undefined, "output 'z' is %17, which is not defined");

  Graph twice = sound();
  twice.inputs.push_back(0);
  expect_refused(twice, "input %0 is not an input, or is listed twice");

  Graph nameless = sound();
  nameless.values[0].name.clear();
  expect_refused(nameless, "input %0 has no name");
}

TEST(verify_refuses_broken_constants) {
  const auto with = [](std::vector<Piece> pieces) {
    Graph graph;
    Constant constant;
    constant.pieces = std::move(pieces);
    graph.add_constant(std::move(constant));
    return graph;
  };
  expect_refused(with({}), "constant '' has no pieces");
  expect_refused(with({piece("a", DType::kF32, {2, 8}), piece("b", DType::kF32, {2, 9})}),
                 "constant '{a,b}': piece 'b' is [2, 9] and does not merge with [2, 8]");
  expect_refused(with({piece("a", DType::kF32, {8}), piece("b", DType::kF16, {8})}),
                 "constant '{a,b}': piece 'b' is [8] and does not merge with [8]");
  EXPECT(verify(with({piece("a", DType::kQ4_0, {2, 32}), piece("b", DType::kQ8_0, {2, 32})})).ok());
  Piece cut = piece("a", DType::kQ4_0, {2, 32});
  cut.view.shape[1] = 48;
  expect_refused(with({cut}),
                 "constant 'a' is q4_0[2, 48], expected a vector or a matrix of whole blocks");
  cut = piece("a", DType::kF32, {2});
  cut.view.data = nullptr;
  expect_refused(with({cut}), "constant 'a' has no data");
  Graph grown = with({piece("a", DType::kF32, {2})});
  grown.values[0].type.dims[0] = 3;
  expect_refused(grown, "constant 'a' is declared as f32[3] and is not");
}
