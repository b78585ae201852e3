// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device over a runtime of tests: which device's context is made and which is current
// when, and what a device is refused for.
#include "cuda/core/cuda_device.h"

#include <cstring>
#include <memory>
#include <thread>

#include "fake_runtime.h"
#include "testing.h"

using namespace lmn;
using fake_cuda::fake;

namespace {

void new_process() {
  fake_cuda::reset();
  fake().ticks = true;
}

std::unique_ptr<Device> open_device(int ordinal) {
  auto made = cuda::create_cuda_device(ordinal);
  ASSERT_OK(made);
  return std::move(made).value();
}

// Everything that a device and a stream do; `before` is the context that the thread has around it.
void use_device(Device& device, CUcontext before) {
  const auto as_before = [&] {
    EXPECT(fake_cuda::current() == before);
    EXPECT_EQ(fake_cuda::depth(), size_t{before == nullptr ? 0u : 1u});
  };
  const char text[] = "0123456789abcdef";
  char out[16] = {};
  auto data = device.allocate(64);
  ASSERT_OK(data);
  as_before();
  ASSERT_OK(device.reserve(128));
  as_before();
  auto pinned = device.allocate_pinned(64);
  ASSERT_OK(pinned);
  as_before();
  ASSERT_OK(device.memory());
  as_before();
  ASSERT_OK(device.copy_from_host(*data, text, 16));
  ASSERT_OK(device.copy(*data + 32, *data, 16));
  ASSERT_OK(device.copy_to_host(out, *data + 32, 16));
  as_before();
  EXPECT(std::memcmp(out, text, 16) == 0);
  {
    auto stream = device.create_stream();
    ASSERT_OK(stream);
    as_before();
    Stream& s = **stream;
    auto first = s.create_event(), second = s.create_event();
    ASSERT_OK(first);
    ASSERT_OK(second);
    as_before();
    EXPECT(!s.elapsed_ns(**first, **second).ok());  // neither was marked
    ASSERT_OK(s.record_event(**first));
    ASSERT_OK(s.record_event(**second));
    as_before();
    EXPECT(!s.elapsed_ns(**first, **second).ok());  // the device has not got there
    ASSERT_OK(s.synchronize());
    const auto time = s.elapsed_ns(**first, **second);
    ASSERT_OK(time);
    EXPECT_EQ(*time, int64_t{976});  // of the fake: 1/1024 ms
    as_before();
    ASSERT_OK(s.begin_recording());
    as_before();
    ASSERT_OK(s.copy_from_host(*data, text, 8));
    auto recording = s.end_recording();
    ASSERT_OK(recording);
    as_before();
    ASSERT_OK(s.replay(**recording));
    as_before();
    std::memcpy(*pinned, text, 16);
    ASSERT_OK(s.copy_rows_from_host(*data, *pinned, 8, 2, 2));
    as_before();
    ASSERT_OK(s.synchronize());
    as_before();
    recording->reset();
    as_before();
  }
  as_before();
  ASSERT_OK(device.copy_to_host(out, *data, 16));
  EXPECT(std::memcmp(out,
                     "01234567"
                     "89abcdef",
                     2) == 0);
  device.release(*data, 64);
  device.release_pinned(*pinned, 64);
  as_before();
}

}  // namespace

TEST(a_device_is_used_without_a_context_on_another) {
  new_process();
  {
    const auto device = open_device(1);
    EXPECT(fake_cuda::current() == nullptr);
    use_device(*device, nullptr);
    std::thread([&] { use_device(*device, nullptr); }).join();
  }
  EXPECT(fake_cuda::current() == nullptr);
  EXPECT(fake().active == std::set<int>{1});
  EXPECT(fake().misused.empty());
  EXPECT_EQ(fake().objects, 0);
}

TEST(a_host_keeps_the_context_that_it_has) {
  new_process();
  const CUcontext own = fake_cuda::context_of(2);
  fake_cuda::set_current(own);
  {
    const auto device = open_device(1);
    EXPECT(fake_cuda::current() == own);
    use_device(*device, own);
  }
  EXPECT(fake_cuda::current() == own);
  EXPECT_EQ(fake_cuda::depth(), size_t{1});
  EXPECT(fake().active == (std::set<int>{1, 2}));
  EXPECT(fake().misused.empty());
  EXPECT_EQ(fake().objects, 0);
  fake_cuda::set_current(nullptr);
}

// Kernels are launched by a thread that has entered; what else it does then changes no context.
TEST(a_thread_that_has_entered_a_stream_is_on_its_device) {
  new_process();
  const auto device = open_device(1);
  auto stream = device->create_stream();
  ASSERT_OK(stream);
  auto data = device->allocate(16);
  ASSERT_OK(data);
  {
    const EnteredStream entered(**stream);
    EXPECT(fake_cuda::current() == fake_cuda::context_of(1));
    const int pushes = fake().pushes;
    ASSERT_OK((*stream)->copy_from_host(*data, "0123456789abcde", 16));
    ASSERT_OK((*stream)->synchronize());
    EXPECT_EQ(fake().pushes, pushes);
    {
      const EnteredStream again(**stream);
      EXPECT(fake_cuda::current() == fake_cuda::context_of(1));
    }
    EXPECT(fake_cuda::current() == fake_cuda::context_of(1));
  }
  EXPECT(fake_cuda::current() == nullptr);
  device->release(*data, 16);
  EXPECT(fake().active == std::set<int>{1});
}

// As after a reset of the device by the host: there is no room on the stack, and nothing is taken
// from it that is the host's.
TEST(a_context_that_is_gone_leaves_the_hosts_where_it_is) {
  new_process();
  const auto device = open_device(1);
  auto stream = device->create_stream();
  ASSERT_OK(stream);
  const CUcontext own = fake_cuda::context_of(2);
  fake_cuda::set_current(own);
  fake().active.erase(1);
  {
    const EnteredStream entered(**stream);
    EXPECT(fake_cuda::current() == own);
  }
  EXPECT(fake_cuda::current() == own);
  EXPECT(!(*stream)->synchronize().ok());
  EXPECT(fake_cuda::current() == own);
  fake().active.insert(1);
  fake_cuda::set_current(nullptr);
}

TEST(a_device_tells_its_multiprocessors) {
  new_process();
  EXPECT_EQ(open_device(2)->multiprocessors(), 102);
}

TEST(a_device_that_lacks_something_is_refused_by_name) {
  new_process();
  const auto refused = [](const char* text) {
    const auto made = cuda::create_cuda_device(1);
    EXPECT(made.status().code() == Code::kUnsupported);
    EXPECT(made.status().message().find(text) != std::string_view::npos);
  };
  fake().has_pools = 0;
  refused("device cuda:1: the driver offers no memory pools on it");
  fake().has_pools = 1;
  fake().shared_bytes = 65536;
  refused("device cuda:1: a block may have 65536 bytes of shared memory");
  fake().shared_bytes = 101376;
  fake().driver_version = 12020;
  refused("device cuda:1: the NVIDIA driver is made for CUDA 12.2");
  EXPECT(fake().active.empty());
  new_process();
}
