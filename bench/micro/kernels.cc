// SPDX-License-Identifier: Apache-2.0
//
// kernels_bench: how fast the hot kernels of a CPU target are, at the shapes of SmolLM2-135M.
//   kernels_bench [target] [threads] [word]    only lines that contain `word` are measured
// A line is the best of several runs: the machine is assumed to be shared. Weights are cycled
// through more copies than a third-level cache holds, as decoding does. Each product is checked
// against a second one made in another tile (the whole against rows one by one), so that a figure
// is not reported for a kernel that is wrong; accuracy is conformance's matter.
//
// The floor, on 2 cores of an EPYC (Zen 4, 3.4 GHz assumed below): 15 GB/s of reading a core with
// both busy; two 256-bit integer multiplies a cycle: 4-bit by kQA8 2 x 32 products, so 435 GOP/s;
// kQA16 half of that; float 2 x 8: 109 GFLOP/s.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/float16.h"
#include "cpu/cpu_device.h"
#include "ops/kernel.h"

namespace {

using namespace lmn;
using ops::KernelTable;
using ops::Op;

// Seconds of this thread's processor time when it works alone, so that other processes count less;
// of the clock otherwise.
double now(bool alone) {
  timespec t{};
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Bench {
  std::unique_ptr<Device> device;
  int threads = 1;
  std::string word;
  std::vector<std::byte> scratch, shared;

  const KernelTable& kernels() const { return device->kernels(); }

  // Best seconds of one call of body(worker) on all threads.
  double time(const std::function<void(const ops::Worker&)>& body, double budget = 0.25) {
    const auto once = [&] {
      std::vector<std::thread> others;
      const double start = now(threads == 1);
      for (int i = 1; i < threads; ++i) others.emplace_back([&, i] { body(worker(i)); });
      body(worker(0));
      for (std::thread& t : others) t.join();
      return now(threads == 1) - start;
    };
    double best = once(), spent = 0;
    for (int runs = 0; runs < 5 || spent < budget; ++runs) {
      const double seconds = once();
      best = std::min(best, seconds);
      spent += seconds;
      if (spent > 4 * budget) break;
    }
    return best;
  }
  ops::Worker worker(int i) {
    const size_t each = scratch.size() / static_cast<size_t>(threads) / 64 * 64;
    const auto base = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
    ops::Worker w;
    w.index = w.part = i;
    w.parts = threads;
    w.shared = shared.data();
    w.scratch = reinterpret_cast<std::byte*>(base) + static_cast<size_t>(i) * each;
    return w;
  }
  std::byte* allocate(int64_t bytes) {
    return device->allocate(static_cast<size_t>(bytes)).value();
  }
};

uint32_t random_bits() {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<uint32_t>(state >> 32);
}
float random_float() { return static_cast<float>(random_bits() >> 8) / 8388608.0f - 1.0f; }

std::vector<std::byte> random_weights(DType type, int64_t n, int64_t k) {
  std::vector<std::byte> bytes(static_cast<size_t>(n * row_bytes(type, k)));
  const uint32_t block = info(type).block_bytes;
  for (std::byte& b : bytes) b = static_cast<std::byte>(random_bits());
  const uint16_t scale = f32_to_f16(0.002f);
  for (size_t at = 0; at < bytes.size(); at += block) {
    if (type == DType::kF32) {
      const float value = 0.05f * random_float();
      std::memcpy(&bytes[at], &value, 4);
    } else if (type == DType::kF16 || type == DType::kBF16) {
      const uint16_t half = type == DType::kF16 ? f32_to_f16(0.05f * random_float())
                                                : f32_to_bf16(0.05f * random_float());
      std::memcpy(&bytes[at], &half, 2);
    } else {
      std::memcpy(&bytes[at + (type == DType::kQ6_K ? 208 : 0)], &scale, 2);
      if (type != DType::kQ8_0 && type != DType::kQ6_K) std::memcpy(&bytes[at + 2], &scale, 2);
    }
  }
  return bytes;
}

struct Shape2 {
  int64_t k, n;
};

void bench_linear(Bench& b, DType type, DType input, Shape2 shape) {
  const std::string name = std::string(info(type).name) + " " + std::string(info(input).name) +
                           " k=" + std::to_string(shape.k) + " n=" + std::to_string(shape.n);
  if (name.find(b.word) == std::string::npos) return;
  const KernelTable& kernels = b.kernels();
  const std::vector<std::byte> weights = random_weights(type, shape.n, shape.k);
  const TensorView piece{type, Shape{shape.n, shape.k}, weights.data()};
  const ops::PackRequest request{std::span(&piece, 1), input, false};
  const Result<ops::PackedMatrix> plan = kernels.plan_pack(request);
  if (!plan.ok()) return;
  constexpr int64_t kCold = 160 << 20, kMostRows = 512;
  const int64_t copies = std::max<int64_t>(1, kCold / plan->bytes);
  std::vector<ops::PackedMatrix> matrices(static_cast<size_t>(copies), *plan);
  double pack_seconds = 1e9;
  std::vector<std::byte*> memory;
  for (ops::PackedMatrix& m : matrices) {
    std::byte* data = b.allocate(m.bytes);
    memory.push_back(data);
    if (memory.size() <= 4) {
      std::memset(data, 0, static_cast<size_t>(m.bytes));
      pack_seconds =
          std::min(pack_seconds,
                   b.time([&](const ops::Worker& w) { kernels.pack(request, m, data, w); }, 0.02));
    } else {
      std::memcpy(data, matrices[0].data, static_cast<size_t>(m.bytes));
    }
    m.data = data;
  }
  std::byte* x = b.allocate(kMostRows * row_bytes(input, shape.k));
  std::byte* x_float = b.allocate(kMostRows * shape.k * 4);
  for (int64_t i = 0; i < kMostRows * shape.k; ++i)
    reinterpret_cast<float*>(x_float)[i] = random_float();
  if (input == DType::kF32) {
    std::memcpy(x, x_float, static_cast<size_t>(kMostRows * shape.k * 4));
  } else {
    const ops::QuantizeArgs q{
        kMostRows, reinterpret_cast<const float*>(x_float), {x, 0}, shape.k, input};
    kernels.run[static_cast<int>(Op::kQuantize)](&q, {});
  }
  float* y = reinterpret_cast<float*>(b.allocate(kMostRows * shape.n * 4));
  float* z = reinterpret_cast<float*>(b.allocate(shape.n * 4));

  std::printf("%-28s pack %5.1f GB/s |", name.c_str(),
              static_cast<double>(weights.size()) / pack_seconds * 1e-9);
  b.scratch.resize(static_cast<size_t>(b.threads) * (kernels.scratch_bytes(0, 0, shape.k) + 128));
  for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
    const int64_t repeats =
        rows >= 128 ? 1 : std::min(copies, std::max<int64_t>(1, (64 << 20) / plan->bytes));
    size_t next = 0;
    std::vector<size_t> at(static_cast<size_t>(b.threads), 0);
    const double seconds = b.time([&](const ops::Worker& w) {
      for (int64_t r = 0; r < repeats; ++r) {
        const size_t i = (next + at[static_cast<size_t>(w.part)]++) % matrices.size();
        const ops::LinearArgs a{rows, {x, 0}, &matrices[i], nullptr, nullptr, y};
        kernels.run[static_cast<int>(Op::kLinear)](&a, w);
      }
    });
    const double bytes = static_cast<double>(plan->bytes * repeats),
                 ops = 2.0 * static_cast<double>(shape.k * shape.n * rows * repeats);
    if (rows < 16) std::printf(" %ld: %5.1f GB/s", static_cast<long>(rows), bytes / seconds * 1e-9);
    if (rows >= 8) std::printf(" %ld: %4.0f GOP/s", static_cast<long>(rows), ops / seconds * 1e-9);
    std::fflush(stdout);
    for (int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      const ops::LinearArgs a{
          1, {x + row * row_bytes(input, shape.k), 0}, &matrices[0], nullptr, nullptr, z};
      kernels.run[static_cast<int>(Op::kLinear)](&a, {});
      if (std::memcmp(z, y + row * shape.n, static_cast<size_t>(shape.n) * 4) != 0) {
        std::printf("\nwrong: row %ld of %ld differs from the row alone\n", static_cast<long>(row),
                    static_cast<long>(rows));
        std::exit(1);
      }
    }
  }
  std::printf("\n");
  for (size_t i = 0; i < memory.size(); ++i)
    b.device->release(memory[i], static_cast<size_t>(plan->bytes));
  b.device->release(x, 0);
  b.device->release(x_float, 0);
  b.device->release(reinterpret_cast<std::byte*>(y), 0);
  b.device->release(reinterpret_cast<std::byte*>(z), 0);
}

struct AttentionShape {
  int64_t heads, kv_heads, head_dim, context, rows;
};

void bench_attention(Bench& b, DType dtype, AttentionShape s) {
  constexpr int64_t kPage = 32;
  const std::string name =
      "attention " + std::string(info(dtype).name) + " heads=" + std::to_string(s.heads) + "/" +
      std::to_string(s.kv_heads) + " d=" + std::to_string(s.head_dim) +
      " context=" + std::to_string(s.context) + " rows=" + std::to_string(s.rows);
  if (name.find(b.word) == std::string::npos) return;
  const int64_t pages = (s.context + kPage - 1) / kPage;
  const int64_t bytes =  // of K, and of V
      pages * row_bytes(dtype, kPage * s.kv_heads * s.head_dim);
  const int64_t layers = s.rows <= 8 ? std::max<int64_t>(1, (160 << 20) / (2 * bytes)) : 1;
  std::vector<ops::KvLayer> kv;
  std::byte* memory = b.allocate(2 * bytes * layers);  // one region, as an engine has
  for (int64_t l = 0; l < layers; ++l) {  // a page holds all layers, as an engine's does
    std::byte* k = memory + 2 * l * (bytes / pages);
    kv.push_back({k, k + bytes / pages, dtype, kPage, static_cast<int32_t>(s.kv_heads),
                  static_cast<int32_t>(s.head_dim)});
  }
  std::vector<float> row(static_cast<size_t>(2 * s.kv_heads * s.head_dim));
  for (const ops::KvLayer& layer : kv) {
    for (int32_t token = 0; token < pages * kPage; ++token) {
      const auto slot = static_cast<int32_t>(token + token / kPage * (2 * layers - 1) * kPage);
      for (size_t i = 0; token % kPage == 0 && i < row.size(); ++i) row[i] = random_float();
      const int64_t width = s.kv_heads * s.head_dim;
      const ops::KvWriteArgs a{1, row.data(), row.data() + width, width, width, &slot, &layer};
      b.kernels().run[static_cast<int>(Op::kKvWrite)](&a, {});
    }
  }
  std::vector<float> q(static_cast<size_t>(s.rows * s.heads * s.head_dim)), y(q.size());
  for (float& v : q) v = random_float();
  std::vector<int32_t> positions, index(static_cast<size_t>(s.rows), 0), blocks;
  for (int64_t t = 0; t < s.rows; ++t)
    positions.push_back(static_cast<int32_t>(s.context - s.rows + t));
  for (int64_t p = 0; p < pages; ++p)
    blocks.push_back(static_cast<int32_t>((pages - 1 - p) * 2 * layers));
  b.scratch.resize(static_cast<size_t>(b.threads) *
                   (b.kernels().scratch_bytes(s.head_dim, s.heads / s.kv_heads, 0) + 128));
  b.shared.assign(b.kernels().shared_bytes(s.head_dim, s.heads / s.kv_heads, b.threads), {});
  const double seconds = b.time([&](const ops::Worker& w) {
    for (const ops::KvLayer& layer : kv) {
      const ops::AttentionArgs a{s.rows,
                                 q.data(),
                                 s.heads * s.head_dim,
                                 &layer,
                                 positions.data(),
                                 index.data(),
                                 blocks.data(),
                                 pages,
                                 y.data(),
                                 s.heads,
                                 0.125f};
      b.kernels().run[static_cast<int>(Op::kPagedAttention)](&a, w);
    }
  });
  double tokens = 0;
  for (int32_t p : positions) tokens += p + 1;
  const double flops = 4.0 * tokens * static_cast<double>(s.heads * s.head_dim * layers);
  std::printf("%s: %8.1f us a layer, %5.1f GB/s of KV, %5.1f GFLOP/s\n", name.c_str(),
              seconds / static_cast<double>(layers) * 1e6,
              2.0 * static_cast<double>(bytes * layers) / seconds * 1e-9, flops / seconds * 1e-9);
  b.device->release(memory, 0);
}

}  // namespace

int main(int argc, char** argv) {
  Bench b;
  Result<std::unique_ptr<Device>> device = cpu::create_cpu_device(argc > 1 ? argv[1] : "");
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  b.device = std::move(*device);
  b.threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  b.word = argc > 3 ? argv[3] : "";
  std::printf("target %s, %d threads\n", b.device->target().c_str(), b.threads);
  const std::vector<Shape2> shapes = {
      {576, 960}, {576, 576}, {576, 3072}, {1536, 576}, {576, 49152}};
  for (const auto& [type, input] :
       std::vector<std::pair<DType, DType>>{{DType::kQ4_1, DType::kQA8},
                                            {DType::kQ4_1, DType::kQA16},
                                            {DType::kQ4_0, DType::kQA8},
                                            {DType::kQ8_0, DType::kQA8},
                                            {DType::kQ8_0, DType::kQA16},
                                            {DType::kF16, DType::kF32},
                                            {DType::kF32, DType::kF32}}) {
    for (const Shape2& shape : shapes) {
      if (shape.n < 40000 || type == DType::kQ8_0) bench_linear(b, type, input, shape);
    }
  }
  for (DType type : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ5_0}) {
    for (DType input : {DType::kQA8, DType::kQA16}) bench_linear(b, type, input, {1536, 2048});
  }
  bench_linear(b, DType::kBF16, DType::kF32, {1536, 2048});
  for (DType dtype : {DType::kF16, DType::kQ8_0, DType::kF32}) {
    for (int64_t context : {512, 4096, 8192}) {
      for (int64_t rows : {1, 8, 64}) bench_attention(b, dtype, {9, 3, 64, context, rows});
    }
    bench_attention(b, dtype, {9, 3, 64, 512, 2});
    bench_attention(b, dtype, {9, 3, 64, 512, 512});
    bench_attention(b, dtype, {9, 3, 64, 4096, 512});
  }
  bench_attention(b, DType::kF16, {32, 8, 128, 4096, 1});
  bench_attention(b, DType::kF16, {32, 8, 128, 2048, 256});
  return 0;
}
