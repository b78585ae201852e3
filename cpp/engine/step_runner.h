// SPDX-License-Identifier: Apache-2.0
//
// StepRunner: what the engine needs of a model, and all it knows of one: arrays of a step's tokens
// in, rows of logits out, or tokens, where the runner samples as well. plan_runner.h implements it
// over a Plan; tests and the null model implement it without one.
//
// A step is structure-of-arrays. The tokens of one sequence are consecutive rows with ascending
// positions; sequence s of the step has row s of the block tables; output_rows lists the token rows
// whose logits are wanted, ascending. Contract of exactness (DESIGN section 7): the logits of a
// token depend on the tokens of its sequence up to it, and on nothing else in the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/sampling.h"
#include "core/status.h"
#include "parallel/thread_team.h"
#include "plan/profile.h"

namespace lmn::engine {

struct StepLimits {
  int32_t tokens = 0;        // rows in one step at most
  int32_t sequences = 0;     // sequences in one step at most
  int32_t outputs = 0;       // logits rows in one step at most
  int32_t table_stride = 0;  // pages per sequence at most: columns of block_tables
  int32_t vocab_size = 0;    // columns of the logits
};

struct StepSizes {
  int32_t tokens = 0;
  int32_t sequences = 0;
  int32_t outputs = 0;
};

// What profiles tell apart: steps in which every sequence has one token, and all others, which hold
// parts of prompts.
enum class StepKind : uint8_t { kDecode, kPrefill };
inline constexpr int kStepKinds = 2;
inline StepKind step_kind(const StepSizes& sizes) {
  return sizes.tokens == sizes.sequences ? StepKind::kDecode : StepKind::kPrefill;
}

// Arrays the engine fills before each run; they belong to the runner and never move.
struct StepInputs {
  int32_t* token_ids = nullptr;       // [tokens]
  int32_t* positions = nullptr;       // [tokens]
  int32_t* sequence_index = nullptr;  // [tokens]
  int32_t* kv_slots = nullptr;        // [tokens] page * page_tokens + offset in the page
  int32_t* block_tables = nullptr;    // [sequences, table_stride]
  int32_t* output_rows = nullptr;     // [outputs]
};

struct KvShape {
  int32_t layers = 0;  // 0: the model keeps no cache
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

// Memory of one layer, laid out as ops::KvLayer says: page numbers in block_tables and kv_slots are
// places behind k and v. The arrays of layers interleave. Belongs to the KvCache.
struct KvLayerMemory {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};
struct KvBinding {
  std::span<const KvLayerMemory> layers;
  DType dtype = DType::kF16;
  int32_t page_tokens = 0;
};

// What is wanted of a step's rows of logits.
struct StepSampling {
  // A token each; a row may stand here several times (the samples of one prompt), and so there may
  // be more than StepLimits::outputs.
  std::span<const SampleRow> samples;
  // Rows of logits that the engine looks at itself, ascending.
  std::span<const int32_t> host_rows;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  virtual StepLimits limits() const = 0;
  virtual KvShape kv_shape() const = 0;
  virtual StepInputs inputs() = 0;
  // Once, before the first run. The memory outlives the runner's last run.
  virtual Status bind_kv(const KvBinding& kv) = 0;
  // Runs on the engine thread, which is member 0 of the team. Logits float32 [outputs, vocab_size],
  // valid until the next run. Allocates nothing in steady state.
  virtual Result<const float*> run(const StepSizes& sizes, parallel::ThreadTeam& team) = 0;

  // Whether logits stay where they are computed and tokens are sampled there: then run_sampling()
  // is called in place of run(). Constant.
  virtual bool samples() const { return false; }
  // As run(), and then choices[i] for samples[i]: the token that Sampler::sample (sampler.h)
  // chooses from that row.
  virtual Status run_sampling(const StepSizes&, const StepSampling&, std::span<SampleChoice>,
                              parallel::ThreadTeam&) {
    return error(Code::kUnsupported, "this runner samples nothing");
  }
  // A row that host_rows had, [vocab_size], valid until the next run.
  virtual const float* logits(int32_t) const { return nullptr; }

  // Before the first run: keep a profile of each kind of step. Without, and for a runner without
  // parts, profile() is empty.
  virtual void keep_profiles() {}
  // Any thread, also beside a run. Names live as long as the runner.
  virtual std::vector<plan::ProfileEntry> profile(StepKind) const { return {}; }
};

}  // namespace lmn::engine
