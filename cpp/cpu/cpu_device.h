// SPDX-License-Identifier: Apache-2.0
//
// The CPU device: host memory in huge pages where the system offers them, and the kernels of one
// instruction set. The set is chosen once, when the device is created; devices of different sets
// may exist side by side (tests do that).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/status.h"

namespace lmn::cpu {

// target: "scalar", "avx2", "avx512" or "amx", on 64-bit ARM "neon", "neon_dotprod" or "neon_i8mm"
// (what this build knows: known_targets(); builds with tests also know the emulations
// "scalar_tiles" and, on x86-64, "amx_emulated"), or "" for the value of the environment variable
// LMN_CPU_TARGET or, where that is unset or empty, the best that this CPU and its operating system
// support. INVALID_ARGUMENT for an unknown name, UNSUPPORTED for one that the CPU lacks; both list
// what would work.
Result<std::unique_ptr<Device>> create_cpu_device(std::string_view target);

// Names of the targets in this build, slowest first; and of those, the ones this machine can run.
std::vector<std::string_view> known_targets();
std::vector<std::string_view> available_targets();

}  // namespace lmn::cpu
