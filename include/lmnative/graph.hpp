// SPDX-License-Identifier: Apache-2.0
//
// Part of lmnative.hpp, which says the rules: graphs written down operator by operator.
//
//   lmnative::Graph g;
//   const auto a = g.input("A", "f32", {16, 16});
//   const auto c = g.op("Relu", {g.op("MatMul", {a, g.constant(b)}) + g.constant(bias)});
//   g.output("C", c);
//   const lmnative::Session session = g.session({.threads = 1});
#ifndef LMNATIVE_GRAPH_HPP_
#define LMNATIVE_GRAPH_HPP_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmnative/session.hpp"

namespace lmnative {

class Graph;

// A size of an input: a number, or the name of one that differs from run to run.
struct Dimension {
  Dimension(int64_t number) : size(number) {}              // NOLINT: implicit by design
  Dimension(const char* name) : size(-1), symbol(name) {}  // NOLINT: as above
  int64_t size;
  std::string symbol{};
};

// A value of a graph, which must outlive it. Default: an optional operand that is left out.
class GraphValue {
 public:
  GraphValue() = default;
  GraphValue(Graph* graph, int32_t id) : graph_(graph), id_(id) {}
  int32_t id() const { return id_; }
  Graph* graph() const { return graph_; }
  // Pointers in it live until the graph changes.
  lmn_port_info info() const;

 private:
  Graph* graph_ = nullptr;
  int32_t id_ = LMN_GRAPH_ABSENT;
};

// A named constant of a node. Graphs are used as they are when the node is added.
struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
               std::vector<std::string>, const SessionValue*, const Graph*>
      value;
};

class Graph {
 public:
  Graph() {
    lmn_graph* raw = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_graph_create(&raw, err); });
    handle_.reset(raw);
  }

  GraphValue input(const std::string& name, const std::string& dtype,
                   std::initializer_list<Dimension> shape) {
    std::vector<int64_t> sizes;
    std::vector<const char*> symbols;
    for (const Dimension& dim : shape) {
      sizes.push_back(dim.size);
      symbols.push_back(dim.symbol.empty() ? nullptr : dim.symbol.c_str());
    }
    return input(name, dtype, static_cast<int32_t>(sizes.size()), sizes.data(), symbols.data());
  }
  // A tensor of any shape.
  GraphValue input(const std::string& name, const std::string& dtype) {
    return input(name, dtype, -1, nullptr, nullptr);
  }
  // A constant over the value's memory, which is kept and must not be changed any more.
  GraphValue constant(const SessionValue& value, const std::string& name = {}) {
    int32_t id = LMN_GRAPH_ABSENT;
    detail::invoke([&](lmn_error** err) {
      return lmn_graph_constant_create(get(), name.c_str(), value.get(), &id, err);
    });
    return {this, id};
  }

  // The first output of an operator, by its ONNX name.
  GraphValue op(const std::string& name, std::initializer_list<GraphValue> inputs,
                std::initializer_list<Attribute> attributes = {}) {
    return node(name, {inputs.begin(), inputs.size()}, {attributes.begin(), attributes.size()}, 1)
        .front();
  }
  std::vector<GraphValue> node(const std::string& op, std::span<const GraphValue> inputs,
                               std::span<const Attribute> attributes, size_t output_count) {
    std::vector<int32_t> in, out(output_count);
    for (const GraphValue& value : inputs) in.push_back(value.id());
    std::vector<lmn_attribute> given;
    std::vector<std::vector<const char*>> texts;
    texts.reserve(attributes.size());
    for (const Attribute& one : attributes) given.push_back(to_c(one, &texts));
    detail::invoke([&](lmn_error** err) {
      return lmn_graph_node_create(get(), op.c_str(), in.data(), in.size(), given.data(),
                                   given.size(), out.data(), out.size(), err);
    });
    std::vector<GraphValue> made;
    for (const int32_t id : out) made.emplace_back(this, id);
    return made;
  }

  void output(const std::string& name, GraphValue value) {
    detail::invoke([&](lmn_error** err) {
      return lmn_graph_output_create(get(), name.c_str(), value.id(), err);
    });
  }

  // The graph as it is now, ready to run. It can be changed afterwards.
  Session session(const SessionOptions& options = {}) const {
    const lmn_session_options given = Session::to_c(options);
    lmn_session* raw = nullptr;
    detail::invoke([&](lmn_error** err) {
      return lmn_graph_session_create(handle_.get(), &given, &raw, err);
    });
    return Session(raw);
  }

  lmn_graph* get() const { return handle_.get(); }

 private:
  GraphValue input(const std::string& name, const std::string& dtype, int32_t ndim,
                   const int64_t* sizes, const char* const* symbols) {
    int32_t id = LMN_GRAPH_ABSENT;
    detail::invoke([&](lmn_error** err) {
      return lmn_graph_input_create(get(), name.c_str(), dtype.c_str(), ndim, sizes, symbols, &id,
                                    err);
    });
    return {this, id};
  }

  // Points into `one` and `texts`.
  static lmn_attribute to_c(const Attribute& one, std::vector<std::vector<const char*>>* texts) {
    lmn_attribute out{};
    out.name = one.name.c_str();
    const auto list = [&](int32_t kind, const void* data, size_t count) {
      out.kind = kind;
      out.data = data;
      out.count = count;
    };
    if (const auto* i = std::get_if<int64_t>(&one.value)) {
      out.kind = LMN_ATTRIBUTE_INT;
      out.i = *i;
    } else if (const auto* f = std::get_if<float>(&one.value)) {
      out.kind = LMN_ATTRIBUTE_FLOAT;
      out.f = *f;
    } else if (const auto* text = std::get_if<std::string>(&one.value)) {
      list(LMN_ATTRIBUTE_STRING, text->data(), text->size());
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&one.value)) {
      list(LMN_ATTRIBUTE_INTS, ints->data(), ints->size());
    } else if (const auto* floats = std::get_if<std::vector<float>>(&one.value)) {
      list(LMN_ATTRIBUTE_FLOATS, floats->data(), floats->size());
    } else if (const auto* strings = std::get_if<std::vector<std::string>>(&one.value)) {
      std::vector<const char*>& pointers = texts->emplace_back();
      for (const std::string& string : *strings) pointers.push_back(string.c_str());
      list(LMN_ATTRIBUTE_STRINGS, pointers.data(), pointers.size());
    } else if (const auto* tensor = std::get_if<const SessionValue*>(&one.value)) {
      list(LMN_ATTRIBUTE_TENSOR, (*tensor)->get(), 0);
    } else {
      list(LMN_ATTRIBUTE_GRAPH, std::get<const Graph*>(one.value)->get(), 0);
    }
    return out;
  }

  detail::Handle<lmn_graph, lmn_graph_destroy> handle_;
};

inline lmn_port_info GraphValue::info() const {
  auto out = detail::sized<lmn_port_info>();
  detail::invoke(
      [&](lmn_error** err) { return lmn_graph_value_get(graph_->get(), id_, &out, err); });
  return out;
}

inline GraphValue operator+(GraphValue a, GraphValue b) { return a.graph()->op("Add", {a, b}); }
inline GraphValue operator-(GraphValue a, GraphValue b) { return a.graph()->op("Sub", {a, b}); }
inline GraphValue operator*(GraphValue a, GraphValue b) { return a.graph()->op("Mul", {a, b}); }
inline GraphValue operator/(GraphValue a, GraphValue b) { return a.graph()->op("Div", {a, b}); }

}  // namespace lmnative

#endif  // LMNATIVE_GRAPH_HPP_
