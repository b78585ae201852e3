// SPDX-License-Identifier: Apache-2.0
//
// Streams, events, captures and graphs of the runtime of tests.
#include <chrono>
#include <utility>

#include "runtime_state.h"

namespace fake_cuda {
namespace {

int64_t ticks = 0;

int64_t now_ns() {
  if (fake().ticks) return ++ticks * 1000000 / 1024;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

cudaError_t forbidden_in_capture(FakeStream& stream) {
  stream.capture->valid = false;
  return remember(cudaErrorStreamCaptureUnsupported);
}

}  // namespace

cudaError_t begin_unsafe(const char* function, std::initializer_list<const Object*> objects) {
  const cudaError_t code = begin(function, objects);
  if (code != cudaSuccess) return code;
  return captures_of_thread(true) == 0 ? cudaSuccess : remember(cudaErrorStreamCaptureUnsupported);
}

FakeStream* stream_of(const char* function, cudaStream_t stream) {
  if (stream != nullptr) return static_cast<FakeStream*>(stream);
  note(std::string(function) + " on the legacy stream");
  captures_of_thread(true);
  return nullptr;
}

cudaError_t FakeStream::push_node(Node node) {
  if (capture == nullptr) return push(node());
  if (!capture->valid) return remember(cudaErrorStreamCaptureInvalidated);
  capture->nodes.push_back(std::move(node));
  return cudaSuccess;
}

cudaError_t FakeStream::push(Work work) {
  if (capture != nullptr) return push_node([work = std::move(work)] { return work; });
  queue.push_back(std::move(work));
  if (device_of(context).seed != 0 && random() % 4 == 0) run(random() % queue.size() + 1);
  return cudaSuccess;
}

void FakeStream::run(size_t items) {
  for (; items > 0 && !queue.empty(); --items) {
    const Work work = std::move(queue.front());
    queue.pop_front();
    if (context->fault == cudaSuccess) work();
  }
}

int32_t FakeStream::launch(Work kernel) {
  const Guard guard;
  cudaError_t code = begin("cudaLaunchKernelExC", {this});
  if (code == cudaSuccess) {
    code = push([context = context, kernel = std::move(kernel)] {
      ++device_of(context).counters.kernels;
      kernel();
      take_kernel_fault(context);
    });
  } else if (capture != nullptr) {
    capture->valid = false;
  }
  return code;
}

}  // namespace fake_cuda

using namespace fake_cuda;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Guard guard;
  const cudaError_t code = begin(__func__);
  if (code != cudaSuccess) return code;
  auto* made = new FakeStream;
  own(made);
  made->random.seed(static_cast<unsigned>(device_of(made->context).seed));
  *stream = made;
  return cudaSuccess;
}
// What is queued is done some time later.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  const cudaError_t code = destroy(__func__, s);
  if (s == nullptr) return code;
  if (s->capture != nullptr) note("a stream is destroyed in a capture");
  s->capture.reset();
  leave_to_orphans(*s);
  return code;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  if (s == nullptr) return remember(cudaErrorStreamCaptureImplicit);
  const cudaError_t code = begin(__func__, {s});
  if (code != cudaSuccess) return code;
  if (s->capture != nullptr) return forbidden_in_capture(*s);
  ++device_of(s->context).counters.waits;
  s->run();
  return remember(s->context->fault);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  const Guard guard;
  const cudaError_t code = begin(__func__);
  if (code != cudaSuccess) return code;
  own(*event = new CUevent_st);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Guard guard;
  return destroy(__func__, event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  const cudaError_t code = begin(__func__, {event, s});
  if (code != cudaSuccess) return code;
  event->recorded = true;
  event->captured = s->capture != nullptr;
  if (event->captured) return s->push([] {});
  ++event->pending;
  return s->push([event] {
    --event->pending;
    event->at_ns = now_ns();
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const Guard guard;
  const cudaError_t code = begin(__func__, {from, to});
  if (code != cudaSuccess) return code;
  for (const CUevent_st* event : {from, to}) {
    if (!event->recorded) return remember(cudaErrorInvalidResourceHandle);
    if (event->captured) return remember(cudaErrorCapturedEvent);
    if (event->pending > 0) return remember(cudaErrorNotReady);
  }
  *ms = static_cast<float>(static_cast<double>(to->at_ns - from->at_ns) / 1e6);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  if (s == nullptr) return remember(cudaErrorStreamCaptureUnsupported);
  const cudaError_t code = begin(__func__, {s});
  if (code != cudaSuccess) return code;
  if (mode != cudaStreamCaptureModeThreadLocal) return remember(cudaErrorInvalidValue);
  if (s->capture != nullptr) return remember(cudaErrorIllegalState);
  s->capture = std::make_unique<Capture>();
  s->capture->thread = std::this_thread::get_id();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Guard guard;
  *graph = nullptr;
  FakeStream* s = stream_of(__func__, stream);
  if (s == nullptr || s->capture == nullptr) return remember(cudaErrorIllegalState);
  if (s->capture->thread != std::this_thread::get_id()) {
    s->capture->valid = false;
    return remember(cudaErrorStreamCaptureWrongThread);
  }
  const std::unique_ptr<Capture> capture = std::move(s->capture);
  const cudaError_t code = begin(__func__, {s});
  if (code != cudaSuccess) return code;
  if (!capture->valid) return remember(cudaErrorStreamCaptureInvalidated);
  ++device_of(s->context).counters.captures;
  own(*graph = new CUgraph_st);
  (*graph)->nodes = std::move(capture->nodes);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  const Guard guard;
  if (current() != nullptr) ++device_of(current()).counters.graphs;
  const cudaError_t code = begin(__func__, {graph});
  if (code != cudaSuccess) return code;
  own(*executable = new CUgraphExec_st);
  (*executable)->nodes = graph->nodes;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Guard guard;
  const cudaError_t code = destroy(__func__, graph);
  if (graph != nullptr) graph->nodes.clear();
  return code;
}
// One that is queued is still done.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Guard guard;
  const cudaError_t code = destroy(__func__, executable);
  if (executable != nullptr) executable->nodes.clear();
  return code;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  const cudaError_t code = begin(__func__, {executable, s});
  if (code != cudaSuccess) return code;
  return s->capture != nullptr ? forbidden_in_capture(*s) : cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  const cudaError_t code = begin(__func__, {executable, s});
  if (code != cudaSuccess) return code;
  if (s->capture != nullptr) {  // CUDA takes it as a part of the graph; the device never asks
    note("a graph is launched into a capture");
    return forbidden_in_capture(*s);
  }
  ++device_of(s->context).counters.replays;
  std::vector<Work> work;
  for (const Node& node : executable->nodes) work.push_back(node());
  return s->push([work = std::move(work), context = s->context] {
    for (const Work& item : work) {
      if (context->fault == cudaSuccess) item();
    }
  });
}
