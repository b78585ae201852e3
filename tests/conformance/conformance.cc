// SPDX-License-Identifier: Apache-2.0
//
// Runs every case of every operator on every target; a kernel that targets have in common, for one
// of them. Usage: conformance [WORD… | !WORD], where only cases
// whose "target op case" contains one of the words, or does not contain it, are run. Ends with "N
// passed, N failed".
#include "conformance.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "core/float16.h"
#include "ops/reference.h"

namespace conformance {

using namespace lmn;
using lmn::ops::KernelTable;

namespace {
std::string device_failure;  // the first of a case
int32_t multiprocessors = 132;
}  // namespace

void run_parts(const KernelTable& table, ops::Op op, const void* args, int parts,
               const WorkerMemory& memory) {
  ops::LaunchQueue queue;
  const size_t asked =
      table.workspace_bytes == nullptr ? 0 : table.workspace_bytes(memory.workspace);
  Bytes workspace(std::min(asked, memory.workspace_limit));
  queue.workspace = workspace.data();
  queue.workspace_bytes = workspace.size();
  queue.multiprocessors = multiprocessors;
  queue.context = memory.workspace.context;
  queue.single_rows = memory.single_rows;
  queue.overlaps = true;
  for (int i = 0; i < parts; ++i) {
    const int part = memory.backwards ? parts - 1 - i : i;
    Bytes scratch(memory.scratch_bytes);
    std::fill_n(scratch.floats(), memory.scratch_bytes / 4,
                std::numeric_limits<float>::quiet_NaN());
    ops::Worker worker;
    worker.part = part;
    worker.parts = parts;
    worker.scratch = scratch.data();
    worker.shared = memory.shared == nullptr ? nullptr : memory.shared->data();
    worker.queue = &queue;
    table.run[static_cast<int>(op)](args, worker);
  }
  if (table.workspace_bytes == nullptr) return;
  std::string wrong = synchronize();
  if (queue.failure != 0) wrong = "launch failed: " + std::to_string(queue.failure);
  if (!wrong.empty() && device_failure.empty()) device_failure = wrong;
}

ops::PackedMatrix PackedOnce::get(const KernelTable& table, const ops::PackRequest& request,
                                  int parts) {
  if (table_ == &table && parts_ == parts) return matrix_;
  Result<ops::PackedMatrix> matrix = table.plan_pack(request);
  if (!matrix.ok()) {
    std::fprintf(stderr, "plan_pack: %s\n", std::string(matrix.status().message()).c_str());
    return {};
  }
  table_ = &table;
  parts_ = parts;
  matrix_ = *matrix;
  bytes_ = Bytes(static_cast<size_t>(matrix_.bytes));
  for (int part = 0; part < parts; ++part) {
    ops::Worker worker;
    worker.part = part;
    worker.parts = parts;
    table.pack(request, matrix_, bytes_.data(), worker);
  }
  matrix_.data = bytes_.data();
  return matrix_;
}

uint32_t Random::next() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return static_cast<uint32_t>(state_ >> 32);
}

float Random::uniform() { return static_cast<float>(next() >> 8) * (2.0f / 16777216.0f) - 1.0f; }

std::vector<float> Random::floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = next() % 61 == 0 ? 8.0f * uniform() : uniform();
  return values;
}

std::vector<std::byte> Random::weights(DType type, int64_t rows, int64_t columns) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes(type, columns)));
  const auto put_half = [&](size_t at, float value) {
    const uint16_t half = type == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(&bytes[at], &half, sizeof half);
  };
  if (!is_block_quantized(type)) {
    for (size_t at = 0; at < bytes.size(); at += info(type).block_bytes) {
      const float value = 0.1f * uniform();
      if (type == DType::kF32) std::memcpy(&bytes[at], &value, sizeof value);
      if (type != DType::kF32) put_half(at, value);
    }
    return bytes;
  }
  for (std::byte& b : bytes) b = static_cast<std::byte>(next());
  const bool has_min =
      type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K || type == DType::kQ5_K;
  for (size_t at = 0; at < bytes.size(); at += info(type).block_bytes) {
    const size_t scale = type == DType::kQ6_K ? at + 208 : at;
    put_half(scale, 0.002f * (1.5f + uniform()));
    if (has_min) put_half(at + 2, 0.01f * uniform());
  }
  return bytes;
}

namespace {

bool same_bits(const std::vector<float>& a, const float* b) {
  return a.empty() || std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

// Every row alone, and some ranges; every number of rows at both ends where there are up to 40.
// Under AddressSanitizer and on an emulated processor, which take minutes, at the last end alone,
// as it is past that one that a read is seen, up to 9 and all but one, and the first and the last
// row. Of a slow target three rows alone, and numbers of rows that take other kernels.
std::vector<Range> ranges_of(int64_t rows, bool slow) {
  std::vector<Range> ranges;
  const auto add = [&](int64_t begin, int64_t count) { ranges.push_back({begin, count}); };
  for (int64_t n = 1; n <= rows && rows <= 40 && !slow; ++n) {
    if (kSlowed && n > 9 && n != rows - 1) continue;
    if (!kSlowed) add(0, n);
    add(rows - n, n);
  }
  const int64_t step = kSlowed     ? std::max<int64_t>(1, rows - 1)
                       : slow      ? std::max<int64_t>(1, (rows - 1) / 2)
                       : rows > 20 ? 7
                                   : 1;
  for (int64_t t = 0; t < rows; t += step) add(t, 1);
  std::vector<int64_t> counts = {2, 3, 4, 6, 7, 9, 40};
  if (slow) counts = kSlowed ? std::vector<int64_t>{7} : std::vector<int64_t>{2, 7, 9, 40};
  for (const int64_t n : counts) {
    if (n < rows && !slow) add((rows - n) / 2, n);
    if (n < rows) add(rows - n, n);
  }
  return ranges;
}

// Empty when the case holds, else what is wrong.
std::string check(const Case& c, const Target& target) {
  const KernelTable& table = target.kernels;
  const double tolerance =
      target.multiplies_halves && c.half_tolerance > 0 ? c.half_tolerance : c.tolerance;
  char text[256];
  const std::vector<float> want = c.run(ops::reference_kernels(), {0, c.rows}, 1);
  const std::vector<float> got = c.run(table, {0, c.rows}, 1);
  if (!device_failure.empty()) return device_failure;
  if (got.size() != want.size()) return "wrong number of outputs";
  if (got.empty() != (c.rows == 0)) return "no outputs: the case is not valid";
  const size_t width = c.rows == 0 ? 0 : got.size() / static_cast<size_t>(c.rows);
  for (int64_t t = 0; t < c.rows; ++t) {
    const float* w = want.data() + static_cast<size_t>(t) * width;
    const float* g = got.data() + static_cast<size_t>(t) * width;
    double largest = 1e-6;
    for (size_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(double{w[i]}));
    for (size_t i = 0; i < width; ++i) {
      const bool both_nan = std::isnan(w[i]) && std::isnan(g[i]);
      if (both_nan || std::fabs(double{g[i]} - w[i]) <= tolerance * largest) continue;
      std::snprintf(text, sizeof text,
                    "row %lld output %zu is %.9g, the reference has %.9g (largest %.3g)",
                    static_cast<long long>(t), i, g[i], w[i], largest);
      return text;
    }
  }
  if (table.workspace_bytes != nullptr && !kSlowed) {  // a small device: other grids and blocks
    const int32_t before = std::exchange(multiprocessors, 3);
    const std::vector<float> small = c.run(table, {0, c.rows}, 1);
    multiprocessors = before;
    if (small.size() != got.size() || !same_bits(small, got.data()))
      return "other bits on a device of another size";
  }
  for (int parts : {2, 3, 7}) {
    if (table.workspace_bytes != nullptr) break;  // one worker queues everything
    if (kSlowed && parts != 3) continue;
    if (same_bits(c.run(table, {0, c.rows}, parts), got.data())) continue;
    std::snprintf(text, sizeof text, "other bits when shared out among %d parts", parts);
    return text;
  }
  for (const Range& r : ranges_of(c.rows, target.slow)) {
    if (same_bits(c.run(table, r, 1), got.data() + static_cast<size_t>(r.begin) * width)) continue;
    std::snprintf(text, sizeof text, "other bits for rows [%lld, %lld) than for all %lld",
                  static_cast<long long>(r.begin), static_cast<long long>(r.begin + r.count),
                  static_cast<long long>(c.rows));
    return text;
  }
  return device_failure;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) words.emplace_back();
  const bool others = words[0].starts_with('!');
  if (others) words[0].erase(0, 1);
  int passed = 0, failed = 0;
  const std::vector<Target> all = targets();  // before any case: they may say where memory is from
  std::vector<std::pair<std::string, std::vector<Case>>> suites;
#define LMN_OP(e, name, Args, text) suites.emplace_back(name, cases_of_##e());
#include "ops/ops.def"
#undef LMN_OP
  std::set<lmn::ops::KernelFn> done;
  int turns = 0;
  for (const Target& target : all) {
    ++turns;
    int turn = 0;
    for (size_t i = 0; i < suites.size(); ++i) {
      const auto& [op, cases] = suites[i];
      const lmn::ops::KernelFn kernel = target.kernels.run[i];
      if (done.count(kernel) != 0) continue;
      int good = 0;
      for (const Case& c : cases) {
        const std::string name = target.name + " " + op + " " + c.name;
        const bool named = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
          return name.find(word) != std::string::npos;
        });
        if (named == others) continue;
        if ((target.slow || kSlowed) && c.only_fast) continue;
        if (kHalved && (++turn + turns) % 2 == 0) continue;
        if (c.offered && !c.offered(target.kernels)) continue;
        device_failure.clear();
        const std::string wrong = check(c, target);
        if (wrong.empty()) {
          ++good;
        } else {
          ++failed;
          std::printf("FAILED %s: %s\n", name.c_str(), wrong.c_str());
        }
      }
      passed += good;
      if (good > 0) done.insert(kernel);
      if (good > 0) std::printf("%s %s: %d passed\n", target.name.c_str(), op.c_str(), good);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && (passed > 0 || others) ? 0 : 1;
}
