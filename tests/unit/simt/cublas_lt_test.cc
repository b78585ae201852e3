// SPDX-License-Identifier: Apache-2.0
//
// CublasLt against a library that computes on the host (fake_cublas_lt.cc): which one is taken,
// what is asked of it, and that matrices which lie row by row come out right.
#include "cuda/core/cublas_lt.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/float16.h"
#include "cuda/core/cuda_context.h"
#include "fake_cublas_lt.h"
#include "fake_runtime.h"
#include "tensor_case.h"

namespace {

using namespace simt_tests;
using cuda::CublasLt;
using ops::DenseProduct;
namespace fs = std::filesystem;

// Of a device that no other test has.
const cuda::Context& context() {
  static const cuda::Context instance = [] {
    constexpr int kDevice = fake_cuda::kDevices - 1;
    cuda::Health health("cuda:" + std::to_string(kDevice));
    cuda::Context made;
    ASSERT_OK(made.open(kDevice, health));
    return made;
  }();
  return instance;
}

class LibraryVariable {
 public:
  explicit LibraryVariable(const std::string& value) {
    if (const char* before = std::getenv(kName)) before_ = before;
    setenv(kName, value.c_str(), 1);
  }
  ~LibraryVariable() {
    unsetenv(kName);
    if (!before_.empty()) setenv(kName, before_.c_str(), 1);
  }

 private:
  static constexpr const char* kName = "LMN_CUBLAS_LT_LIBRARY";
  std::string before_;
};

// The fake of this path, as it is when it was just loaded.
FakeCublasLt& fake_at(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT(library != nullptr);
  auto* found = reinterpret_cast<FakeCublasLt* (*)()>(dlsym(library, "fake_cublas_lt"));
  ASSERT(found != nullptr);
  *found() = FakeCublasLt();
  return *found();
}

DenseProduct small_product() {
  DenseProduct p;
  p.rows = 5;
  p.inner = p.x_row = 16;
  p.columns = p.w_row = 24;
  return p;
}

std::vector<uint16_t> elements(int64_t count, uint32_t seed, DType type) {
  std::vector<uint16_t> out;
  for (const float v : some_numbers(count, seed))
    out.push_back(type == DType::kBF16 ? f32_to_bf16(v) : f32_to_f16(v));
  return out;
}

TEST(products_of_matrices_that_lie_row_by_row) {
  FakeCublasLt& fake = fake_at(LMN_FAKE_CUBLAS_LT);
  {
    const LibraryVariable variable(LMN_FAKE_CUBLAS_LT);
    const CublasLt products(context(), "");
    for (const DType type : {DType::kF16, DType::kBF16}) {
      for (const bool transposed : {false, true}) {
        for (const bool one_for_all : {false, true}) {
          DenseProduct p = small_product();
          p.type = type;
          p.batches = 3;
          p.x_row = p.inner + 8;  // rows lie apart
          p.transposed = transposed;
          p.w_row = (transposed ? p.inner : p.columns) + 8;
          p.x_batch = p.rows * p.x_row;
          p.w_batch = one_for_all ? 0 : (transposed ? p.columns : p.inner) * p.w_row;
          const auto planned = products.plan(p);
          ASSERT_OK(planned);
          ASSERT(*planned != nullptr);
          EXPECT_EQ((*planned)->workspace_bytes(), size_t{4096});

          const auto to_float = type == DType::kBF16 ? bf16_to_f32 : f16_to_f32;
          const auto x = elements(3 * p.x_batch, 1, type);
          const auto w = elements(3 * p.inner * p.columns * 2, 2, type);
          std::vector<float> y(static_cast<size_t>(3 * p.rows * p.columns), NAN);
          std::vector<std::byte> workspace(4096);
          int stream = 0;
          ops::LaunchQueue queue;
          queue.stream = &stream;
          (*planned)->launch(x.data(), w.data(), y.data(), workspace.data(), queue);
          EXPECT_EQ(queue.failure, 0);
          for (int64_t b = 0; b < 3; ++b) {
            for (int64_t r = 0; r < p.rows; ++r) {
              for (int64_t c = 0; c < p.columns; ++c) {
                double want = 0;
                for (int64_t k = 0; k < p.inner; ++k) {
                  const int64_t w_at =
                      b * p.w_batch + (transposed ? c * p.w_row + k : k * p.w_row + c);
                  want += static_cast<double>(
                              to_float(x[static_cast<size_t>(b * p.x_batch + r * p.x_row + k)])) *
                          static_cast<double>(to_float(w[static_cast<size_t>(w_at)]));
                }
                EXPECT_NEAR(y[static_cast<size_t>((b * p.rows + r) * p.columns + c)], want, 1e-5);
              }
            }
          }
          // The one that neither splits nor reduces, in the memory and on the stream that it has.
          EXPECT_EQ(fake.algorithm, 2);
          EXPECT(fake.stream == &stream && fake.workspace == workspace.data());
          EXPECT_EQ(fake.given_bytes, size_t{4096});
        }
      }
    }
    EXPECT_EQ(fake.compute_type, 68);  // CUBLAS_COMPUTE_32F
    EXPECT_EQ(fake.scale_type, 0);     // CUDA_R_32F
    EXPECT_EQ(fake.preferences[1], uint64_t{CublasLt::kMostWorkspace});
    EXPECT_EQ(fake.preferences[3], uint64_t{0});   // no reductions
    EXPECT_EQ(fake.preferences[5], uint64_t{16});  // alignment of the factors
    EXPECT_EQ(fake.preferences[6], uint64_t{16});
    EXPECT_EQ(fake.handles, 1);
  }
  EXPECT_EQ(fake.handles, 0);
  EXPECT_EQ(fake.descriptors, 0);
}

TEST(what_the_library_cannot_do_is_left_to_others) {
  FakeCublasLt& fake = fake_at(LMN_FAKE_CUBLAS_LT);
  const LibraryVariable variable(LMN_FAKE_CUBLAS_LT);
  const CublasLt products(context(), "");
  const auto is_planned = [&] {
    const auto planned = products.plan(small_product());
    ASSERT_OK(planned);
    return *planned != nullptr;
  };
  EXPECT(is_planned());
  fake.candidates = 0;
  EXPECT(!is_planned());
  fake.candidates = 2;  // such as split, or reduce
  EXPECT(!is_planned());
  fake.candidates = 3;
  fake.workspace_bytes = CublasLt::kMostWorkspace + 1;
  EXPECT(!is_planned());
  fake.workspace_bytes = 0;
  fake.heuristic_status = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
  EXPECT(!is_planned());
  fake.heuristic_status = 0;
  EXPECT(is_planned());
  EXPECT_EQ(fake.descriptors, 0);
}

TEST(a_product_that_is_refused_fails_its_queue_once) {
  FakeCublasLt& fake = fake_at(LMN_FAKE_CUBLAS_LT);
  const LibraryVariable variable(LMN_FAKE_CUBLAS_LT);
  const CublasLt products(context(), "");
  const auto planned = products.plan(small_product());
  ASSERT_OK(planned);
  fake.matmul_status = 13;  // CUBLAS_STATUS_EXECUTION_FAILED
  ops::LaunchQueue queue;
  for (int round = 0; round < 2; ++round) {
    (*planned)->launch(nullptr, nullptr, nullptr, nullptr, queue);
    EXPECT_EQ(queue.failure, cuda::failure_of_status(13));
    EXPECT_EQ(fake.matmuls, 1);
  }
}

TEST(a_library_that_is_named_must_do) {
  FakeCublasLt& fake = fake_at(LMN_FAKE_CUBLAS_LT);
  const auto refusal = [](const std::string& name) {
    const LibraryVariable variable(name);
    const auto planned = CublasLt(context(), "").plan(small_product());
    EXPECT(planned.status().code() == Code::kInvalidArgument);
    return std::string(planned.status().message());
  };
  const auto expect_refusal = [&](const std::string& name, const std::string& why) {
    const std::string message = refusal(name);
    if (message.find("LMN_CUBLAS_LT_LIBRARY: " + name + " " + why) != 0)
      testing::report_failure(__FILE__, __LINE__, message);
  };
  expect_refusal("/nowhere/libcublasLt.so", "cannot be loaded: /nowhere");
  expect_refusal(LMN_FAKE_CUBLAS_LT_INCOMPLETE, "has no cublasLtMatmul;");
  fake.version = 110902;
  expect_refusal(LMN_FAKE_CUBLAS_LT, "is version 11.9, and 12 and 13 are known");
  fake.version = 140000;
  expect_refusal(LMN_FAKE_CUBLAS_LT, "is version 14.0, and 12 and 13 are known");
  fake.version = 120000;
  fake.create_status = 1;  // CUBLAS_STATUS_NOT_INITIALIZED
  expect_refusal(LMN_FAKE_CUBLAS_LT, "gives no handle for this device: status 1");
}

TEST(no_library_is_looked_for_where_there_shall_be_none) {
  const LibraryVariable variable("0");
  const auto planned = CublasLt(context(), "").plan(small_product());
  ASSERT_OK(planned);
  EXPECT(*planned == nullptr);
}

// Folders as pip leaves them; then one that the process has loaded for itself.
TEST(the_library_of_the_newest_wheel_is_found_and_a_loaded_one_before_it) {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nullptr)
      testing::skip("this machine has a cuBLASLt of its own");
  }
  const LibraryVariable variable("");
  const fs::path wheels = fs::temp_directory_path() / ("lmn_wheels_" + std::to_string(getpid()));
  const auto is_planned = [](const std::string& folder) {
    const auto planned = CublasLt(context(), folder).plan(small_product());
    ASSERT_OK(planned);
    return *planned != nullptr;
  };
  const auto install = [&](const char* place) {
    fs::create_directories((wheels / place).parent_path());
    fs::copy_file(LMN_FAKE_CUBLAS_LT, wheels / place);
    return std::string(wheels / place);
  };
  EXPECT(!is_planned(wheels));
  EXPECT(!is_planned(""));
  FakeCublasLt& older = fake_at(install("nvidia/cublas/lib/libcublasLt.so.12"));
  EXPECT(is_planned(wheels));
  EXPECT_EQ(older.heuristics, 1);
  FakeCublasLt& newer = fake_at(install("nvidia/cu13/lib/libcublasLt.so.13"));
  EXPECT(is_planned(wheels));
  EXPECT_EQ(newer.heuristics, 1);
  newer.create_status = 1;  // the driver is too old for it
  EXPECT(is_planned(wheels));
  EXPECT_EQ(older.heuristics, 2);
  FakeCublasLt& loaded = fake_at(LMN_FAKE_CUBLAS_LT_13);
  EXPECT(is_planned(wheels));
  EXPECT_EQ(loaded.heuristics, 1);
  fs::remove_all(wheels);
}

}  // namespace
