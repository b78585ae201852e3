// SPDX-License-Identifier: Apache-2.0
//
// What plan tests share: a device of plain host memory with the reference kernels, a paged KV
// cache, and a run of one sequence in chunks of any size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/device.h"
#include "graph/passes/passes.h"
#include "ops/reference.h"
#include "parallel/thread_team.h"
#include "plan/plan.h"
#include "testing.h"

namespace plan_test {

using namespace lmn;

class HostDevice : public Device {
 public:
  explicit HostDevice(const ops::KernelTable& table = ops::reference_kernels()) : table_(table) {}

  std::string name() const override { return "test"; }
  std::string target() const override { return "reference"; }
  Result<std::byte*> allocate(size_t bytes) override {
    if (bytes > limit) return error(Code::kOutOfMemory, "%zu bytes", bytes);
    auto* data = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)));
    std::memset(data, 0, bytes);
    allocated += bytes;
    return data;
  }
  void release(std::byte* data, size_t bytes) override {
    ::operator delete(data, std::align_val_t(64));
    allocated -= bytes;
  }
  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
    return {};
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
    return {};
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  const ops::KernelTable& kernels() const override { return table_; }

  size_t allocated = 0;
  size_t limit = SIZE_MAX;

 private:
  const ops::KernelTable& table_;
};

inline std::unique_ptr<parallel::ThreadTeam> make_team(int threads) {
  parallel::TeamOptions options;
  options.threads = threads;
  auto team = parallel::ThreadTeam::create(options);
  ASSERT_OK(team);
  return std::move(team).value();
}

inline graph::PassOptions pass_options(const Device& device) {
  graph::PassOptions options;
  // As an engine asks by default: 16-bit activations for every quantised weight.
  options.linear_input_type = [&device](DType weight, int64_t columns, bool) {
    return device.kernels().linear_input_type(weight, columns, true);
  };
  return options;
}

inline graph::Graph optimized(const graph::Graph& graph, const Device& device) {
  auto result = graph::optimize(graph, pass_options(device));
  ASSERT_OK(result);
  return std::move(result).value();
}

inline plan::PlanOptions plan_options(int64_t tokens, int64_t pages = 8) {
  plan::PlanOptions options;
  options.max_tokens = tokens;
  options.max_outputs = tokens;
  options.max_sequences = 2;
  options.max_pages_per_sequence = pages;
  options.max_context = pages * 16;
  return options;
}

inline std::unique_ptr<plan::Plan> make_plan(const graph::Graph& graph, Device& device,
                                             parallel::ThreadTeam& team,
                                             const plan::PlanOptions& options) {
  auto plan = plan::Plan::build(graph, device, team, options);
  ASSERT_OK(plan);
  return std::move(plan).value();
}

// The KV cache of one or more sequences: pages are handed out backwards, so that neighbours in a
// sequence are not neighbours in memory.
class Cache {
 public:
  static constexpr int32_t kPageTokens = 16;

  Cache(plan::Plan& plan, int32_t pages, DType dtype = DType::kF32) {
    const size_t bytes = static_cast<size_t>(pages) *
                         static_cast<size_t>(plan.kv_heads() * plan.head_dim()) * kPageTokens *
                         (dtype == DType::kF32 ? 4 : 2);
    memory_.resize(static_cast<size_t>(plan.kv_layers()) * 2);
    std::vector<ops::KvLayer> layers;
    for (int32_t l = 0; l < plan.kv_layers(); ++l) {
      auto& k = memory_[static_cast<size_t>(2 * l)];
      auto& v = memory_[static_cast<size_t>(2 * l + 1)];
      k.resize(bytes / sizeof(float));
      v.resize(bytes / sizeof(float));
      layers.push_back({reinterpret_cast<std::byte*>(k.data()),
                        reinterpret_cast<std::byte*>(v.data()), dtype, kPageTokens, plan.kv_heads(),
                        plan.head_dim()});
    }
    ASSERT_OK(plan.bind_kv(layers));
    for (int32_t p = pages; p-- > 0;) free_.push_back(p);
  }

  // The page that holds this position of a sequence with these pages; grows the list.
  int32_t slot(std::vector<int32_t>* pages, int32_t position) {
    while (static_cast<int32_t>(pages->size()) * kPageTokens <= position) {
      pages->push_back(free_.front());
      free_.erase(free_.begin());
    }
    return (*pages)[static_cast<size_t>(position / kPageTokens)] * kPageTokens +
           position % kPageTokens;
  }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<int32_t> free_;
};

// One sequence that grows.
struct Sequence {
  std::vector<int32_t> pages;
  int32_t length = 0;
};

// One step: the next tokens of each sequence; logits of all of them, or of the last of each.
inline std::vector<float> step(plan::Plan& plan, parallel::ThreadTeam& team, Cache& cache,
                               int64_t max_pages, int64_t vocab,
                               const std::vector<std::pair<Sequence*, std::vector<int32_t>>>& batch,
                               bool all_rows = true) {
  auto* ids = plan.input<int32_t>("token_ids");
  auto* positions = plan.input<int32_t>("positions");
  auto* sequence_index = plan.input<int32_t>("sequence_index");
  auto* slots = plan.input<int32_t>("kv_slots");
  auto* tables = plan.input<int32_t>("block_tables");
  auto* rows = plan.input<int32_t>("output_rows");
  int32_t t = 0, outputs = 0, s = 0;
  for (const auto& [sequence, tokens] : batch) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids[t] = tokens[i];
      positions[t] = sequence->length;
      sequence_index[t] = s;
      slots[t] = cache.slot(&sequence->pages, sequence->length++);
      if (all_rows || i + 1 == tokens.size()) rows[outputs++] = t;
      ++t;
    }
    std::copy(sequence->pages.begin(), sequence->pages.end(), tables + s * max_pages);
    ++s;
  }
  plan.set_symbol("tokens", t);
  plan.set_symbol("outputs", outputs);
  plan.set_symbol("sequences", s);
  EXPECT(plan.run(team).ok());
  const float* logits = plan.output("logits");
  return std::vector<float>(logits, logits + outputs * vocab);
}

// Logits of every token of `tokens`, run in chunks of at most `chunk`.
inline std::vector<float> score(plan::Plan& plan, parallel::ThreadTeam& team, int64_t max_pages,
                                int64_t vocab, const std::vector<int32_t>& tokens, size_t chunk,
                                DType kv = DType::kF32) {
  Cache cache(plan, static_cast<int32_t>(max_pages), kv);
  Sequence sequence;
  std::vector<float> out;
  for (size_t i = 0; i < tokens.size(); i += chunk) {
    const size_t end = std::min(tokens.size(), i + chunk);
    const std::vector<int32_t> part(tokens.begin() + static_cast<ptrdiff_t>(i),
                                    tokens.begin() + static_cast<ptrdiff_t>(end));
    const std::vector<float> rows = step(plan, team, cache, max_pages, vocab, {{&sequence, part}});
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

}  // namespace plan_test
