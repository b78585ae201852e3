// SPDX-License-Identifier: Apache-2.0
//
// DenseProducts: a library of matrix products that a device may have found (cuBLASLt). The order in
// which it adds depends on how many rows there are, so it is asked only for products whose shapes
// are the same in every run (TensorNode::dense_products): of those, section 7 of DESIGN still
// holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "core/status.h"
#include "ops/worker.h"

namespace lmn::ops {

// y[b] = x[b] w[b] for every batch b. Strides in elements, addresses aligned to 16 bytes. y is
// float32 [batches, rows, columns], without gaps.
struct DenseProduct {
  DType type = DType::kF16;  // of both factors: kF16 or kBF16
  int64_t batches = 1, rows = 0, inner = 0, columns = 0;
  int64_t x_row = 0;                 // x is [rows, inner]: from one row to the next
  bool transposed = false;           // w is [inner, columns], or, transposed, [columns, inner]
  int64_t w_row = 0;                 // from one row of w, as it lies, to the next
  int64_t x_batch = 0, w_batch = 0;  // from one matrix to the next; 0: one for all
};

// Any thread.
class PlannedProduct {
 public:
  virtual ~PlannedProduct() = default;
  virtual size_t workspace_bytes() const = 0;
  // Queues it; the workspace is memory of the device, 256-byte aligned. Like every launch, it does
  // nothing after one that failed, and says its own failure there (LaunchQueue::failure).
  virtual void launch(const void* x, const void* w, float* y, std::byte* workspace,
                      LaunchQueue& queue) const = 0;
};

// Any thread.
class DenseProducts {
 public:
  virtual ~DenseProducts() = default;
  // The same algorithm for the same product on one machine; one run of it gives the bits of
  // another. Null: there is no library, or nothing in it will do. An error is one of the
  // configuration. The device outlives what was planned.
  virtual Result<std::shared_ptr<const PlannedProduct>> plan(const DenseProduct& product) const = 0;
};

}  // namespace lmn::ops
