// SPDX-License-Identifier: Apache-2.0
#include "plan/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/float16.h"
#include "plan/arena.h"

namespace lmn::plan {
namespace {

bool same_bytes(const graph::Constant& a, const graph::Constant& b) {
  return std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                    [](const graph::Piece& x, const graph::Piece& y) {
                      return x.view.data == y.view.data && x.view.dtype == y.view.dtype &&
                             x.view.shape == y.view.shape;
                    });
}

// Appends the numbers of a float vector in any of its file types. `data` has no alignment to rely
// on.
void append_floats(const TensorView& view, std::vector<float>* out) {
  for (int64_t i = 0; i < view.shape.elements(); ++i) {
    if (view.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, view.data + i * 4, sizeof(value));
      out->push_back(value);
    } else {
      uint16_t bits;
      std::memcpy(&bits, view.data + i * 2, sizeof(bits));
      out->push_back(view.dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits));
    }
  }
}

Status before_read(const PlanOptions& options, const graph::Piece& piece) {
  if (!options.before_read) return {};
  return options.before_read(piece.view).with_context(piece.name);
}

std::span<const std::byte> bytes_of(const TensorView& view) {
  return {view.data, static_cast<size_t>(view.bytes())};
}

// Packed bytes of a slice: a huge page, so that two members rarely fault the same one in.
constexpr int64_t kSliceBytes = int64_t{2} << 20;
// Slices from the one that is packed to the one that the system is asked to read from the disk:
// 16 MiB, some milliseconds of a fast disk.
constexpr size_t kSlicesAhead = 8;

}  // namespace

int64_t Weights::reserve(int64_t bytes) {
  const int64_t offset = bytes_;
  bytes_ += align_up(bytes);
  return offset;
}

Weights::Matrix* Weights::find(const graph::Constant& constant, bool interleaved,
                               const DType* input_type) {
  for (const auto& matrix : matrices_) {
    if (matrix->packed.interleaved == interleaved && same_bytes(*matrix->constant, constant) &&
        (input_type == nullptr || matrix->packed.input_type == *input_type)) {
      return matrix.get();
    }
  }
  return nullptr;
}

Result<const ops::PackedMatrix*> Weights::add_matrix(const graph::Value& value, DType input_type,
                                                     bool interleaved) {
  if (const Matrix* known = find(*value.constant, interleaved, &input_type)) return &known->packed;
  auto matrix = std::make_unique<Matrix>();
  matrix->constant = value.constant;
  matrix->name = value.name;
  for (const graph::Piece& piece : value.constant->pieces) matrix->views.push_back(piece.view);
  Result<ops::PackedMatrix> packed = table_.plan_pack({matrix->views, input_type, interleaved});
  if (!packed.ok()) return std::move(packed).status().with_context(value.name);
  matrix->packed = std::move(packed).value();
  if (matrix->packed.input_type != input_type) {
    return error(Code::kUnsupported, "%s: device %s multiplies it with %s, the graph with %s",
                 value.name.c_str(), device_.name().c_str(),
                 std::string(info(matrix->packed.input_type).name).c_str(),
                 std::string(info(input_type).name).c_str());
  }
  matrix->offset = reserve(matrix->packed.bytes);
  matrices_.push_back(std::move(matrix));
  return &matrices_.back()->packed;
}

Result<const ops::PackedMatrix*> Weights::add_table(const graph::Value& value) {
  if (const Matrix* known = find(*value.constant, false, nullptr)) return &known->packed;
  const TensorView& view = value.constant->pieces.front().view;
  Result<DType> input_type = table_.linear_input_type(view.dtype, view.shape.last(), false);
  if (!input_type.ok()) return std::move(input_type).status().with_context(value.name);
  return add_matrix(value, *input_type, false);
}

size_t Weights::add_vector(const graph::Value& value) {
  for (size_t i = 0; i < vectors_.size(); ++i) {
    if (same_bytes(*vectors_[i].constant, *value.constant)) return i;
  }
  Vector vector{value.constant, value.name, value.type.dims[0].size, 0};
  vector.offset = reserve(vector.length * static_cast<int64_t>(sizeof(float)));
  vectors_.push_back(std::move(vector));
  return vectors_.size() - 1;
}

Status Weights::fill(const Vector& vector, const PlanOptions& options) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(vector.length));
  for (const graph::Piece& piece : vector.constant->pieces) {
    LMN_RETURN_IF_ERROR(before_read(options, piece));
    append_floats(piece.view, &values);
    if (options.file_use) options.file_use(bytes_of(piece.view), FileUse::kOver);
  }
  return device_.copy_from_host(block_.data() + vector.offset, values.data(),
                                values.size() * sizeof(float));
}

// Two page-locked buffers of one member: it packs into one while the device copies from the other.
class Weights::Staging {
 public:
  // A buffer that nothing is copied from, valid until the next call.
  Result<std::byte*> next(Device& device, size_t bytes) {
    if (stream_ == nullptr) {
      LMN_ASSIGN_OR_RETURN(stream_, device.create_stream());
    }
    PinnedBlock& half = halves_[at_];
    if (half.bytes() < bytes) {
      LMN_RETURN_IF_ERROR(stream_->synchronize());
      LMN_ASSIGN_OR_RETURN(half, PinnedBlock::create(device, bytes));
    }
    return half.data();
  }
  Status send(std::byte* to, size_t bytes) {
    LMN_RETURN_IF_ERROR(stream_->synchronize());  // the copy from the other half
    LMN_RETURN_IF_ERROR(stream_->copy_from_host(to, halves_[at_].data(), bytes));
    at_ = 1 - at_;
    return {};
  }
  Status finish() { return stream_ == nullptr ? Status() : stream_->synchronize(); }

 private:
  PinnedBlock halves_[2];
  int at_ = 0;
  std::unique_ptr<Stream> stream_;  // the first to go: it waits for its copies
};

// The filling of all matrices by a team. Members share the counters alone.
class Weights::Loading {
 public:
  Loading(Weights& weights, const PlanOptions& options, int members)
      : weights_(weights), options_(options), staging_(static_cast<size_t>(members)) {
    for (const auto& matrix : weights.matrices_) {
      const auto parts =
          static_cast<int32_t>(std::max<int64_t>(1, matrix->packed.bytes / kSliceBytes));
      for (int32_t part = 0; part < parts; ++part) slices_.push_back({matrix.get(), part, parts});
    }
    for (size_t i = 0; i < std::min(kSlicesAhead, slices_.size()); ++i)
      tell(slices_[i], FileUse::kSoon);
  }

  void work(int index) {
    while (!stop_.load(std::memory_order_relaxed)) {
      const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= slices_.size()) break;
      if (i + kSlicesAhead < slices_.size()) tell(slices_[i + kSlicesAhead], FileUse::kSoon);
      const Slice& slice = slices_[i];
      if (!begin(*slice.matrix)) return;
      if (Status status = pack(slice, index); !status.ok()) return fail(std::move(status));
      tell(slice, FileUse::kOver);
      const int64_t bytes = slice.matrix->packed.bytes / slice.parts;
      const int64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      if (index == 0 && options_.progress) options_.progress(done, weights_.bytes_);
    }
    if (Status status = staging_[static_cast<size_t>(index)].finish(); !status.ok())
      fail(std::move(status));
  }

  // Once no member works.
  Status result() {
    // Slices leave the pages that they share with their neighbours.
    for (const auto& matrix : weights_.matrices_) {
      for (const TensorView& view : matrix->views) {
        if (options_.file_use) options_.file_use(bytes_of(view), FileUse::kOver);
      }
    }
    return std::move(failure_);
  }

 private:
  // For every slice: members read other slices of the matrix at the same time, and none may begin
  // on the strength of a check that another has yet to make.
  bool begin(const Matrix& matrix) {
    for (const graph::Piece& piece : matrix.constant->pieces) {
      Status status = before_read(options_, piece);
      if (status.ok()) continue;
      fail(std::move(status));
      return false;
    }
    return true;
  }

  void fail(Status status) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_.ok()) failure_ = std::move(status);
    stop_.store(true, std::memory_order_relaxed);
  }

  Status pack(const Slice& slice, int index) {
    const Matrix& matrix = *slice.matrix;
    ops::Worker worker;
    worker.index = index;
    worker.part = slice.part;
    worker.parts = slice.parts;
    const ops::PackRequest request{matrix.views, matrix.packed.input_type,
                                   matrix.packed.interleaved};
    std::byte* to = weights_.block_.data() + matrix.offset;
    if (weights_.device_.is_host()) {
      weights_.table_.pack(request, matrix.packed, to, worker);
      return {};
    }
    // Into page-locked memory, from which the device takes it while the next slice is packed.
    const ops::PackedRange range = weights_.table_.packed_range(matrix.packed, worker);
    Staging& staging = staging_[static_cast<size_t>(index)];
    LMN_ASSIGN_OR_RETURN(std::byte * half,
                         staging.next(weights_.device_, static_cast<size_t>(range.bytes())));
    // pack() adds the range's begin again.
    auto* base = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(half) -
                                              static_cast<uintptr_t>(range.begin));
    weights_.table_.pack(request, matrix.packed, base, worker);
    return staging.send(to + range.begin, static_cast<size_t>(range.bytes()));
  }

  // A share of the packed bytes is the same share of the file's bytes, but for the panels at its
  // ends: these bytes are a hint.
  void tell(const Slice& slice, FileUse use) const {
    if (!options_.file_use) return;
    const ops::PackedMatrix& packed = slice.matrix->packed;
    const auto begin = static_cast<double>(packed.bytes) * slice.part / slice.parts;
    const auto end = static_cast<double>(packed.bytes) * (slice.part + 1) / slice.parts;
    for (size_t i = 0; i < slice.matrix->views.size(); ++i) {
      const ops::PackedSegment& segment = packed.segments[packed.interleaved ? 0 : i];
      const std::span<const std::byte> all = bytes_of(slice.matrix->views[i]);
      const auto at = [&](double packed_offset) {
        const double share = (packed_offset - static_cast<double>(segment.offset)) /
                             static_cast<double>(segment.bytes);
        return static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(all.size()));
      };
      const size_t first = at(begin), last = at(end);
      if (first < last) options_.file_use(all.subspan(first, last - first), use);
    }
  }

  Weights& weights_;
  const PlanOptions& options_;
  std::vector<Staging> staging_;  // of each member
  std::vector<Slice> slices_;
  std::atomic<size_t> next_{0};
  std::atomic<int64_t> done_{0};  // bytes
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  Status failure_;
};

Status Weights::load(parallel::ThreadTeam& team, const PlanOptions& options) {
  Result<DeviceBlock> block = DeviceBlock::create(device_, static_cast<size_t>(bytes_));
  if (!block.ok()) return std::move(block).status().with_context("packed weights");
  block_ = std::move(block).value();
  for (const Vector& vector : vectors_) LMN_RETURN_IF_ERROR(fill(vector, options));
  Loading loading(*this, options, team.size());
  team.run([&](int index) { loading.work(index); });
  LMN_RETURN_IF_ERROR(loading.result());
  if (options.progress) options.progress(bytes_, bytes_);
  for (const auto& matrix : matrices_) {
    matrix->packed.data = block_.data() + matrix->offset;
    matrix->views.clear();
    matrix->constant.reset();
  }
  for (Vector& vector : vectors_) vector.constant.reset();
  return {};
}

}  // namespace lmn::plan
