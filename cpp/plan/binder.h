// SPDX-License-Identifier: Apache-2.0
//
// Binder: the argument structs of a plan's stages, in one array. Everything about them is fixed
// here but what changes from step to step, which is listed: the number of rows, by symbol, and
// whether workers keep own copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/kernel.h"
#include "plan/layout.h"
#include "plan/weights.h"

namespace lmn::plan {

// A worker_stride that is `copy_bytes` while workers keep own copies, and 0 otherwise.
struct StridePatch {
  int64_t* stride;
  int64_t copy_bytes;
};

struct BoundStage {
  ops::Op op;
  std::string name;
  void* args;
  int symbol;            // of the rows; -1: constant
  bool writes_own_copy;  // while its rows are few
};

struct BoundStages {
  std::vector<BoundStage> stages;
  std::unique_ptr<std::byte[]> args;
  std::array<std::vector<int64_t*>, kSymbols.size()> rows;
  std::array<std::vector<StridePatch>, kSymbols.size()> strides;
};

// Values of KV caches map to layers, in the order of the graph's inputs; -1 for all other values.
std::vector<int> kv_layers_of(const graph::Graph& graph);

class Binder {
 public:
  // Everything outlives the binder. `kv` has an element per layer, whose address kernels keep.
  Binder(const graph::Graph& graph, const Layout& layout, const std::vector<int>& kv_layer,
         Weights* weights, const ops::KvLayer* kv)
      : graph_(graph), layout_(layout), kv_layer_(kv_layer), weights_(weights), kv_(kv) {}

  // Registers every constant with the weights: before they are loaded.
  Status register_weights();
  // Fills in the arguments: after that. Rows are the bounds of their symbols. UNSUPPORTED names a
  // view where a kernel reads whole rows.
  Result<BoundStages> bind(std::byte* arena);

 private:
  Status check_views(const graph::Node& node) const;

  void fill(const graph::Node& node, ops::EmbeddingArgs* args);
  void fill(const graph::Node& node, ops::RmsNormArgs* args);
  void fill(const graph::Node& node, ops::LinearArgs* args);
  void fill(const graph::Node& node, ops::RopeTableArgs* args);
  void fill(const graph::Node& node, ops::RopeArgs* args);
  void fill(const graph::Node& node, ops::KvWriteArgs* args);
  void fill(const graph::Node& node, ops::AttentionArgs* args);
  void fill(const graph::Node& node, ops::SiluMulArgs* args);
  void fill(const graph::Node& node, ops::AddArgs* args);
  void fill(const graph::Node& node, ops::GatherRowsArgs* args);
  void fill(const graph::Node& node, ops::QuantizeArgs* args);
  void fill(const graph::Node& node, ops::RmsNormQuantizeArgs* args);
  void fill(const graph::Node& node, ops::RopeKvWriteArgs* args);

  template <typename T>
  T* data(graph::ValueId id) const;
  float* floats(graph::ValueId id) const { return data<float>(id); }
  const int32_t* indices(graph::ValueId id) const { return data<int32_t>(id); }
  const float* vector(graph::ValueId id) const;
  const ops::PackedMatrix*& matrix(const graph::Node& node) {
    return matrices_[static_cast<size_t>(&node - graph_.nodes.data())];
  }
  const ops::KvLayer* kv(graph::ValueId id) const {
    return kv_ + kv_layer_[static_cast<size_t>(id)];
  }
  int64_t stride(graph::ValueId id) const { return layout_.buffer_of(id).columns; }
  int64_t columns(graph::ValueId id) const { return layout_.place(id).columns; }
  void local(graph::ValueId id, ops::WorkerLocal* out);

  const graph::Graph& graph_;
  const Layout& layout_;
  const std::vector<int>& kv_layer_;
  Weights* weights_;
  const ops::KvLayer* kv_;
  std::byte* arena_ = nullptr;
  std::vector<const ops::PackedMatrix*> matrices_;  // of every node that reads one
  std::vector<size_t> vectors_;  // of every value that is one: its index in the weights
  BoundStages out_;
};

}  // namespace lmn::plan
