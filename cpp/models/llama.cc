// SPDX-License-Identifier: Apache-2.0
//
// Tensors are named as the GGUF specification names them. Biases are used where the file has them.
//
// 16-bit activations are asked for where bytes would move the logits most: by q, k and v, the last
// layer (whose feed-forward part is computed for few rows) and the output layer; of the others the
// engine's options decide. Over ten prompts, the logits of SmolLM2-135M (Q4_1) move by 0.06 to 0.13
// RMS if only the output layer asks, by 0.05 to 0.11 with q, k and v, by 0.03 to 0.08 with the last
// layer as well, and by 0.002 if all have 16 bits. Which of these is chance: rounding flips make
// the rest chaotic.
#include "models/llama.h"

#include <cmath>

#include "graph/builder.h"
#include "models/rope.h"

namespace lmn::models {
namespace {

using graph::Dims;
using graph::kNone;
using graph::ValueId;

class Llama {
 public:
  Llama(ModelFile file, std::string_view rope_style)
      : file_(std::move(file)), rope_style_(rope_style) {}

  Result<LanguageModel> build() {
    LMN_RETURN_IF_ERROR(read_config());
    add_inputs();
    ValueId x = builder_.embedding(
        token_ids_, table_ = weight("token_embd.weight", config_.vocab, config_.embedding),
        "token_embd");
    for (int64_t layer = 0; layer < config_.layers && builder_.ok(); ++layer) {
      const std::string block = "blk." + std::to_string(layer) + ".";
      x = builder_.add(attention(block, layer, x), x, block + "attn_residual");
      x = builder_.add(feed_forward(block, layer, x), x, block + "ffn_residual");
    }
    add_logits(x);
    LMN_ASSIGN_OR_RETURN(graph::Graph graph, builder_.finish());
    LMN_RETURN_IF_ERROR(file_.check_all_used());
    return LanguageModel{std::move(config_), std::move(graph)};
  }

 private:
  Status read_config() {
    LanguageModelConfig& c = config_;
    c.architecture = file_.architecture();
    LMN_RETURN_IF_ERROR(refuse_experts());
    LMN_ASSIGN_OR_RETURN(c.context_length, file_.size("context_length"));
    LMN_ASSIGN_OR_RETURN(c.embedding, file_.size("embedding_length"));
    LMN_ASSIGN_OR_RETURN(c.feed_forward, file_.size("feed_forward_length"));
    LMN_ASSIGN_OR_RETURN(c.layers, file_.size("block_count"));
    LMN_ASSIGN_OR_RETURN(c.heads, file_.size("attention.head_count"));
    LMN_ASSIGN_OR_RETURN(c.kv_heads, file_.size_or("attention.head_count_kv", c.heads));
    if (c.heads % c.kv_heads != 0) {
      return corrupt("attention.head_count_kv", c.kv_heads,
                     "a divisor of the " + std::to_string(c.heads) + " heads");
    }
    LMN_RETURN_IF_ERROR(read_head_dim());
    LMN_ASSIGN_OR_RETURN(c.norm_eps, file_.positive("attention.layer_norm_rms_epsilon"));

    LMN_ASSIGN_OR_RETURN(const Shape table, file_.matrix_shape("token_embd.weight"));
    c.vocab = table[0];
    if (file_.has_key("vocab_size")) {
      LMN_ASSIGN_OR_RETURN(const int64_t vocab, file_.size("vocab_size"));
      if (vocab > c.vocab) {
        return corrupt("vocab_size", vocab,
                       "at most the " + std::to_string(c.vocab) + " rows of token_embd.weight");
      }
    }
    c.tied_embeddings = !file_.has_tensor("output.weight");

    LMN_ASSIGN_OR_RETURN(const RopeParameters rope,
                         read_rope(&file_, c.head_dim, c.context_length));
    c.rot_dim = rope.rot_dim;
    c.rope_base = static_cast<float>(rope.base);
    c.rope_scaling = scaling_name(rope);
    RopeFrequencies frequencies = rope_frequencies(rope);
    rope_magnitude_ = frequencies.magnitude;
    inv_freq_ =
        builder_.constant(graph::owned_constant("inv_freq", std::move(frequencies.inv_freq)));
    return {};
  }

  Status read_head_dim() {
    LanguageModelConfig& c = config_;
    if (file_.has_key("attention.key_length")) {
      LMN_ASSIGN_OR_RETURN(c.head_dim, file_.size("attention.key_length"));
    } else if (c.embedding % c.heads != 0) {
      return corrupt("attention.head_count", c.heads,
                     "a divisor of the embedding, " + std::to_string(c.embedding));
    } else {
      c.head_dim = c.embedding / c.heads;
    }
    LMN_ASSIGN_OR_RETURN(const int64_t value_length,
                         file_.size_or("attention.value_length", c.head_dim));
    if (value_length == c.head_dim) return {};
    return file_.about(Code::kUnsupported,
                       "values of " + std::to_string(value_length) + " elements beside keys of " +
                           std::to_string(c.head_dim) + ": they are expected to be equal");
  }

  Status refuse_experts() {
    int64_t experts = 0;
    if (file_.has_key("expert_count")) {
      // Dense files may say 0.
      if (Result<int64_t> count = file_.size("expert_count"); count.ok()) experts = *count;
    }
    if (experts == 0 && !file_.has_tensor("blk.0.ffn_gate_inp.weight")) return {};
    return file_.about(Code::kUnsupported, "a mixture of experts (" + std::to_string(experts) +
                                               " of them in architecture '" + file_.architecture() +
                                               "'); dense models are supported");
  }

  Status corrupt(std::string_view key, int64_t value, const std::string& expected) const {
    return file_.about(Code::kCorrupt, file_.architecture() + "." + std::string(key) + " is " +
                                           std::to_string(value) + ", expected " + expected);
  }

  void add_inputs() {
    const auto indices = [&](const char* name, Dims dims) {
      return builder_.input(name, graph::tensor(DType::kI32, std::move(dims)));
    };
    token_ids_ = indices("token_ids", {"tokens"});
    positions_ = indices("positions", {"tokens"});
    sequence_index_ = indices("sequence_index", {"tokens"});
    kv_slots_ = indices("kv_slots", {"tokens"});
    block_tables_ = indices("block_tables", {"sequences", "pages"});
    output_rows_ = indices("output_rows", {"outputs"});
  }

  // x + ... is the caller's: returns the branch alone.
  ValueId attention(const std::string& block, int64_t layer, ValueId x) {
    const LanguageModelConfig& c = config_;
    const int64_t q_size = c.heads * c.head_dim, kv_size = c.kv_heads * c.head_dim;
    const ValueId h = norm(block + "attn_norm", x);
    ValueId q = linear(block + "attn_q", h, q_size, c.embedding, /*precise=*/true);
    ValueId k = linear(block + "attn_k", h, kv_size, c.embedding, /*precise=*/true);
    const ValueId v = linear(block + "attn_v", h, kv_size, c.embedding, /*precise=*/true);
    const ValueId cos_sin =
        builder_.rope_table(positions_, inv_freq_, rope_magnitude_, block + "rope");
    q = builder_.rope(q, cos_sin, c.heads, rope_style_, block + "rope_q");
    k = builder_.rope(k, cos_sin, c.kv_heads, rope_style_, block + "rope_k");
    const ValueId before =
        builder_.input("kv." + std::to_string(layer), graph::kv_cache(c.kv_heads, c.head_dim));
    const ValueId cache = builder_.kv_write(k, v, kv_slots_, before, block + "kv_write");
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
    const ValueId mixed = builder_.attention(q, cache, positions_, sequence_index_, block_tables_,
                                             c.heads, scale, block + "attn");
    return linear(block + "attn_output", mixed, c.embedding, q_size, is_last(layer));
  }

  ValueId feed_forward(const std::string& block, int64_t layer, ValueId x) {
    const LanguageModelConfig& c = config_;
    const bool precise = is_last(layer);
    const ValueId h = norm(block + "ffn_norm", x);
    const ValueId gate = linear(block + "ffn_gate", h, c.feed_forward, c.embedding, precise);
    const ValueId up = linear(block + "ffn_up", h, c.feed_forward, c.embedding, precise);
    const ValueId gated = builder_.silu_mul(gate, up, block + "ffn_gate_up");
    return linear(block + "ffn_down", gated, c.embedding, c.feed_forward, precise);
  }

  void add_logits(ValueId x) {
    const LanguageModelConfig& c = config_;
    const ValueId h = norm("output_norm", x);
    const ValueId head = c.tied_embeddings ? table_ : weight("output.weight", c.vocab, c.embedding);
    const ValueId logits = builder_.linear(h, head, kNone, /*precise=*/true, "output");
    builder_.output(builder_.gather_rows(logits, output_rows_, "output_rows"), "logits");
  }

  ValueId norm(const std::string& name, ValueId x) {
    return builder_.rms_norm(x, vector(name + ".weight", config_.embedding), config_.norm_eps,
                             name);
  }
  bool is_last(int64_t layer) const { return layer + 1 == config_.layers; }
  ValueId linear(const std::string& name, ValueId x, int64_t rows, int64_t columns, bool precise) {
    const ValueId w = weight(name + ".weight", rows, columns);
    const ValueId bias = file_.has_tensor(name + ".bias") ? vector(name + ".bias", rows) : kNone;
    return builder_.linear(x, w, bias, precise, name);
  }
  ValueId weight(const std::string& name, int64_t rows, int64_t columns) {
    return constant(name, {rows, columns});
  }
  ValueId vector(const std::string& name, int64_t length) { return constant(name, {length}); }
  ValueId constant(const std::string& name, const Shape& shape) {
    Result<graph::Piece> piece = file_.tensor(name, shape);
    if (piece.ok()) return builder_.constant(std::move(piece).value());
    builder_.fail(std::move(piece).status());
    return kNone;
  }

  ModelFile file_;
  std::string_view rope_style_;
  LanguageModelConfig config_;
  graph::Builder builder_;
  ValueId token_ids_ = kNone, positions_ = kNone, sequence_index_ = kNone, kv_slots_ = kNone,
          block_tables_ = kNone, output_rows_ = kNone;
  ValueId table_ = kNone, inv_freq_ = kNone;
  float rope_magnitude_ = 1;
};

}  // namespace

Result<LanguageModel> build_llama(ModelFile file) {
  return Llama(std::move(file), "interleaved").build();
}
Result<LanguageModel> build_qwen2(ModelFile file) {
  return Llama(std::move(file), "halves").build();
}

}  // namespace lmn::models
