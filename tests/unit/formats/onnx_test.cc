// SPDX-License-Identifier: Apache-2.0
//
// ONNX files that are right: every message and every encoding, against what the test wrote itself,
// and a file that the package onnx wrote.
#include "formats/onnx/onnx.h"

#include <cstring>
#include <map>
#include <string>

#include "formats/files.h"
#include "formats/onnx_walk.h"
#include "formats/onnx_writer.h"
#include "testing.h"

namespace {

using namespace onnx_test;
using lmn::Result;
using namespace lmn::formats;

using Texts = std::vector<std::string_view>;

OnnxFile parsed(const std::string& file) {
  auto result = parse_onnx(bytes_of(file), nullptr, "");
  ASSERT_OK(result);
  return *std::move(result);
}

template <typename T>
std::vector<T> data_of(const OnnxFile& file, const OnnxTensor& tensor) {
  const auto data = tensor_bytes(file, tensor);
  ASSERT_OK(data);
  std::vector<T> values(data->bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), data->bytes.data(), values.size() * sizeof(T));
  return values;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += "0123456789abcdef"[static_cast<int>(b) >> 4];
    out += "0123456789abcdef"[static_cast<int>(b) & 15];
  }
  return out;
}

bool inside(const std::string& file, const void* at) {
  return at >= file.data() && at < file.data() + file.size();
}

TEST(every_part_of_a_model) {
  const std::string bytes = sample();
  const OnnxFile file = parsed(bytes);
  const OnnxModel& model = file.model();
  EXPECT_EQ(file.path(), "model");
  EXPECT_EQ(model.ir_version, 10);
  EXPECT_EQ(model.producer_name, "writer");
  EXPECT_EQ(model.producer_version, "1.0");
  EXPECT_EQ(model.domain, "dom");
  EXPECT_EQ(model.model_version, 3);
  EXPECT_EQ(model.doc_string, "doc");
  ASSERT(model.opset_imports.size() == 2 && model.metadata.size() == 1);
  EXPECT(model.opset_imports[0].domain.empty() && model.opset_imports[0].version == 22);
  EXPECT(model.opset_imports[1].domain == "my.domain" && model.opset_imports[1].version == 1);
  EXPECT(model.metadata[0].key == "key" && model.metadata[0].value == "value");

  const OnnxGraph& graph = model.graph;
  EXPECT_EQ(graph.name, "main");
  ASSERT(graph.nodes.size() == 2 && graph.initializers.size() == 4);
  ASSERT(graph.sparse_initializers.size() == 1 && graph.inputs.size() == 2);
  ASSERT(graph.outputs.size() == 1 && graph.value_infos.size() == 1 && graph.metadata.size() == 1);
  EXPECT(graph.metadata[0].key == "k");
  const OnnxNode& node = graph.nodes[0];
  EXPECT(node.name == "first" && node.op_type == "Op" && node.domain == "my.domain");
  EXPECT_EQ(node.overload, "v2");
  EXPECT((node.inputs == Texts{"x", "", "w"}) && (node.outputs == Texts{"y", "z"}));
  EXPECT(graph.nodes[1].op_type == "Relu" && graph.nodes[1].attributes.empty());

  ASSERT(node.attributes.size() == 15);
  const auto& all = node.attributes;
  for (int i = 0; i < 14; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].type, i + 1);
  EXPECT_EQ(all[0].f, 0.5f);
  EXPECT_EQ(all[1].i, -7);
  EXPECT_EQ(all[2].s, "\xFF bytes");
  EXPECT(inside(bytes, all[2].s.data()));
  ASSERT(all[3].t && all[4].g && all[10].sparse_tensor && all[12].type_proto);
  EXPECT((data_of<float>(file, *all[3].t) == std::vector<float>{1, 2, 3, 4}));
  EXPECT(all[4].g->name == "inner" && all[4].g->nodes[0].op_type == "Identity");
  EXPECT((all[5].floats == std::vector<float>{1, 2, 3}));
  EXPECT((all[6].ints == std::vector<int64_t>{1, -2, 300}));
  EXPECT((all[7].strings == Texts{"a", ""}));
  EXPECT(all[8].tensors.size() == 2 && all[9].graphs.size() == 2);
  EXPECT(all[11].sparse_tensors.size() == 1 && all[13].type_protos.size() == 2);
  EXPECT(all[14].name == "ref" && all[14].ref_attr_name == "alpha");

  const OnnxSparseTensor& sparse = graph.sparse_initializers[0];
  EXPECT((sparse.dims == std::vector<int64_t>{4, 2}) && sparse.values.name == "sparse");
  EXPECT((data_of<int64_t>(file, sparse.indices) == std::vector<int64_t>{3}));

  ASSERT(model.functions.size() == 1);
  const OnnxFunction& function = model.functions[0];
  EXPECT(function.name == "Fn" && function.domain == "my.domain" && function.overload == "o");
  EXPECT((function.inputs == Texts{"a"}) && (function.outputs == Texts{"b"}));
  EXPECT((function.attributes == Texts{"alpha"}) && function.attribute_protos.size() == 1);
  EXPECT(function.attribute_protos[0].name == "beta" && function.attribute_protos[0].f == 2);
  EXPECT(function.nodes.size() == 1 && function.nodes[0].op_type == "Neg");
  EXPECT(function.opset_imports.size() == 1 && function.value_infos.size() == 1);
  EXPECT_EQ(Walk(file).readable_tensors(), 13);
}

TEST(types) {
  const std::string bytes = sample();
  const OnnxFile file = parsed(bytes);
  const OnnxGraph& graph = file.model().graph;
  using Kind = OnnxType::Kind;
  const OnnxType& x = graph.inputs[0].type;
  EXPECT(graph.inputs[0].name == "x" && x.kind == Kind::kTensor && x.has_shape);
  EXPECT_EQ(x.elem_type, int{OnnxDataType::FLOAT});
  ASSERT(x.shape.size() == 3);
  EXPECT(x.shape[0].value == 2 && x.shape[0].param.empty());
  EXPECT(!x.shape[1].value && x.shape[1].param == "batch");
  EXPECT(!x.shape[2].value && x.shape[2].param.empty());
  const OnnxType* map = &graph.inputs[1].type;
  EXPECT(map->kind == Kind::kMap && map->elem_type == OnnxDataType::INT64);
  ASSERT(map->element.size() == 1 && map->element[0].element.size() == 1);
  EXPECT(map->element[0].kind == Kind::kOptional);
  EXPECT(map->element[0].element[0].kind == Kind::kSparseTensor);
  EXPECT_EQ(map->element[0].element[0].elem_type, int{OnnxDataType::DOUBLE});
  EXPECT(graph.outputs[0].type.kind == Kind::kSequence);
  EXPECT(graph.outputs[0].type.element[0].kind == Kind::kTensor);
  EXPECT(graph.value_infos[0].type.kind == Kind::kOpaque);
  EXPECT(graph.value_infos[0].type.opaque_domain == "d");
  EXPECT(graph.value_infos[0].type.opaque_name == "n");

  // A scalar has a shape without dimensions; a tensor without a shape has none. -1 is unknown, and
  // the later of two values of a dimension counts.
  const std::string dims =
      str(1, num(1, -1)) + str(1, num(1, 3) + str(2, "n")) + str(1, str(2, "n") + num(1, 3));
  const std::string other = model(
      str(11, value("scalar", tensor_type(1, ""))) + str(11, value("any", str(1, num(1, 1)))) +
      str(11, value("untyped", "")) + str(11, value("dims", tensor_type(1, dims))));
  const OnnxFile second = parsed(other);
  const auto& inputs = second.model().graph.inputs;
  EXPECT(inputs[0].type.has_shape && inputs[0].type.shape.empty());
  EXPECT(!inputs[1].type.has_shape && inputs[1].type.kind == Kind::kTensor);
  EXPECT(inputs[2].type.kind == Kind::kUnset);
  EXPECT(!inputs[3].type.shape[0].value);
  EXPECT(!inputs[3].type.shape[1].value && inputs[3].type.shape[1].param == "n");
  EXPECT(inputs[3].type.shape[2].value == 3 && inputs[3].type.shape[2].param.empty());
}

TEST(the_type_of_an_attribute_that_does_not_say) {
  const auto type = [](const std::string& fields) {
    const std::string bytes = with_attribute(str(1, "a") + fields);
    return int{parsed(bytes).model().graph.nodes[0].attributes[0].type};
  };
  EXPECT_EQ(type(f32(2, 1)), int{OnnxAttribute::FLOAT});
  EXPECT_EQ(type(num(3, 0)), int{OnnxAttribute::INT});
  EXPECT_EQ(type(str(4, "")), int{OnnxAttribute::STRING});
  EXPECT_EQ(type(num(8, 1) + num(8, 2)), int{OnnxAttribute::INTS});
  EXPECT_EQ(type(str(6, "")), int{OnnxAttribute::GRAPH});
  EXPECT_EQ(type(str(14, "")), int{OnnxAttribute::TYPE_PROTO});
  EXPECT_EQ(type(str(23, "")), int{OnnxAttribute::SPARSE_TENSORS});
  EXPECT_EQ(type(str(13, "doc")), int{OnnxAttribute::UNDEFINED});
  EXPECT_EQ(type(f32(2, 1) + num(3, 1)), int{OnnxAttribute::UNDEFINED});
  EXPECT_EQ(type(f32(2, 1) + num(20, 2)), int{OnnxAttribute::INT});
}

// Of `count` elements, from this typed data.
std::string typed(int32_t type, int64_t count, const std::string& fields) {
  const std::string bytes = with_tensor(tensor("t", type, {count}, fields));
  const OnnxFile file = parsed(bytes);
  const auto data = tensor_bytes(file, file.model().graph.initializers[0]);
  if (!data.ok()) return std::string(data.status().message());
  return hex(data->bytes);
}

TEST(typed_data) {
  using T = OnnxDataType;
  EXPECT_EQ(typed(T::FLOAT, 2, str(4, le<float>({1, -2}))), "0000803f000000c0");
  EXPECT_EQ(typed(T::FLOAT, 2, f32(4, 1) + f32(4, -2)), "0000803f000000c0");  // not packed
  EXPECT_EQ(typed(T::FLOAT, 3, f32(4, 1) + str(4, "") + str(4, le<float>({-2, 1}))),
            "0000803f000000c00000803f");
  EXPECT_EQ(typed(T::COMPLEX64, 1, str(4, le<float>({1, -2}))), "0000803f000000c0");
  EXPECT_EQ(typed(T::DOUBLE, 2, f64(10, 1) + str(10, le(-2.0))),
            "000000000000f03f00000000000000c0");
  EXPECT_EQ(typed(T::COMPLEX128, 1, str(10, le<double>({1, -2}))),
            "000000000000f03f00000000000000c0");
  EXPECT_EQ(typed(T::INT64, 3, str(7, varints({-1, 2})) + num(7, 3)),
            "ffffffffffffffff02000000000000000300000000000000");
  EXPECT_EQ(typed(T::UINT64, 1, num(11, -1)), "ffffffffffffffff");
  EXPECT_EQ(typed(T::UINT32, 2, str(11, varints({1, 0xFFFFFFFF}))), "01000000ffffffff");
  EXPECT_EQ(typed(T::INT32, 3, str(5, varints({-1, 7, 0x80000000}))), "ffffffff0700000000000080");
  EXPECT_EQ(typed(T::INT16, 3, str(5, varints({-1, 7, 0xFFFE}))), "ffff0700feff");
  EXPECT_EQ(typed(T::UINT16, 2, str(5, varints({65535, 1}))), "ffff0100");
  EXPECT_EQ(typed(T::FLOAT16, 2, str(5, varints({0x3C00, 0xC000}))), "003c00c0");
  EXPECT_EQ(typed(T::BFLOAT16, 1, num(5, 0x3F80)), "803f");
  EXPECT_EQ(typed(T::INT8, 3, str(5, varints({-128, 127, 255}))), "807fff");
  EXPECT_EQ(typed(T::UINT8, 2, str(5, varints({255, 1}))), "ff01");
  EXPECT_EQ(typed(T::BOOL, 4, str(5, varints({0, 1, 2, 256}))), "00010101");
  for (const int32_t type :
       {T::FLOAT8E4M3FN, T::FLOAT8E4M3FNUZ, T::FLOAT8E5M2, T::FLOAT8E5M2FNUZ, T::FLOAT8E8M0}) {
    EXPECT_EQ(typed(type, 2, str(5, varints({0x80, 0x7F}))), "807f");
  }
  for (const int32_t type : {T::INT4, T::UINT4, T::FLOAT4E2M1}) {  // two to an entry
    EXPECT_EQ(typed(type, 3, str(5, varints({0xE1, 7}))), "e107");
    EXPECT_EQ(typed(type, 4, str(5, varints({0xE1, -1}))), "e1ff");
  }
  for (const int32_t type : {T::INT2, T::UINT2}) {  // four to an entry
    EXPECT_EQ(typed(type, 5, str(5, varints({0xE1, 3}))), "e103");
  }
  // One to an entry; x0 | x1 << 6 | x2 << 12 | x3 << 18 in raw data. By hand, and 5 of them by
  // numpy_helper of onnx.
  EXPECT_EQ(typed(T::FLOAT6E2M3, 1, num(5, 0x3F)), "3f");
  EXPECT_EQ(typed(T::FLOAT6E3M2, 4, str(5, varints({1, 2, 3, 4}))), "813010");
  EXPECT_EQ(typed(T::FLOAT6E2M3, 5, str(5, varints({8, 36, 16, 31, 1}))), "08097d01");
  // Data before its type.
  const std::string bytes = with_tensor(str(5, varints({1, 2})) + str(1, varints({2})) + num(2, 3));
  const OnnxFile file = parsed(bytes);
  EXPECT((data_of<int8_t>(file, file.model().graph.initializers[0]) == std::vector<int8_t>{1, 2}));
}

TEST(raw_data_of_every_type) {
  // Bytes of five elements.
  const std::map<int32_t, size_t> sizes = {
      {1, 20},  {2, 5},   {3, 5},   {4, 10},  {5, 10},  {6, 20},  {7, 40}, {9, 5},  {10, 10},
      {11, 40}, {12, 20}, {13, 40}, {14, 40}, {15, 80}, {16, 10}, {17, 5}, {18, 5}, {19, 5},
      {20, 5},  {21, 3},  {22, 3},  {23, 3},  {24, 5},  {25, 2},  {26, 2}, {27, 4}, {28, 4}};
  for (const auto& [type, size] : sizes) {
    const std::string payload(size, '\x5A');
    const std::string bytes = with_tensor(tensor("t", type, {5}, raw(payload)));
    const OnnxFile file = parsed(bytes);
    const auto data = tensor_bytes(file, file.model().graph.initializers[0]);
    ASSERT_OK(data);
    EXPECT_EQ(data->bytes.size(), size);
    EXPECT_EQ(data->elements, 5u);
    EXPECT_EQ(data->data_type, type);
    EXPECT(inside(bytes, data->bytes.data()));  // a view, no copy
  }
  EXPECT(find_onnx_data_type(0) == nullptr && find_onnx_data_type(29) == nullptr);
  EXPECT(find_onnx_data_type(-1) == nullptr);
  EXPECT_EQ(find_onnx_data_type(16)->name, "BFLOAT16");
}

TEST(shapes_at_the_edges) {
  const std::string bytes = model(
      str(5, tensor("scalar", 1, {}, raw(le(1.0f)))) + str(5, tensor("none", 1, {0}, "")) +
      str(5, tensor("raw none", 1, {3, 0}, raw(""))) +
      str(5, tensor("huge none", 1, {1ll << 62, 0, 1ll << 62}, "")) +
      str(5, tensor("typed none", 7, {0}, str(7, ""))) + str(5, tensor("no text", 8, {0}, "")) +
      str(5, tensor("text", 8, {}, str(6, std::string("a\0\xFF", 3)))) +
      str(5, tensor("rank 9", 2, std::vector<int64_t>(9, 1), raw("x"))));
  const OnnxFile file = parsed(bytes);
  const auto& all = file.model().graph.initializers;
  EXPECT((data_of<float>(file, all[0]) == std::vector<float>{1}));
  for (size_t i = 1; i < 6; ++i) {
    const auto data = tensor_bytes(file, all[i]);
    ASSERT_OK(data);
    EXPECT(data->elements == 0 && data->bytes.empty() && data->strings.empty());
  }
  const auto text = tensor_bytes(file, all[6]);
  ASSERT_OK(text);
  EXPECT(text->elements == 1 && text->strings[0] == std::string_view("a\0\xFF", 3));
  EXPECT_EQ(tensor_bytes(file, all[7])->dims.size(), 9u);
}

// Written by onnx 1.23.2 (make_model, SerializeToString): a Gemm, an If with two branches, a node
// of another domain, tensors of seven types.
constexpr std::string_view kGolden =
    "080b1201703af9030a380a01780a01570a01421201681a0467656d6d220447656d6d2a0f0a05616c706861150000"
    "003fa001012a0d0a067472616e73421801a001020a770a0163120179220249662a370a0b656c73655f6272616e63"
    "6832250a110a01781202793322084964656e746974791204656c7365620a0a02793312040a020801a001052a320a"
    "0b7468656e5f6272616e636832200a0c0a01781202793222034e656712047468656e620a0a02793212040a020801"
    "a001050a650a01680a000a017912017a22074c53544d6973682a1c0a0b61637469766174696f6e734a0454616e68"
    "4a0452656c75a001082a160a0470616473400040ffffffffffffffffff01a001072a150a067363616c65733d0000"
    "c03f3d00000040a001063a026d791201672a230802080310014201574a18000000000000803f0000004000004040"
    "000080400000a0402a110803100a2a08807080f8028080014201422a14080210073a0bffffffffffffffffff0103"
    "42014b2a0d080310162a03e10107420249342a0f0805101b2a050824101f01420246362a110801100e2208000080"
    "3f000000404201432a0f08021008320261623202c3a94201532a0e0801100c4201555a0580d0acf30e5a140a0178"
    "120f0a0d080112090a0312014e0a0208025a0b0a016312060a040809120062150a017a1210220e0a0c0a0a080112"
    "060a000a02080342040a00101642060a026d791001";

TEST(a_file_of_the_package_onnx) {
  std::string bytes;
  for (size_t i = 0; i < kGolden.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(kGolden.substr(i, 2)), nullptr, 16));
  }
  const TempDir dir;
  auto opened = open_onnx(dir.write("golden.onnx", bytes));
  ASSERT_OK(opened);
  const OnnxFile file = *std::move(opened);
  EXPECT_EQ(file.path(), dir.path("golden.onnx"));
  EXPECT(file.files().size() == 1 && file.check_unchanged().ok());
  const OnnxModel& model = file.model();
  EXPECT(model.ir_version == 11 && model.producer_name == "p" && model.graph.name == "g");
  EXPECT(model.opset_imports[0].version == 22 && model.opset_imports[1].domain == "my");
  const auto& nodes = model.graph.nodes;
  ASSERT(nodes.size() == 3);
  EXPECT(nodes[0].op_type == "Gemm" && (nodes[0].inputs == Texts{"x", "W", "B"}));
  EXPECT(nodes[0].attributes[0].name == "alpha" && nodes[0].attributes[0].f == 0.5f);
  EXPECT(nodes[0].attributes[1].name == "transB" && nodes[0].attributes[1].i == 1);
  ASSERT(nodes[1].attributes.size() == 2);
  EXPECT(nodes[1].attributes[0].name == "else_branch" && nodes[1].attributes[0].g->name == "else");
  EXPECT(nodes[1].attributes[1].g->nodes[0].op_type == "Neg");
  EXPECT(nodes[2].domain == "my" && (nodes[2].inputs == Texts{"h", "", "y"}));
  EXPECT((nodes[2].attributes[0].strings == Texts{"Tanh", "Relu"}));
  EXPECT((nodes[2].attributes[1].ints == std::vector<int64_t>{0, -1}));
  EXPECT((nodes[2].attributes[2].floats == std::vector<float>{1.5, 2}));
  const auto& tensors = model.graph.initializers;
  ASSERT(tensors.size() == 8);
  EXPECT((data_of<float>(file, tensors[0]) == std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT((data_of<uint16_t>(file, tensors[1]) == std::vector<uint16_t>{0x3800, 0xBC00, 0x4000}));
  EXPECT((data_of<int64_t>(file, tensors[2]) == std::vector<int64_t>{-1, 3}));
  EXPECT_EQ(hex(tensor_bytes(file, tensors[3])->bytes), "e107");
  EXPECT_EQ(hex(tensor_bytes(file, tensors[4])->bytes), "08097d01");
  EXPECT((data_of<float>(file, tensors[5]) == std::vector<float>{1, 2}));
  EXPECT((tensor_bytes(file, tensors[6])->strings == Texts{"ab", "\xC3\xA9"}));
  EXPECT((data_of<uint32_t>(file, tensors[7]) == std::vector<uint32_t>{4000000000u}));
  EXPECT(model.graph.inputs[0].type.shape[0].param == "N");
  EXPECT(model.graph.outputs[0].type.kind == OnnxType::Kind::kSequence);
  const OnnxType& element = model.graph.outputs[0].type.element[0];
  EXPECT(element.shape.size() == 2 && !element.shape[0].value && element.shape[1].value == 3);
}

TEST(what_is_handed_out_outlives_the_file_object) {
  const TempDir dir;
  std::shared_ptr<const void> owner;
  std::span<const std::byte> data;
  {
    auto file = open_onnx(dir.write("m.onnx", with_tensor(tensor("t", 2, {3}, raw("abc")))));
    ASSERT_OK(file);
    data = tensor_bytes(*file, file->model().graph.initializers[0])->bytes;
    owner = file->owner();
  }
  EXPECT_EQ(hex(data), "616263");
  // And parse_onnx holds its owner as long as that.
  auto bytes = std::make_shared<std::string>(with_tensor(tensor("t", 2, {3}, raw("abc"))));
  const std::weak_ptr<std::string> watch = bytes;
  {
    auto file = parse_onnx(bytes_of(*bytes), bytes, "");
    ASSERT_OK(file);
    owner = file->owner();
    bytes.reset();
  }
  EXPECT(!watch.expired());
  owner.reset();
  EXPECT(watch.expired());
}

}  // namespace
