// SPDX-License-Identifier: Apache-2.0
//
// Builds the bytes of ONNX files from the description of protobuf's encoding alone, sharing nothing
// with the reader under test, and lets a test write what no honest writer would. The numbers of
// fields are those of onnx.proto.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_test {

inline std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
template <typename T>
std::string le(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
template <typename T>
std::string le(const std::vector<T>& values) {
  std::string out;
  for (const T value : values) out += le(value);
  return out;
}
inline std::string varints(const std::vector<int64_t>& values) {
  std::string out;
  for (const int64_t value : values) out += varint(static_cast<uint64_t>(value));
  return out;
}

// One field.
inline std::string tag(uint64_t field, unsigned wire) { return varint(field << 3 | wire); }
inline std::string num(uint64_t field, int64_t value) {
  return tag(field, 0) + varint(static_cast<uint64_t>(value));
}
inline std::string str(uint64_t field, std::string_view text) {  // messages and packed too
  return tag(field, 2) + varint(text.size()) + std::string(text);
}
inline std::string f32(uint64_t field, float value) { return tag(field, 5) + le(value); }
inline std::string f64(uint64_t field, double value) { return tag(field, 1) + le(value); }

// Messages, without what stands around them.
inline std::string entry(std::string_view key, std::string_view value) {
  return str(1, key) + str(2, value);
}
inline std::string tensor(std::string_view name, int32_t type, const std::vector<int64_t>& dims,
                          const std::string& data) {
  return (dims.empty() ? "" : str(1, varints(dims))) + num(2, type) + str(8, name) + data;
}
inline std::string raw(std::string_view data) { return str(9, data); }
inline std::string external(std::string_view location, std::string_view offset,
                            std::string_view length) {
  return str(13, entry("location", location)) +
         (offset.empty() ? "" : str(13, entry("offset", offset))) +
         (length.empty() ? "" : str(13, entry("length", length))) + num(14, 1);
}
inline std::string opset(std::string_view domain, int64_t version) {
  return (domain.empty() ? "" : str(1, domain)) + num(2, version);
}
inline std::string tensor_type(int32_t element, const std::string& dims) {
  return str(1, num(1, element) + str(2, dims));
}
inline std::string value(std::string_view name, const std::string& type) {
  return str(1, name) + str(2, type);
}
inline std::string node(std::string_view op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& more = "") {
  std::string out;
  for (const std::string& name : inputs) out += str(1, name);
  for (const std::string& name : outputs) out += str(2, name);
  return out + str(4, op) + more;
}
inline std::string model(const std::string& graph, const std::string& more = "") {
  return num(1, 10) + str(8, opset("", 22)) + more + str(7, graph);
}
// The model around one tensor, and around one attribute.
inline std::string with_tensor(const std::string& tensor) { return model(str(5, tensor)); }
inline std::string with_attribute(const std::string& attribute) {
  return model(str(1, node("Op", {}, {}, str(5, attribute))));
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A model that uses every message and encoding the reader knows, and fields it does not.
inline std::string sample() {
  const std::string dims = str(1, num(1, 2)) + str(1, str(2, "batch")) + str(1, "");
  const std::string floats = tensor("w", 1, {2, 2}, str(4, le<float>({1, 2, 3, 4})));
  const std::string inner =
      str(1, node("Identity", {"x"}, {"y"})) + str(2, "inner") + str(12, value("y", ""));
  const std::string sparse = str(1, tensor("sparse", 1, {1}, raw(le(5.0f)))) +
                             str(2, tensor("", 7, {1}, raw(le<int64_t>(3)))) +
                             str(3, varints({4, 2}));
  const std::string type = str(4, str(1, tensor_type(1, dims)));
  std::string attributes;
  attributes += str(5, str(1, "f") + num(20, 1) + f32(2, 0.5f));
  attributes += str(5, str(1, "i") + num(20, 2) + num(3, -7));
  attributes += str(5, str(1, "s") + num(20, 3) + str(4, "\xFF bytes"));
  attributes += str(5, str(1, "t") + num(20, 4) + str(5, floats));
  attributes += str(5, str(1, "g") + num(20, 5) + str(6, inner));
  attributes += str(5, str(1, "floats") + num(20, 6) + f32(7, 1) + str(7, le<float>({2, 3})));
  attributes += str(5, str(1, "ints") + num(20, 7) + num(8, 1) + str(8, varints({-2, 300})));
  attributes += str(5, str(1, "strings") + num(20, 8) + str(9, "a") + str(9, ""));
  attributes += str(5, str(1, "tensors") + num(20, 9) + str(10, floats) + str(10, floats));
  attributes += str(5, str(1, "graphs") + num(20, 10) + str(11, inner) + str(11, inner));
  attributes += str(5, str(1, "sparse") + num(20, 11) + str(22, sparse));
  attributes += str(5, str(1, "sparses") + num(20, 12) + str(23, sparse));
  attributes += str(5, str(1, "type") + num(20, 13) + str(14, type));
  attributes += str(5, str(1, "types") + num(20, 14) + str(15, type) + str(15, type));
  attributes += str(5, str(1, "ref") + num(20, 2) + str(21, "alpha"));
  const std::string map =
      str(5, num(1, 7) + str(2, str(9, str(1, str(8, num(1, 11) + str(2, dims))))));
  std::string graph = str(2, "main");
  graph += str(1, node("Op", {"x", "", "w"}, {"y", "z"},
                       attributes + str(3, "first") + str(7, "my.domain") + str(8, "v2")));
  graph += str(1, node("Relu", {"y"}, {"out"}));
  graph += str(5, floats);
  graph += str(5, tensor("ids", 7, {3}, str(7, varints({1, -1, 1ll << 40}))));
  graph += str(5, tensor("names", 8, {2}, str(6, "one") + str(6, "two")));
  graph += str(5, tensor("nibbles", 22, {3}, raw("\x21\x03")));
  graph += str(15, sparse);
  graph += str(11, value("x", tensor_type(1, dims))) + str(11, value("m", map));
  graph += str(12, value("out", type)) + str(13, value("o", str(7, str(1, "d") + str(2, "n"))));
  graph += str(16, entry("k", "v")) + str(10, "documentation") + num(99, 5) + f64(98, 1);
  std::string function = str(1, "Fn") + str(4, "a") + str(5, "b") + str(6, "alpha") +
                         str(7, node("Neg", {"a"}, {"b"})) + str(9, opset("", 22)) +
                         str(10, "my.domain") + str(11, str(1, "beta") + num(20, 1) + f32(2, 2)) +
                         str(12, value("b", tensor_type(1, dims))) + str(13, "o");
  return model(graph, str(2, "writer") + str(3, "1.0") + str(4, "dom") + num(5, 3) + str(6, "doc") +
                          str(8, opset("my.domain", 1)) + str(14, entry("key", "value")) +
                          str(25, function) + f32(200, 1));
}

}  // namespace onnx_test
