// SPDX-License-Identifier: Apache-2.0
//
// One operator of tensor_ops.def on given operands: inference with everything known and with less,
// and its kernel, which must give the same bits for every split of the work and in place. What a
// test asserts about values() is its own affair.
#pragma once

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/cpu_device.h"
#include "cpu/tensor/dispatch.h"
#include "ops/kernel.h"
#include "testing.h"

namespace lmn::cpu {

template <typename T>
inline constexpr DType kTypeOf =
    DType::kBool;  // of uint8_t, for want of another: say kU8 where meant
template <>
inline constexpr DType kTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kTypeOf<double> = DType::kF64;
template <>
inline constexpr DType kTypeOf<Half> = DType::kF16;
template <>
inline constexpr DType kTypeOf<BFloat> = DType::kBF16;
template <>
inline constexpr DType kTypeOf<int8_t> = DType::kI8;
template <>
inline constexpr DType kTypeOf<int32_t> = DType::kI32;
template <>
inline constexpr DType kTypeOf<int64_t> = DType::kI64;
template <>
inline constexpr DType kTypeOf<std::string> = DType::kString;

class TensorCase {
 public:
  explicit TensorCase(std::string_view op, ops::Attributes attributes = {}, int outputs = 1)
      : op_(ops::find_tensor_op(op)),
        attributes_(std::move(attributes)),
        types_(static_cast<size_t>(outputs)) {
    ASSERT(op_ != nullptr);
  }
  template <typename T>
  TensorCase& in(const Shape& shape, const std::vector<T>& values, DType dtype = kTypeOf<T>) {
    ASSERT(static_cast<int64_t>(values.size()) == shape.elements());
    Tensor tensor = allocate(dtype, shape);
    std::copy(values.begin(), values.end(), tensor.as<T>());
    return add({{dtype, shape}, true, tensor.data}, tensor);
  }
  TensorCase& absent() { return add({}, {}); }

  Status infer() {
    LMN_RETURN_IF_ERROR(ops::check_attributes(*op_, attributes_, "t"));
    std::fill(types_.begin(), types_.end(), ops::TensorType{});
    return ops::infer(node(operands_), types_);
  }
  // The message of inference's error; "" when there is none.
  std::string refusal() { return std::string(infer().message()); }

  Status run() {
    LMN_RETURN_IF_ERROR(infer());
    infer_with_less();
    return run_inferred("");
  }
  // The same on a device of this name, where inference insists on knowing the shapes of constants.
  Status run_constant(std::string_view target) {
    LMN_RETURN_IF_ERROR(infer());
    return run_inferred(target);
  }

  const Shape& shape(int i = 0) const { return types_[static_cast<size_t>(i)].shape; }
  DType dtype(int i = 0) const { return types_[static_cast<size_t>(i)].dtype; }
  template <typename T>
  std::vector<T> values(int i = 0) const {
    const Tensor& tensor = results_[static_cast<size_t>(i)];
    return {tensor.as<T>(), tensor.as<T>() + tensor.shape.elements()};
  }

 private:
  Status run_inferred(std::string_view target) {
    Result<std::unique_ptr<Device>> device = create_cpu_device(target);
    if (!device.ok()) return std::move(device).status();
    const ops::TensorKernels& kernels = (*device)->kernels().tensor;
    if (ops::op_class(*op_) == ops::OpClass::kValue) return evaluate(kernels);
    for (const ops::TensorType& type : types_) ASSERT(type.is_known());
    LMN_RETURN_IF_ERROR(kernels.prepare(node(operands_), &prepared_));
    ops::TensorKernel kernel;
    LMN_RETURN_IF_ERROR(kernels.bind(node(operands_), types_, {}, &kernel));
    LMN_RETURN_IF_ERROR(run_kernel(kernel, 1, false, &results_));
    for (const int parts : {2, 3, 7}) check_same(kernel, parts, false);
    if (kernel.in_place >= 0) check_same(kernel, 3, true);
    return {};
  }

  static Tensor allocate(DType dtype, const Shape& shape) {
    Tensor tensor{dtype, shape, nullptr, nullptr};
    const auto count = static_cast<size_t>(shape.elements());
    if (dtype == DType::kString) {
      auto strings = std::make_shared<std::vector<std::string>>(count + 1, "untouched");
      tensor.data = reinterpret_cast<std::byte*>(strings->data());
      tensor.owner = std::move(strings);
      return tensor;
    }
    // Exactly as large as the tensor, for the sanitizers; filled with what no test expects.
    const size_t bytes = count * info(dtype).block_bytes;
    void* memory = nullptr;
    ASSERT(posix_memalign(&memory, 64, bytes) == 0);
    std::memset(memory, 0xCD, bytes);
    tensor.data = static_cast<std::byte*>(memory);
    tensor.owner = std::shared_ptr<void>(memory, std::free);
    return tensor;
  }
  TensorCase& add(const ops::Operand& operand, const Tensor& tensor) {
    operands_.push_back(operand);
    inputs_.push_back(tensor);
    return *this;
  }
  ops::TensorNode node(const std::vector<ops::Operand>& operands) const {
    return {*op_, attributes_, "t", operands, static_cast<int>(types_.size()), prepared_.get()};
  }

  // What inference says when it knows less must be true of what it says when it knows all.
  void infer_with_less() {
    for (int less = 0; less < 3; ++less) {
      std::vector<ops::Operand> operands = operands_;
      for (ops::Operand& operand : operands) {
        operand.data = nullptr;
        if (less == 2) operand.type.shape = ops::unknown_shape();
        for (int i = 0; i < operand.type.shape.rank && less == 1; ++i)
          operand.type.shape[i] = ops::kUnknownSize;
      }
      std::vector<ops::TensorType> types(types_.size());
      ASSERT_OK(ops::infer(node(operands), types));
      for (size_t o = 0; o < types.size(); ++o) {
        EXPECT(types[o].dtype == types_[o].dtype);
        if (!types[o].ranked() || !types_[o].ranked()) continue;
        EXPECT_EQ(types[o].shape.rank, types_[o].shape.rank);
        for (int i = 0; i < types[o].shape.rank; ++i)
          EXPECT(types[o].shape[i] < 0 || types[o].shape[i] == types_[o].shape[i]);
      }
    }
  }
  Status run_kernel(const ops::TensorKernel& kernel, int parts, bool in_place,
                    std::vector<Tensor>* results) {
    std::vector<std::byte*> values;
    std::vector<int32_t> inputs, outputs;
    for (const Tensor& tensor : inputs_) {
      inputs.push_back(tensor.data == nullptr ? -1 : static_cast<int32_t>(values.size()));
      if (tensor.data != nullptr) values.push_back(tensor.data);
    }
    results->clear();
    for (const ops::TensorType& type : types_) {
      results->push_back(allocate(type.dtype, type.shape));
      outputs.push_back(static_cast<int32_t>(values.size()));
      values.push_back(results->back().data);
    }
    if (in_place) {
      const Tensor& input = inputs_[static_cast<size_t>(kernel.in_place)];
      Tensor& output = results->front();
      ASSERT(input.shape.elements() == output.shape.elements());
      ASSERT(info(input.dtype).block_bytes == info(output.dtype).block_bytes);
      if (input.dtype == DType::kString) {
        std::copy_n(input.as<std::string>(), input.shape.elements(), output.as<std::string>());
      } else {
        std::memcpy(output.data, input.data, bytes(output));
      }
      values[static_cast<size_t>(inputs[static_cast<size_t>(kernel.in_place)])] = output.data;
    }
    std::atomic<const char*> failure{nullptr};
    const ops::Operands io{values.data(), inputs, outputs, &failure};
    if (!kernel.splits) parts = 1;
    for (int part = parts - 1; part >= 0; --part) {
      void* scratch = std::aligned_alloc(64, (kernel.scratch_bytes / 64 + 1) * 64);
      ops::Worker worker;
      worker.part = part;
      worker.parts = parts;
      worker.scratch = static_cast<std::byte*>(scratch);
      kernel.run(kernel.state.get(), io, worker);
      std::free(scratch);
    }
    if (failure.load() != nullptr) return Status(Code::kInvalidArgument, failure.load());
    return {};
  }
  void check_same(const ops::TensorKernel& kernel, int parts, bool in_place) {
    std::vector<Tensor> again;
    ASSERT_OK(run_kernel(kernel, parts, in_place, &again));
    for (size_t i = 0; i < again.size(); ++i) {
      const Tensor &a = again[i], &b = results_[i];
      if (a.dtype == DType::kString) {
        EXPECT(std::equal(a.as<std::string>(), a.as<std::string>() + a.shape.elements(),
                          b.as<std::string>()));
      } else {
        EXPECT(std::memcmp(a.data, b.data, bytes(a)) == 0);
      }
    }
  }
  Status evaluate(const ops::TensorKernels& kernels) {
    std::vector<ops::RuntimeValue> values(inputs_.size()), outputs(types_.size());
    std::vector<const ops::RuntimeValue*> pointers;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      values[i].tensor = inputs_[i];
      pointers.push_back(inputs_[i].data == nullptr ? nullptr : &values[i]);
    }
    const ops::AllocateTensor make = [](DType dtype, const Shape& shape) -> Result<Tensor> {
      return allocate(dtype, shape);
    };
    LMN_RETURN_IF_ERROR(kernels.evaluate(node(operands_), {pointers, outputs, make}));
    results_.clear();
    for (size_t i = 0; i < outputs.size(); ++i) {
      results_.push_back(outputs[i].tensor);
      types_[i].shape = outputs[i].tensor.shape;
    }
    return {};
  }
  static size_t bytes(const Tensor& tensor) {
    return static_cast<size_t>(tensor.shape.elements()) * info(tensor.dtype).block_bytes;
  }

  const ops::TensorOp* op_;
  ops::Attributes attributes_;
  std::vector<ops::Operand> operands_;
  std::vector<Tensor> inputs_, results_;
  std::vector<ops::TensorType> types_;
  std::shared_ptr<const void> prepared_;
};

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> numbers(int64_t count, unsigned seed) {  // from -1 to 1
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = uniform(engine);
  return out;
}

inline bool says(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos) return true;
  testing::report_failure(__FILE__, __LINE__, "the message is: " + message);
  return false;
}
inline bool says(TensorCase& c, std::string_view part) { return says(c.refusal(), part); }

}  // namespace lmn::cpu
