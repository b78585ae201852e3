// SPDX-License-Identifier: Apache-2.0
//
// DeviceRunner: a StepRunner over a Plan on a device whose work is queued (core/device.h). A step
// is queued whole, and waited for once.
//
// Steps in which every sequence has one token are recorded and replayed, which costs the host one
// launch instead of hundreds. A recording is for a number of rows and a length of context; a step
// takes the next larger one, and its rows beyond the step's stand for no token: slot and position
// are -1 (cuda/kernels/launchers.h), which changes no other row. Where there is a recording for a
// context up to kSpareContext times as long, that one serves: it costs a step little more, and a
// batch whose longest request comes and goes makes no new ones. The one that was used last the
// longest ago goes when there are too many.
#pragma once

#include <memory>

#include "core/status.h"
#include "engine/step_runner.h"
#include "plan/plan.h"

namespace lmn::engine {

inline constexpr int64_t kSpareContext = 4;
// Rows of the recording that a step of so many takes, at most `most`.
int32_t recorded_rows(int32_t rows, int32_t most);
// The context of the recording that serves one of so many tokens.
int64_t recorded_context(int64_t context);

struct DeviceRunnerCounters {
  int64_t recorded = 0;  // recordings made
  int64_t replayed = 0;  // steps that were replays
  int64_t queued = 0;    // steps that were not
};

class DeviceRunner : public StepRunner {
 public:
  virtual const DeviceRunnerCounters& counters() const = 0;  // of the engine thread
};

// As make_plan_runner (plan_runner.h); the plan has a stream.
Result<std::unique_ptr<DeviceRunner>> make_device_runner(std::unique_ptr<plan::Plan> plan,
                                                         const StepLimits& limits);

}  // namespace lmn::engine
