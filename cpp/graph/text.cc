// SPDX-License-Identifier: Apache-2.0
//
// The text form of a graph, for people: dumps between passes, and tests that compare before and
// after.
#include <charconv>
#include <cstdio>

#include "graph/graph.h"

namespace lmn::graph {
namespace {

// The shortest text that reads back as the same float, as "1e-05".
std::string to_text(float value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::string to_text(int64_t value) { return std::to_string(value); }

// Control characters are escaped, as the text has one line a node.
std::string to_text(const std::string& value) {
  std::string out;
  for (const char c : value) {
    const unsigned byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out;
}

template <typename T>
std::string list_to_text(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& value : values) out += (&value == values.data() ? "" : ", ") + to_text(value);
  return out + "]";
}

std::string to_text(const Attribute& attribute) {
  struct Visitor {
    std::string operator()(int64_t value) const { return to_text(value); }
    std::string operator()(float value) const { return to_text(value); }
    std::string operator()(const std::string& value) const { return to_text(value); }
    std::string operator()(const ops::Ints& values) const { return list_to_text(values); }
    std::string operator()(const ops::Floats& values) const { return list_to_text(values); }
    std::string operator()(const ops::Strings& values) const { return list_to_text(values); }
    std::string operator()(const std::shared_ptr<const Tensor>& value) const {
      return std::string(info(value->dtype).name) + value->shape.to_string();
    }
    std::string operator()(const std::shared_ptr<const Graph>& value) const {
      return "graph of " + std::to_string(value->nodes.size()) + " nodes";
    }
  };
  return std::visit(Visitor{}, attribute);
}

std::string operand(const Graph& graph, ValueId id) {
  if (id == kNone) return "-";
  if (id < 0 || id >= static_cast<ValueId>(graph.values.size()))
    return "%" + std::to_string(id) + "?";
  const Value& value = graph.value(id);
  if (value.producer == kNone && !value.name.empty()) return value.name;
  return "%" + std::to_string(id);
}

std::string type_of(const Value& value) {
  std::string type = value.type.to_string();
  if (value.constant == nullptr) return type;
  // a merged matrix shows the type of every piece that differs from the one before: "q4_k+q6_k[..]"
  std::string dtypes;
  std::string_view last;
  for (const Piece& piece : value.constant->pieces) {
    const std::string_view name = info(piece.view.dtype).name;
    if (name == last) continue;
    if (!dtypes.empty()) dtypes += "+";
    dtypes += name;
    last = name;
  }
  return dtypes + type.substr(type.find('['));
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string out;
  for (ValueId id : graph.inputs)
    out += "input " + graph.value(id).name + " : " + type_of(graph.value(id)) + "\n";
  for (const Value& value : graph.values) {
    if (value.constant != nullptr) out += "constant " + value.name + " : " + type_of(value) + "\n";
  }
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      out += (i ? ", " : "") + operand(graph, node.outputs[i]) + " : " +
             type_of(graph.value(node.outputs[i]));
    }
    out += " = " + std::string(name(node.op)) + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i)
      out += (i ? ", " : "") + operand(graph, node.inputs[i]);
    out += ")";
    if (!node.attributes.entries().empty()) {
      out += " {";
      for (const auto& [key, value] : node.attributes.entries()) {
        if (&key != &node.attributes.entries().front().first) out += ", ";
        out += key + "=" + to_text(value);
      }
      out += "}";
    }
    if (!node.name.empty()) out += "  # " + node.name;
    out += "\n";
  }
  for (const Output& output : graph.outputs) {
    out += "output " + output.name + " = " + operand(graph, output.value) + "\n";
  }
  return out;
}

}  // namespace lmn::graph
