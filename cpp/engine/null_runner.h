// SPDX-License-Identifier: Apache-2.0
//
// The null model as a StepRunner: no weights, no KV layers, no arithmetic. Every token gets the
// same row of logits, prepared once, so a step costs what the engine around it costs, plus as long
// as it is asked to spin.
#pragma once

#include <cstdint>
#include <memory>

#include "core/status.h"
#include "engine/step_runner.h"

namespace lmn::engine {

struct NullRunnerOptions {
  StepLimits limits;
  int64_t step_ns = 0;          // a step spins so long,
  int64_t token_ns = 0;         // and so long for each of its tokens
  int32_t likeliest_token = 0;  // has the highest logit
};

// The logit of a token: a hash of its id in [-4, 4), and 4 for the likeliest one.
float null_logit(int32_t id, int32_t likeliest);

// Bytes that the runner holds: logits and a step's arrays.
int64_t null_runner_bytes(const StepLimits& limits);

// OUT_OF_MEMORY names the size.
Result<std::unique_ptr<StepRunner>> make_null_runner(const NullRunnerOptions& options);

}  // namespace lmn::engine
