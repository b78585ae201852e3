// SPDX-License-Identifier: Apache-2.0
#include "executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/float16.h"
#include "cuda/core/simt.cuh"
#include "cuda/kernels/launchers.h"
#include "fibre.h"
#include "guarded_heap.h"

namespace simt_tests {
namespace {

using lmn::simt::kWarp;
using lmn::simt::LaunchShape;

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 512 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

std::mutex fault_mutex;
std::string first_fault;
std::atomic<int64_t> launch_count{0};

// Who touched a byte of shared memory last. Times are counted over the whole life of an execution,
// so nothing has to be cleared between blocks.
struct ByteRecord {
  uint32_t written_in_block = 0;  // serial number of the block whose write is in it; 0: none
  uint32_t write_time = 0, write_warp_time = 0;
  uint32_t read_time = 0, read_warp_time = 0;
  int16_t writer = -1;
  int16_t reader = -1;       // kSeveral: more than one since the last barrier
  int16_t reader_warp = -1;  // kSeveral, too
};
constexpr int16_t kSeveral = -2;

struct AsyncCopy {
  void* shared;
  const void* global;
  bool valid;
};

enum class Wait : uint8_t { kNothing, kLanes, kEveryone, kForever };

struct Thread {
  std::unique_ptr<Fibre> fibre;
  lmn::simt::host::Place place;
  Wait wait = Wait::kNothing;
  bool ended = false;
  bool waited = true;         // for the kernel before
  const char* what = "";      // it waits for
  void* lane_data = nullptr;  // of the collective
  std::vector<std::vector<AsyncCopy>> groups;
  std::vector<AsyncCopy> open;
};

class Execution;
thread_local Execution* running = nullptr;
// Of the running fibre. Kernels read it, so it is not on the heap that they are watched on.
thread_local lmn::simt::host::Place running_place;

class Execution {
 public:
  void run(std::string_view name, const LaunchShape& shape, bool overlaps,
           const std::function<void()>& kernel) {
    name_ = name;
    overlaps_ = overlaps;
    once_ = false;
    kernel_ = &kernel;
    shape_ = shape;
    faulted_ = false;
    const int threads = static_cast<int>(shape.threads);
    if (threads < 1 || threads > 1024 || threads % kWarp != 0 ||
        shape.shared_bytes > lmn::cuda::kMostSharedBytes)
      return fault("has a block of " + std::to_string(threads) + " threads with " +
                   std::to_string(shape.shared_bytes) + " bytes of shared memory");
    while (threads_.size() < static_cast<size_t>(threads)) {
      threads_.emplace_back();
      threads_.back().fibre = std::make_unique<Fibre>(kStackBytes);
    }
    size_ = threads;
    arrived_.assign(static_cast<size_t>(threads / kWarp), 0);
    warp_time_.resize(32, 0);
    if (records_.size() < shape.shared_bytes) records_.resize(shape.shared_bytes);
    shared_ = static_cast<std::byte*>(guarded_allocate(shape.shared_bytes));
    running = this;
    for (uint32_t z = 0; z < shape.z && !faulted_; ++z) {
      for (uint32_t y = 0; y < shape.y && !faulted_; ++y) {
        for (uint32_t x = 0; x < shape.x && !faulted_; ++x) run_block(x, y, z);
      }
    }
    running = nullptr;
    guarded_free(shared_);
  }

  std::byte* shared() const { return shared_; }

  void wait_for_previous() { current_->waited = true; }
  void set_once(bool on) { once_ = on; }

  void sync_block() {
    Thread& self = *current_;
    self.what = "sync_block";
    if (++block_arrived_ < size_) {
      self.wait = Wait::kEveryone;
      self.fibre->suspend();
      return;
    }
    block_arrived_ = 0;
    ++time_;
    for (int i = 0; i < size_; ++i) {
      if (threads_[static_cast<size_t>(i)].wait == Wait::kEveryone)
        threads_[static_cast<size_t>(i)].wait = Wait::kNothing;
    }
  }

  void collective(const char* name, void* lane_data, void (*body)(void* const*)) {
    Thread& self = *current_;
    const auto w = static_cast<size_t>(self.place.thread / kWarp);
    Thread* lanes = &threads_[w * kWarp];
    self.what = name;
    self.lane_data = lane_data;
    if (++arrived_[w] < kWarp) {
      self.wait = Wait::kLanes;
      self.fibre->suspend();
      return;
    }
    arrived_[w] = 0;
    void* data[kWarp];
    for (int i = 0; i < kWarp; ++i) {
      if (std::strcmp(lanes[i].what, name) != 0)
        fail("thread " + std::to_string(self.place.thread) + " is in " + name + " while thread " +
             std::to_string(lanes[i].place.thread) + " is in " + lanes[i].what);
      data[i] = lanes[i].lane_data;
      lanes[i].wait = Wait::kNothing;
    }
    if (body != nullptr) {
      body(data);
    } else {
      ++warp_time_[w];
    }
  }

  void access(const void* at, size_t bytes, bool write, bool aligned) {
    const auto* p = static_cast<const std::byte*>(at);
    const bool in_shared = p >= shared_ && p < shared_ + shape_.shared_bytes;
    if (!in_shared) {
      const Inside inside = guarded_inside(at, bytes);
      if (inside != Inside::kNotOurs && !current_->waited && !once_)
        fail(describe(bytes, write) + "of global memory before wait_for_previous");
      if (inside == Inside::kNo) fail(describe(bytes, write) + "outside of every allocation");
      if (inside == Inside::kYes && aligned && reinterpret_cast<uintptr_t>(at) % bytes != 0)
        fail(describe(bytes, write) + "not aligned to its size");
      return;
    }
    const auto offset = static_cast<size_t>(p - shared_);
    if (offset + bytes > shape_.shared_bytes)
      fail(describe(bytes, write) + "beyond shared memory, at byte " + std::to_string(offset));
    if (aligned && offset % bytes != 0)
      fail(describe(bytes, write) + "not aligned to its size, at byte " + std::to_string(offset) +
           " of shared memory");
    if (!observes_memory()) return;  // the accesses before are not known
    for (size_t i = offset; i < offset + bytes; ++i) {
      if (write) {
        write_byte(i);
      } else {
        read_byte(i);
      }
    }
  }

  // Atomic accesses are ordered among themselves: they count as nobody's, but what they read must
  // have been written.
  void atomic(const void* at, size_t bytes) {
    const auto* p = static_cast<const std::byte*>(at);
    if (p < shared_ || p >= shared_ + shape_.shared_bytes) return access(at, bytes, true, true);
    const auto offset = static_cast<size_t>(p - shared_);
    if (observes_memory() && records_[offset].written_in_block != block_serial_)
      fail("an atomic operation on shared memory that nobody wrote, at byte " +
           std::to_string(offset));
  }

  void copy_async(void* shared, const void* global, bool valid) {
    Thread& self = *current_;
    if (valid) access(global, 16, false, true);
    const auto* p = static_cast<const std::byte*>(shared);
    if (p < shared_ || p + 16 > shared_ + shape_.shared_bytes)
      fail("an asynchronous copy to what is not shared memory");
    access(shared, 16, true, true);
    const auto offset = static_cast<size_t>(p - shared_);
    for (size_t i = 0; i < 16; ++i) records_[offset + i].written_in_block = 0;  // not yet
    self.open.push_back({shared, global, valid});
  }
  void copy_commit() {
    current_->groups.push_back(std::move(current_->open));
    current_->open.clear();
  }
  void copy_wait(int groups) {
    Thread& self = *current_;
    const size_t done = self.groups.size() > static_cast<size_t>(groups)
                            ? self.groups.size() - static_cast<size_t>(groups)
                            : 0;
    for (size_t i = 0; i < done; ++i) {
      for (const AsyncCopy& copy : self.groups[i]) {
        access(copy.shared, 16, true, true);
        if (copy.valid) {
          std::memcpy(copy.shared, copy.global, 16);
        } else {
          std::memset(copy.shared, 0, 16);
        }
      }
    }
    self.groups.erase(self.groups.begin(), self.groups.begin() + static_cast<ptrdiff_t>(done));
  }

 private:
  std::string describe(size_t bytes, bool write) const {
    return "thread " + std::to_string(current_->place.thread) + (write ? " writes " : " reads ") +
           std::to_string(bytes) + " bytes ";
  }

  void fault(const std::string& what) {
    faulted_ = true;
    std::string text = name_;
    if (current_ != nullptr) {
      text += ", block (" + std::to_string(current_->place.block[0]) + ", " +
              std::to_string(current_->place.block[1]) + ", " +
              std::to_string(current_->place.block[2]) + ")";
    }
    text += ": " + what;
    const std::lock_guard<std::mutex> lock(fault_mutex);
    if (first_fault.empty()) first_fault = text;
  }
  // From a fibre, which does not go on.
  [[noreturn]] void fail(std::string what) {
    fault(what);
    std::string().swap(what);  // nobody comes back to free it
    current_->wait = Wait::kForever;
    for (;;) current_->fibre->suspend(true);
  }

  void read_byte(size_t i) {
    ByteRecord& r = records_[i];
    const auto self = static_cast<int16_t>(current_->place.thread);
    const auto w = static_cast<int16_t>(self / kWarp);
    if (r.written_in_block != block_serial_)
      fail(describe(1, false) + "of shared memory that nobody wrote, at byte " + std::to_string(i));
    if (r.write_time == time_ && r.writer != self &&
        (r.writer / kWarp != w || r.write_warp_time == warp_time_[static_cast<size_t>(w)]))
      fail(describe(1, false) + "that thread " + std::to_string(r.writer) +
           " writes, without a barrier between them, at byte " + std::to_string(i) +
           " of shared memory");
    const uint32_t now = warp_time_[static_cast<size_t>(w)];
    if (r.read_time != time_) {
      r.reader = self;
      r.reader_warp = w;
    } else {
      if (r.reader_warp != w) r.reader_warp = kSeveral;
      if (r.reader != self) r.reader = kSeveral;
    }
    r.read_time = time_;
    r.read_warp_time = now;
  }

  void write_byte(size_t i) {
    ByteRecord& r = records_[i];
    const auto self = static_cast<int16_t>(current_->place.thread);
    const auto w = static_cast<int16_t>(self / kWarp);
    const uint32_t now = warp_time_[static_cast<size_t>(w)];
    const auto race = [&](int16_t other, const char* does) {
      fail(describe(1, true) + "that " +
           (other >= 0 ? "thread " + std::to_string(other) : std::string("another thread")) + does +
           ", without a barrier between them, at byte " + std::to_string(i) + " of shared memory");
    };
    if (r.write_time == time_ && r.writer != self && r.writer >= 0 &&
        (r.writer / kWarp != w || r.write_warp_time == now))
      race(r.writer, " writes");
    if (r.read_time == time_ && r.reader != self && (r.reader_warp != w || r.read_warp_time == now))
      race(r.reader, " reads");
    r.write_time = time_;
    r.write_warp_time = now;
    r.writer = self;
    r.written_in_block = block_serial_;
  }

  static void enter(void* argument) {
    auto* self = static_cast<Execution*>(argument);
    (*self->kernel_)();
    Thread& thread = *self->current_;
    if (!thread.open.empty() || !thread.groups.empty())
      self->fail("thread " + std::to_string(thread.place.thread) +
                 " ends before its asynchronous copies");
    if (!thread.waited)
      self->fail("thread " + std::to_string(thread.place.thread) +
                 " ends without wait_for_previous");
    thread.ended = true;
    thread.fibre->suspend(true);
  }

  void run_block(uint32_t x, uint32_t y, uint32_t z) {
    ++time_;
    ++block_serial_;
    block_arrived_ = 0;
    std::fill(arrived_.begin(), arrived_.end(), 0);
    std::memset(shared_, 0xFF, shape_.shared_bytes);
    for (int i = 0; i < size_; ++i) {
      Thread& t = threads_[static_cast<size_t>(i)];
      t.place = {
          i,
          size_,
          {static_cast<int>(x), static_cast<int>(y), static_cast<int>(z)},
          {static_cast<int>(shape_.x), static_cast<int>(shape_.y), static_cast<int>(shape_.z)}};
      t.wait = Wait::kNothing;
      t.ended = false;
      t.waited = !overlaps_;
      t.groups.clear();
      t.open.clear();
      t.fibre->start(enter, this);
    }
    // A warp runs until all its threads wait for others; every second block begins with the last.
    const int warps = size_ / kWarp;
    const bool backwards = block_serial_ % 2 == 0;
    for (bool progress = true; progress && !faulted_;) {
      progress = false;
      for (int i = 0; i < warps && !faulted_; ++i) {
        while (!faulted_ && run_warp(backwards ? warps - 1 - i : i)) progress = true;
      }
    }
    if (!faulted_) check_all_ended();
    current_ = nullptr;
  }

  bool run_warp(int w) {
    bool ran = false;
    for (int i = w * kWarp; i < (w + 1) * kWarp && !faulted_; ++i) {
      Thread& t = threads_[static_cast<size_t>(i)];
      if (t.ended || t.wait != Wait::kNothing) continue;
      current_ = &t;
      running_place = t.place;
      t.fibre->resume();
      ran = true;
    }
    return ran;
  }

  void check_all_ended() {
    const Thread* waiting = nullptr;
    const Thread* ended = nullptr;
    for (int i = 0; i < size_; ++i) {
      const Thread& t = threads_[static_cast<size_t>(i)];
      (t.ended ? ended : waiting) = &t;
    }
    if (waiting == nullptr) return;
    std::string other =
        ended != nullptr ? "thread " + std::to_string(ended->place.thread) + " has ended" : "";
    for (int i = 0; i < size_ && other.empty(); ++i) {
      const Thread& t = threads_[static_cast<size_t>(i)];
      if (std::strcmp(t.what, waiting->what) != 0)
        other = "thread " + std::to_string(i) + " waits in " + t.what;
    }
    fault("thread " + std::to_string(waiting->place.thread) + " waits in " + waiting->what +
          " for ever: " + other);
  }

  std::string name_;
  const std::function<void()>* kernel_ = nullptr;
  LaunchShape shape_;
  std::vector<Thread> threads_;
  int size_ = 0;
  Thread* current_ = nullptr;
  std::byte* shared_ = nullptr;
  std::vector<ByteRecord> records_;
  std::vector<int> arrived_;  // lanes of each warp in its collective
  std::vector<uint32_t> warp_time_;
  int block_arrived_ = 0;
  uint32_t time_ = 0, block_serial_ = 0;
  bool faulted_ = false;
  bool overlaps_ = false;
  bool once_ = false;  // load_once
};

Execution& execution() {
  thread_local Execution instance;
  return instance;
}

// "… [with auto kKernel = lmn::cuda::copy_rows<4>; Params = …]" -> "lmn::cuda::copy_rows<4>"
std::string kernel_name(std::string_view function) {
  const std::string_view key = "kKernel = ";
  const size_t begin = function.find(key);
  if (begin == std::string_view::npos) return std::string(function);
  const size_t end = function.find(';', begin);
  return std::string(function.substr(begin + key.size(), end - begin - key.size()));
}

template <typename Float>
void mma_16x8x16(void* const* lanes, Float to_float) {
  using lmn::simt::host::Fragments;
  float a[16][16], b[8][16];
  for (int l = 0; l < kWarp; ++l) {
    const auto* f = static_cast<const Fragments*>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int r = 0; r < 4; ++r) {
      for (int h = 0; h < 2; ++h) {
        a[g + r % 2 * 8][t * 2 + r / 2 * 8 + h] =
            to_float(static_cast<uint16_t>(f->a[r] >> 16 * h));
        if (r < 2) b[g][t * 2 + r * 8 + h] = to_float(static_cast<uint16_t>(f->b[r] >> 16 * h));
      }
    }
  }
  for (int l = 0; l < kWarp; ++l) {
    auto* d = static_cast<float*>(static_cast<const Fragments*>(lanes[l])->d);
    for (int r = 0; r < 4; ++r) {
      const float* row = a[l / 4 + r / 2 * 8];
      const float* column = b[l % 4 * 2 + r % 2];
      double sum = double{d[r]};
      for (int k = 0; k < 16; ++k) sum += double{row[k]} * column[k];
      d[r] = static_cast<float>(sum);
    }
  }
}

template <int kK, typename ByteOfB>
void mma_bytes(void* const* lanes) {
  using lmn::simt::host::Fragments;
  int16_t a[16][kK], b[8][kK];
  for (int l = 0; l < kWarp; ++l) {
    const auto* f = static_cast<const Fragments*>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int half = 0; half < kK / 16; ++half) {
      for (int i = 0; i < 4; ++i) {
        const int k = half * 16 + t * 4 + i;
        a[g][k] = static_cast<int8_t>(f->a[2 * half] >> 8 * i);
        a[g + 8][k] = static_cast<int8_t>(f->a[2 * half + 1] >> 8 * i);
        b[g][k] = static_cast<ByteOfB>(f->b[half] >> 8 * i);
      }
    }
  }
  for (int l = 0; l < kWarp; ++l) {
    auto* d = static_cast<int*>(static_cast<const Fragments*>(lanes[l])->d);
    for (int r = 0; r < 4; ++r) {
      const int16_t* row = a[l / 4 + r / 2 * 8];
      const int16_t* column = b[l % 4 * 2 + r % 2];
      int sum = d[r];
      for (int k = 0; k < kK; ++k) sum += row[k] * column[k];
      d[r] = sum;
    }
  }
}

void load_rows(void* const* lanes, bool transposed) {
  using lmn::simt::host::MatrixRows;
  for (int l = 0; l < kWarp; ++l) {
    auto* mine = static_cast<MatrixRows*>(lanes[l]);
    for (int m = 0; m < 4; ++m) {
      uint16_t pair[2];
      for (int h = 0; h < 2; ++h) {
        const int row = transposed ? l % 4 * 2 + h : l / 4;
        const int column = transposed ? l / 4 : l % 4 * 2 + h;
        const void* from = static_cast<const MatrixRows*>(lanes[m * 8 + row])->row;
        std::memcpy(&pair[h], static_cast<const std::byte*>(from) + column * 2, 2);
      }
      mine->r[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  }
}

}  // namespace

std::string take_fault() {
  const std::lock_guard<std::mutex> lock(fault_mutex);
  return std::exchange(first_fault, {});
}

int64_t launches() { return launch_count.load(); }

namespace detail {
void access(const void* at, size_t bytes, bool write, bool aligned) {
  if (running != nullptr) running->access(at, bytes, write, aligned);
}
}  // namespace detail

}  // namespace simt_tests

namespace lmn::simt::host {

using simt_tests::running;

const Place& place() { return simt_tests::running_place; }
std::byte* shared_memory() { return running->shared(); }
void wait_for_previous() { running->wait_for_previous(); }
void set_once(bool on) { running->set_once(on); }
void sync_block() { running->sync_block(); }
void sync_warp() { running->collective("sync_warp", nullptr, nullptr); }
void collective(const char* name, void* lane_data, void (*body)(void* const*)) {
  running->collective(name, lane_data, body);
}
void read(const void* at, size_t bytes) { running->access(at, bytes, false, true); }
void* atomic(void* at, size_t bytes) {
  running->atomic(at, bytes);
  return at;
}
void copy_async(void* shared, const void* global, bool valid) {
  running->copy_async(shared, global, valid);
}
void copy_commit() { running->copy_commit(); }
void copy_wait(int groups) { running->copy_wait(groups); }
void mma_s8_k32(void* const* lanes) { simt_tests::mma_bytes<32, int8_t>(lanes); }
void mma_s8_k16(void* const* lanes) { simt_tests::mma_bytes<16, int8_t>(lanes); }
void mma_s8_u8_k32(void* const* lanes) { simt_tests::mma_bytes<32, uint8_t>(lanes); }
void mma_s8_u8_k16(void* const* lanes) { simt_tests::mma_bytes<16, uint8_t>(lanes); }
void mma_f16(void* const* lanes) {
  simt_tests::mma_16x8x16(lanes, [](uint16_t bits) { return f16_to_f32(bits); });
}
void mma_bf16(void* const* lanes) {
  simt_tests::mma_16x8x16(lanes, [](uint16_t bits) { return bf16_to_f32(bits); });
}
void load_matrix(void* const* lanes) { simt_tests::load_rows(lanes, false); }
void load_matrix_transposed(void* const* lanes) { simt_tests::load_rows(lanes, true); }

void launch(ops::LaunchQueue& queue, std::string_view name, const LaunchShape& shape,
            std::function<void()> kernel) {
  auto work = [name = simt_tests::kernel_name(name), shape, overlaps = queue.overlaps,
               kernel = std::move(kernel)] {
    ++simt_tests::launch_count;
    simt_tests::execution().run(name, shape, overlaps, kernel);
  };
  auto* stream = static_cast<simt_tests::LaunchStream*>(queue.stream);
  if (stream == nullptr) return work();
  queue.failure = stream->launch(std::move(work));
}

}  // namespace lmn::simt::host
