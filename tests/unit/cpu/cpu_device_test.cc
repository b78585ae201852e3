// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_device.h"

#include <cstdint>
#include <cstdlib>
#include <string>

#include "cpu/cpu_features.h"
#include "ops/kernel.h"
#include "ops/quantized_rows.h"
#include "testing.h"

namespace {

using namespace lmn;

// Sets LMN_CPU_TARGET for one test.
class TargetVariable {
 public:
  explicit TargetVariable(const char* value) {
    if (const char* before = std::getenv("LMN_CPU_TARGET")) before_ = before;
    setenv("LMN_CPU_TARGET", value, 1);
  }
  ~TargetVariable() {
    if (before_.empty()) unsetenv("LMN_CPU_TARGET");
    if (!before_.empty()) setenv("LMN_CPU_TARGET", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST(every_available_target_has_every_kernel) {
  EXPECT(!cpu::available_targets().empty());
  for (std::string_view target : cpu::available_targets()) {
    Result<std::unique_ptr<Device>> device = cpu::create_cpu_device(target);
    ASSERT_OK(device);
    EXPECT_EQ((*device)->target(), std::string(target));
    EXPECT_EQ((*device)->name(), "cpu");
    for (ops::KernelFn fn : (*device)->kernels().run) EXPECT(fn != nullptr);
    EXPECT((*device)->kernels().scratch_bytes(64, 3, 576) % 64 == 0);
  }
}

TEST(the_default_is_the_best_target_or_the_variable) {
  {
    const TargetVariable variable("");
    Result<std::unique_ptr<Device>> device = cpu::create_cpu_device("");
    ASSERT_OK(device);
    EXPECT_EQ((*device)->target(), std::string(cpu::available_targets().back()));
  }
  for (std::string_view never : {"scalar_tiles", "amx_emulated", "amx"})
    EXPECT(cpu::available_targets().back() != never);
  const TargetVariable variable("scalar");
  Result<std::unique_ptr<Device>> device = cpu::create_cpu_device("");
  ASSERT_OK(device);
  EXPECT_EQ((*device)->target(), "scalar");
}

TEST(unknown_and_missing_targets_are_errors_that_list_the_others) {
  const Status unknown = cpu::create_cpu_device("sse9").status();
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT(unknown.message().find("sse9") != std::string_view::npos);
  EXPECT(unknown.message().find("scalar") != std::string_view::npos);
  const TargetVariable variable("nonsense");
  const Status from_variable = cpu::create_cpu_device("").status();
  EXPECT_EQ(from_variable.code(), Code::kInvalidArgument);
  EXPECT(from_variable.message().find("LMN_CPU_TARGET") != std::string_view::npos);
  for (std::string_view target : cpu::known_targets()) {
    const Result<std::unique_ptr<Device>> device = cpu::create_cpu_device(target);
    bool available = false;
    for (std::string_view name : cpu::available_targets()) available = available || name == target;
    EXPECT_EQ(device.ok(), available);
    if (!device.ok()) EXPECT_EQ(device.status().code(), Code::kUnsupported);
  }
}

TEST(newer_sets_imply_older_ones) {
  const cpu::CpuFeatures features = cpu::cpu_features();
  EXPECT(!features.avx512 || features.avx2);
  EXPECT(!features.amx || features.avx512);
  EXPECT(!features.neon_i8mm || features.neon_dotprod);
  EXPECT(!features.neon_dotprod || features.neon);
  EXPECT(!(features.avx2 && features.neon));
}

TEST(memory_is_zeroed_aligned_and_copied) {
  Result<std::unique_ptr<Device>> device = cpu::create_cpu_device("scalar");
  ASSERT_OK(device);
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{3} << 20}) {
    Result<std::byte*> memory = (*device)->allocate(bytes);
    ASSERT_OK(memory);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, uintptr_t{0});
    EXPECT((*memory)[0] == std::byte{0} && (*memory)[bytes - 1] == std::byte{0});
    const std::byte out{7};
    std::byte back{0};
    ASSERT_OK((*device)->copy_from_host(*memory + bytes - 1, &out, 1));
    ASSERT_OK((*device)->copy_to_host(&back, *memory + bytes - 1, 1));
    EXPECT(back == out);
    (*device)->release(*memory, bytes);
  }
  // Destructors release: memory that is not the device's is no reason to throw in there.
  std::byte foreign{};
  (*device)->release(&foreign, 1);
  (*device)->release(nullptr, 0);
  const Status refused = (*device)->allocate(size_t{1} << 60).status();
  EXPECT_EQ(refused.code(), Code::kOutOfMemory);
}

TEST(input_types_of_weights) {
  for (std::string_view target : cpu::available_targets()) {
    const Result<std::unique_ptr<Device>> device = cpu::create_cpu_device(target);
    ASSERT_OK(device);
    const ops::KernelTable& kernels = (*device)->kernels();
    EXPECT(*kernels.linear_input_type(DType::kF16, 77, true) == DType::kF32);
    EXPECT(*kernels.linear_input_type(DType::kQ4_1, 64, false) == DType::kQA8);
    EXPECT(*kernels.linear_input_type(DType::kQ4_1, 64, true) == DType::kQA16);
    EXPECT(*kernels.linear_input_type(DType::kQ6_K, 256, false) == DType::kQA16);
    const bool byte_dot = target == "avx512" || target == "amx" || target == "amx_emulated" ||
                          target == "neon_dotprod" || target == "neon_i8mm";
    EXPECT(*kernels.linear_input_type(DType::kQ8_0, 64, false) ==
           (byte_dot ? DType::kQA8 : DType::kQA16));
    EXPECT(*kernels.linear_input_type(DType::kQ5_1, 64, false) ==
           (byte_dot || target == "avx2" ? DType::kQA8 : DType::kQA16));
    EXPECT(*kernels.linear_input_type(DType::kQ6_K, 256, true) == DType::kQA16);
    EXPECT_EQ(kernels.linear_input_type(DType::kI8, 64, false).status().code(), Code::kUnsupported);
    EXPECT_EQ(kernels.linear_input_type(DType::kQ4_1, 33, false).status().code(),
              Code::kInvalidArgument);
  }
}

}  // namespace
