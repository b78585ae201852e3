// SPDX-License-Identifier: Apache-2.0
#include "capi/devices.h"

#include <charconv>
#include <string>

#include "cpu/cpu_device.h"
#if defined(LMN_HAS_CUDA)
#include "cuda/core/cuda_device.h"
#endif

namespace lmn::capi {
namespace {

constexpr std::string_view kCuda = "cuda";

// N of "cuda:N"; negative: it is no such name.
int cuda_ordinal(std::string_view name) {
  if (name == kCuda) return 0;
  if (!name.starts_with("cuda:")) return -1;
  const std::string_view digits = name.substr(kCuda.size() + 1);
  int ordinal = -1;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  return failure == std::errc() && end == digits.data() + digits.size() ? ordinal : -1;
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(std::string_view name) {
  if (name == "cpu") return cpu::create_cpu_device("");
  const int ordinal = cuda_ordinal(name);
  if (ordinal < 0) {
    return error(Code::kInvalidArgument, "device is \"%s\"; it is cpu, cuda or cuda:N",
                 std::string(name).c_str());
  }
#if defined(LMN_HAS_CUDA)
  return cuda::create_cuda_device(ordinal);
#else
  return error(
      Code::kUnsupported,
      "device cuda:%d: this library was built without CUDA; build it with a CUDA toolkit of "
      "12.4 or newer (pip install . --config-settings=cmake.define.LMN_CUDA=ON, or cmake "
      "-DLMN_CUDA=ON), or use device \"cpu\"",
      ordinal);
#endif
}

const char* backends() {
#if defined(LMN_HAS_CUDA)
  return "cpu,cuda";
#else
  return "cpu";
#endif
}

}  // namespace lmn::capi
