// SPDX-License-Identifier: Apache-2.0
//
// From a model file to a graph: one file per architecture family, and one function that knows them
// all. Every hyperparameter and the shape of every tensor is checked here, so that a graph that was
// built is well formed. Weights are not read (the plan does that, once); rope_freqs.weight, a few
// dozen numbers, is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "formats/gguf.h"
#include "graph/graph.h"

namespace lmn::models {

struct LanguageModelConfig {
  std::string architecture;    // "llama", "qwen2"
  int64_t vocab = 0;           // rows of the embedding table, columns of the logits
  int64_t context_length = 0;  // tokens the model was trained for
  int64_t embedding = 0;       // width of the residual stream
  int64_t feed_forward = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rot_dim = 0;  // leading elements of a head that rotary embedding turns
  float rope_base = 0;
  std::string rope_scaling;  // "none", "linear", "yarn", "llama3"
  float norm_eps = 0;
  bool tied_embeddings = false;  // no output.weight: token_embd.weight is used
};

// Inputs, i32: token_ids[tokens], positions[tokens], sequence_index[tokens], kv_slots[tokens],
// block_tables[sequences, pages], output_rows[outputs]; then one KV cache per layer, "kv.0" first.
// Output, f32: logits[outputs, vocab]: row i belongs to token output_rows[i] of the step.
struct LanguageModel {
  LanguageModelConfig config;
  graph::Graph graph;
};

// `owner` keeps the bytes behind `file`'s tensors alive; the graph's constants hold on to it.
// UNSUPPORTED names the architecture and lists those that are known; CORRUPT or NOT_FOUND names key
// or tensor.
Result<LanguageModel> build(const formats::GgufModel& file, std::shared_ptr<const void> owner);

std::span<const std::string_view> supported_architectures();

}  // namespace lmn::models
