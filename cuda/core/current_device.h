// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lmn::cuda {

// Makes a device the calling thread's for a scope, and then the one that was.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;

 private:
  int before_ = 0, ordinal_ = 0;
};

}  // namespace lmn::cuda
