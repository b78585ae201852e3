// SPDX-License-Identifier: Apache-2.0
//
// How a device computes the operators of tensor_ops.def. bind() chooses a kernel for a node whose
// types are all known and captures everything that it needs; the kernel then runs on pointers. Or,
// for LMN_VALUE_OP, evaluate() makes the outputs itself, on the host.
//
// A kernel is called by every worker of a team (worker.part of worker.parts) and computes its share
// of whole output elements; the split never changes a result (DESIGN section 7). It allocates
// nothing and throws nothing. What only data can show to be wrong (an index out of range) it
// reports through Operands::fail and goes on without touching memory that is not its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "ops/tensor_op.h"
#include "ops/worker.h"

namespace lmn::ops {

// Where the tensors of one call of a kernel are. Inputs are aligned to their element size at least,
// outputs and what plans keep to 64 bytes.
struct Operands {
  std::byte* const* values = nullptr;  // of the whole plan
  // Indices into values: -1 is an input that is absent, an output that nobody reads.
  std::span<const int32_t> inputs, outputs;
  std::atomic<const char*>* failure = nullptr;

  template <typename T>
  const T* input(int i) const {
    return reinterpret_cast<const T*>(find(inputs, i));
  }
  template <typename T>
  T* output(int i) const {
    return reinterpret_cast<T*>(find(outputs, i));
  }
  // Null: absent, left out at the end of the list among them.
  std::byte* find(std::span<const int32_t> list, int i) const {
    const auto at = static_cast<size_t>(i);
    return at >= list.size() || list[at] < 0 ? nullptr : values[list[at]];
  }
  // Of the first failure of a run, the text (static) becomes the message of its status.
  void fail(const char* what) const {
    const char* none = nullptr;
    failure->compare_exchange_strong(none, what, std::memory_order_relaxed);
  }
};

struct TensorKernel {
  using Run = void (*)(const void* state, const Operands& io, const Worker& worker);

  Run run = nullptr;
  std::shared_ptr<const void> state;
  bool splits = false;  // uses worker.part and parts; otherwise one worker does all
  int in_place = -1;    // an input of output 0's size and type, whose buffer output 0 may take over
  size_t scratch_bytes = 0;  // of one worker
  bool by_library = false;   // its product is DenseProducts'
  double cost = 0;  // rough number of nanoseconds on one core; 0: from the bytes it touches

  // The kernel is `body`, called with (const Operands&, const Worker&); what it captures is its
  // state.
  template <typename Body>
  void set(Body body) {
    keep(new const Body(std::move(body)),
         [](const void* self) { delete static_cast<const Body*>(self); });
    run = [](const void* self, const Operands& io, const Worker& worker) {
      (*static_cast<const Body*>(self))(io, worker);
    };
  }

 private:
  // One for all: std::make_shared of a thousand bodies takes the compiler longer than they do.
  void keep(const void* body, void (*destroy)(const void*)) { state.reset(body, destroy); }
};

// The share of `count` units that belongs to a worker.
struct Share {
  int64_t begin, end;
};
inline Share share_of(int64_t count, const Worker& worker) {
  return {count * worker.part / worker.parts, count * (worker.part + 1) / worker.parts};
}

// A value while a plan runs.
struct RuntimeValue {
  ValueKind kind = ValueKind::kTensor;
  Tensor tensor;  // kTensor. Of other kinds: its dtype is that of the elements
  // kSequence: the elements. kOptional: one, or none. kMap: a tensor of keys and one of values.
  std::vector<RuntimeValue> items;
};

// New tensors for evaluate(): 64-byte aligned, not initialised (strings are empty ones).
using AllocateTensor = std::function<Result<Tensor>(DType dtype, const Shape& shape)>;

struct EvaluateContext {
  std::span<const RuntimeValue* const> inputs;  // null: absent
  std::span<RuntimeValue> outputs;              // to be filled
  const AllocateTensor& allocate;

  const RuntimeValue& input(int i) const { return *inputs[static_cast<size_t>(i)]; }
  const Tensor& tensor(int i) const { return input(i).tensor; }
  RuntimeValue& output(int i) const { return outputs[static_cast<size_t>(i)]; }
  // Makes output i a tensor of this type; its data.
  template <typename T>
  Result<T*> make(int i, DType dtype, const Shape& shape) const {
    LMN_ASSIGN_OR_RETURN(output(i).tensor, allocate(dtype, shape));
    output(i).kind = ValueKind::kTensor;
    return output(i).tensor.template as<T>();
  }
};

// What a kernel is for, besides its node.
struct KernelTarget {
  int32_t multiprocessors = 1;  // Device::multiprocessors
};

// One device's way of doing tensor operators.
struct TensorKernels {
  // What the kernels of a node share, whatever the shapes: packed weights. Called once, when a
  // program is made, with the elements of constant operands known. *prepared stays null where there
  // is nothing to prepare.
  Status (*prepare)(const TensorNode& node, std::shared_ptr<const void>* prepared) = nullptr;
  // UNSUPPORTED names a type that the device has no kernel for.
  Status (*bind)(const TensorNode& node, std::span<const TensorType> outputs,
                 const KernelTarget& target, TensorKernel* kernel) = nullptr;
  Status (*evaluate)(const TensorNode& node, const EvaluateContext& context) = nullptr;
};

}  // namespace lmn::ops
