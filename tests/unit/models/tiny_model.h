// SPDX-License-Identifier: Apache-2.0
//
// A tiny model of the Llama family as the bytes of a GGUF file, written from the specification: any
// size, any part left out or changed. Weights are random and small; what they are can be asked for,
// so that a test can compute with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/float16.h"
#include "formats/gguf_writer.h"

namespace models_test {

enum GgmlType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8 };

struct TinySpec {
  std::string architecture = "llama";
  uint32_t vocab = 48, context = 256, embedding = 64, feed_forward = 96, layers = 2, heads = 4,
           kv_heads = 2;
  uint32_t key_length = 0;  // 0: the key is absent, embedding / heads
  uint32_t rot_dim = 0;     // 0: the key is absent, the whole head
  float eps = 1e-5f, rope_base = 10000.0f;
  bool tied = false, attention_bias = false, feed_forward_bias = false, rope_factors = false;
  uint32_t weight_type = kF32, v_type = ~0u, up_type = ~0u;  // ~0: as weight_type
  uint32_t seed = 1;

  uint32_t head_dim() const { return key_length ? key_length : embedding / heads; }
  uint32_t rotated() const { return rot_dim ? rot_dim : head_dim(); }
};

class TinyModel {
 public:
  explicit TinyModel(TinySpec wanted) : spec(std::move(wanted)), random_(spec.seed) {
    add_keys();
    add_tensors();
  }

  const TinySpec spec;
  // In float32, as stored: rounded to the type of the file.
  std::map<std::string, std::vector<float>> weights;

  // Before bytes(): what differs from a good file. A changed key or tensor replaces the good one;
  // an empty payload or shape leaves it out.
  struct Key {
    uint32_t type;
    std::string payload;
  };
  std::map<std::string, Key> keys;
  struct Tensor {
    std::vector<uint64_t> ne;
    uint32_t type;
    std::string data;
  };
  std::map<std::string, Tensor> tensors;

  void set_u32(const std::string& key, uint32_t value) {
    keys[key] = {gguf_test::kU32, gguf_test::le(value)};
  }
  void set_f32(const std::string& key, float value) {
    keys[key] = {gguf_test::kF32, gguf_test::le(value)};
  }
  void set_string(const std::string& key, const std::string& value) {
    keys[key] = {gguf_test::kString, gguf_test::str(value)};
  }

  // 8-byte aligned, as GgufModel::parse asks.
  std::vector<uint64_t> bytes() const {
    gguf_test::Writer writer;
    for (const auto& [name, key] : keys) writer.kv(name, key.type, key.payload);
    for (const auto& [name, tensor] : tensors)
      writer.tensor(name, tensor.ne, tensor.type, tensor.data);
    const std::string text = writer.finish();
    std::vector<uint64_t> out((text.size() + 7) / 8);
    std::memcpy(out.data(), text.data(), text.size());
    return out;
  }

  void add_tensor(const std::string& name, std::vector<uint64_t> ne, uint32_t type, float scale,
                  float offset = 0) {
    uint64_t count = 1;
    for (uint64_t n : ne) count *= n;
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (float& value : values) value = offset + scale * normal(random_);
    tensors[name] = {std::move(ne), type, encode(type, &values)};
    weights[name] = std::move(values);
  }

 private:
  void add_keys() {
    const std::string arch = spec.architecture + ".";
    set_string("general.architecture", spec.architecture);
    set_u32(arch + "context_length", spec.context);
    set_u32(arch + "embedding_length", spec.embedding);
    set_u32(arch + "feed_forward_length", spec.feed_forward);
    set_u32(arch + "block_count", spec.layers);
    set_u32(arch + "attention.head_count", spec.heads);
    set_u32(arch + "attention.head_count_kv", spec.kv_heads);
    set_f32(arch + "attention.layer_norm_rms_epsilon", spec.eps);
    set_f32(arch + "rope.freq_base", spec.rope_base);
    if (spec.key_length) set_u32(arch + "attention.key_length", spec.key_length);
    if (spec.key_length) set_u32(arch + "attention.value_length", spec.key_length);
    if (spec.rot_dim) set_u32(arch + "rope.dimension_count", spec.rot_dim);
  }

  void add_tensors() {
    const uint64_t d = spec.embedding, ff = spec.feed_forward, q = spec.heads * spec.head_dim(),
                   kv = spec.kv_heads * spec.head_dim();
    const auto or_weight = [&](uint32_t type) { return type == ~0u ? spec.weight_type : type; };
    add_tensor("token_embd.weight", {d, spec.vocab}, spec.weight_type, 1.0f);
    add_tensor("output_norm.weight", {d}, kF32, 0.2f, 1);
    if (!spec.tied) add_tensor("output.weight", {d, spec.vocab}, spec.weight_type, 0.3f);
    if (spec.rope_factors) add_tensor("rope_freqs.weight", {spec.rotated() / 2}, kF32, 0.1f, 2);
    for (uint32_t l = 0; l < spec.layers; ++l) {
      const std::string block = "blk." + std::to_string(l) + ".";
      const auto linear = [&](const char* name, uint64_t rows, uint64_t columns, uint32_t type,
                              bool bias) {
        add_tensor(block + name + ".weight", {columns, rows}, type, 0.15f);
        if (bias) add_tensor(block + name + ".bias", {rows}, kF32, 0.3f);
      };
      add_tensor(block + "attn_norm.weight", {d}, kF32, 0.2f, 1);
      linear("attn_q", q, d, spec.weight_type, spec.attention_bias);
      linear("attn_k", kv, d, spec.weight_type, spec.attention_bias);
      linear("attn_v", kv, d, or_weight(spec.v_type), spec.attention_bias);
      linear("attn_output", d, q, spec.weight_type, spec.feed_forward_bias);
      add_tensor(block + "ffn_norm.weight", {d}, kF32, 0.2f, 1);
      linear("ffn_gate", ff, d, spec.weight_type, spec.feed_forward_bias);
      linear("ffn_up", ff, d, or_weight(spec.up_type), spec.feed_forward_bias);
      linear("ffn_down", d, ff, spec.weight_type, spec.feed_forward_bias);
    }
  }

  // The bytes of `values` in a file type; `values` become what those bytes mean.
  static std::string encode(uint32_t type, std::vector<float>* values) {
    std::string out;
    if (type == kF32) {
      for (float v : *values) out += gguf_test::le(v);
    } else if (type == kF16) {
      for (float& v : *values) {
        const uint16_t half = lmn::f32_to_f16(v);
        v = lmn::f16_to_f32(half);
        out += gguf_test::le(half);
      }
    } else {  // Q8_0: blocks of 32, a float16 scale, then the integers
      for (size_t b = 0; b < values->size(); b += 32) {
        float largest = 0;
        for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::abs((*values)[i]));
        const uint16_t half = lmn::f32_to_f16(largest / 127);
        const float scale = lmn::f16_to_f32(half);
        out += gguf_test::le(half);
        for (size_t i = b; i < b + 32; ++i) {
          const float rounded = scale == 0 ? 0 : std::nearbyint((*values)[i] / scale);
          const auto q = static_cast<int8_t>(std::max(-127.0f, std::min(127.0f, rounded)));
          (*values)[i] = scale * static_cast<float>(q);
          out += static_cast<char>(q);
        }
      }
    }
    return out;
  }

  std::mt19937 random_;
};

}  // namespace models_test
