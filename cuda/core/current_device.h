// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lmn::cuda {

class Context;  // cuda_context.h

// Makes a device's context the calling thread's for a scope. Where it is so already, that is one
// look. Without CUDA's headers, for those who do without them.
class CurrentDevice {
 public:
  explicit CurrentDevice(const Context& context);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;

 private:
  const Context& context_;
  const bool pushed_;
};

}  // namespace lmn::cuda
