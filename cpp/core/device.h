// SPDX-License-Identifier: Apache-2.0
//
// Device: what a chip has to offer so that a plan can run on it: memory, copies, streams, and one
// table of kernels (ops/kernel.h). A new chip implements this and fills a table, nothing else. core
// knows no operator, so the table is an opaque type here.
//
// There are two kinds. On a host device memory is the host's and kernels run on the threads that
// call them. On any other, kernels and copies are queued on streams and run while the host goes on;
// what goes wrong there is reported when somebody waits. Such an error closes the device: from then
// on its calls give CLOSED, with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"

namespace lmn {

namespace ops {
struct KernelTable;
class DenseProducts;
}  // namespace ops

// What a stream recorded, to be queued again and again at the cost of one launch.
class Recording {
 public:
  virtual ~Recording() = default;
};

// A moment in a stream's work: when the device is through with what was queued before it. Outlives
// the stream's work; its device outlives it.
class Event {
 public:
  virtual ~Event() = default;
};

// A queue of work that runs in order. One thread uses it at a time; its device outlives it.
class Stream {
 public:
  virtual ~Stream() = default;

  // Queued. Host memory stays as it is, and where it is, until the stream was waited for; only
  // copies from and to allocate_pinned() run beside the caller.
  virtual Status copy_from_host(std::byte* device, const void* host, size_t bytes) = 0;
  virtual Status copy_to_host(void* host, const std::byte* device, size_t bytes) = 0;
  virtual Status copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // The first `row_bytes` of each of `rows` rows, which begin `stride` bytes apart on both sides.
  virtual Status copy_rows_from_host(std::byte* device, const std::byte* host, size_t stride,
                                     size_t row_bytes, size_t rows) = 0;
  // Waits for everything queued, and tells what went wrong in it.
  virtual Status synchronize() = 0;

  // To measure what is queued between two events of this stream; not while recording. Device time,
  // in ns, once the stream was waited for after both.
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
  virtual Status record_event(Event& event) = 0;
  virtual Result<int64_t> elapsed_ns(const Event& from, const Event& to) = 0;

  // What is queued between these two is recorded instead. UNSUPPORTED where the device cannot.
  virtual Status begin_recording() = 0;
  virtual Result<std::unique_ptr<Recording>> end_recording() = 0;
  virtual Status replay(Recording& recording) = 0;

  // Between the two the stream's device is the calling thread's current one, as launchers need it
  // (ops::LaunchQueue); then again the one that was before, if there was one. They nest.
  virtual void enter() {}
  virtual void leave() {}

  // Names what is queued until pop_range(), for a profiler; the name lives as long as the stream.
  virtual void push_range(const char*) {}
  virtual void pop_range() {}

  // ops::LaunchQueue::stream, and the meaning of its `failure`.
  virtual void* handle() = 0;
  virtual Status launch_error(int32_t failure) = 0;
  virtual int32_t device_index() const { return 0; }       // ops::LaunchQueue::device
  virtual bool overlaps_kernels() const { return false; }  // ops::LaunchQueue::overlaps
};

class EnteredStream {
 public:
  explicit EnteredStream(Stream& stream) : stream_(stream) { stream_.enter(); }
  ~EnteredStream() { stream_.leave(); }
  EnteredStream(const EnteredStream&) = delete;

 private:
  Stream& stream_;
};

struct DeviceMemory {
  int64_t free = 0;   // bytes that allocate() may still give
  int64_t total = 0;  // bytes
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  virtual std::string target()
      const = 0;  // instruction set or architecture in use: "avx2", "sm_90"

  virtual bool is_host() const { return true; }
  // That run blocks of kernels at the same time; grids follow from it, results do not.
  virtual int32_t multiprocessors() const { return 1; }

  // Memory the kernels read and write, zeroed, aligned to 64 bytes at least. OUT_OF_MEMORY names
  // the size.
  virtual Result<std::byte*> allocate(size_t bytes) = 0;
  // The same, not zeroed where that saves time.
  virtual Result<std::byte*> allocate_uninitialized(size_t bytes) { return allocate(bytes); }
  virtual void release(std::byte* data, size_t bytes) = 0;
  // Done when they return.
  virtual Status copy_from_host(std::byte* device, const void* host, size_t bytes) = 0;
  virtual Status copy_to_host(void* host, const std::byte* device, size_t bytes) = 0;
  // Within the device; the ranges do not overlap.
  virtual Status copy(std::byte* to, const std::byte* from, size_t bytes) = 0;

  // Of devices that are not the host; any thread.
  virtual Result<std::unique_ptr<Stream>> create_stream() {
    return error(Code::kUnsupported, "device %s has no streams", name().c_str());
  }
  // Host memory, zeroed, that the device copies from and to by itself.
  virtual Result<std::byte*> allocate_pinned(size_t bytes) { return allocate(bytes); }
  virtual void release_pinned(std::byte* data, size_t bytes) { release(data, bytes); }
  // Takes so much memory from the system at once and keeps it for the allocations that follow.
  // OUT_OF_MEMORY names the size.
  virtual Status reserve(size_t) { return {}; }
  virtual Result<DeviceMemory> memory() const {
    return error(Code::kUnsupported, "device %s does not count its memory", name().c_str());
  }

  virtual const ops::KernelTable& kernels() const = 0;
  // Of products of a fixed shape (ops/dense_products.h); null: its kernels do them all.
  virtual const ops::DenseProducts* dense_products() const { return nullptr; }
};

}  // namespace lmn
