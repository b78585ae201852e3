// SPDX-License-Identifier: Apache-2.0
//
// What graph tests share: constants without a file, a small attention block, and passes run and
// compared as text.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/schema.h"
#include "testing.h"

namespace graph_test {

using namespace lmn;
using namespace lmn::graph;

// A tensor of zeros that owns its bytes.
inline Piece piece(const std::string& name, DType dtype, const Shape& shape) {
  TensorView view;
  view.dtype = dtype;
  view.shape = shape;
  auto bytes = std::make_shared<const std::vector<std::byte>>(static_cast<size_t>(view.bytes()));
  view.data = bytes->data();
  return {name, view, bytes};
}

// As a device that multiplies quantised weights with 8-bit inputs, or 16-bit ones when asked.
inline Result<DType> input_type(DType weight, int64_t, bool precise) {
  if (weight == DType::kBool) return error(Code::kUnsupported, "no weights of bool");
  if (!is_block_quantized(weight)) return DType::kF32;
  return precise ? DType::kQA16 : DType::kQA8;
}

inline PassOptions options() {
  PassOptions out;
  out.linear_input_type = input_type;
  return out;
}

inline Graph finish(Builder& builder) {
  auto graph = builder.finish();
  ASSERT_OK(graph);
  return std::move(graph).value();
}

// The lines of nodes and outputs, after a pass whose result must verify. Inputs and constants are
// left out.
inline std::string nodes_of(const Graph& graph) {
  const std::string text = to_text(graph);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line.rfind("input ", 0) != 0 && line.rfind("constant ", 0) != 0) out += line + "\n";
    at = end + 1;
  }
  return out;
}

inline std::string after(PassFn pass, const Graph& graph) {
  auto result = pass(graph, options());
  ASSERT_OK(result);
  ASSERT_OK(verify(*result));
  return nodes_of(*result);
}

// The same text with values numbered in the order in which they appear.
inline std::string renumbered(const std::string& text) {
  std::map<std::string, size_t> numbers;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] != '%') continue;
    const size_t end = std::min(text.find_first_not_of("0123456789", i + 1), text.size());
    out += std::to_string(
        numbers.emplace(text.substr(i + 1, end - i - 1), numbers.size()).first->second);
    i = end - 1;
  }
  return out;
}

inline void expect_unchanged(PassFn pass, const Graph& graph) {
  EXPECT_EQ(renumbered(after(pass, graph)), renumbered(nodes_of(graph)));
}

// q, k, v of one x of 64 columns, 4 heads over 2 KV heads of 16, turned, stored and attended to.
struct AttentionBlock {
  Builder b;
  ValueId x, positions, sequences, slots, tables, kv, q, k, v, cos_sin, y = kNone;

  explicit AttentionBlock(DType k_type = DType::kQ4_0, bool bias = false) {
    const auto indices = [&](const char* name) {
      return b.input(name, tensor(DType::kI32, {"tokens"}));
    };
    x = b.input("x", tensor(DType::kF32, {"tokens", 64}));
    positions = indices("positions");
    sequences = indices("sequence_index");
    slots = indices("kv_slots");
    tables = b.input("block_tables", tensor(DType::kI32, {"sequences", "pages"}));
    kv = b.input("kv.0", kv_cache(2, 16));
    const auto linear = [&](const std::string& name, int64_t rows, DType type) {
      const ValueId weight = b.constant(piece(name + ".weight", type, {rows, 64}));
      const ValueId vector = bias ? b.constant(piece(name + ".bias", DType::kF32, {rows})) : kNone;
      return b.linear(x, weight, vector, true, name);
    };
    q = linear("q", 64, DType::kQ4_0);
    k = linear("k", 32, k_type);
    v = linear("v", 32, DType::kQ6_K == k_type ? DType::kQ4_0 : k_type);
    cos_sin = b.rope_table(
        positions, b.constant(owned_constant("inv_freq", std::vector<float>(8, 1.0f))), 1, "table");
  }
  void attend(int64_t k_heads = 2) {
    const ValueId turned_q = b.rope(q, cos_sin, 4, "halves", "rope_q");
    const ValueId turned_k = b.rope(k, cos_sin, k_heads, "halves", "rope_k");
    const ValueId cache = b.kv_write(turned_k, v, slots, kv, "write");
    y = b.attention(turned_q, cache, positions, sequences, tables, 4, 0.25f, "attention");
    b.output(y, "y");
  }
};

}  // namespace graph_test
