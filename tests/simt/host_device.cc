// SPDX-License-Identifier: Apache-2.0
#include "host_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/kernels/launchers.h"
#include "executor.h"
#include "guarded_heap.h"

namespace simt_tests {
namespace {

using lmn::Code;
using lmn::Result;
using lmn::Status;

using Work = std::vector<std::function<void()>>;

class HostRecording final : public lmn::Recording {
 public:
  Work work;
};

class HostEvent final : public lmn::Event {
 public:
  std::chrono::steady_clock::time_point at;
};

// What streams and device share.
struct Shared {
  std::mutex mutex;
  HostDeviceCounters counters;
  int fail_after = 0;
  bool room_for_recordings = true;
  std::string closed;  // why
  int64_t in_use = 0, pinned = 0;

  Status check() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (closed.empty()) return {};
    return lmn::error(Code::kClosed, "device simt was closed by an earlier error: %s",
                      closed.c_str());
  }
  // After work was done.
  Status finish() {
    std::string fault = take_fault();
    const std::lock_guard<std::mutex> lock(mutex);
    ++counters.waits;
    if (fail_after > 0 && --fail_after == 0) fault = "an error that the test asked for";
    if (fault.empty()) return {};
    closed = fault;
    return lmn::error(Code::kInternal, "device simt failed: %s; it is closed", fault.c_str());
  }
};

class TestStream final : public lmn::Stream {
 public:
  explicit TestStream(Shared& shared) : shared_(shared) {}

  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    stream_.push([=, this] {
      std::memcpy(device, host, bytes);
      count_to_device(bytes);
    });
    return {};
  }
  Status copy_rows_from_host(std::byte* device, const std::byte* host, size_t stride,
                             size_t row_bytes, size_t rows) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    stream_.push([=, this] {
      for (size_t i = 0; i < rows; ++i)
        std::memcpy(device + i * stride, host + i * stride, row_bytes);
      count_to_device(rows * row_bytes);
    });
    return {};
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    stream_.push([=, this] {
      std::memcpy(host, device, bytes);
      const std::lock_guard<std::mutex> lock(shared_.mutex);
      shared_.counters.bytes_to_host += static_cast<int64_t>(bytes);
    });
    return {};
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    stream_.push([=] { std::memmove(to, from, bytes); });
    return {};
  }
  Status synchronize() override {
    LMN_RETURN_IF_ERROR(shared_.check());
    stream_.synchronize();
    return shared_.finish();
  }
  Result<std::unique_ptr<lmn::Event>> create_event() override {
    return std::unique_ptr<lmn::Event>(std::make_unique<HostEvent>());
  }
  Status record_event(lmn::Event& event) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    auto& moment = static_cast<HostEvent&>(event);
    stream_.push([&moment] { moment.at = std::chrono::steady_clock::now(); });
    return {};
  }
  Result<int64_t> elapsed_ns(const lmn::Event& from, const lmn::Event& to) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    const auto time = static_cast<const HostEvent&>(to).at - static_cast<const HostEvent&>(from).at;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }
  Status begin_recording() override {
    LMN_RETURN_IF_ERROR(shared_.check());
    recording_ = std::make_unique<HostRecording>();
    stream_.record(&recording_->work);
    return {};
  }
  Result<std::unique_ptr<lmn::Recording>> end_recording() override {
    stream_.record(nullptr);
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    ++shared_.counters.recordings;
    if (!shared_.room_for_recordings)
      return lmn::error(Code::kOutOfMemory,
                        "device simt: preparing recorded kernels: out of memory");
    return std::unique_ptr<lmn::Recording>(std::move(recording_));
  }
  Status replay(lmn::Recording& recording) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    const Work& work = static_cast<HostRecording&>(recording).work;
    stream_.push([&work] {
      for (const auto& item : work) item();
    });
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    ++shared_.counters.replays;
    return {};
  }
  bool overlaps_kernels() const override { return true; }  // the executor sees who does not wait
  void enter() override { stream_.enter(); }
  void leave() override { stream_.leave(); }
  void* handle() override { return &stream_; }
  Status launch_error(int32_t failure) override {
    return lmn::error(Code::kInternal, "device simt failed: launch error %d", failure);
  }

 private:
  void count_to_device(size_t bytes) {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.counters.bytes_to_device += static_cast<int64_t>(bytes);
  }

  Shared& shared_;
  HostStream stream_;
  std::unique_ptr<HostRecording> recording_;
};

class TestDevice final : public HostDevice {
 public:
  explicit TestDevice(const HostDeviceOptions& options) : options_(options) {
    shared_.fail_after = options.fail_after;
  }

  std::string name() const override { return "simt"; }
  std::string target() const override { return "host"; }
  bool is_host() const override { return false; }
  int32_t multiprocessors() const override { return options_.multiprocessors; }
  const lmn::ops::KernelTable& kernels() const override { return lmn::cuda::kernel_table(); }
  const lmn::ops::DenseProducts* dense_products() const override { return options_.products; }

  Result<std::byte*> allocate(size_t bytes) override {
    LMN_ASSIGN_OR_RETURN(std::byte * data, allocate_uninitialized(bytes));
    std::memset(data, 0, bytes);
    return data;
  }
  Result<std::byte*> allocate_uninitialized(size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    if (shared_.in_use + static_cast<int64_t>(bytes) > options_.memory_bytes) {
      return lmn::error(Code::kOutOfMemory, "device simt: %zu bytes asked for, %lld are free",
                        bytes, static_cast<long long>(options_.memory_bytes - shared_.in_use));
    }
    shared_.in_use += static_cast<int64_t>(bytes);
    return static_cast<std::byte*>(guarded_allocate(bytes));
  }
  void release(std::byte* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.in_use -= static_cast<int64_t>(bytes);
    guarded_free(data);
  }
  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    std::memcpy(device, host, bytes);
    return shared_.finish();
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    std::memcpy(host, device, bytes);
    return shared_.finish();
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    LMN_RETURN_IF_ERROR(shared_.check());
    std::memcpy(to, from, bytes);
    return shared_.finish();
  }
  Result<std::unique_ptr<lmn::Stream>> create_stream() override {
    return std::unique_ptr<lmn::Stream>(std::make_unique<TestStream>(shared_));
  }
  Result<std::byte*> allocate_pinned(size_t bytes) override {
    auto* data = static_cast<std::byte*>(guarded_allocate(bytes));
    std::memset(data, 0, bytes);
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.pinned += static_cast<int64_t>(bytes);
    return data;
  }
  void release_pinned(std::byte* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.pinned -= static_cast<int64_t>(bytes);
    guarded_free(data);
  }
  Result<lmn::DeviceMemory> memory() const override {
    return lmn::DeviceMemory{options_.memory_bytes - bytes_in_use(), options_.memory_bytes};
  }

  const HostDeviceCounters& counters() const override {
    shared_.counters.launched = launches();
    return shared_.counters;
  }
  void set_room_for_recordings(bool room) override {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.room_for_recordings = room;
  }
  void set_fail_after(int waits) override {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.fail_after = waits;
  }
  int64_t bytes_in_use() const override {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    return shared_.in_use;
  }
  int64_t pinned_in_use() const override {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    return shared_.pinned;
  }

 private:
  const HostDeviceOptions options_;
  mutable Shared shared_;
};

}  // namespace

std::unique_ptr<HostDevice> make_host_device(const HostDeviceOptions& options) {
  return std::make_unique<TestDevice>(options);
}

}  // namespace simt_tests
