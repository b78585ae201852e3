// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong on a device while a model is loaded or a step is run: it is the error of the
// requests that it touched, and what comes after is served, unless the device is closed.
#include "device_fixture.h"
#include "engine/fake_model.h"

using namespace device_test;

namespace {

engine::RequestOptions faulty_request(int32_t tokens, uint64_t seed = 5) {
  return engine::greedy(engine::some_prompt(seed, 12, static_cast<int32_t>(quantised_spec().vocab)),
                        tokens);
}
std::vector<int32_t> tokens_of_one(DeviceEngine& engine) {
  return engine::collect(*engine::must_submit(*engine.engine, faulty_request(10))).tokens;
}
const std::vector<int32_t>& right_tokens() {
  static const std::vector<int32_t> tokens = [] {
    DeviceEngine engine({});
    return tokens_of_one(engine);
  }();
  return tokens;
}

// The next request ends with this, and the one behind it gets its tokens.
void expect_one_failure(DeviceEngine& engine, Code code, const char* text) {
  const auto request = engine::must_submit(*engine.engine, faulty_request(10, 6));
  const Status ended = request->wait(engine::kHangs);
  EXPECT(ended.code() == code);
  if (ended.message().find(text) == std::string_view::npos)
    testing::report_failure(__FILE__, __LINE__, std::string(ended.message()));
  engine.gpu.fail_no_more();
  EXPECT(tokens_of_one(engine) == right_tokens());
}

}  // namespace

TEST(a_launch_that_fails_ends_the_requests_of_its_step) {
  for (const int nth : {1, 9}) {
    DeviceEngine engine({});
    engine.gpu.fail("cudaLaunchKernelExC", cudaErrorLaunchOutOfResources, nth);
    expect_one_failure(
        engine, Code::kInternal,
        "device cuda:1: starting a kernel: an error (cudaErrorLaunchOutOfResources)");
  }
}

// As when a kernel is loaded that was not needed before.
TEST(a_step_without_memory_ends_its_requests) {
  DeviceEngine engine({});
  engine.gpu.fail("cudaLaunchKernelExC", cudaErrorMemoryAllocation, 5);
  expect_one_failure(engine, Code::kOutOfMemory, "device cuda:1: starting a kernel: out of memory");
}

TEST(a_copy_that_fails_ends_the_requests_of_its_step) {
  DeviceEngine engine({});
  engine.gpu.fail("cudaMemcpyAsync", cudaErrorInvalidValue);
  expect_one_failure(engine, Code::kInternal, "device cuda:1: copying: ");
}

// Steps are queued then.
TEST(a_recording_that_fails_costs_no_request) {
  const auto expect_queued = [](DeviceEngine& engine) {
    EXPECT(tokens_of_one(engine) == right_tokens());
    engine.engine->shutdown();
    EXPECT(engine.runner->counters().queued >= 10);
    EXPECT_EQ(engine.runner->counters().recorded, 0);
  };
  const std::pair<const char*, cudaError_t> failures[] = {
      {"cudaStreamBeginCapture", cudaErrorIllegalState},
      {"cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated},
      {"cudaGraphInstantiateWithFlags", cudaErrorMemoryAllocation},
      {"cudaGraphUpload", cudaErrorMemoryAllocation}};
  for (const auto& [function, code] : failures) {
    DeviceEngine engine({});
    engine.gpu.fail(function, code);
    expect_queued(engine);
  }
  // In the middle of what is recorded, the fifth launch after those of a prompt and its draw.
  DeviceEngine engine({});
  const int64_t before = engine.gpu.counters().kernels;
  engine::collect(*engine::must_submit(*engine.engine, faulty_request(1)));
  const auto prompt = static_cast<int>(engine.gpu.counters().kernels - before);
  engine.gpu.fail("cudaLaunchKernelExC", cudaErrorLaunchOutOfResources, prompt + 5);
  expect_queued(engine);
  EXPECT_EQ(engine.gpu.counters().captures, 0);
}

// In a prompt and in a step of answers, of two requests: both are told, and the ones behind them.
TEST(a_kernel_that_fails_ends_the_requests_of_its_step_and_closes_the_device) {
  for (const int nth : {3, 90}) {
    DeviceEngine engine({});
    engine.gpu.fail_kernel(nth);
    const auto first = engine::must_submit(*engine.engine, faulty_request(40));
    const auto second = engine::submit(*engine.engine, faulty_request(40));
    EXPECT(first->wait(engine::kHangs).code() == Code::kInternal);
    if (second.ok()) EXPECT(!(*second)->wait(engine::kHangs).ok());
    const auto stream = (*engine.gpu).create_stream();
    EXPECT(stream.status().code() == Code::kClosed);
    EXPECT(stream.status().message().find("cudaErrorIllegalAddress") != std::string_view::npos);
    engine.engine.reset();
    EXPECT_EQ(engine.gpu.bytes_in_use(), 0);
    EXPECT_EQ(engine.gpu.pinned_in_use(), 0);
  }
}

// Whichever allocation it is that finds no room, twice: what was taken before is given back.
TEST(a_model_that_does_not_fit_leaves_nothing_on_the_device) {
  const models::LanguageModel model = plan_test::load(TinyModel(quantised_spec()));
  auto team = plan_test::make_team(2);
  for (const char* function : {"cudaMallocFromPoolAsync", "cudaHostAlloc"}) {
    for (int nth = 1;; ++nth) {
      fake_cuda::FakeGpu gpu;
      gpu.fail(function, cudaErrorMemoryAllocation, nth, 2);
      const auto plan = plan::Plan::build(optimized_for(model.graph, *gpu), *gpu, *team,
                                          plan_test::plan_options(8, 2));
      if (plan.ok()) {
        EXPECT(nth > 2);
        break;
      }
      EXPECT(plan.status().code() == Code::kOutOfMemory);
      if (plan.status().message().find("device cuda:1: ") == std::string_view::npos)
        testing::report_failure(__FILE__, __LINE__, std::string(plan.status().message()));
      EXPECT_EQ(gpu.bytes_in_use() + gpu.pinned_in_use(), 0);
      EXPECT_EQ(gpu.counters().trims, std::string_view(function) == "cudaHostAlloc" ? 0 : 1);
    }
  }
}
