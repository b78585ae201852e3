// SPDX-License-Identifier: Apache-2.0
//
// One operator of tensor_ops.def on the CUDA device's kernels against the CPU's kernel for the same
// node. Operands and results lie on the host, and are copied to the device and back.
#pragma once

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/float16.h"
#include "cpu/cpu_device.h"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "ops/kernel.h"
#include "test_device.h"

namespace simt_tests {

using namespace lmn;

// On the host; all bits set, which is no number.
inline Tensor allocate_tensor(DType dtype, const Shape& shape) {
  const auto bytes = static_cast<size_t>(shape.elements() * info(dtype).block_bytes);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes + 1, std::byte{0xFF});
  return {dtype, shape, memory->data(), memory};
}

// Numbers from -1 to 1, the same for the same seed.
inline std::vector<float> some_numbers(int64_t count, uint32_t seed, float size = 1.0f) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back((static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1.0f) * size);
  }
  return out;
}

inline double number_at(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::kF32:
      return t.as<float>()[i];
    case DType::kF16:
      return f16_to_f32(t.as<uint16_t>()[i]);
    case DType::kBF16:
      return bf16_to_f32(t.as<uint16_t>()[i]);
    case DType::kI8:
      return t.as<int8_t>()[i];
    case DType::kI32:
      return t.as<int32_t>()[i];
    case DType::kI64:
      return static_cast<double>(t.as<int64_t>()[i]);
    default:
      return t.as<uint8_t>()[i];
  }
}

inline void set_number(const Tensor& t, int64_t i, double v) {
  switch (t.dtype) {
    case DType::kF32:
      t.as<float>()[i] = static_cast<float>(v);
      return;
    case DType::kF16:
      t.as<uint16_t>()[i] = f32_to_f16(static_cast<float>(v));
      return;
    case DType::kBF16:
      t.as<uint16_t>()[i] = f32_to_bf16(static_cast<float>(v));
      return;
    case DType::kI32:
      t.as<int32_t>()[i] = static_cast<int32_t>(v);
      return;
    case DType::kI64:
      t.as<int64_t>()[i] = static_cast<int64_t>(v);
      return;
    default:
      t.as<uint8_t>()[i] = static_cast<uint8_t>(static_cast<int>(v));
      return;
  }
}

class DeviceCase {
 public:
  explicit DeviceCase(std::string_view op, ops::Attributes attributes = {}, int outputs = 1)
      : op_(ops::find_tensor_op(op)),
        attributes_(std::move(attributes)),
        types_(static_cast<size_t>(outputs)) {
    ASSERT(op_ != nullptr);
  }
  template <typename T>
  DeviceCase& in(const Shape& shape, const std::vector<T>& values, DType dtype = DType::kF32,
                 bool constant = false) {
    ASSERT(static_cast<int64_t>(values.size()) == shape.elements());
    const Tensor tensor = allocate_tensor(dtype, shape);
    for (size_t i = 0; i < values.size(); ++i)
      set_number(tensor, static_cast<int64_t>(i), static_cast<double>(values[i]));
    operands_.push_back({{dtype, shape}, true, constant ? tensor.data : nullptr});
    inputs_.push_back(tensor);
    return *this;
  }
  DeviceCase& list(const std::vector<int64_t>& values) {  // i64, known
    return in<int64_t>({static_cast<int64_t>(values.size())}, values, DType::kI64, true);
  }
  DeviceCase& absent() {
    operands_.emplace_back();
    inputs_.emplace_back();
    return *this;
  }
  // The relative tolerance, and that of what is near 0.
  DeviceCase& within(double relative, double absolute) {
    relative_ = relative;
    absolute_ = absolute;
    return *this;
  }

  // What the device has besides its kernels, for a node of fixed sizes.
  DeviceCase& with(const ops::DenseProducts* products) {
    products_ = products;
    return *this;
  }

  // What the device binds.
  ops::TensorKernel bound() {
    infer();
    ops::TensorKernel kernel;
    ASSERT_OK(bind_on_device(&kernel));
    return kernel;
  }
  DeviceCase& multiprocessors(int32_t count) {
    multiprocessors_ = count;
    return *this;
  }

  // The message of UNSUPPORTED.
  std::string refusal() {
    infer();
    ops::TensorKernel kernel;
    const Status status = bind_on_device(&kernel);
    EXPECT(status.code() == Code::kUnsupported);
    return std::string(status.message());
  }
  // On both; what they give must agree.
  void check() {
    infer();
    auto created = cpu::create_cpu_device("");
    ASSERT_OK(created);
    const std::shared_ptr<Device> host = *std::move(created);
    const ops::TensorKernels& table = host->kernels().tensor;
    std::shared_ptr<const void> prepared;
    ASSERT_OK(table.prepare(node(all_known(), nullptr), &prepared));
    ops::TensorKernel reference;
    ASSERT_OK(table.bind(node(all_known(), prepared.get()), types_, {}, &reference));
    std::vector<Tensor> want;
    const std::string want_failure = run(host, reference, -1, &want);
    ops::TensorKernel kernel;
    ASSERT_OK(bind_on_device(&kernel));
    failure_ = run(test_device(), kernel, -1, &results_);
    EXPECT_EQ(failure_, want_failure);
    compare(results_, want);
    if (kernel.in_place < 0 || !failure_.empty()) return;
    std::vector<Tensor> in_place;
    EXPECT_EQ(run(test_device(), kernel, kernel.in_place, &in_place), "");
    for (size_t i = 0; i < results_.size(); ++i)
      EXPECT(std::memcmp(in_place[i].data, results_[i].data, bytes(results_[i])) == 0);
  }
  // On the device alone.
  void run_on_device() {
    infer();
    ops::TensorKernel kernel;
    ASSERT_OK(bind_on_device(&kernel));
    failure_ = run(test_device(), kernel, -1, &results_);
  }
  const std::string& failure() const { return failure_; }
  const Tensor& result(int i = 0) const { return results_[static_cast<size_t>(i)]; }
  size_t result_bytes(int i = 0) const { return bytes(result(i)); }

 private:
  static size_t bytes(const Tensor& tensor) {
    return static_cast<size_t>(tensor.shape.elements()) * info(tensor.dtype).block_bytes;
  }
  ops::TensorNode node(std::span<const ops::Operand> operands, const void* prepared) const {
    return {*op_, attributes_, "t", operands, static_cast<int>(types_.size()), prepared, products_};
  }
  std::span<const ops::Operand> all_known() {
    known_ = operands_;
    for (size_t i = 0; i < known_.size(); ++i) known_[i].data = inputs_[i].data;
    return known_;
  }
  void infer() {
    std::fill(types_.begin(), types_.end(), ops::TensorType{});
    ASSERT_OK(ops::check_attributes(*op_, attributes_, "t"));
    ASSERT_OK(ops::infer(node(all_known(), nullptr), types_));
    for (const ops::TensorType& type : types_) ASSERT(type.is_known());
  }
  Status bind_on_device(ops::TensorKernel* kernel) {
    const ops::TensorKernels table = cuda::tensor_kernels();
    std::shared_ptr<const void> prepared;
    LMN_RETURN_IF_ERROR(table.prepare(node(operands_, nullptr), &prepared));
    return table.bind(node(operands_, prepared.get()), types_, {multiprocessors_}, kernel);
  }
  // What the kernel reports. `in_place`: the input whose buffer output 0 takes over.
  std::string run(const std::shared_ptr<Device>& device, const ops::TensorKernel& kernel,
                  int in_place, std::vector<Tensor>* results) {
    DeviceRun on(device);
    std::vector<std::byte*> values;
    std::vector<int32_t> inputs, outputs;
    for (const Tensor& tensor : inputs_) {
      inputs.push_back(tensor.data == nullptr ? -1 : static_cast<int32_t>(values.size()));
      if (tensor.data != nullptr) values.push_back(on.upload(tensor.data, bytes(tensor)));
    }
    results->clear();
    for (const ops::TensorType& type : types_) {
      results->push_back(allocate_tensor(type.dtype, type.shape));
      outputs.push_back(static_cast<int32_t>(values.size()));
      values.push_back(on.upload(results->back().data, bytes(results->back())));
    }
    if (in_place >= 0) {
      const auto from = static_cast<size_t>(in_place);
      ASSERT(bytes(inputs_[from]) == bytes(results->front()));
      values[static_cast<size_t>(outputs[0])] = values[static_cast<size_t>(inputs[from])];
    }
    std::vector<std::atomic<const char*>> failure(1);
    std::atomic<const char*>* const word = on.upload(failure);
    ops::Worker worker;
    worker.scratch = on.allocate(kernel.scratch_bytes);
    const auto queue_kernel = [&](ops::LaunchQueue* queue) {
      worker.queue = queue;
      kernel.run(kernel.state.get(), {values.data(), inputs, outputs, word}, worker);
    };
    if (const Status status = on.run(queue_kernel, multiprocessors_); !status.ok()) {
      testing::report_failure(__FILE__, __LINE__, named(std::string(status.message())));
      testing::stop_test();  // there is nothing to compare
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Tensor& result = (*results)[o];
      on.download(result.data, values[static_cast<size_t>(outputs[o])], bytes(result));
    }
    on.download(&failure, word);
    return failure[0] == nullptr ? "" : failure[0].load();
  }
  std::string named(const std::string& what) const {
    return std::string(ops::name(*op_)) + ": " + what;
  }
  void compare(const std::vector<Tensor>& have, const std::vector<Tensor>& want) {
    for (size_t o = 0; o < have.size(); ++o) {
      const bool is_float = have[o].dtype == DType::kF32 || have[o].dtype == DType::kF16 ||
                            have[o].dtype == DType::kBF16;
      const double unit = have[o].dtype == DType::kF16    ? 1.0 / 1024
                          : have[o].dtype == DType::kBF16 ? 1.0 / 128
                                                          : 0;
      for (int64_t i = 0; i < have[o].shape.elements(); ++i) {
        const double a = number_at(have[o], i), b = number_at(want[o], i);
        if (a == b || (a != a && b != b)) continue;
        if (is_float && std::abs(a - b) <= absolute_ + (relative_ + unit) * std::abs(b)) continue;
        testing::report_failure(
            __FILE__, __LINE__,
            named("element " + std::to_string(i) + " of output " + std::to_string(o) + " is " +
                  testing::show(a) + ", want " + testing::show(b)));
        break;
      }
    }
  }

  const ops::TensorOp* op_;
  ops::Attributes attributes_;
  std::vector<ops::Operand> operands_, known_;
  std::vector<Tensor> inputs_, results_;
  std::vector<ops::TensorType> types_;
  int32_t multiprocessors_ = 132;
  double relative_ = 1e-5, absolute_ = 1e-6;
  const ops::DenseProducts* products_ = nullptr;
  std::string failure_;
};

}  // namespace simt_tests
