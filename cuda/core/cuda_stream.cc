// SPDX-License-Identifier: Apache-2.0
#include "cuda/core/cuda_stream.h"

#include <cuda_runtime.h>

#if defined(LMN_CUDA_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

#include <utility>

#include "cuda/core/cublas_lt.h"

namespace lmn::cuda {
namespace {

class CudaRecording final : public Recording {
 public:
  CudaRecording(const Context& context, cudaGraphExec_t graph) : context_(context), graph_(graph) {}
  ~CudaRecording() override {
    const CurrentDevice current(context_);
    (void)cudaGraphExecDestroy(graph_);
  }
  CudaRecording(const CudaRecording&) = delete;

  cudaGraphExec_t graph() const { return graph_; }

 private:
  const Context& context_;
  cudaGraphExec_t graph_;
};

class CudaEvent final : public Event {
 public:
  CudaEvent(const Context& context, cudaEvent_t event) : context_(context), event_(event) {}
  ~CudaEvent() override {
    const CurrentDevice current(context_);
    (void)cudaEventDestroy(event_);
  }
  CudaEvent(const CudaEvent&) = delete;

  cudaEvent_t event() const { return event_; }

 private:
  const Context& context_;
  cudaEvent_t event_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(int ordinal, const Context& context, cudaStream_t stream, Health& health,
             bool overlaps)
      : ordinal_(ordinal),
        context_(context),
        stream_(stream),
        health_(health),
        overlaps_(overlaps) {}
  ~CudaStream() override {
    const CurrentDevice current(context_);
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;

  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    return copy_bytes(device, host, bytes, cudaMemcpyHostToDevice);
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    return copy_bytes(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    return copy_bytes(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  Status copy_rows_from_host(std::byte* device, const std::byte* host, size_t stride,
                             size_t row_bytes, size_t rows) override {
    LMN_RETURN_IF_ERROR(health_.check());
    if (row_bytes == 0 || rows == 0) return {};
    const CurrentDevice current(context_);
    return health_.map(cudaMemcpy2DAsync(device, stride, host, stride, row_bytes, rows,
                                         cudaMemcpyHostToDevice, stream_),
                       "copying rows");
  }
  Status synchronize() override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    return health_.map(cudaStreamSynchronize(stream_), "running kernels");
  }

  Result<std::unique_ptr<Event>> create_event() override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    cudaEvent_t event = nullptr;
    LMN_RETURN_IF_ERROR(health_.map(cudaEventCreate(&event), "creating an event"));
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(context_, event));
  }
  Status record_event(Event& event) override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    return health_.map(cudaEventRecord(static_cast<CudaEvent&>(event).event(), stream_),
                       "recording an event");
  }
  Result<int64_t> elapsed_ns(const Event& from, const Event& to) override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    float ms = 0;
    LMN_RETURN_IF_ERROR(
        health_.map(cudaEventElapsedTime(&ms, static_cast<const CudaEvent&>(from).event(),
                                         static_cast<const CudaEvent&>(to).event()),
                    "reading the time between two events"));
    return static_cast<int64_t>(double{ms} * 1e6);
  }

  Status begin_recording() override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    return health_.map(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                       "beginning to record kernels");
  }

  Result<std::unique_ptr<Recording>> end_recording() override {
    const CurrentDevice current(context_);
    cudaGraph_t graph = nullptr;
    LMN_RETURN_IF_ERROR(health_.map(cudaStreamEndCapture(stream_, &graph), "recording kernels"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t code = cudaGraphInstantiateWithFlags(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    LMN_RETURN_IF_ERROR(health_.map(code, "preparing recorded kernels"));
    auto recording = std::make_unique<CudaRecording>(context_, executable);
    LMN_RETURN_IF_ERROR(
        health_.map(cudaGraphUpload(executable, stream_), "uploading recorded kernels"));
    return std::unique_ptr<Recording>(std::move(recording));
  }

  Status replay(Recording& recording) override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    return health_.map(cudaGraphLaunch(static_cast<CudaRecording&>(recording).graph(), stream_),
                       "starting recorded kernels");
  }

  void enter() override { entered_ += context_.push() ? 1 : 0; }
  void leave() override {
    if (entered_ == 0) return;  // there was no room
    --entered_;
    context_.pop();
  }

#if defined(LMN_CUDA_NVTX)
  void push_range(const char* name) override { nvtxRangePushA(name); }
  void pop_range() override { nvtxRangePop(); }
#endif
  int32_t device_index() const override { return ordinal_; }
  bool overlaps_kernels() const override { return overlaps_; }
  void* handle() override { return stream_; }
  Status launch_error(int32_t failure) override {
    if (failure < 0) {
      LMN_RETURN_IF_ERROR(health_.check());
      return error(Code::kInternal, "device cuda:%d: starting a product: cuBLASLt gives status %d",
                   ordinal_, status_of_failure(failure));
    }
    return health_.map(static_cast<cudaError_t>(failure), "starting a kernel");
  }

 private:
  Status copy_bytes(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    LMN_RETURN_IF_ERROR(health_.check());
    if (bytes == 0) return {};
    const CurrentDevice current(context_);
    return health_.map(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying");
  }

  const int ordinal_;
  const Context& context_;
  const cudaStream_t stream_;
  Health& health_;
  const bool overlaps_;
  int entered_ = 0;
};

}  // namespace

Result<std::unique_ptr<Stream>> create_cuda_stream(int ordinal, const Context& context,
                                                   Health& health, bool overlaps) {
  LMN_RETURN_IF_ERROR(health.check());
  const CurrentDevice current(context);
  cudaStream_t stream = nullptr;
  LMN_RETURN_IF_ERROR(
      health.map(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
  return std::unique_ptr<Stream>(
      std::make_unique<CudaStream>(ordinal, context, stream, health, overlaps));
}

}  // namespace lmn::cuda
