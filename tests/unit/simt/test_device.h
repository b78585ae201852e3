// SPDX-License-Identifier: Apache-2.0
//
// The device that kernels are tested on, of which tests know what core/device.h says and no more:
// they copy to it, queue, wait and copy back. test_device_simt.cc has one over the
// runtime of tests for simt_tests, test_device_cuda.cc the first GPU for tensor_cuda.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/device.h"
#include "ops/worker.h"
#include "testing.h"

namespace simt_tests {

// Where there is none the program says why and ends with the code that ctest takes for "skipped".
std::shared_ptr<lmn::Device> test_device();
// Launches since the program began; nothing where nobody counts them.
std::optional<int64_t> counted_launches();

// Memory of a device, as long as this lives, and a stream. On a host device, work is done at once.
class DeviceRun {
 public:
  explicit DeviceRun(std::shared_ptr<lmn::Device> device) : device_(std::move(device)) {
    if (device_->is_host()) return;
    auto stream = device_->create_stream();
    ASSERT_OK(stream);
    stream_ = *std::move(stream);
  }
  ~DeviceRun() {
    stream_.reset();  // waits for what a failure left in it
    for (const auto& [data, bytes] : memory_) device_->release(data, bytes);
  }
  DeviceRun(const DeviceRun&) = delete;

  std::byte* upload(const void* from, size_t bytes) {
    const size_t allocated = std::max<size_t>(bytes, 1);  // devices may have no room for nothing
    auto data = device_->allocate_uninitialized(allocated);
    ASSERT_OK(data);
    memory_.emplace_back(*data, allocated);
    if (bytes > 0) ASSERT_OK(device_->copy_from_host(*data, from, bytes));
    return *data;
  }
  template <typename T>
  T* upload(const std::vector<T>& from) {
    return reinterpret_cast<T*>(upload(from.data(), from.size() * sizeof(T)));
  }
  // All bits set: no number, so that what a kernel read or left so is seen.
  std::byte* allocate(size_t bytes) { return upload(std::vector(bytes, std::byte{0xFF})); }
  void download(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    ASSERT_OK(device_->copy_to_host(to, static_cast<const std::byte*>(from), bytes));
  }
  template <typename T>
  void download(std::vector<T>* to, const T* from) {
    download(to->data(), from, to->size() * sizeof(T));
  }

  // Does what `work` queues; it gets null on a host device. Tells what went wrong.
  lmn::Status run(const std::function<void(lmn::ops::LaunchQueue*)>& work,
                  int32_t multiprocessors) {
    if (stream_ == nullptr) {
      work(nullptr);
      return {};
    }
    lmn::ops::LaunchQueue queue;
    queue.stream = stream_->handle();
    queue.device = stream_->device_index();
    queue.multiprocessors = multiprocessors;
    queue.overlaps = stream_->overlaps_kernels();
    {
      const lmn::EnteredStream entered(*stream_);
      work(&queue);
    }
    if (queue.failure != 0) return stream_->launch_error(queue.failure);
    return stream_->synchronize();
  }
  int32_t multiprocessors() const { return device_->multiprocessors(); }

 private:
  const std::shared_ptr<lmn::Device> device_;
  std::unique_ptr<lmn::Stream> stream_;
  std::vector<std::pair<std::byte*, size_t>> memory_;
};

}  // namespace simt_tests
