// SPDX-License-Identifier: Apache-2.0
//
// Weights: the constants of a graph as kernels want them, in one block of device memory. First
// everything is registered, so that what is used twice is stored once and the size is known before
// a byte is read; then load() reads the file from front to back as one list of slices, of which
// each member of the team takes the next. A member packs its slice, which faults in the file and
// the packed memory, and lets go of the file's: besides the packed weights, memory holds a few
// slices of the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/kernel.h"
#include "plan/device_block.h"
#include "plan/plan.h"

namespace lmn::plan {

class Weights {
 public:
  Weights(Device& device, const ops::KernelTable& table) : device_(device), table_(table) {}

  // A matrix that a Linear multiplies with inputs of this type. UNSUPPORTED, INVALID_ARGUMENT:
  // plan_pack's.
  Result<const ops::PackedMatrix*> add_matrix(const graph::Value& value, DType input_type,
                                              bool interleaved);
  // A matrix whose rows are looked up: a registered one over the same bytes, whatever its input
  // type, or a new one. Call it after add_matrix has seen all Linears.
  Result<const ops::PackedMatrix*> add_table(const graph::Value& value);
  // A vector of floats; index for vector().
  size_t add_vector(const graph::Value& value);

  // Allocates and fills. The pieces of the constants are not touched afterwards.
  Status load(parallel::ThreadTeam& team, const PlanOptions& options);

  const float* vector(size_t index) const {
    return reinterpret_cast<const float*>(block_.data() + vectors_[index].offset);
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Matrix {
    std::shared_ptr<const graph::Constant> constant;
    std::string name;
    std::vector<TensorView> views;
    ops::PackedMatrix packed;
    int64_t offset = 0;  // in block_
  };
  // Share `part` of `parts` of a matrix.
  struct Slice {
    Matrix* matrix;
    int32_t part, parts;
  };
  struct Vector {
    std::shared_ptr<const graph::Constant> constant;
    std::string name;
    int64_t length = 0;
    int64_t offset = 0;
  };

  int64_t reserve(int64_t bytes);
  Matrix* find(const graph::Constant& constant, bool interleaved, const DType* input_type);
  class Staging;
  class Loading;
  Status fill(const Vector& vector, const PlanOptions& options);

  Device& device_;
  const ops::KernelTable& table_;
  std::vector<std::unique_ptr<Matrix>>
      matrices_;  // by pointer: kernels keep the address of `packed`
  std::vector<Vector> vectors_;
  int64_t bytes_ = 0;
  DeviceBlock block_;
};

}  // namespace lmn::plan
