// SPDX-License-Identifier: Apache-2.0
//
// SplitRunner: a model whose first layers are a plan on the host, and whose rest is another runner,
// on a device that has no room for all. A step runs the head, carries over what the graph's split
// cut (graph/split.h), and runs the rest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "engine/step_runner.h"
#include "plan/plan.h"

namespace lmn::engine {

struct SplitParts {
  std::unique_ptr<plan::Plan> head;  // on the host, built with the same bounds as the rest
  std::unique_ptr<StepRunner> tail;  // its inputs are the model's
  // For each value that crosses: its name as an output of the head, and where the tail wants it.
  struct Crossing {
    std::string name;
    float* to = nullptr;
    int64_t columns = 0;
  };
  std::vector<Crossing> crossing;
};

// INVALID_ARGUMENT names an input or output that the head lacks.
Result<std::unique_ptr<StepRunner>> make_split_runner(SplitParts parts);

}  // namespace lmn::engine
