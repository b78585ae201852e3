// SPDX-License-Identifier: Apache-2.0
//
// The runtime of tests finds what it promises to (fake_runtime.h): each of these is a mistake that
// a device could make and that CUDA would let pass, or fail at some other time.
#include <cuda_runtime.h>

#include <cstring>
#include <thread>
#include <vector>

#include "cuda/core/simt.cuh"
#include "fake_runtime.h"
#include "testing.h"

namespace {

using fake_cuda::fake;

// Of a process that has device 0.
struct Raw {
  Raw() {
    fake_cuda::reset();
    fake_cuda::set_current(fake_cuda::context_of(0));
    const cudaMemPoolProps properties{};
    EXPECT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    data = allocate();
    void* made = nullptr;
    EXPECT_EQ(cudaHostAlloc(&made, kBytes, cudaHostAllocDefault), cudaSuccess);
    pinned = static_cast<char*>(made);
    std::memset(pinned, 'p', kBytes);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  ~Raw() { fake_cuda::reset(); }

  char* allocate() {
    void* made = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&made, kBytes, pool, stream), cudaSuccess);
    return static_cast<char*>(made);
  }
  cudaError_t send(const char* from) {
    return cudaMemcpyAsync(data, from, kBytes, cudaMemcpyHostToDevice, stream);
  }
  char first() {
    std::vector<char> out(kBytes);
    EXPECT_EQ(cudaMemcpyAsync(out.data(), data, kBytes, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return out[0];
  }
  // What was noted since, in one piece.
  static std::string noted() {
    std::string all;
    for (const std::string& what : fake().misused) all += what + ";";
    fake().misused.clear();
    return all;
  }

  static constexpr size_t kBytes = 64;
  cudaMemPool_t pool = nullptr;
  cudaStream_t stream = nullptr, other = nullptr;
  char *data = nullptr, *pinned = nullptr;
};

void touch(char* data) { data[lmn::simt::thread_index()] = 1; }

}  // namespace

TEST(page_locked_memory_is_read_when_the_copy_is_done_and_other_memory_at_the_call) {
  Raw raw;
  EXPECT_EQ(raw.send(raw.pinned), cudaSuccess);
  raw.pinned[0] = 'q';
  EXPECT_EQ(raw.first(), 'q');
  EXPECT_EQ(Raw::noted(), "cudaMemcpyAsync: the host changed what a queued copy is of;");
  std::vector<char> pageable(Raw::kBytes, 'a');
  EXPECT_EQ(raw.send(pageable.data()), cudaSuccess);
  pageable[0] = 'b';
  EXPECT_EQ(raw.first(), 'a');
  EXPECT_EQ(Raw::noted(), "cudaMemcpyAsync: the host changed what a queued copy is of;");
}

TEST(what_is_queued_is_done_by_the_next_wait_or_by_chance_before_it) {
  Raw raw;
  std::vector<char> out(Raw::kBytes, 'o');
  EXPECT_EQ(raw.send(raw.pinned), cudaSuccess);
  const auto fetch = [&] {
    (void)cudaMemcpyAsync(out.data(), raw.data, Raw::kBytes, cudaMemcpyDeviceToHost, raw.stream);
  };
  for (int i = 0; i < 100; ++i) fetch();
  EXPECT_EQ(out[0], 'o');
  fake().devices[0].seed = 1;
  for (int i = 0; i < 100; ++i) fetch();
  EXPECT_EQ(out[0], 'p');
}

TEST(memory_that_is_not_there_is_an_illegal_address) {
  {
    Raw raw;
    EXPECT_EQ(raw.send(raw.pinned), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(raw.pinned), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(raw.stream), cudaErrorIllegalAddress);
    EXPECT_EQ(Raw::noted(), "cudaMemcpyAsync: memory was freed before the copy was done;");
    EXPECT_EQ(cudaStreamSynchronize(raw.other), cudaErrorIllegalAddress);  // it stays
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  }
  {
    Raw raw;
    EXPECT_EQ(raw.send(raw.pinned), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(raw.data, raw.other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(raw.other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(raw.stream), cudaErrorIllegalAddress);
  }
  {
    Raw raw;  // the other stream does not know of the allocation yet
    raw.data = raw.allocate();
    EXPECT_EQ(cudaMemsetAsync(raw.data, 0, Raw::kBytes, raw.other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(raw.other), cudaErrorIllegalAddress);
    EXPECT_EQ(Raw::noted(), "cudaMemsetAsync: the stream of the allocation was not waited for;");
  }
  Raw raw;
  EXPECT_EQ(raw.send(raw.data), cudaErrorInvalidValue);  // no memory of the host
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(raw.data, 0, Raw::kBytes + 1, raw.stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(raw.data, raw.stream), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(raw.data, raw.stream), cudaErrorInvalidValue);
  EXPECT_EQ(raw.send(raw.pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(raw.data), cudaErrorInvalidValue);
}

TEST(a_kernel_sees_memory_once_its_stream_was_waited_for) {
  Raw raw;
  const auto launch = [&](cudaStream_t stream, char* data) {
    lmn::ops::LaunchQueue queue;
    queue.stream = stream;
    lmn::simt::launch<touch>(queue, {1, 1, 1, 32, 0}, data);
    return queue.failure;
  };
  EXPECT_EQ(launch(raw.other, raw.data), 0);
  EXPECT_EQ(cudaStreamSynchronize(raw.other), cudaSuccess);
  EXPECT_EQ(fake().devices[0].counters.kernels, int64_t{1});
  fake_cuda::set_current(nullptr);  // device 0 is taken then
  EXPECT_EQ(launch(raw.other, raw.data), 0);
  fake_cuda::set_current(fake_cuda::context_of(1));
  EXPECT_EQ(launch(raw.other, raw.data), int32_t{cudaErrorInvalidResourceHandle});
  EXPECT_EQ(Raw::noted(), "cudaLaunchKernelExC under another context;");
}

TEST(what_is_forbidden_in_a_capture_ends_it) {
  const auto begin = [](Raw& raw) {
    EXPECT_EQ(cudaStreamBeginCapture(raw.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  };
  const auto end = [](Raw& raw) {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(raw.stream, &graph);
    EXPECT((graph != nullptr) == (code == cudaSuccess));
    return code;
  };
  const auto ends = [&](cudaError_t (*call)(Raw&), cudaError_t want) {
    Raw raw;
    begin(raw);
    EXPECT_EQ(call(raw), want);
    EXPECT_EQ(raw.send(raw.pinned), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(raw), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(raw), cudaErrorIllegalState);
    EXPECT_EQ(cudaStreamSynchronize(raw.stream), cudaSuccess);
  };
  ends([](Raw& raw) { return cudaStreamSynchronize(raw.stream); },
       cudaErrorStreamCaptureUnsupported);
  ends([](Raw&) { return cudaStreamSynchronize(nullptr); }, cudaErrorStreamCaptureImplicit);
  ends(
      [](Raw&) {
        void* made = nullptr;
        return cudaHostAlloc(&made, 16, cudaHostAllocDefault);
      },
      cudaErrorStreamCaptureUnsupported);
  ends(
      [](Raw& raw) {
        void* made = nullptr;
        return cudaMallocFromPoolAsync(&made, 16, raw.pool, raw.stream);
      },
      cudaErrorStreamCaptureUnsupported);

  Raw raw;
  begin(raw);
  EXPECT_EQ(cudaStreamBeginCapture(raw.stream, cudaStreamCaptureModeThreadLocal),
            cudaErrorIllegalState);
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] {
    fake_cuda::set_current(fake_cuda::context_of(0));
    void* made = nullptr;  // what other threads do is theirs
    EXPECT_EQ(cudaHostAlloc(&made, 16, cudaHostAllocDefault), cudaSuccess);
    elsewhere = end(raw);
  }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureWrongThread);

  Raw timed;
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  begin(timed);
  EXPECT_EQ(cudaEventRecord(event, timed.stream), cudaSuccess);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event, event), cudaErrorCapturedEvent);
  EXPECT_EQ(end(timed), cudaSuccess);
}

TEST(a_graph_does_what_was_captured_with_what_is_there_when_it_is_done) {
  Raw raw;
  EXPECT_EQ(cudaStreamBeginCapture(raw.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(raw.send(raw.pinned), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(raw.stream, &graph), cudaSuccess);
  EXPECT_EQ(raw.first(), '\xFF');  // nothing was done
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (const char c : {'x', 'y'}) {
    raw.pinned[0] = c;
    EXPECT_EQ(cudaGraphLaunch(executable, raw.stream), cudaSuccess);
    EXPECT_EQ(raw.first(), c);
    EXPECT_EQ(Raw::noted(), "");
  }
  EXPECT_EQ(cudaGraphLaunch(executable, raw.stream), cudaSuccess);
  raw.pinned[0] = 'z';
  EXPECT_EQ(raw.first(), 'z');
  EXPECT_EQ(Raw::noted(), "cudaMemcpyAsync: the host changed what a queued copy is of;");
  EXPECT_EQ(cudaFreeAsync(raw.data, raw.stream), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, raw.stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(raw.stream), cudaErrorIllegalAddress);
}

TEST(what_is_left_and_what_is_used_after_its_end_is_told) {
  Raw raw;
  EXPECT_EQ(raw.send(raw.pinned), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(raw.stream), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(raw.pinned), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(raw.stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(raw.stream), cudaErrorInvalidResourceHandle);
  std::string all;
  for (const std::string& wrong : fake_cuda::finish(0)) all += wrong + ";";
  EXPECT_EQ(all,
            "cudaStreamSynchronize of what was destroyed;cudaStreamDestroy of what was destroyed;"
            "cudaMemcpyAsync: memory was freed before the copy was done;"
            "a stream, event, pool or graph is left;a stream, event, pool or graph is left;"
            "64 bytes of the device's memory are left;"
            "the host's last error is left: cudaErrorInvalidResourceHandle;");
}
