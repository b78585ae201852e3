// SPDX-License-Identifier: Apache-2.0
#include "engine/null_runner.h"

#include <algorithm>
#include <new>
#include <vector>

#include "parallel/clock.h"

namespace lmn::engine {
namespace {

// int32 values of StepInputs: four arrays of tokens, the block tables, the output rows.
int64_t input_values(const StepLimits& limits) {
  return int64_t{4} * limits.tokens + int64_t{limits.sequences} * limits.table_stride +
         limits.outputs;
}

int64_t logit_values(const StepLimits& limits) {
  return int64_t{limits.outputs} * limits.vocab_size;
}

class NullRunner final : public StepRunner {
 public:
  explicit NullRunner(const NullRunnerOptions& options)
      : options_(options),
        inputs_(static_cast<size_t>(input_values(options.limits))),
        logits_(static_cast<size_t>(logit_values(options.limits))) {
    const auto vocab = options.limits.vocab_size;
    for (int32_t id = 0; id < vocab; ++id) {
      logits_[static_cast<size_t>(id)] = null_logit(id, options.likeliest_token);
    }
    for (int32_t row = 1; row < options.limits.outputs; ++row) {
      std::copy_n(logits_.begin(), vocab, logits_.begin() + int64_t{row} * vocab);
    }
  }

  StepLimits limits() const override { return options_.limits; }
  KvShape kv_shape() const override { return {}; }
  StepInputs inputs() override {
    int32_t* at = inputs_.data();
    const auto take = [&](int64_t count) {
      int32_t* const array = at;
      at += count;
      return array;
    };
    const StepLimits& limits = options_.limits;
    StepInputs out;
    out.token_ids = take(limits.tokens);
    out.positions = take(limits.tokens);
    out.sequence_index = take(limits.tokens);
    out.kv_slots = take(limits.tokens);
    out.block_tables = take(int64_t{limits.sequences} * limits.table_stride);
    out.output_rows = take(limits.outputs);
    return out;
  }
  Status bind_kv(const KvBinding&) override { return {}; }

  Result<const float*> run(const StepSizes& sizes, parallel::ThreadTeam&) override {
    const int64_t work_ns = options_.step_ns + options_.token_ns * sizes.tokens;
    if (work_ns > 0) {
      const int64_t end = parallel::now_ns() + work_ns;
      while (parallel::now_ns() < end) parallel::cpu_pause();
    }
    return logits_.data();
  }

 private:
  NullRunnerOptions options_;
  std::vector<int32_t> inputs_;
  std::vector<float> logits_;  // [outputs, vocab]
};

}  // namespace

float null_logit(int32_t id, int32_t likeliest) {
  if (id == likeliest) return 4;
  // The finaliser of SplitMix64: neighbours get unrelated values.
  uint64_t hash = static_cast<uint64_t>(id) + 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  hash ^= hash >> 31;
  // 24 bits, so that the float is exact and below 4.
  return static_cast<float>(hash >> 40) * (8.0f / (1 << 24)) - 4.0f;
}

int64_t null_runner_bytes(const StepLimits& limits) {
  return input_values(limits) * int64_t{sizeof(int32_t)} +
         logit_values(limits) * int64_t{sizeof(float)};
}

Result<std::unique_ptr<StepRunner>> make_null_runner(const NullRunnerOptions& options) {
  try {
    return std::unique_ptr<StepRunner>(std::make_unique<NullRunner>(options));
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "no memory for the null model's %lld bytes of logits",
                 static_cast<long long>(null_runner_bytes(options.limits)));
  }
}

}  // namespace lmn::engine
