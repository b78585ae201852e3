// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the runtime of tests share: objects, and what each call begins with.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "executor.h"
#include "fake_runtime.h"

struct CUctx_st {
  int device = 0;
  int64_t reserved = 0;             // by its pools, what they keep included
  cudaError_t fault = cudaSuccess;  // that ended it
  std::string why;
};

namespace fake_cuda {

using Work = std::function<void()>;
using Node = std::function<Work()>;  // of a graph: its work in one launch

// Stays after it was destroyed, until its device is reset: so its use is seen.
struct Object {
  virtual ~Object() = default;
  CUcontext context = nullptr;
  bool destroyed = false;
};

struct Capture {
  std::thread::id thread;
  std::vector<Node> nodes;
  bool valid = true;
};

class FakeStream final : public Object, public simt_tests::LaunchStream {
 public:
  int32_t launch(Work kernel) override;
  // Into the capture, if there is one.
  cudaError_t push(Work work);
  cudaError_t push_node(Node node);
  void run(size_t items);
  void run() { run(queue.size()); }

  std::deque<Work> queue;
  std::unique_ptr<Capture> capture;
  std::minstd_rand random;
};

// All under this lock; calls may nest.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
};

// What every call begins with: the context, errors that stay, errors that were asked for. Notes
// objects of other contexts and such that are gone.
cudaError_t begin(const char* function, std::initializer_list<const Object*> objects = {});
// Of a call that is forbidden while its thread captures: ends the capture then.
cudaError_t begin_unsafe(const char* function, std::initializer_list<const Object*> objects = {});
// Returns the code, the last error of the thread now where it is one.
cudaError_t remember(cudaError_t code);
// A new object of the current context.
void own(Object* object);
cudaError_t destroy(const char* function, Object* object);
// Null for the legacy stream, which is noted and ends captures.
FakeStream* stream_of(const char* function, cudaStream_t stream);

void note(const std::string& what);
void end_context(CUcontext context, cudaError_t code, const std::string& why);
// The code that was asked for of this call, or success.
cudaError_t take_failure(int device, const char* function);
// After a kernel: what the executor found.
void take_kernel_fault(CUcontext context);
FakeDevice& device_of(CUcontext context);
void leave_to_orphans(FakeStream& stream);  // what it had still to do
void run_orphans(int device);
// How many the calling thread began; ends them, if it shall.
int captures_of_thread(bool ends);
void forget_memory(int device);
std::vector<std::string> leaks(int device);

}  // namespace fake_cuda

struct CUmemPoolHandle_st final : fake_cuda::Object {
  int64_t used = 0, reserved = 0;
};
struct CUevent_st final : fake_cuda::Object {
  bool recorded = false, captured = false;
  int pending = 0;
  int64_t at_ns = 0;
};
struct CUgraph_st final : fake_cuda::Object {
  std::vector<fake_cuda::Node> nodes;
};
struct CUgraphExec_st final : fake_cuda::Object {
  std::vector<fake_cuda::Node> nodes;
};
