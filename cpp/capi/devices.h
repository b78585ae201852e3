// SPDX-License-Identifier: Apache-2.0
//
// Devices by name: the one place that knows which kinds this library was built with.
#pragma once

#include <memory>
#include <string_view>

#include "core/device.h"
#include "core/status.h"

namespace lmn::capi {

// "cpu": the CPU device. "cuda", "cuda:N": the first, or the N-th CUDA device from 0.
// INVALID_ARGUMENT for another name; UNSUPPORTED where the library or the machine lacks it, with
// the reason.
Result<std::unique_ptr<Device>> open_device(std::string_view name);

// Kinds compiled in, separated by commas; static storage.
const char* backends();

}  // namespace lmn::capi
