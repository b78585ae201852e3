// SPDX-License-Identifier: Apache-2.0
//
// From a model file to a running engine: formats -> models -> graph passes -> plan on a device,
// with a thread team, a KV cache and a ledger. The one place that knows all of these parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "capi/model_object.h"
#include "capi/progress.h"
#include "core/status.h"
#include "engine/engine.h"
#include "memory/ledger.h"

namespace lmn::capi {

struct BuildOptions {
  std::string device = "cpu";        // open_device()'s
  int32_t threads = 0;               // 0: default_thread_count()
  int32_t context_tokens = 0;        // 0: the model's
  int32_t max_sequences = 0;         // 0: kDefaultSequences
  int32_t prefill_chunk_tokens = 0;  // 0: kDefaultPrefillChunk
  // 16: every product takes 16-bit activations; 8: those that the model asks it for; 0: 8 on the
  // CPU, 16 elsewhere, where they cost little.
  int32_t activation_bits = 0;
  engine::EngineOptions engine;  // all other fields of it, as given; 0: its defaults
};

// Sequences that run at once.
inline constexpr int32_t kDefaultSequences = 64;
inline constexpr int32_t kMaxSequences = 16384;
// Of them in one step. More still raise the throughput of a large model, but not much, and each
// costs a row of logits and a row of the block tables.
inline constexpr int32_t kMaxStepSequences = 1024;

// A longer chunk no longer makes a matrix product faster on a CPU: its weights were read once for
// all rows already.
inline constexpr int32_t kDefaultPrefillChunk = 512;
inline constexpr int32_t kMaxPrefillChunk = 4096;

// Copies share the engine, which ends with the last of them.
struct BuiltEngine {
  std::shared_ptr<const Model> model;
  std::shared_ptr<engine::Engine> object;
  std::shared_ptr<memory::Ledger> ledger;  // the engine's
  // Null when the model's tokenizer is one this version does not know; then `tokenizer_error` says
  // so.
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Status tokenizer_error;
  int64_t load_ns = 0;
  int32_t queue_capacity = 0;
  int32_t max_sequences = 0;
  int32_t layers = 0, device_layers = 0;  // of the model; those on its device
};

// Progress is stepped on the calling thread.
Result<BuiltEngine> build_engine(std::shared_ptr<const Model> model, const BuildOptions& options,
                                 Progress& progress);

}  // namespace lmn::capi
