// SPDX-License-Identifier: Apache-2.0
//
// Every CPU target that this machine has.
#include <memory>

#include "conformance.h"
#include "cpu/cpu_device.h"

namespace conformance {

std::vector<Target> targets() {
  static std::vector<std::unique_ptr<lmn::Device>> devices;
  std::vector<Target> out;
  // The best first: the emulations come last, and have most kernels from others.
  const std::vector<std::string_view> names = lmn::cpu::available_targets();
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    devices.push_back(*lmn::cpu::create_cpu_device(*name));
    out.push_back({std::string(*name), devices.back()->kernels()});
  }
  return out;
}

std::string synchronize() { return ""; }

}  // namespace conformance
