// SPDX-License-Identifier: Apache-2.0
//
// ONNX files that are wrong, one fault each: the code, and that the message names the file, the
// place and the remedy.
#include <string>
#include <vector>

#include "formats/files.h"
#include "formats/onnx/onnx.h"
#include "formats/onnx_walk.h"
#include "formats/onnx_writer.h"
#include "testing.h"

namespace {

using namespace onnx_test;
using namespace lmn::formats;
using lmn::Code;
using lmn::Status;

void expect_status(const Status& status, Code code, std::string_view part, int line) {
  const std::string message(status.message());
  if (status.code() != code || message.find(part) == std::string::npos ||
      message.find("bad.onnx: ") != 0) {
    testing::report_failure(__FILE__, line,
                            "code " + std::to_string(static_cast<int>(status.code())) +
                                ", message \"" + message + "\", want code " +
                                std::to_string(static_cast<int>(code)) + " and \"" +
                                std::string(part) + "\"");
  }
}

// Parses from an exact-size heap copy, so that AddressSanitizer sees a read past the end.
void expect_error(const std::string& file, Code code, std::string_view part, int line,
                  uint64_t memory_limit = 0) {
  const std::vector<char> exact(file.begin(), file.end());
  OnnxOptions options;
  options.name = "bad.onnx";
  options.memory_limit = memory_limit;
  const auto model = parse_onnx(std::as_bytes(std::span(exact)), nullptr, "", options);
  expect_status(model.status(), code, part, line);
}
#define EXPECT_ERROR(file, code, part) expect_error((file), Code::code, (part), __LINE__)

// The model opens; what its only initializer says of its data.
void expect_tensor_error(const std::string& tensor, Code code, std::string_view part, int line) {
  const std::string file = with_tensor(tensor);
  OnnxOptions options;
  options.name = "bad.onnx";
  const auto model = parse_onnx(bytes_of(file), nullptr, "", options);
  ASSERT_OK(model);
  expect_status(tensor_bytes(*model, model->model().graph.initializers[0]).status(), code, part,
                line);
}
#define EXPECT_TENSOR_ERROR(tensor, code, part) \
  expect_tensor_error((tensor), Code::code, (part), __LINE__)

TEST(encoding) {
  const std::string good = model("");
  EXPECT_ERROR(good + "\x80", kCorrupt, "a number is cut off, at byte 8");
  EXPECT_ERROR(good + std::string(10, '\xFF') + '\1', kCorrupt, "a number has more than 64 bits");
  EXPECT_ERROR(good + num(3, 0).substr(0, 1) + std::string(9, '\x80') + '\2', kCorrupt,
               "field 3: a number has more than 64 bits");
  EXPECT_ERROR(good + tag(0, 0) + '\1', kCorrupt, "0 is no field number");
  EXPECT_ERROR(good + tag(1ull << 29, 0) + '\1', kCorrupt, "536870912 is no field number");
  EXPECT_ERROR(good + tag(50, 3), kCorrupt, "field 50 has wire type 3, which ONNX does not use");
  EXPECT_ERROR(good + tag(50, 4), kCorrupt, "wire type 4");
  EXPECT_ERROR(good + tag(50, 6), kCorrupt, "wire type 6");
  EXPECT_ERROR(good + tag(50, 7), kCorrupt, "wire type 7");
  EXPECT_ERROR(good + tag(50, 0), kCorrupt, "field 50: a number is cut off");
  EXPECT_ERROR(good + tag(50, 1) + "1234567", kCorrupt, "field 50: a number is cut off");
  EXPECT_ERROR(good + tag(50, 5) + "123", kCorrupt, "field 50: a number is cut off");
  EXPECT_ERROR(good + tag(50, 2) + varint(4) + "\1\2\3", kCorrupt,
               "field 50: length 4 runs past the end of the file, where 3 are left, at byte 8");
  EXPECT_ERROR(good + tag(50, 2) + varint(~0ull), kCorrupt, "length 18446744073709551615");
  // The largest field number, a 64-bit one, and every wire type that is not known are skipped.
  const std::string unknown =
      num((1u << 29) - 1, -1) + f64(60, 1) + f32(61, 1) + str(62, "\xFF") + good;
  EXPECT(parse_onnx(bytes_of(unknown), nullptr, "").ok());
}

TEST(places) {
  std::string nodes;
  for (int i = 0; i < 12; ++i) nodes += str(1, node("Relu", {"x"}, {"y"}));
  const std::string attributes = str(5, "") + str(5, "") + str(5, "");
  const std::string bad = str(5, tag(9, 2) + varint(99) + "abc");
  EXPECT_ERROR(model(nodes + str(1, node("Op", {}, {}, attributes + bad))), kCorrupt,
               "bad.onnx: graph.node[12].attribute[3]: field 9: length 99 runs past the end of the "
               "message around it, where 3 are left, at byte ");
  EXPECT_ERROR(model(nodes + str(1, node("Op", {}, {}, attributes + bad))), kCorrupt,
               "the file is damaged or cut short, download or copy it again");
  const auto in_graph = [](const std::string& field) { return model(field); };
  EXPECT_ERROR(in_graph(num(1, 1)), kCorrupt,
               "graph: node is encoded as a varint, not as bytes with a length, at byte ");
  EXPECT_ERROR(in_graph(str(5, str(8, "a\xFF"))), kCorrupt,
               "graph.initializer[0]: name is 'a\\xff', not UTF-8 text");
  EXPECT_ERROR(in_graph(str(2, std::string(1, '\0'))), kCorrupt, "graph: name is '\\x00'");
  EXPECT_ERROR(in_graph(str(1, str(1, "") + str(1, "\xC0\x80"))), kCorrupt,
               "graph.node[0]: input is '\\xc0\\x80'");
  EXPECT_ERROR(with_attribute(num(2, 1)), kCorrupt, "f is encoded as a varint, not as 4 bytes");
  EXPECT_ERROR(with_attribute(f64(3, 1)), kCorrupt, "i is encoded as 8 bytes, not as a varint");
  EXPECT_ERROR(with_attribute(str(3, "")), kCorrupt, "i is encoded as bytes with a length");
  EXPECT_ERROR(with_attribute(num(7, 1)), kCorrupt, "floats is encoded as a varint");
  EXPECT_ERROR(with_attribute(str(7, "12345")), kCorrupt, "floats has 5 bytes, no multiple of 4");
  EXPECT_ERROR(with_attribute(f32(8, 1)), kCorrupt, "ints is encoded as 4 bytes");
  EXPECT_ERROR(with_attribute(str(8, "\x80")), kCorrupt, "ints: a number is cut off");
  EXPECT_ERROR(with_attribute(num(9, 1)), kCorrupt, "strings is encoded as a varint");
  EXPECT_ERROR(with_attribute(num(20, 1ll << 40)), kCorrupt,
               "type is 1099511627776, which 32 bits do not hold");
  EXPECT_ERROR(with_attribute(str(5, "") + str(5, "")), kCorrupt,
               "graph.node[0].attribute[0]: t occurs twice");
  EXPECT_ERROR(with_attribute(str(6, "") + str(6, "")), kCorrupt, "g occurs twice");
  EXPECT_ERROR(with_attribute(str(6, str(1, str(5, str(6, num(2, 1)))))), kCorrupt,
               "graph.node[0].attribute[0].g.node[0].attribute[0].g: name is encoded");
  EXPECT_ERROR(model("") + str(7, ""), kCorrupt, "graph occurs twice");
  EXPECT_ERROR(model(str(11, value("x", str(1, "") + str(4, "")))), kCorrupt,
               "graph.input[0].type: sequence_type is a second type beside another");
  EXPECT_ERROR(model(str(11, value("x", str(4, str(1, "") + str(1, ""))))), kCorrupt,
               "graph.input[0].type.sequence_type: elem_type occurs twice");
  EXPECT_ERROR(model(str(11, value("x", str(1, str(2, "") + str(2, ""))))), kCorrupt,
               "tensor_type: shape occurs twice");
  EXPECT_ERROR(model(str(11, value("x", "") + str(2, ""))), kCorrupt, "type occurs twice");
  EXPECT_ERROR(model(str(15, str(1, "") + str(1, ""))), kCorrupt, "values occurs twice");
  EXPECT_ERROR(model("", str(25, str(7, str(4, "\xFF")))), kCorrupt,
               "functions[0].node[0]: op_type");
}

TEST(nesting) {
  // The model is message 0, its graph 1, and each round adds node, attribute and graph.
  const auto graphs = [](int rounds) {
    std::string graph;
    for (int i = 0; i < rounds; ++i) graph = str(1, str(5, str(6, graph)));
    return model(graph);
  };
  const std::string deepest = graphs(33);
  EXPECT(parse_onnx(bytes_of(deepest), nullptr, "").ok());
  EXPECT_ERROR(graphs(34), kCorrupt, "messages are nested deeper than 100");
  EXPECT_ERROR(graphs(2000), kCorrupt, "messages are nested deeper than 100");
  std::string type;
  for (int i = 0; i < 2000; ++i) type = i % 2 ? str(4, str(1, type)) : str(5, str(2, type));
  EXPECT_ERROR(model(str(11, str(2, type))), kCorrupt, "messages are nested deeper than 100");
}

TEST(memory) {
  // Two bytes each in the file, and a few hundred as structs.
  std::string fields;
  for (int i = 0; i < 200000; ++i) fields += str(5, "");
  EXPECT_ERROR(
      model(str(1, fields)), kOutOfMemory,
      "more than the 79909312 bytes of memory that are allowed for a file of 400014 bytes: "
      "raise the limit if you trust the file");
  std::string attributes;
  for (int i = 0; i < 1000; ++i) attributes += str(5, "");
  expect_error(model(str(1, attributes)), Code::kOutOfMemory, "more than the 100000 bytes",
               __LINE__, 100000);
  expect_error(with_tensor(tensor("t", 7, {50000}, str(7, std::string(50000, '\1')))),
               Code::kOutOfMemory, "more than the 100000 bytes", __LINE__, 100000);
  expect_error(with_attribute(str(8, std::string(50000, '\1'))), Code::kOutOfMemory, "100000",
               __LINE__, 100000);
  // Honest ones fit: a byte of int64_data becomes eight.
  const std::string honest =
      with_tensor(tensor("t", 7, {1 << 20}, str(7, std::string(1 << 20, 1))));
  EXPECT(parse_onnx(bytes_of(honest), nullptr, "").ok());
}

TEST(typed_data_that_contradicts_itself) {
  const auto bad = [](int32_t type, const std::string& data) {
    return with_tensor(tensor("t", type, {1}, data));
  };
  EXPECT_ERROR(bad(1, num(5, 1)), kCorrupt,
               "graph.initializer[0]: it has int32_data, which is not for data of type FLOAT");
  EXPECT_ERROR(bad(7, num(11, 1)), kCorrupt, "uint64_data, which is not for data of type INT64");
  EXPECT_ERROR(bad(6, str(6, "x")), kCorrupt, "string_data, which is not for data of type INT32");
  EXPECT_ERROR(bad(8, f32(4, 1)), kCorrupt, "float_data, which is not for data of type STRING");
  EXPECT_ERROR(bad(77, f32(4, 1)), kCorrupt, "float_data of the unknown data type 77");
  EXPECT_ERROR(bad(0, str(6, "x")), kCorrupt, "string_data of the unknown data type 0");
  EXPECT_ERROR(bad(-5, num(5, 1)), kCorrupt, "int32_data of the unknown data type -5");
  EXPECT_ERROR(bad(1, f32(4, 1) + f64(10, 1)), kCorrupt, "both float_data and double_data");
  EXPECT_ERROR(bad(8, num(7, 1) + str(6, "")), kCorrupt, "both int64_data and string_data");
  EXPECT_ERROR(bad(1, f32(4, 1) + raw("1234")), kCorrupt, "it has float_data and raw_data");
  EXPECT_ERROR(bad(1, f32(4, 1) + external("w", "", "")), kCorrupt, "and external data");
  EXPECT_ERROR(bad(1, f64(4, 1)), kCorrupt, "float_data is encoded as 8 bytes, not as 4 bytes");
  EXPECT_ERROR(bad(7, f64(7, 1)), kCorrupt, "int64_data is encoded as 8 bytes, not as a varint");
  EXPECT_ERROR(bad(1, str(4, "12345")), kCorrupt, "float_data has 5 bytes, no multiple of 4");
  EXPECT_ERROR(bad(11, str(10, "1234")), kCorrupt, "double_data has 4 bytes, no multiple of 8");
  EXPECT_ERROR(bad(7, str(7, "\1\x80")), kCorrupt, "int64_data: a number is cut off");
  EXPECT_ERROR(bad(7, str(7, std::string(10, '\xFF') + '\1')), kCorrupt, "more than 64 bits");
  EXPECT_ERROR(bad(2, num(5, 256)), kCorrupt,
               "int32_data has the entry 256, out of range for UINT8");
  EXPECT_ERROR(bad(3, num(5, -129)), kCorrupt, "entry -129, out of range for INT8");
  EXPECT_ERROR(bad(5, str(5, varint(65536))), kCorrupt, "entry 65536, out of range for INT16");
  EXPECT_ERROR(bad(6, num(5, 1ll << 32)), kCorrupt, "out of range for INT32");
  EXPECT_ERROR(bad(6, num(5, -(1ll << 31) - 1)), kCorrupt, "out of range for INT32");
  EXPECT_ERROR(bad(12, num(11, 1ll << 32)), kCorrupt, "out of range for UINT32");
  EXPECT_ERROR(bad(27, num(5, 64)), kCorrupt, "entry 64, out of range for FLOAT6E2M3");
  EXPECT_ERROR(bad(1, num(14, 2)), kCorrupt, "data_location is 2, neither 0 nor 1");
  EXPECT_ERROR(bad(1, str(3, "")), kCorrupt, "it is a segment of a tensor");
}

TEST(data_that_contradicts_the_shape) {
  EXPECT_TENSOR_ERROR(tensor("t", 1, {2, 3}, raw("1234")), kCorrupt,
                      "bad.onnx: tensor 't': has 4 bytes of raw_data, and its shape and type need "
                      "24: the file is damaged, download or export it again");
  EXPECT_TENSOR_ERROR(tensor("t", 1, {}, raw("12345")), kCorrupt, "5 bytes of raw_data");
  EXPECT_TENSOR_ERROR(tensor("t", 1, {1}, ""), kCorrupt, "has 0 bytes of data");
  EXPECT_TENSOR_ERROR(tensor("t", 1, {0}, raw("1234")), kCorrupt, "and its shape and type need 0");
  EXPECT_TENSOR_ERROR(tensor("t", 22, {3}, raw("1")), kCorrupt, "need 2");
  EXPECT_TENSOR_ERROR(tensor("t", 22, {3}, raw("123")), kCorrupt, "need 2");
  EXPECT_TENSOR_ERROR(tensor("t", 28, {5}, raw("123")), kCorrupt, "need 4");
  EXPECT_TENSOR_ERROR(tensor("t", 1, {3}, f32(4, 1)), kCorrupt, "has 4 bytes of typed data");
  EXPECT_TENSOR_ERROR(tensor("t", 14, {1}, f32(4, 1)), kCorrupt, "need 8");
  EXPECT_TENSOR_ERROR(tensor("t", 8, {2}, str(6, "x")), kCorrupt, "has 1 elements of string_data");
  EXPECT_TENSOR_ERROR(tensor("t", 8, {1}, raw("x")), kCorrupt, "only string_data may hold");
  EXPECT_TENSOR_ERROR(tensor("t", 1, {-1}, raw("1234")), kCorrupt, "has a dimension of -1");
  EXPECT_TENSOR_ERROR(tensor("t", 1, {0, -1}, ""), kCorrupt, "has a dimension of -1");
  EXPECT_TENSOR_ERROR(tensor("t", 2, {1ll << 32, 1ll << 32}, raw("")), kCorrupt,
                      "dimensions too large to exist");
  EXPECT_TENSOR_ERROR(tensor("t", 15, {1ll << 60}, raw("")), kCorrupt, "too large to exist");
  EXPECT_TENSOR_ERROR(tensor("t", 0, {1}, raw("1")), kUnsupported, "has data type 0");
  EXPECT_TENSOR_ERROR(tensor("t", 29, {1}, raw("1")), kUnsupported,
                      "has data type 29, which this build does not know");
}

TEST(what_is_not_onnx) {
  EXPECT_ERROR(std::string(), kCorrupt, "there are no bytes");
  EXPECT_ERROR(num(1, 10), kCorrupt, "there is no graph in it");
  EXPECT_ERROR(str(7, ""), kCorrupt, "there is no ir_version in it");
  EXPECT_ERROR("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", kCorrupt,
               "is not an ONNX model but looks like a Git LFS pointer");
  EXPECT_ERROR(std::string("GGUF\3\0\0\0", 8), kCorrupt, "looks like a GGUF model");
  EXPECT_ERROR(std::string("PK\3\4\0\0\0\0", 8), kCorrupt, "looks like a zip archive");
  EXPECT_ERROR("\x80\2}q\1.", kCorrupt, "looks like a Python pickle");
  EXPECT_ERROR("\x89HDF\r\n", kCorrupt, "looks like an HDF5 file");
  EXPECT_ERROR(le<uint64_t>(40) + "{\"__metadata__\":{}}", kCorrupt, "looks like a safetensors");
  EXPECT_ERROR(std::string("\x1C\0\0\0TFL3", 8), kCorrupt, "looks like a TensorFlow Lite model");
  EXPECT_ERROR(std::string("\x18\0\0\0ORTM", 8), kCorrupt, "ONNX Runtime's own format");
  EXPECT_ERROR("\x1F\x8B\x08", kCorrupt, "looks like a gzip archive");
  EXPECT_ERROR("<!DOCTYPE html><html>", kCorrupt, "looks like a web page");
  EXPECT_ERROR("<\n  ir_version: 10\n>\nagraph (float[N] x) => () {}\n", kCorrupt,
               "looks like text: give the binary .onnx file");
  EXPECT_ERROR("\xDE\xAD\xBE\xEF", kCorrupt, "bad.onnx: a number is cut off");
  // A model whose first bytes happen to be those of something else is a model.
  const std::string odd = num(1, 10) + str(2, "name{\"") + model("");
  EXPECT(parse_onnx(bytes_of(odd), nullptr, "").ok());
}

TEST(paths) {
  const TempDir dir;
  const auto absent = open_onnx(dir.path("absent.onnx"));
  EXPECT(absent.status().code() == Code::kNotFound);
  EXPECT(open_onnx(dir.root()).status().code() == Code::kInvalidArgument);
  EXPECT(open_onnx(dir.write("empty", "")).status().code() == Code::kCorrupt);
  const std::string path = dir.write("cut.onnx", sample().substr(0, 100));
  const auto cut = open_onnx(path);
  EXPECT(cut.status().code() == Code::kCorrupt);
  EXPECT(cut.status().message().find(path + ": field ") == 0);
}

}  // namespace
