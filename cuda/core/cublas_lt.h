// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt as ops::DenseProducts, found at run time: nothing of it is linked, and no header of it
// is needed. It is looked for when the first product asks, and never unloaded. Only algorithms that
// sum each output in one piece are taken: what is split along k may be added in any order. No
// header of CUDA's is included, so that tests compile this with a library of their own.
//
// The library is what LMN_CUBLAS_LT_LIBRARY in the environment names, and nothing else ("0": none;
// what cannot be used is an error). Without it, libcublasLt.so of version 13, then 12: the one that
// the process has loaded, the one that the loader finds, the one of the wheel nvidia-cublas (or
// nvidia-cublas-cu12). The first that can be used; none: plan() gives null.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/status.h"
#include "ops/dense_products.h"

namespace lmn::cuda {

class Context;  // cuda_context.h

class CublasLt final : public ops::DenseProducts {
 public:
  // Of the device that the context is of, which outlives this. `wheels`: the folder of Python
  // packages, such as site-packages; empty: there is none.
  CublasLt(const Context& context, std::string wheels);
  ~CublasLt() override;
  CublasLt(const CublasLt&) = delete;

  // The workspace is kMostWorkspace bytes at most.
  Result<std::shared_ptr<const ops::PlannedProduct>> plan(
      const ops::DenseProduct& product) const override;

  static constexpr size_t kMostWorkspace = size_t{32} << 20;  // what NVIDIA advises for Hopper

 private:
  class Library;
  class Planned;
  Result<std::shared_ptr<const Library>> open(const std::string& path, bool only_loaded) const;
  Status find() const;

  const Context& context_;
  const std::string wheels_;
  mutable std::once_flag once_;  // of the two that follow
  mutable Status found_;
  mutable std::shared_ptr<const Library> library_;
  mutable std::mutex mutex_;  // of the library while it chooses an algorithm
};

// The folder that the installed package lies in, as PACKAGES/lmnative/lib/liblmnative.so.
std::string folder_of_wheels();

// LaunchQueue::failure of a product that the library refused: its cublasStatus_t, negative.
constexpr int32_t failure_of_status(int status) { return -status; }
constexpr int status_of_failure(int32_t failure) { return -failure; }

}  // namespace lmn::cuda
