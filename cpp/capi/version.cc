// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/version.h. LMN_PACKAGE_VERSION and LMN_BUILD_TYPE come from
// cmake/library.cmake.
#include "lmnative/version.h"

#include <algorithm>
#include <string>
#include <vector>

#include "capi/devices.h"
#include "capi/options.h"
#include "core/check.h"
#include "cpu/cpu_device.h"
#include "parallel/cpu_topology.h"

#if defined(__clang__)
#define LMN_COMPILER "clang " __clang_version__
#else
#define LMN_COMPILER "gcc " __VERSION__
#endif

namespace lmn::capi {
namespace {

std::string join(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) out.append(out.empty() ? "" : ",").append(name);
  return out;
}

// The name of the kernels in use, with static storage: one of known_targets().
Result<const char*> cpu_target() {
  LMN_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, cpu::create_cpu_device(""));
  static const std::vector<std::string_view> known = cpu::known_targets();
  const auto found = std::find(known.begin(), known.end(), device->target());
  LMN_CHECK(found != known.end());
  return found->data();
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

uint32_t lmn_abi_version(void) { return LMN_ABI_VERSION; }

const char* lmn_version(void) { return LMN_PACKAGE_VERSION; }

lmn_status lmn_build_info_get(lmn_build_info* info, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_build_info"));
    static const std::string targets = join(cpu::available_targets());
    lmn_build_info out{};
    out.abi_version = LMN_ABI_VERSION;
    out.version = LMN_PACKAGE_VERSION;
    out.compiler = LMN_COMPILER;
    out.build_type = LMN_BUILD_TYPE;
    out.backends = backends();
    LMN_ASSIGN_OR_RETURN(out.cpu_target, cpu_target());
    out.cpu_targets = targets.c_str();
    out.cpu_threads = static_cast<uint32_t>(parallel::default_thread_count());
    write_output(out, info);
    return {};
  });
}

}  // extern "C"
