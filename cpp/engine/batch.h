// SPDX-License-Identifier: Apache-2.0
//
// Batch: writes a step into the runner's arrays (structure-of-arrays; step_runner.h says what each
// holds).
#pragma once

#include <span>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_runner.h"

namespace lmn::engine {

// Slices count in `members`. Each sequence has pages for its tokens. `page_step`: KvCache's.
StepSizes write_batch(std::span<const Slice> step, std::span<Sequence* const> members,
                      const StepLimits& limits, int32_t page_step, const StepInputs& inputs);

}  // namespace lmn::engine
