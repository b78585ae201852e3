// SPDX-License-Identifier: Apache-2.0
//
// What this machine's memory gives: the limit that `lmnative bench --profile` divides by.
#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "interrupt.h"

namespace lmn::python {
namespace {

// Far more than the caches of all but the largest machines hold, and little enough for small ones.
constexpr size_t kBytes = size_t{256} << 20;
// The fastest counts: a limit is not what other programs leave of it.
constexpr int kRounds = 9;

using Word = uint64_t __attribute__((vector_size(16)));
constexpr size_t kUnroll = 8;

uint64_t sum_of(const Word* words, size_t count) {
  Word sums[kUnroll] = {};
  for (size_t i = 0; i + kUnroll <= count; i += kUnroll) {
    for (size_t j = 0; j < kUnroll; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const Word& sum : sums) total += sum[0] + sum[1];
  return total;
}

// Seconds that the threads take for `work(thread)`, all of them together.
template <typename Work>
double timed(int threads, const Work& work) {
  std::atomic<bool> go{false};
  std::chrono::steady_clock::time_point start;
  {
    struct Go {  // also when a thread cannot be started: the others wait for it
      std::atomic<bool>* go;
      ~Go() {
        go->store(true);
        go->notify_all();
      }
    };
    std::vector<std::jthread> team;  // joined last
    const Go at_end{&go};
    team.reserve(static_cast<size_t>(threads));
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        go.wait(false);
        work(t);
      });
    }
    start = std::chrono::steady_clock::now();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes per second that so many threads read from memory together.
double read_bandwidth(int threads) {
  if (threads < 1 || threads > 1024) throw std::invalid_argument("threads must be 1 to 1024");
  const WithoutGil nogil;
  const size_t words = kBytes / sizeof(Word) / static_cast<size_t>(threads);  // of each
  const std::unique_ptr<Word[]> memory(new Word[words * static_cast<size_t>(threads)]);
  const auto part = [&](int t) { return memory.get() + words * static_cast<size_t>(t); };
  timed(threads, [&](int t) {
    for (size_t i = 0; i < words; ++i) part(t)[i] = Word{} + static_cast<uint64_t>(t);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double seconds = timed(threads, [&](int t) { sink += sum_of(part(t), words); });
    const double rate =
        static_cast<double>(words * sizeof(Word) * static_cast<size_t>(threads)) / seconds;
    if (rate > best) best = rate;
  }
  return best;
}

}  // namespace

void bind_probe(pybind11::module_& module) {
  module.def("read_bandwidth", &read_bandwidth, pybind11::arg("threads"));
}

}  // namespace lmn::python
