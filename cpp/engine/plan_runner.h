// SPDX-License-Identifier: Apache-2.0
//
// PlanRunner: a StepRunner over a Plan whose graph has the inputs token_ids, positions,
// sequence_index, kv_slots, block_tables and output_rows, the symbols tokens, sequences and
// outputs, and the output logits (models/ builds such).
#pragma once

#include <memory>
#include <vector>

#include "core/status.h"
#include "engine/step_runner.h"
#include "plan/plan.h"

namespace lmn::engine {

// `limits` are the bounds the plan was built with: tokens = max_tokens, sequences = max_sequences,
// outputs = max_outputs, table_stride = max_pages_per_sequence (kv_pages() of the context length),
// vocab_size = columns of the logits. INVALID_ARGUMENT names an input or output the plan lacks.
Result<std::unique_ptr<StepRunner>> make_plan_runner(std::unique_ptr<plan::Plan> plan,
                                                     const StepLimits& limits);

// What runners over plans share. The errors are make_plan_runner's.
Result<StepInputs> step_inputs_of(plan::Plan& plan);
Status check_logits(const plan::Plan& plan);
KvShape kv_shape_of(const plan::Plan& plan);
std::vector<ops::KvLayer> kv_layers_of(const plan::Plan& plan, const KvBinding& kv);

}  // namespace lmn::engine
