// SPDX-License-Identifier: Apache-2.0
//
// lmn_graph_*: wrong arguments and operands, orders of destruction, subgraphs, and the C++ face.
#include <algorithm>
#include <string>
#include <vector>

#include "abuse.h"
#include "lmnative/lmnative.hpp"

using namespace abuse;  // NOLINT: tests

namespace {

using lmnative::Graph;
using lmnative::GraphValue;
using lmnative::SessionValue;

SessionValue row(std::initializer_list<float> values) {
  lmnative::Tensor tensor(kDLFloat, 32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.values<float>().begin());
  return SessionValue(std::move(tensor));
}

SessionValue boolean(bool value) {
  lmnative::Tensor tensor(kDLBool, 8, {1});
  *static_cast<uint8_t*>(tensor.get()->dl_tensor.data) = value;
  return SessionValue(std::move(tensor));
}

std::vector<float> run(const lmnative::Session& session, const SessionValue& input) {
  const lmnative::Tensor out = session.run(input)[0].tensor();
  const auto values = out.values<const float>();
  return {values.begin(), values.end()};
}

// Whether the call fails with this status and says `word`.
template <typename Call>
bool refused(lmn_status status, const std::string& word, Call&& call) {
  try {
    call();
  } catch (const lmnative::Error& error) {
    return error.status() == status && std::string(error.what()).find(word) != std::string::npos;
  }
  return false;
}

TEST(graphs_arguments_may_be_wrong) {
  lmn_graph* graph = nullptr;
  lmn_session* session = nullptr;
  int32_t id = 0;
  const int64_t sizes[] = {-2};
  auto port = sized<lmn_port_info>();
  EXPECT_NULL_ARGUMENT("graph", lmn_graph_create(nullptr, err));
  lmn_graph_destroy(nullptr);
  EXPECT_NULL_ARGUMENT("graph",
                       lmn_graph_input_create(nullptr, "x", "f32", 0, nullptr, nullptr, &id, err));
  EXPECT_NULL_ARGUMENT("graph", lmn_graph_constant_create(nullptr, "x", nullptr, &id, err));
  EXPECT_NULL_ARGUMENT("graph",
                       lmn_graph_node_create(nullptr, "Relu", nullptr, 0, nullptr, 0, &id, 1, err));
  EXPECT_NULL_ARGUMENT("graph", lmn_graph_output_create(nullptr, "y", 0, err));
  EXPECT_NULL_ARGUMENT("graph", lmn_graph_value_get(nullptr, 0, &port, err));
  EXPECT_NULL_ARGUMENT("graph", lmn_graph_session_create(nullptr, nullptr, &session, err));

  const Graph owner;
  graph = owner.get();
  EXPECT_NULL_ARGUMENT(
      "name", lmn_graph_input_create(graph, nullptr, "f32", 0, nullptr, nullptr, &id, err));
  EXPECT_NULL_ARGUMENT("dtype",
                       lmn_graph_input_create(graph, "x", nullptr, 0, nullptr, nullptr, &id, err));
  EXPECT_NULL_ARGUMENT("shape",
                       lmn_graph_input_create(graph, "x", "f32", 1, nullptr, nullptr, &id, err));
  EXPECT_NULL_ARGUMENT(
      "value", lmn_graph_input_create(graph, "x", "f32", 0, nullptr, nullptr, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "shape[0] is -2",
                 lmn_graph_input_create(graph, "x", "f32", 1, sizes, nullptr, &id, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "ndim is 9",
                 lmn_graph_input_create(graph, "x", "f32", 9, sizes, nullptr, &id, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "complex",
                 lmn_graph_input_create(graph, "x", "complex", 0, nullptr, nullptr, &id, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "no name",
                 lmn_graph_input_create(graph, "", "f32", 0, nullptr, nullptr, &id, err));
  CHECK_CALL(lmn_graph_input_create(graph, "x", "f32", -1, nullptr, nullptr, &id, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'x' already",
                 lmn_graph_input_create(graph, "x", "f32", 0, nullptr, nullptr, &id, err));
  EXPECT_NULL_ARGUMENT("tensor", lmn_graph_constant_create(graph, "c", nullptr, &id, err));
  EXPECT_NULL_ARGUMENT("op",
                       lmn_graph_node_create(graph, nullptr, &id, 1, nullptr, 0, &id, 1, err));
  EXPECT_NULL_ARGUMENT("inputs",
                       lmn_graph_node_create(graph, "Relu", nullptr, 1, nullptr, 0, &id, 1, err));
  EXPECT_NULL_ARGUMENT("attributes",
                       lmn_graph_node_create(graph, "Relu", &id, 1, nullptr, 1, &id, 1, err));
  EXPECT_NULL_ARGUMENT("outputs",
                       lmn_graph_node_create(graph, "Relu", &id, 1, nullptr, 0, nullptr, 1, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "output_count is 0",
                 lmn_graph_node_create(graph, "Relu", &id, 1, nullptr, 0, &id, 0, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "'Rleu'",
                 lmn_graph_node_create(graph, "Rleu", &id, 1, nullptr, 0, &id, 1, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "value 7", lmn_graph_output_create(graph, "y", 7, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "value -1", lmn_graph_value_get(graph, -1, &port, err));
  EXPECT_NULL_ARGUMENT("info", lmn_graph_value_get(graph, 0, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "no outputs",
                 lmn_graph_session_create(graph, nullptr, &session, err));
}

TEST(graphs_attributes_may_be_wrong) {
  const Graph owner;
  lmn_graph* graph = owner.get();
  int32_t x = 0, y = 0;
  const int64_t shape[] = {2, 3};
  CHECK_CALL(lmn_graph_input_create(graph, "x", "f32", 2, shape, nullptr, &x, err));
  const auto fails = [&](const char* op, const lmn_attribute& attribute, const char* word) {
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, word,
                   lmn_graph_node_create(graph, op, &x, 1, &attribute, 1, &y, 1, err));
  };
  lmn_attribute attribute{};
  fails("Softmax", attribute, "name is NULL");
  attribute.name = "axis";
  fails("Softmax", attribute, "kind is 0");
  for (const int32_t kind : {LMN_ATTRIBUTE_TENSOR, LMN_ATTRIBUTE_GRAPH}) {
    attribute.kind = kind;
    fails("Softmax", attribute, "'axis' is NULL");
  }
  attribute.count = 5;
  for (const int32_t kind :
       {LMN_ATTRIBUTE_STRING, LMN_ATTRIBUTE_FLOATS, LMN_ATTRIBUTE_INTS, LMN_ATTRIBUTE_STRINGS}) {
    attribute.kind = kind;
    fails("Softmax", attribute, "data is NULL");
  }
  attribute.kind = LMN_ATTRIBUTE_FLOAT;
  fails("Softmax", attribute, "attribute 'axis' is a number; it takes an integer");
  attribute.kind = LMN_ATTRIBUTE_INT;
  attribute.i = 2;
  fails("Softmax", attribute, "Softmax");
  const char* const strings[] = {"a", nullptr};
  attribute = {"activations", LMN_ATTRIBUTE_STRINGS, 0, 0, static_cast<const void*>(strings), 2};
  fails("LSTM", attribute, "a string is NULL");
  attribute = {"unheard_of", LMN_ATTRIBUTE_INT, 0, 0, nullptr, 0};
  fails("Softmax", attribute, "unheard_of");
  // An integer is a float where floats belong.
  attribute = {"alpha", LMN_ATTRIBUTE_INT, 0, 1, nullptr, 0};
  CHECK_CALL(lmn_graph_node_create(graph, "Elu", &x, 1, &attribute, 1, &y, 1, err));
}

TEST(graphs_nodes_are_checked_when_they_are_added) {
  Graph g;
  const GraphValue x = g.input("x", "f32", {"n", 3}), n = g.input("n", "i64", {3});
  EXPECT(refused(LMN_INVALID_ARGUMENT, "f32 and i64", [&] { g.op("Add", {x, n}); }));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "MatMul", [&] { g.op("MatMul", {x, x, x}); }));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "Relu", [&] { g.op("Relu", {}); }));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "Relu", [&] { g.op("Relu", {GraphValue(&g, 99)}); }));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "Relu", [&] { g.node("Relu", std::vector{x}, {}, 4000); }));
  // None of that is in the graph.
  g.output("y", g.op("relu", {x}));
  const lmn_port_info info = x.info();
  EXPECT(std::string(info.name) == "x" && std::string(info.symbols[0]) == "n" && info.ndim == 2);
  const lmnative::Session session = g.session({.threads = 1});
  EXPECT(session.info().input_count == 2 && session.info().output_count == 1);
}

TEST(graphs_may_go_before_their_sessions) {
  std::optional<lmnative::Session> first, second;
  {
    Graph g;
    const GraphValue x = g.input("x", "f32", {2});
    const GraphValue y = x + g.constant(row({1, -5}));
    g.output("y", g.op("Relu", {y}));
    first = g.session({.threads = 1});
    g.output("z", y);  // the graph goes on; its session does not
    second = g.session({.threads = 1});
  }
  EXPECT(first->info().output_count == 1 && second->info().output_count == 2);
  EXPECT(run(*first, row({1, 2})) == std::vector<float>({2, 0}));
  EXPECT(run(*second, row({1, 2})) == std::vector<float>({2, 0}));
}

TEST(graphs_have_subgraphs) {
  Graph twice, less, g;
  const auto a = twice.input("a", "f32"), b = less.input("b", "f32");
  twice.output("y", a + a);
  less.output("y", b - less.constant(row({1})));
  const auto condition = g.input("c", "bool", {1}), x = g.input("x", "f32", {"n"});
  const auto node = [&](const Graph& one, const Graph& other) {
    return g.op("If", {condition, x},
                {{"then_branch", &one}, {"else_branch", &other}, {"captures", int64_t{1}}});
  };
  g.output("y", node(twice, less));
  const lmnative::Session session = g.session({.threads = 1});
  const auto answer = [&](bool c) {
    const std::vector<SessionValue> in = [&] {
      std::vector<SessionValue> values;
      values.push_back(boolean(c));
      values.push_back(row({3, 4}));
      return values;
    }();
    const lmnative::Tensor out = session.run(in)[0].tensor();
    return std::vector<float>(out.values<const float>().begin(), out.values<const float>().end());
  };
  EXPECT(answer(true) == std::vector<float>({6, 8}));
  EXPECT(answer(false) == std::vector<float>({2, 3}));

  Graph whole;
  whole.output("y", whole.input("i", "i64"));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "else_branch", [&] { node(twice, whole); }));
  Graph none;
  none.output("y", none.constant(row({1})));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "has 0 inputs", [&] { node(none, less); }));
  EXPECT(refused(LMN_INVALID_ARGUMENT, "'body'", [&] {
    g.op("Loop", {GraphValue(), condition, x}, {{"body", &twice}});
  }));
}

}  // namespace
