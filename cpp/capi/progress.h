// SPDX-License-Identifier: Apache-2.0
//
// The caller's progress callback, fenced: what it throws (it may be C++ on the other side) counts
// as "stop".
#pragma once

#include <atomic>
#include <cstdint>

#include "lmnative/common.h"

namespace lmn::capi {

class Progress {
 public:
  Progress(lmn_progress_fn function, void* user) : function_(function), user_(user) {}

  explicit operator bool() const { return function_ != nullptr; }
  // `what` has static storage. False: the caller wants to stop, and is not asked again.
  bool step(const char* what, uint64_t done, uint64_t total) noexcept {
    if (function_ == nullptr) return true;
    if (stopped_) return false;
    try {
      stopped_ = function_(user_, what, done, total) != 0;
    } catch (...) {
      stopped_ = true;
    }
    return !stopped_;
  }
  bool stopped() const { return stopped_; }  // any thread; step() is the owner's

 private:
  lmn_progress_fn function_;
  void* user_;
  std::atomic<bool> stopped_{false};
};

}  // namespace lmn::capi
