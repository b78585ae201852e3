// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device. The driver is reached when a device is created, and not before: a library that
// has this code loads and runs where there is none.
#pragma once

#include <memory>

#include "core/device.h"
#include "core/status.h"

namespace lmn::cuda {

// ordinal: as CUDA counts the devices that it shows to the process, from 0. UNSUPPORTED says what
// lacks: a driver, a device, one that is new enough (sm_80), code for it in this library.
// Memory comes from the device's own stream-ordered pool, which keeps what was freed.
Result<std::unique_ptr<Device>> create_cuda_device(int ordinal);

}  // namespace lmn::cuda
