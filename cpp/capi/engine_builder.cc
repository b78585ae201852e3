// SPDX-License-Identifier: Apache-2.0
#include "capi/engine_builder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "capi/available_memory.h"
#include "cpu/cpu_device.h"
#include "engine/kv_cache.h"
#include "engine/plan_runner.h"
#include "graph/passes/passes.h"
#include "models/model.h"
#include "ops/kernel.h"
#include "parallel/os_thread.h"
#include "parallel/thread_team.h"
#include "plan/plan.h"

namespace lmn::capi {
namespace {

// Logits rows of one step. A score of n tokens takes n / kMaxOutputs steps at least; more rows
// would not make a step of a matrix product cheaper per row, and each costs a row of the vocabulary
// in the arena.
constexpr int32_t kMaxOutputs = 64;
// The engine runs one sequence at a time.
constexpr int32_t kMaxSequences = 1;

// What the engine points into; released after everything else of it. The ledger outlives its
// entries.
struct KeepAlive {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<Device> device;
  std::shared_ptr<memory::Ledger> ledger;
  std::vector<memory::LedgerEntry> entries;

  void record(memory::Owner owner, int64_t bytes) {
    entries.emplace_back(ledger.get(), owner, bytes);
  }
};

// Builds the model's tokenizer beside the packing of weights. What it makes is cached in the Model.
class TokenizerTask {
 public:
  explicit TokenizerTask(const Model* model) {  // which outlives the task
    Result<parallel::OsThread> thread =
        parallel::OsThread::start("lmn-tokenizer", build, const_cast<Model*>(model));
    // No thread to be had: built by the first caller of tokenizer().
    if (thread.ok()) thread_ = std::move(thread).value();
  }
  void join() { thread_.join(); }

 private:
  static void build(void* model) {
    try {
      (void)static_cast<const Model*>(model)->tokenizer();
    } catch (...) {  // out of memory: the caller of tokenizer() meets it again
    }
  }

  parallel::OsThread thread_;
};

// Where in which file the bytes of a view lie; they may be dropped once they are packed.
void give_back(const formats::GgufModel& file, const TensorView& view) {
  for (const auto& part : file.files()) {
    const std::span<const std::byte> bytes = part->bytes();
    if (view.data >= bytes.data() && view.data < bytes.data() + bytes.size()) {
      part->advise_dont_need(static_cast<uint64_t>(view.data - bytes.data()),
                             static_cast<uint64_t>(view.bytes()));
      return;
    }
  }
}

Status cancelled() {
  return error(Code::kCancelled, "lmn_engine_create was stopped by its progress callback");
}

Result<int32_t> choose_context(const models::LanguageModelConfig& config, int32_t wanted) {
  const int64_t most = std::min<int64_t>(config.context_length, INT32_MAX);
  if (wanted > most) {
    return error(Code::kInvalidArgument,
                 "context_tokens is %d; the model was made for %lld at most", wanted,
                 static_cast<long long>(most));
  }
  return static_cast<int32_t>(wanted == 0 ? most : wanted);
}

Result<std::unique_ptr<plan::Plan>> build_plan(const Model& model, graph::Graph graph,
                                               Device& device, parallel::ThreadTeam& team,
                                               const engine::StepLimits& limits, int64_t kv_tokens,
                                               int64_t kv_bytes, Progress& progress) {
  graph::PassOptions passes;
  passes.linear_input_type = device.kernels().linear_input_type;
  LMN_ASSIGN_OR_RETURN(graph::Graph optimized, graph::optimize(std::move(graph), passes));
  plan::PlanOptions options;
  options.max_tokens = limits.tokens;
  options.max_outputs = limits.outputs;
  options.max_sequences = limits.sequences;
  options.max_pages_per_sequence = limits.table_stride;
  options.before_allocation = [&](int64_t packed, int64_t arena) -> Status {
    char what[160];
    std::snprintf(what, sizeof(what),
                  "lmn_engine_create (%.1f MiB of weights, %.1f MiB of activations, %.1f MiB of KV "
                  "cache for %lld tokens)",
                  mebibytes(packed), mebibytes(arena), mebibytes(kv_bytes),
                  static_cast<long long>(kv_tokens));
    return check_fits(packed + arena + kv_bytes, what, "lower kv_tokens or context_tokens");
  };
  options.before_read = [&](const TensorView&) -> Status {
    if (progress.stopped()) return cancelled();
    return model.file().check_unchanged();
  };
  options.after_read = [&](const TensorView& view) { give_back(model.file(), view); };
  options.progress = [&](int64_t done, int64_t total) {
    (void)progress.step("packing weights", static_cast<uint64_t>(done),
                        static_cast<uint64_t>(total));
  };
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> plan,
                       plan::Plan::build(std::move(optimized), device, team, options));
  if (progress.stopped()) return cancelled();
  return plan;
}

}  // namespace

Result<BuiltEngine> build_engine(std::shared_ptr<const Model> model, const BuildOptions& options,
                                 Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  const formats::GgufModel& file = model->file();
  LMN_RETURN_IF_ERROR(file.check_unchanged());  // before anybody reads from the mapping
  TokenizerTask tokenizer_task(model.get());
  LMN_ASSIGN_OR_RETURN(models::LanguageModel language, models::build(file, file.owner()));

  auto keep = std::make_shared<KeepAlive>();
  keep->model = model;
  keep->ledger = std::make_shared<memory::Ledger>();
  for (const auto& part : file.files()) {
    const bool copied = part->mode() == formats::ReadMode::kCopy;
    keep->record(copied ? memory::Owner::kFileCopy : memory::Owner::kMapped,
                 static_cast<int64_t>(part->bytes().size()));
  }
  LMN_ASSIGN_OR_RETURN(keep->device, cpu::create_cpu_device(""));
  engine::EngineParts parts;
  LMN_ASSIGN_OR_RETURN(parts.team, parallel::ThreadTeam::create({.threads = options.threads}));

  engine::EngineOptions how;
  LMN_ASSIGN_OR_RETURN(how.context_tokens, choose_context(language.config, options.context_tokens));
  how.kv_tokens = options.kv_tokens;
  how.queue_capacity =
      options.queue_capacity == 0 ? engine::kDefaultQueueCapacity : options.queue_capacity;
  how.prefill_chunk_tokens =
      options.prefill_chunk_tokens == 0 ? kDefaultPrefillChunk : options.prefill_chunk_tokens;

  engine::StepLimits limits;
  limits.tokens = how.prefill_chunk_tokens;
  limits.sequences = kMaxSequences;
  limits.outputs = std::min(kMaxOutputs, limits.tokens);
  limits.table_stride = static_cast<int32_t>(engine::kv_pages(how.context_tokens));
  limits.vocab_size = static_cast<int32_t>(language.config.vocab);
  const engine::KvShape kv_shape = {static_cast<int32_t>(language.config.layers),
                                    static_cast<int32_t>(language.config.kv_heads),
                                    static_cast<int32_t>(language.config.head_dim)};
  const int64_t kv_tokens = how.kv_tokens == 0 ? how.context_tokens : how.kv_tokens;
  LMN_ASSIGN_OR_RETURN(const int64_t kv_bytes, engine::kv_bytes(kv_shape, how.kv_dtype, kv_tokens));
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> plan,
                       build_plan(*model, std::move(language.graph), *keep->device, *parts.team,
                                  limits, kv_tokens, kv_bytes, progress));
  keep->record(memory::Owner::kPackedWeights, plan->packed_bytes());
  keep->record(memory::Owner::kArena, plan->arena_bytes());
  LMN_ASSIGN_OR_RETURN(parts.runner, engine::make_plan_runner(std::move(plan), limits));

  BuiltEngine built;
  tokenizer_task.join();
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = model->tokenizer();
  if (tokenizer.ok()) {
    built.tokenizer = std::move(tokenizer).value();
    keep->tokenizer = built.tokenizer;
    keep->record(memory::Owner::kTokenizer, built.tokenizer->memory_bytes());
  } else {  // the engine still takes token ids
    built.tokenizer_error = std::move(tokenizer).status();
  }
  parts.device = keep->device.get();
  parts.tokenizer = built.tokenizer.get();
  parts.ledger = keep->ledger;
  built.ledger = keep->ledger;
  parts.keep_alive = keep;
  LMN_ASSIGN_OR_RETURN(built.object, engine::Engine::create(std::move(parts), how));
  built.model = std::move(model);
  built.queue_capacity = how.queue_capacity;
  built.load_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
  return built;
}

}  // namespace lmn::capi
