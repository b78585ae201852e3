// SPDX-License-Identifier: Apache-2.0
//
// The Llama family from GGUF to graph: what is read, and what is refused, key by key and tensor by
// tensor. That the graph computes the right thing is shown in tests/unit/plan.
#include "graph/schema.h"
#include "models/model.h"
#include "models/tiny_model.h"
#include "testing.h"

using namespace lmn;
using models_test::TinyModel;
using models_test::TinySpec;

namespace {

Result<models::LanguageModel> build(const TinyModel& tiny) {
  // The graph of a model that was built does not look at its bytes in these tests, so they may go.
  const std::vector<uint64_t> bytes = tiny.bytes();
  auto file = formats::GgufModel::parse(std::as_bytes(std::span(bytes)), "tiny");
  ASSERT_OK(file);
  return models::build(*file, nullptr);
}

models::LanguageModel build_ok(const TinyModel& tiny) {
  auto model = build(tiny);
  ASSERT_OK(model);
  EXPECT(graph::verify(model->graph).ok());
  return std::move(model).value();
}

void expect_refused(const TinyModel& tiny, Code code, const std::string& want) {
  auto model = build(tiny);
  ASSERT(!model.ok());
  EXPECT_EQ(static_cast<int>(model.status().code()), static_cast<int>(code));
  EXPECT_EQ(std::string(model.status().message()), want);
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

}  // namespace

TEST(llama_config_and_graph) {
  const models::LanguageModel model = build_ok(TinyModel(TinySpec{}));
  const models::LanguageModelConfig& c = model.config;
  EXPECT_EQ(c.architecture, std::string("llama"));
  EXPECT_EQ(c.vocab, 48);
  EXPECT_EQ(c.context_length, 256);
  EXPECT_EQ(c.embedding, 64);
  EXPECT_EQ(c.feed_forward, 96);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rot_dim, 16);
  EXPECT_EQ(c.rope_base, 10000.0f);
  EXPECT_EQ(c.rope_scaling, std::string("none"));
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT(!c.tied_embeddings);

  const std::string text = graph::to_text(model.graph);
  EXPECT_EQ(text.substr(0, text.find("constant")),
            std::string("input token_ids : i32[tokens]\n"
                        "input positions : i32[tokens]\n"
                        "input sequence_index : i32[tokens]\n"
                        "input kv_slots : i32[tokens]\n"
                        "input block_tables : i32[sequences, pages]\n"
                        "input output_rows : i32[outputs]\n"
                        "input kv.0 : kv[2, 16]\n"
                        "input kv.1 : kv[2, 16]\n"));
  EXPECT_EQ(count(text, "style=interleaved"), 4);
  EXPECT_EQ(count(text, "scale=0.25"), 2);  // 1 / sqrt(16)
  // The head, and q, k and v of the first layer and all seven of the last: of the others an
  // engine's options decide.
  EXPECT_EQ(count(text, "precise=1"), 1 + 3 + 7);
  EXPECT(text.find(": f32[outputs, 48] = gather_rows(") != std::string::npos);
  EXPECT_EQ(model.graph.outputs.size(), size_t{1});
  EXPECT_EQ(model.graph.outputs[0].name, std::string("logits"));
}

TEST(qwen2_turns_halves_and_has_biases) {
  TinySpec spec;
  spec.architecture = "qwen2";
  spec.attention_bias = true;
  const models::LanguageModel model = build_ok(TinyModel(spec));
  const std::string text = graph::to_text(model.graph);
  EXPECT_EQ(model.config.architecture, std::string("qwen2"));
  EXPECT_EQ(count(text, "style=halves"), 4);
  EXPECT(text.find("blk.1.attn_q.weight, blk.1.attn_q.bias)") != std::string::npos);
  EXPECT(text.find("blk.1.attn_v.weight, blk.1.attn_v.bias)") != std::string::npos);
}

TEST(options_of_the_family) {
  TinySpec spec;
  spec.tied = true;
  spec.key_length = 24;  // not embedding / heads
  spec.rot_dim = 8;
  spec.feed_forward_bias = true;
  spec.rope_factors = true;
  spec.weight_type = models_test::kQ8_0;
  spec.v_type = models_test::kF16;
  spec.key_length = 32;
  const models::LanguageModel model = build_ok(TinyModel(spec));
  EXPECT(model.config.tied_embeddings);
  EXPECT_EQ(model.config.head_dim, 32);
  EXPECT_EQ(model.config.rot_dim, 8);
  EXPECT_EQ(model.config.rope_scaling, std::string("llama3"));
  const std::string text = graph::to_text(model.graph);
  EXPECT(text.find("constant blk.0.attn_output.weight : q8_0[64, 128]") != std::string::npos);
  EXPECT(text.find("constant blk.0.attn_v.weight : f16[64, 64]") != std::string::npos);
  EXPECT(text.find("blk.0.ffn_down.weight, blk.0.ffn_down.bias)") != std::string::npos);
  EXPECT(text.find("token_embd.weight) {precise=1}  # output") != std::string::npos);
}

TEST(absent_kv_heads_are_as_many_as_heads) {
  TinySpec spec;
  spec.kv_heads = spec.heads;
  TinyModel tiny(spec);
  tiny.keys.erase("llama.attention.head_count_kv");
  EXPECT_EQ(build_ok(tiny).config.kv_heads, 4);
}

TEST(rope_scaling_is_read) {
  TinyModel linear{TinySpec{}};
  linear.set_f32("llama.rope.scale_linear", 4);  // files of 2023
  EXPECT_EQ(build_ok(linear).config.rope_scaling, std::string("linear"));

  TinyModel yarn{TinySpec{}};
  yarn.set_string("llama.rope.scaling.type", "yarn");
  yarn.set_f32("llama.rope.scaling.factor", 4);
  yarn.set_u32("llama.rope.scaling.original_context_length", 64);
  const models::LanguageModel model = build_ok(yarn);
  EXPECT_EQ(model.config.rope_scaling, std::string("yarn"));
  // 1 + 0.1 ln 4
  EXPECT(graph::to_text(model.graph).find("magnitude=1.1386") != std::string::npos);

  TinyModel none{TinySpec{}};
  none.set_string("llama.rope.scaling.type", "none");
  none.set_f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(build_ok(none).config.rope_scaling, std::string("none"));

  TinyModel unknown{TinySpec{}};
  unknown.set_string("llama.rope.scaling.type", "longrope");
  expect_refused(
      unknown, Code::kUnsupported,
      "tiny: llama.rope.scaling.type is 'longrope', supported are none, linear and yarn");
}

TEST(unknown_architectures_are_named_with_those_that_are_known) {
  TinyModel tiny{TinySpec{}};
  tiny.set_string("general.architecture", "rwkv6");
  expect_refused(tiny, Code::kUnsupported,
                 "tiny: architecture 'rwkv6' is not supported; supported are: llama, qwen2");
  tiny.keys.erase("general.architecture");
  EXPECT(build(tiny).status().code() == Code::kNotFound);
}

TEST(mixtures_of_experts_are_refused) {
  TinyModel by_key{TinySpec{}};
  by_key.set_u32("llama.expert_count", 8);
  expect_refused(
      by_key, Code::kUnsupported,
      "tiny: a mixture of experts (8 of them in architecture 'llama'); dense models are supported");
  TinyModel by_tensor{TinySpec{}};
  by_tensor.add_tensor("blk.0.ffn_gate_inp.weight", {64, 4}, models_test::kF32, 1);
  EXPECT(build(by_tensor).status().code() == Code::kUnsupported);
  TinyModel dense{TinySpec{}};
  dense.set_u32("llama.expert_count", 0);
  (void)build_ok(dense);
}

TEST(every_hyperparameter_is_checked) {
  for (const char* key : {"context_length", "embedding_length", "feed_forward_length",
                          "block_count", "attention.head_count", "attention.head_count_kv"}) {
    TinyModel zero{TinySpec{}};
    zero.set_u32(std::string("llama.") + key, 0);
    expect_refused(zero, Code::kCorrupt,
                   "tiny: llama." + std::string(key) + " is 0, expected 1 to 2147483647");
    TinyModel text{TinySpec{}};
    text.set_string(std::string("llama.") + key, "many");
    EXPECT(build(text).status().code() == Code::kCorrupt);
    EXPECT(std::string(build(text).status().message()).find(key) != std::string::npos);
    if (std::string(key) == "attention.head_count_kv") continue;  // may be absent
    TinyModel absent{TinySpec{}};
    absent.keys.erase(std::string("llama.") + key);
    EXPECT(build(absent).status().code() == Code::kNotFound);
    EXPECT(std::string(build(absent).status().message()).find(key) != std::string::npos);
  }
  const auto refused = [](const char* key, uint32_t value, const std::string& want) {
    TinyModel tiny{TinySpec{}};
    tiny.set_u32(std::string("llama.") + key, value);
    expect_refused(tiny, Code::kCorrupt, "tiny: llama." + want);
  };
  refused("attention.head_count_kv", 3,
          "attention.head_count_kv is 3, expected a divisor of the 4 heads");
  refused("attention.head_count", 6,
          "attention.head_count is 6, expected a divisor of the embedding, 64");
  refused("rope.dimension_count", 7,
          "rope.dimension_count is 7, expected an even number up to the head size, 16");
  refused("rope.dimension_count", 18,
          "rope.dimension_count is 18, expected an even number up to the head size, 16");
  refused("vocab_size", 49, "vocab_size is 49, expected at most the 48 rows of token_embd.weight");
  TinyModel eps{TinySpec{}};
  eps.set_f32("llama.attention.layer_norm_rms_epsilon", -1);
  expect_refused(
      eps, Code::kCorrupt,
      "tiny: llama.attention.layer_norm_rms_epsilon is -1.000000, expected a positive number");
  TinyModel base{TinySpec{}};
  base.set_f32("llama.rope.freq_base", 1);
  EXPECT(build(base).status().code() == Code::kCorrupt);
  TinyModel values{TinySpec{}};
  values.set_u32("llama.attention.value_length", 8);
  expect_refused(values, Code::kUnsupported,
                 "tiny: values of 8 elements beside keys of 16: they are expected to be equal");
}

TEST(a_layer_count_beyond_the_file_is_refused_at_once) {
  TinyModel tiny{TinySpec{}};
  tiny.set_u32("llama.block_count", 2147483647);
  expect_refused(tiny, Code::kNotFound,
                 "tiny: tensor 'blk.2.attn_norm.weight' is missing; architecture 'llama' needs it");
}

TEST(every_tensor_is_checked) {
  const TinyModel good{TinySpec{}};
  for (const auto& [name, tensor] : good.tensors) {
    if (name != "output.weight") {  // may be absent
      TinyModel absent{TinySpec{}};
      absent.tensors.erase(name);
      expect_refused(absent, Code::kNotFound,
                     "tiny: tensor '" + name + "' is missing; architecture 'llama' needs it");
    }
    TinyModel longer{TinySpec{}};
    std::vector<uint64_t> ne = tensor.ne;
    ne.back() += 1;
    longer.add_tensor(name, ne, models_test::kF32, 1);
    const auto model = build(longer);
    ASSERT(!model.ok());
    EXPECT(model.status().code() == Code::kCorrupt);
    // A longer embedding table is a larger vocabulary, which then does not fit the output head.
    const std::string blamed = name == "token_embd.weight" ? "output.weight" : name;
    EXPECT(std::string(model.status().message()).find("tensor '" + blamed + "' is [") !=
           std::string::npos);
  }
}

TEST(shapes_are_shown_with_what_was_expected) {
  TinyModel tiny{TinySpec{}};
  tiny.add_tensor("blk.1.ffn_down.weight", {64, 96}, models_test::kF32, 1);
  expect_refused(
      tiny, Code::kCorrupt,
      "tiny: tensor 'blk.1.ffn_down.weight' is [96, 64], expected [64, 96] from the metadata");
}

TEST(tensors_that_nobody_asked_for_are_refused) {
  TinyModel tiny{TinySpec{}};
  tiny.add_tensor("blk.0.attn_q_norm.weight", {16}, models_test::kF32, 1);
  expect_refused(tiny, Code::kUnsupported,
                 "tiny: tensor 'blk.0.attn_q_norm.weight' is no part of architecture 'llama' as it "
                 "is known here");
  TinyModel old{TinySpec{}};
  old.add_tensor("blk.0.attn_rot_embd.weight", {8}, models_test::kF32, 1);
  (void)build_ok(old);
}

TEST(types_without_kernels_are_refused_by_name) {
  TinyModel tiny{TinySpec{}};
  tiny.tensors["blk.0.ffn_up.weight"] = {
      {64, 96}, 20, std::string(64 * 96 / 32 * 18, '\0')};  // IQ4_NL
  const auto model = build(tiny);
  ASSERT(!model.ok());
  EXPECT(model.status().code() == Code::kUnsupported);
  EXPECT(std::string(model.status().message()).find("blk.0.ffn_up.weight") != std::string::npos);
  TinyModel vector{TinySpec{}};
  vector.tensors["output_norm.weight"] = {{64}, models_test::kQ8_0, std::string(2 * 34, '\0')};
  expect_refused(
      vector, Code::kUnsupported,
      "tiny: tensor 'output_norm.weight' is a vector of q8_0, expected f32, f16 or bf16");
}

TEST(graphs_keep_the_owner_of_the_bytes_alive) {
  auto bytes = std::make_shared<const std::vector<uint64_t>>(TinyModel(TinySpec{}).bytes());
  std::weak_ptr<const std::vector<uint64_t>> watch = bytes;
  auto file = formats::GgufModel::parse(std::as_bytes(std::span(*bytes)), "tiny");
  ASSERT_OK(file);
  auto model = models::build(*file, std::move(bytes));
  ASSERT_OK(model);
  EXPECT(!watch.expired());
  graph::Graph graph = std::move(model->graph);
  EXPECT(!watch.expired());
  graph = graph::Graph();
  EXPECT(watch.expired());
}
