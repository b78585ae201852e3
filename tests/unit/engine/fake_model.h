// SPDX-License-Identifier: Apache-2.0
//
// FakeRunner: a model that is a hash function. The state after a token is a hash of the state
// before it and the token, kept in the KV pages at the token's slot and found again through the
// block table, so a wrong page, slot, position or order shows as other tokens. Logits are hashes of
// the state. reference_* compute the same from the tokens alone. It samples as well, where it is
// told to: then the engine gets the rows of logits that it asked for, and no others.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/sampler.h"
#include "engine/step_runner.h"
#include "memory/os_block.h"
#include "testing.h"

namespace lmn::engine {

inline constexpr int32_t kFakeVocab = 64;

inline uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
inline uint64_t next_state(uint64_t state, int32_t token) {
  return mix(state + 0x9E3779B97F4A7C15u * (uint64_t(token) + 1));
}
inline float fake_logit(uint64_t state, int32_t i) {
  return static_cast<float>(mix(state ^ (uint64_t(i) << 32)) >> 40) * 0x1p-21F - 4;  // [-4, 4)
}
inline std::vector<float> reference_logits(const std::vector<int32_t>& tokens,
                                           int32_t vocab = kFakeVocab) {
  uint64_t state = 0;
  for (const int32_t token : tokens) state = next_state(state, token);
  std::vector<float> row;
  for (int32_t i = 0; i < vocab; ++i) row.push_back(fake_logit(state, i));
  return row;
}
inline std::vector<int32_t> reference_greedy(std::vector<int32_t> tokens, int32_t count,
                                             int32_t vocab = kFakeVocab) {
  std::vector<int32_t> out;
  for (int32_t n = 0; n < count; ++n) {
    const auto row = reference_logits(tokens, vocab);
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; ++i) {
      if (row[size_t(i)] > row[size_t(best)]) best = i;
    }
    out.push_back(best);
    tokens.push_back(best);
  }
  return out;
}

class FakeDevice : public Device {
 public:
  std::string name() const override { return "fake"; }
  std::string target() const override { return "none"; }
  Result<std::byte*> allocate(size_t bytes) override {
    auto* data = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    if (data == nullptr) return error(Code::kOutOfMemory, "fake device: no %zu bytes", bytes);
    std::memset(data, 0, bytes);
    allocated += static_cast<int64_t>(bytes);
    last = {data, bytes};
    return data;
  }
  void release(std::byte* data, size_t bytes) override {
    std::free(data);
    allocated -= static_cast<int64_t>(bytes);
  }
  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    if (copies_fail.load()) return error(Code::kIo, "fake device: no copies");
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
  const ops::KernelTable& kernels() const override { std::abort(); }

  int64_t allocated = 0;
  std::atomic<bool> copies_fail{false};
  std::span<const std::byte> last;  // what allocate() gave last: of an engine, the KV region
};

class FakeRunner : public StepRunner {
 public:
  explicit FakeRunner(const StepLimits& limits) : limits_(limits) {
    const auto tokens = size_t(limits.tokens);
    for (auto* array : {&token_ids_, &positions_, &sequence_index_, &kv_slots_})
      array->resize(tokens);
    block_tables_.resize(size_t(limits.sequences) * size_t(limits.table_stride));
    output_rows_.resize(size_t(limits.outputs));
    states_.resize(tokens);
    logits_.resize(size_t(limits.outputs) * size_t(limits.vocab_size));
  }

  // Test controls, set before the engine is made.
  std::function<void(const StepSizes&)> on_step;  // on the engine thread, before the step
  int32_t nan_after =
      -1;  // token after which all logits are NaN (and the cache holds a broken state)
  int32_t error_after = -1;  // token that makes run() return an error
  int32_t throw_after = -1;  // token that makes a worker throw BrokenInvariant
  bool sampling = false;     // it is the runner that samples

  // Of a sampling one, over all steps.
  std::atomic<int64_t> sampled_rows{0}, host_rows{0};

  StepLimits limits() const override { return limits_; }
  KvShape kv_shape() const override {
    return {1, 1, 4};
  }  // 4 f16 per token and array: room for one 64-bit state
  StepInputs inputs() override {
    return {token_ids_.data(), positions_.data(),    sequence_index_.data(),
            kv_slots_.data(),  block_tables_.data(), output_rows_.data()};
  }
  Status bind_kv(const KvBinding& kv) override {
    k_ = kv.layers[0].k;
    page_tokens_ = kv.page_tokens;
    return {};
  }

  Result<const float*> run(const StepSizes& sizes, parallel::ThreadTeam& team) override {
    if (on_step) on_step(sizes);
    for (int32_t t = 0; t < sizes.tokens; ++t) {
      if (token_ids_[size_t(t)] == error_after) return error(Code::kIo, "fake device lost");
    }
    team.run([&](int index) {
      if (index == 0) compute_states(sizes);
      team.barrier(index);
      const int64_t total = int64_t{sizes.outputs} * limits_.vocab_size, members = team.size();
      for (int64_t i = total * index / members; i < total * (index + 1) / members; ++i)
        write_logit(i);
      for (int32_t t = 0; t < sizes.tokens; ++t) {
        if (token_ids_[size_t(t)] == throw_after && index == team.size() - 1)
          throw BrokenInvariant("fake kernel broke");
      }
      team.barrier(index);
    });
    return logits_.data();
  }

  bool samples() const override { return sampling; }
  Status run_sampling(const StepSizes& sizes, const StepSampling& wanted,
                      std::span<SampleChoice> choices, parallel::ThreadTeam& team) override {
    if (const auto ran = run(sizes, team); !ran.ok()) return ran.status();
    const auto vocab = size_t(limits_.vocab_size);
    ASSERT(choices.size() == wanted.samples.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      const int32_t row = wanted.samples[i].row;
      ASSERT(row >= 0 && row < sizes.outputs);
      choices[i] =
          sampler_.sample({logits_.data() + size_t(row) * vocab, vocab}, wanted.samples[i]);
    }
    fetched_.assign(logits_.size(), std::numeric_limits<float>::quiet_NaN());
    for (const int32_t row : wanted.host_rows) {
      std::copy_n(logits_.begin() + ptrdiff_t(size_t(row) * vocab), vocab,
                  fetched_.begin() + ptrdiff_t(size_t(row) * vocab));
    }
    sampled_rows += int64_t(choices.size());
    host_rows += int64_t(wanted.host_rows.size());
    return {};
  }
  const float* logits(int32_t row) const override {
    return fetched_.data() + size_t(row) * size_t(limits_.vocab_size);
  }

 private:
  // The place of a position's state, found as a kernel finds it: through the block table.
  std::byte* place(int32_t sequence, int32_t position) const {
    const int32_t page = block_tables_[size_t(sequence) * size_t(limits_.table_stride) +
                                       size_t(position / page_tokens_)];
    return k_ + (int64_t{page} * page_tokens_ + position % page_tokens_) * 8;
  }
  void compute_states(const StepSizes& sizes) {
    for (int32_t t = 0; t < sizes.tokens; ++t) {
      const int32_t sequence = sequence_index_[size_t(t)], position = positions_[size_t(t)];
      LMN_CHECK(sequence >= 0 && sequence < sizes.sequences);
      uint64_t state = 0;
      if (position > 0) std::memcpy(&state, place(sequence, position - 1), 8);
      state = next_state(state, token_ids_[size_t(t)]);
      std::memcpy(k_ + int64_t{kv_slots_[size_t(t)]} * 8, &state, 8);
      states_[size_t(t)] = state;
    }
  }
  void write_logit(int64_t i) {
    const int32_t row = output_rows_[size_t(i / limits_.vocab_size)];
    const bool nan = nan_after >= 0 && token_ids_[size_t(row)] == nan_after;
    logits_[size_t(i)] =
        nan ? std::numeric_limits<float>::quiet_NaN()
            : fake_logit(states_[size_t(row)], static_cast<int32_t>(i % limits_.vocab_size));
  }

  const StepLimits limits_;
  std::vector<int32_t> token_ids_, positions_, sequence_index_, kv_slots_, block_tables_,
      output_rows_;
  std::vector<uint64_t> states_;
  std::vector<float> logits_, fetched_;
  memory::Ledger ledger_;
  Sampler sampler_{limits_.vocab_size, ledger_};
  std::byte* k_ = nullptr;
  int32_t page_tokens_ = 0;
};

struct FakeSetup {
  int threads = 1;
  int32_t sequences = 1;
  int32_t tokens = 64;   // of a step
  int32_t outputs = 16;  // of a step
  int32_t context = 256;
  int64_t kv_tokens = 0;
  int32_t chunk = 0;
  int32_t queue = 0;
  bool prefix_cache = true;
  int32_t vocab = kFakeVocab;
  const text::Tokenizer* tokenizer = nullptr;
  std::function<void(FakeRunner&)> adjust;
  std::function<void(EngineOptions&)> options;
};

class FakeEngine {
 public:
  explicit FakeEngine(const FakeSetup& setup) {
    const StepLimits limits{setup.tokens, setup.sequences, setup.outputs,
                            static_cast<int32_t>(kv_pages(setup.context)), setup.vocab};
    auto runner = std::make_unique<FakeRunner>(limits);
    if (setup.adjust) setup.adjust(*runner);
    EngineParts parts;
    parts.runner = std::move(runner);
    auto team = parallel::ThreadTeam::create({setup.threads, 0});
    ASSERT_OK(team);
    parts.team = std::move(team).value();
    parts.kv_parts = {{&device, parts.runner->kv_shape().layers}};
    parts.tokenizer = setup.tokenizer;
    parts.ledger = ledger;
    EngineOptions options;
    options.context_tokens = setup.context;
    options.kv_tokens = setup.kv_tokens;
    options.prefill_chunk_tokens = setup.chunk;
    options.queue_capacity = setup.queue;
    options.prefix_cache = setup.prefix_cache;
    if (setup.options) setup.options(options);
    auto made = Engine::create(std::move(parts), options);
    ASSERT_OK(made);
    engine = std::move(made).value();
  }
  Engine* operator->() { return engine.get(); }

  FakeDevice device;
  std::shared_ptr<memory::Ledger> ledger = std::make_shared<memory::Ledger>();
  std::unique_ptr<Engine> engine;
};

inline RequestOptions greedy(std::vector<int32_t> prompt, int32_t max_tokens) {
  RequestOptions options;
  options.prompt = std::move(prompt);
  options.max_tokens = max_tokens;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  return options;
}

inline Result<std::shared_ptr<Request>> submit(Engine& engine, RequestOptions options) {
  std::shared_ptr<Request> request;
  LMN_RETURN_IF_ERROR(engine.submit(std::move(options), &request));
  return request;
}

inline std::shared_ptr<Request> must_submit(Engine& engine, RequestOptions options) {
  auto request = submit(engine, std::move(options));
  ASSERT_OK(request);
  return *request;
}

inline int64_t rejected_in(const EngineStats& stats) {
  int64_t sum = 0;
  for (const int64_t count : stats.rejected) sum += count;
  return sum;
}

// Everything a request delivers, joined.
struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kNone;
  int32_t stop_index = -1;
  Status status;
};
// ns. What takes longer hangs; a machine of tests may give a process a tenth of a core.
constexpr int64_t kHangs = 120'000'000'000;

inline Answer collect(Request& request) {
  Answer answer;
  for (;;) {
    Chunk chunk;
    answer.status = request.next(kHangs, &chunk);
    if (!answer.status.ok()) return answer;
    answer.tokens.insert(answer.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    answer.logprobs.insert(answer.logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    answer.text += chunk.text;
    answer.reason = chunk.finish_reason;
    answer.stop_index = chunk.stop_index;
    if (answer.reason != FinishReason::kNone) return answer;
  }
}

inline std::vector<int32_t> some_prompt(uint64_t seed, int32_t tokens, int32_t vocab = kFakeVocab) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < tokens; ++i)
    prompt.push_back(static_cast<int32_t>(mix(seed * 1000003 + uint64_t(i)) % uint64_t(vocab)));
  return prompt;
}

}  // namespace lmn::engine
