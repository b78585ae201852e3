// SPDX-License-Identifier: Apache-2.0
//
// Devices, contexts, objects and errors of the runtime of tests.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "runtime_state.h"

namespace fake_cuda {
namespace {

struct Process {
  std::recursive_mutex mutex;
  Fake fake;
  CUctx_st contexts[kDevices];
  std::vector<std::unique_ptr<Object>> objects[kDevices];
  std::vector<std::pair<CUcontext, std::deque<Work>>> orphans;
  std::map<std::thread::id, cudaError_t> last;
  std::deque<std::string> texts;  // of cudaGetErrorString

  Process() {
    for (int i = 0; i < kDevices; ++i) contexts[i].device = i;
    set_up();
  }
  void set_up() {
    for (int i = 0; i < kDevices; ++i) fake.devices[i].multiprocessors = 100 + i;
  }
};
Process& process() {
  static Process* const instance = new Process;  // devices may go after main
  return *instance;
}
thread_local std::vector<CUcontext> stack;

CUcontext use_context() {
  if (current() == nullptr) set_current(context_of(0));
  return current();
}

CUresult get_current(CUcontext* context) { return *context = current(), CUDA_SUCCESS; }
CUresult push_current(CUcontext context) {
  const Guard guard;
  if (context == nullptr || !fake().active.contains(context->device))
    return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  ++fake().pushes;
  return CUDA_SUCCESS;
}
CUresult pop_current(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult retain(CUcontext* context, CUdevice device) {
  const Guard guard;
  return *context = context_of(device), CUDA_SUCCESS;
}

bool ends_contexts(cudaError_t code) {
  switch (code) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

Guard::Guard() { process().mutex.lock(); }
Guard::~Guard() { process().mutex.unlock(); }

Fake& fake() { return process().fake; }
FakeDevice& device_of(CUcontext context) { return fake().devices[context->device]; }

void reset(int device) {
  const Guard guard;
  Process& p = process();
  std::erase_if(p.orphans, [&](const auto& orphan) { return orphan.first->device == device; });
  for (const auto& object : p.objects[device]) fake().objects -= object->destroyed ? 0 : 1;
  p.objects[device].clear();
  forget_memory(device);
  p.contexts[device] = {};
  p.contexts[device].device = device;
  fake().active.erase(device);
  fake().devices[device] = {};
  p.set_up();
}
void reset() {
  const Guard guard;
  for (int i = 0; i < kDevices; ++i) reset(i);
  process().last.clear();
  fake() = {};
  process().set_up();
  stack.clear();
}

std::vector<std::string> finish(int device) {
  const Guard guard;
  Process& p = process();
  run_orphans(device);
  std::vector<std::string> wrong = std::exchange(fake().misused, {});
  if (device != 0 && fake().active.contains(0)) wrong.emplace_back("device 0 has a context");
  for (const auto& object : p.objects[device]) {
    if (!object->destroyed) wrong.emplace_back("a stream, event, pool or graph is left");
  }
  for (std::string& leak : leaks(device)) wrong.push_back(std::move(leak));
  for (auto& [thread, code] : p.last) {
    if (code != cudaSuccess && !ends_contexts(code))
      wrong.push_back(std::string("the host's last error is left: ") + cudaGetErrorName(code));
    code = cudaSuccess;
  }
  return wrong;
}

CUcontext context_of(int device) {
  fake().active.insert(device);
  return &process().contexts[device];
}
CUcontext current() { return stack.empty() ? nullptr : stack.back(); }
void set_current(CUcontext context) {
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
}
size_t depth() { return stack.size(); }
cudaError_t last_error() {
  const Guard guard;
  return process().last[std::this_thread::get_id()];
}

void note(const std::string& what) { fake().misused.push_back(what); }

cudaError_t remember(cudaError_t code) {
  if (code != cudaSuccess) process().last[std::this_thread::get_id()] = code;
  return code;
}

void end_context(CUcontext context, cudaError_t code, const std::string& why) {
  if (context->fault != cudaSuccess) return;
  context->fault = code;
  context->why = why;
}

cudaError_t take_failure(int device, const char* function) {
  auto& failures = fake().devices[device].failures;
  const auto found = failures.find(function);
  if (found == failures.end()) return cudaSuccess;
  Failure& failure = found->second;
  if (failure.after > 0) return --failure.after, cudaSuccess;
  const cudaError_t code = failure.code;
  if (--failure.times == 0) failures.erase(found);
  return code;
}

void take_kernel_fault(CUcontext context) {
  const std::string found = simt_tests::take_fault();
  if (!found.empty()) end_context(context, cudaErrorIllegalAddress, found);
  const cudaError_t asked = take_failure(context->device, kKernel);
  if (asked != cudaSuccess) end_context(context, asked, "an error that the test asked for");
}

cudaError_t begin(const char* function, std::initializer_list<const Object*> objects) {
  const CUcontext context = use_context();
  for (const Object* object : objects) {
    const char* wrong = object == nullptr            ? " of nothing"
                        : object->destroyed          ? " of what was destroyed"
                        : object->context != context ? " under another context"
                                                     : nullptr;
    if (wrong == nullptr) continue;
    note(std::string(function) + wrong);
    return remember(cudaErrorInvalidResourceHandle);
  }
  if (context->fault != cudaSuccess) return remember(context->fault);
  const cudaError_t asked = take_failure(context->device, function);
  if (ends_contexts(asked)) end_context(context, asked, "an error that the test asked for");
  return remember(asked);
}

void own(Object* object) {
  object->context = current();
  process().objects[object->context->device].emplace_back(object);
  ++fake().objects;
}
cudaError_t destroy(const char* function, Object* object) {
  const cudaError_t code = begin(function, {object});
  if (object == nullptr || object->destroyed) return code;
  object->destroyed = true;
  --fake().objects;
  return code;
}

int captures_of_thread(bool ends) {
  int found = 0;
  for (auto& objects : process().objects) {
    for (const auto& object : objects) {
      auto* stream = dynamic_cast<FakeStream*>(object.get());
      if (stream != nullptr && stream->capture != nullptr &&
          stream->capture->thread == std::this_thread::get_id()) {
        ++found;
        if (ends) stream->capture->valid = false;
      }
    }
  }
  return found;
}

void leave_to_orphans(FakeStream& stream) {
  if (!stream.queue.empty())
    process().orphans.emplace_back(stream.context, std::exchange(stream.queue, {}));
}
void run_orphans(int device) {
  for (auto& [context, queue] : process().orphans) {
    if (context->device != device) continue;
    for (; !queue.empty(); queue.pop_front()) {
      if (context->fault == cudaSuccess) queue.front()();
    }
  }
}

}  // namespace fake_cuda

using namespace fake_cuda;

cudaError_t cudaGetDeviceCount(int* count) { return *count = kDevices, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Guard guard;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return *value = 9, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = 0, cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      return *value = fake().devices[device].multiprocessors, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = fake().shared_bytes, cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      return *value = fake().has_pools, cudaSuccess;
  }
  return remember(cudaErrorInvalidValue);
}
cudaError_t cudaDriverGetVersion(int* version) {
  return *version = fake().driver_version, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() {
  const Guard guard;
  cudaError_t& last = process().last[std::this_thread::get_id()];
  return ends_contexts(last) ? last : std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
#define LMN_FAKE_CUDA_ERROR(name, value) \
  case name:                             \
    return #name;
      LMN_FAKE_CUDA_ERRORS(LMN_FAKE_CUDA_ERROR)
#undef LMN_FAKE_CUDA_ERROR
  }
  return "unrecognized error code";
}
// With what the executor found, where that ended the context.
const char* cudaGetErrorString(cudaError_t code) {
  const Guard guard;
  const CUcontext context = current();
  if (context == nullptr || context->fault != code || context->why.empty()) return "an error";
  return process().texts.emplace_back(context->why).c_str();
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  const Guard guard;
  fake().active.insert(device);
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  const auto is = [symbol](const char* name) { return std::strcmp(symbol, name) == 0; };
  if (is("cuCtxGetCurrent")) *function = reinterpret_cast<void*>(get_current);
  if (is("cuCtxPushCurrent")) *function = reinterpret_cast<void*>(push_current);
  if (is("cuCtxPopCurrent")) *function = reinterpret_cast<void*>(pop_current);
  if (is("cuDeviceGet")) *function = reinterpret_cast<void*>(device_get);
  if (is("cuDevicePrimaryCtxRetain")) *function = reinterpret_cast<void*>(retain);
  return cudaSuccess;
}
