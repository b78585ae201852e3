// SPDX-License-Identifier: Apache-2.0
//
// What the device promises of its work (core/device.h): when it is done, what destroying waits for,
// what becomes of errors.
#include <cstring>

#include "fake_gpu.h"
#include "testing.h"

using namespace lmn;
using fake_cuda::FakeGpu;

namespace {

struct Buffers {
  explicit Buffers(Device& of) : device(of) {
    auto made = device.allocate(kBytes);
    ASSERT_OK(made);
    data = *made;
    auto locked = device.allocate_pinned(kBytes);
    ASSERT_OK(locked);
    pinned = *locked;
  }
  ~Buffers() {
    device.release(data, kBytes);
    device.release_pinned(pinned, kBytes);
  }
  Buffers(const Buffers&) = delete;

  static constexpr size_t kBytes = 48;
  Device& device;
  std::byte *data = nullptr, *pinned = nullptr;
};

std::unique_ptr<Stream> stream_of_test(Device& device) {
  auto made = device.create_stream();
  ASSERT_OK(made);
  return std::move(made).value();
}

}  // namespace

// Other streams use memory as soon as they have it, and copies are done when they return.
TEST(memory_and_copies_of_a_device_are_there_when_a_call_returns) {
  FakeGpu gpu;
  Buffers buffers(*gpu);
  const auto stream = stream_of_test(*gpu);
  std::memset(buffers.pinned, 7, Buffers::kBytes);
  ASSERT_OK(stream->copy_from_host(buffers.data, buffers.pinned, Buffers::kBytes));
  ASSERT_OK(stream->synchronize());
  auto plain = (*gpu).allocate_uninitialized(Buffers::kBytes);
  ASSERT_OK(plain);
  ASSERT_OK(stream->copy(*plain, buffers.data, Buffers::kBytes));
  ASSERT_OK(stream->synchronize());
  ASSERT_OK((*gpu).copy_to_host(buffers.pinned, *plain, Buffers::kBytes));
  EXPECT(buffers.pinned[5] == std::byte{7});
  buffers.pinned[0] = std::byte{9};
  ASSERT_OK((*gpu).copy_from_host(*plain, buffers.pinned, Buffers::kBytes));
  buffers.pinned[0] = std::byte{8};  // too late
  ASSERT_OK((*gpu).copy(buffers.data, *plain, Buffers::kBytes));
  ASSERT_OK(stream->copy_to_host(buffers.pinned, buffers.data, Buffers::kBytes));
  ASSERT_OK(stream->synchronize());
  EXPECT(buffers.pinned[0] == std::byte{9});
  (*gpu).release(*plain, Buffers::kBytes);
}

TEST(a_stream_that_is_destroyed_waits_for_its_work) {
  FakeGpu gpu;
  Buffers buffers(*gpu);
  std::byte out[Buffers::kBytes] = {};
  auto stream = stream_of_test(*gpu);
  std::memset(buffers.pinned, 7, Buffers::kBytes);
  ASSERT_OK(stream->copy_from_host(buffers.data, buffers.pinned, Buffers::kBytes));
  ASSERT_OK(stream->copy_to_host(out, buffers.data, Buffers::kBytes));
  EXPECT(out[0] == std::byte{0});
  stream.reset();
  EXPECT(out[0] == std::byte{7});
}

TEST(a_recording_that_goes_wrong_leaves_a_stream_that_works) {
  FakeGpu gpu;
  Buffers buffers(*gpu);
  const auto stream = stream_of_test(*gpu);
  const auto record = [&] {
    LMN_RETURN_IF_ERROR(stream->begin_recording());
    const Status queued = stream->copy_from_host(buffers.data, buffers.pinned, Buffers::kBytes);
    auto made = stream->end_recording();
    return queued.ok() ? made.status() : queued;
  };
  for (const char* function : {"cudaStreamBeginCapture", "cudaMemcpyAsync", "cudaStreamEndCapture",
                               "cudaGraphInstantiateWithFlags", "cudaGraphUpload"}) {
    gpu.fail(function, cudaErrorMemoryAllocation);
    EXPECT(record().code() == Code::kOutOfMemory);
    EXPECT_EQ(fake_cuda::last_error(), cudaSuccess);
    ASSERT_OK(record());
  }
  ASSERT_OK(stream->begin_recording());
  EXPECT(stream->synchronize().code() == Code::kInternal);
  EXPECT(!stream->end_recording().ok());
  ASSERT_OK(stream->synchronize());
}

// Of the memory that is kept for the next allocation, so much was freed: it is given back when
// there is no room in one piece.
TEST(an_allocation_that_finds_no_room_is_tried_again) {
  constexpr size_t kMiB = 1 << 20;
  FakeGpu gpu({.memory_bytes = 64 * kMiB});
  ASSERT_OK((*gpu).reserve(60 * kMiB));
  EXPECT_EQ((*gpu).memory()->free, int64_t{64 * kMiB});
  gpu.fail("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  auto data = (*gpu).allocate_uninitialized(62 * kMiB);
  ASSERT_OK(data);
  EXPECT_EQ(gpu.counters().trims, int64_t{1});
  EXPECT_EQ((*gpu).memory()->free, int64_t{2 * kMiB});
  const auto none = (*gpu).allocate(8 * kMiB);
  EXPECT(none.status().code() == Code::kOutOfMemory);
  EXPECT(none.status().message().find("device cuda:1: 8.0 MiB asked for, 2.0 of 6") == 0);
  EXPECT_EQ(fake_cuda::last_error(), cudaSuccess);
  (*gpu).release(*data, 62 * kMiB);
  gpu.fail("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT((*gpu).allocate_pinned(kMiB).status().code() == Code::kOutOfMemory);
  EXPECT_EQ(fake_cuda::last_error(), cudaSuccess);
}

// What does not end the context is the error of its call alone, and nothing of it is left to the
// host, which may ask for its last error.
TEST(errors_that_pass_close_nothing) {
  FakeGpu gpu;
  Buffers buffers(*gpu);
  const auto stream = stream_of_test(*gpu);
  gpu.fail("cudaMemcpyAsync", cudaErrorInvalidValue);
  const Status failed = stream->copy_from_host(buffers.data, buffers.pinned, 1);
  EXPECT_EQ(failed.message(),
            std::string_view("device cuda:1: copying: an error (cudaErrorInvalidValue)"));
  EXPECT_EQ(fake_cuda::last_error(), cudaSuccess);
  gpu.fail("cudaMemsetAsync", cudaErrorInvalidValue);
  EXPECT(!(*gpu).allocate(16).ok());
  EXPECT_EQ(gpu.bytes_in_use(), int64_t{Buffers::kBytes});
  ASSERT_OK(stream->synchronize());
}

TEST(errors_that_end_the_context_close_the_device) {
  for (const cudaError_t code :
       {cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert,
        cudaErrorMisalignedAddress, cudaErrorECCUncorrectable, cudaErrorUnknown}) {
    FakeGpu gpu;
    Buffers buffers(*gpu);
    const auto stream = stream_of_test(*gpu);
    ASSERT_OK(stream->copy(buffers.data, buffers.data, 1));
    gpu.fail("cudaStreamSynchronize", code);
    const Status failed = stream->synchronize();
    EXPECT(failed.code() == Code::kInternal);
    EXPECT(failed.message().find(cudaGetErrorName(code)) != std::string_view::npos);
    for (const Status& status :
         {stream->synchronize(), stream->copy(buffers.data, buffers.data, 1),
          stream->begin_recording(), (*gpu).create_stream().status(), (*gpu).reserve(1),
          (*gpu).allocate_pinned(1).status(), stream->launch_error(-1)})
      EXPECT(status.code() == Code::kClosed);
  }
}
