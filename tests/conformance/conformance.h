// SPDX-License-Identifier: Apache-2.0
//
// A conformance case is one operator at one shape. It knows how to run its operator on any kernel
// table for any range of its rows; conformance.cc compares every target with the reference, and
// each target with itself for other splits and other row ranges, where results must be the same
// bits (DESIGN section 7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace conformance {

// Memory of a test, 64-byte aligned like a device's.
class Bytes {
 public:
  explicit Bytes(size_t size = 0) : storage_(size + 64), size_(size) {}
  Bytes(const Bytes& other) : Bytes(other.size_) {
    std::copy(other.data(), other.data() + size_, data());
  }
  Bytes& operator=(Bytes&& other) = default;
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - at % 64) % 64;
  }
  const std::byte* data() const { return const_cast<Bytes*>(this)->data(); }
  float* floats() { return reinterpret_cast<float*>(data()); }
  const float* floats() const { return reinterpret_cast<const float*>(data()); }
  size_t size() const { return size_; }

 private:
  std::vector<std::byte> storage_;
  size_t size_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(LMN_EMULATED_PROCESSOR)
inline constexpr bool kSlowed = true;  // everything takes ten times as long
#else
inline constexpr bool kSlowed = false;
#endif

// Each target has every other case, the next target the others: what a sanitizer looks for is in
// the code that a case takes, not in its values, and they are all run without one.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHalved = true;
#else
inline constexpr bool kHalved = false;
#endif

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Case {
  std::string name;
  int64_t rows = 0;
  // Largest difference from the reference, as a share of the largest magnitude of the row of
  // outputs (at least 1e-6).
  double tolerance = 0;
  // Runs rows [range.begin, range.begin + range.count) on `table`, shared out among `parts`, and
  // returns their outputs as floats, the same number for each row.
  std::function<std::vector<float>(const lmn::ops::KernelTable& table, Range range, int parts)> run;
  // The same for devices that multiply float16 where others have float32; 0: as above.
  double half_tolerance = 0;
  // Whether a table offers this at all (a weight type with a type of input); null means that it
  // must.
  std::function<bool(const lmn::ops::KernelTable& table)> offered = nullptr;
  // Left out where a row costs milliseconds and where everything is slowed: it takes long and finds
  // what others do.
  bool only_fast = false;
};

// What kernels are run on. A program has those of one file targets_*.cc.
struct Target {
  std::string name;
  const lmn::ops::KernelTable& kernels;
  bool multiplies_halves = false;
  bool slow = false;  // a row costs milliseconds
};
std::vector<Target> targets();
// Waits for what kernels queued; empty, or what went wrong in one since the last call.
std::string synchronize();

// Memory of the workers of run_parts. Scratch is filled with NaNs before each part; shared memory
// with zeros before the first and not again, as in a plan. Null: none.
struct WorkerMemory {
  size_t scratch_bytes = 0;
  Bytes* shared = nullptr;
  bool backwards = false;  // the last part first
  // Of devices that queue kernels. They get so much memory as they ask for, or less.
  lmn::ops::WorkspaceRequest workspace = {};
  size_t workspace_limit = SIZE_MAX;
  int64_t single_rows = 0;
};

// The operator on every part in turn.
void run_parts(const lmn::ops::KernelTable& table, lmn::ops::Op op, const void* args, int parts,
               const WorkerMemory& memory = {});

// A matrix packed by a table, as long as the same table asks for it alone: rows in any range are to
// have the bits of all, and packing is half of what that takes.
class PackedOnce {
 public:
  lmn::ops::PackedMatrix get(const lmn::ops::KernelTable& table,
                             const lmn::ops::PackRequest& request, int parts);

 private:
  const lmn::ops::KernelTable* table_ = nullptr;
  int parts_ = 0;
  lmn::ops::PackedMatrix matrix_;
  Bytes bytes_;
};

// Deterministic values: floats in [-1, 1) with a few larger ones, and weights of any file type with
// sane scales.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t next();
  float uniform();
  std::vector<float> floats(int64_t count);
  std::vector<std::byte> weights(lmn::DType type, int64_t rows, int64_t columns);

 private:
  uint64_t state_;
};

inline const std::vector<int64_t> kRowCounts = {0, 1, 2, 3, 5, 8, 17, 64};

// The cases of every operator; one without cases does not link.
#define LMN_OP(e, name, Args, text) std::vector<Case> cases_of_##e();
#include "ops/ops.def"
#undef LMN_OP

}  // namespace conformance
