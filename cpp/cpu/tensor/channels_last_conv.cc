// SPDX-License-Identifier: Apache-2.0
//
// lmnative.Conv: the product of packed panels (as lmnative.Linear's) with the channels that lie
// under the taps of each window, which are not copied but pointed to; padding points to zeros.
// Images of few channels are copied with their padding, so that all taps of a row are one piece.
// Columns are summed in the order of taps, then channels.
#include <algorithm>
#include <limits>

#include "cpu/panel_layout.h"
#include "cpu/tensor/linear_activation.h"
#include "cpu/tensor/tensor_kernels.h"
#include "cpu/tensor/windows.h"
#include "cpu/tensor/winograd.h"
#include "ops/infer/channels_last.h"
#include "ops/infer/convolutions.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

struct PackedConvolution {
  bool depthwise = false;
  int64_t panel_size = 0, panels = 0;  // of one group
  std::vector<std::byte> memory;
  const std::byte* data = nullptr;  // in memory, 64-byte aligned
  WinogradWeights winograd;         // instead, where images are known to be large enough
  std::vector<float> zeros;         // the channels of one position of padding
};

constexpr int64_t kFewChannels = 16;  // a piece of fewer is not worth a pointer

// Positions whose pointers are kept at a time: their channels and half of a panel are to stay in a
// second-level cache of 512 KiB.
int64_t block_positions(int64_t segments, int64_t channels) {
  const int64_t by_bytes = 65536 / std::max<int64_t>(1, channels);
  const int64_t by_pointers = 8192 / std::max<int64_t>(1, segments);
  return std::clamp<int64_t>(std::min(by_bytes, by_pointers), 48, 512);
}

struct ConvolutionEnding {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  RowFunction apply = nullptr;
};

Status read_convolution_ending(const ops::TensorNode& node, const IsaKernels& isa,
                               ConvolutionEnding* ending) {
  const std::string_view name = node.text("activation", "");
  if (name == "Relu") {
    ending->low = 0;
  } else if (name == "Clip") {
    ending->low = node.number("low", ending->low);
    ending->high = node.number("high", ending->high);
  } else if (find_linear_activation(name, isa, &ending->apply)) {
    return {};
  } else {
    return node.unsupported("activation %.40s", std::string(name).c_str());
  }
  return {};
}

// Where the pieces of a run of positions of one image begin.
class WindowPointers {
 public:
  // `whole_rows`: the taps of the last dimension are one piece.
  WindowPointers(const ops::Convolution& c, bool whole_rows, bool copies)
      : w_(c.windows), walk_(c.windows), channels_(c.channels), copies_(copies) {
    last_ = static_cast<size_t>(w_.rank - 1);
    if (whole_rows) walk_.kernel[last_] = 1;
    length_ = whole_rows ? w_.kernel[last_] * channels_ : channels_;
    block_ = block_positions(segments(), channels_);
    if (!copies) return;
    const int64_t width = std::max<int64_t>(1, w_.out[last_]);
    pitch_ = (std::min(width, block_) - 1) * w_.stride[last_] + w_.kernel[last_];
    const int64_t touched = std::min(outer_rows(), (block_ - 1) / width + 2);
    const int64_t rows = width > block_ ? 1 : std::max<int64_t>(1, touched);
    copied_rows_ = (rows - 1) * outer_stride() + reach_of_rows();
  }

  int64_t segments() const { return walk_.taps(); }
  int64_t length() const { return length_; }
  int64_t block() const { return block_; }
  size_t scratch_bytes() const {
    return static_cast<size_t>(segments() * block_) * sizeof(float*) +
           static_cast<size_t>(copies_ ? copied_rows_ * pitch_ * channels_ : 0) * sizeof(float);
  }
  // How many of `count` positions from `position` on are done at a time.
  int64_t run(int64_t position, int64_t count) const {
    const int64_t n = std::min(count, block_), width = w_.out[last_];
    return copies_ && width > block_ ? std::min(n, width - position % width) : n;
  }

  // [segments][block] of positions [position, position + count) of `image`.
  const float* const* fill(const float* image, const float* zeros, int64_t position, int64_t count,
                           std::byte* scratch) const {
    const float** const to = reinterpret_cast<const float**>(scratch);
    if (copies_) {
      copy(image, position, count, reinterpret_cast<float*>(to + segments() * block_), to);
    } else {
      point(image, zeros, position, count, to);
    }
    return to;
  }

 private:
  bool has_rows() const { return w_.rank == 2; }
  int64_t outer_rows() const { return has_rows() ? w_.out[0] : 1; }
  int64_t outer_stride() const { return has_rows() ? w_.stride[0] : 1; }
  int64_t reach_of_rows() const { return has_rows() ? (w_.kernel[0] - 1) * w_.dilation[0] + 1 : 1; }

  void point(const float* image, const float* zeros, int64_t position, int64_t count,
             const float** to) const {
    const int64_t stride = w_.stride[last_], taps = segments(), step = stride * channels_;
    for_rows(w_.out, w_.rank, position, count, [&](const SpatialSizes& out, int64_t at, int64_t n) {
      SpatialSizes tap{};
      for (int64_t t = 0; t < taps; ++t, advance(walk_.kernel, w_.rank, &tap)) {
        const float** const row = to + t * block_ + at;
        const int64_t offset = row_offset(w_, out, tap);
        if (offset < 0) {
          std::fill_n(row, n, zeros);
          continue;
        }
        const int64_t first =
            out[last_] * stride - w_.pad_begin[last_] + tap[last_] * w_.dilation[last_];
        const auto [begin, end] = reach(first, stride, w_.in[last_], n);
        std::fill(row, row + begin, zeros);
        const float* from = image + (offset + first + begin * stride) * channels_;
        for (int64_t i = begin; i < end; ++i, from += step) row[i] = from;
        std::fill(row + end, row + n, zeros);
      }
    });
  }

  // Of one dimension or two.
  void copy(const float* image, int64_t position, int64_t count, float* copied,
            const float** to) const {
    const int64_t width = w_.out[last_], stride = w_.stride[last_];
    const int64_t row = position / width, rows = (position + count - 1) / width - row + 1;
    const int64_t column = rows == 1 ? position % width : 0;
    const int64_t columns = rows == 1 ? count : width;
    const int64_t first = column * stride - w_.pad_begin[last_];
    const int64_t wanted = (columns - 1) * stride + w_.kernel[last_];
    const int64_t begin = std::clamp<int64_t>(-first, 0, wanted);
    const int64_t end = std::clamp<int64_t>(w_.in[last_] - first, begin, wanted);
    const int64_t first_row = has_rows() ? row * w_.stride[0] - w_.pad_begin[0] : 0;
    const int64_t in_rows = has_rows() ? w_.in[0] : 1;
    for (int64_t i = 0; i < (rows - 1) * outer_stride() + reach_of_rows(); ++i) {
      float* const line = copied + i * pitch_ * channels_;
      const int64_t from = first_row + i;
      if (from < 0 || from >= in_rows) {
        std::fill_n(line, wanted * channels_, 0.0f);
        continue;
      }
      std::fill_n(line, begin * channels_, 0.0f);
      std::copy_n(image + (from * w_.in[last_] + first + begin) * channels_,
                  (end - begin) * channels_, line + begin * channels_);
      std::fill_n(line + end * channels_, (wanted - end) * channels_, 0.0f);
    }
    const int64_t taps = segments();
    for (int64_t t = 0; t < taps; ++t) {
      const int64_t down = has_rows() ? t * w_.dilation[0] : 0;
      for_rows(w_.out, w_.rank, position, count,
               [&](const SpatialSizes& out, int64_t at, int64_t n) {
                 const int64_t line = has_rows() ? (out[0] - row) * outer_stride() + down : 0;
                 const float* from =
                     copied + (line * pitch_ + (out[last_] - column) * stride) * channels_;
                 for (int64_t i = 0; i < n; ++i)
                   to[t * block_ + at + i] = from + i * stride * channels_;
               });
    }
  }

  Windows w_, walk_;  // walk_: with the pieces for taps
  int64_t channels_, length_, block_, pitch_ = 0, copied_rows_ = 0;
  size_t last_;
  bool copies_;
};

// Whether no window reaches into padding.
bool is_inside(const Windows& w) {
  for (int d = 0; d < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t past =
        (w.out[i] - 1) * w.stride[i] - w.pad_begin[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
    if (w.pad_begin[i] > 0 || past > w.in[i]) return false;
  }
  return true;
}

struct Convolver {
  ops::Convolution c;
  const PackedConvolution* packed;
  WindowPointers pointers;
  ConvolutionEnding ending;
  ConvolutionKernels kernels;
  int64_t lanes;
  bool has_bias, has_residual;

  void operator()(const Operands& io, const Worker& worker) const {
    const int64_t positions = c.windows.outputs(), all = c.batch * positions;
    const int64_t panels = packed->depthwise ? 1 : c.groups * packed->panels;
    // Panels where the weights are larger than the images.
    const bool by_panels =
        panels >= 2 * worker.parts &&
        panels * packed->panel_size > all * c.channels * static_cast<int64_t>(sizeof(float));
    const auto [begin, end] = by_panels ? ops::Share{0, all} : ops::share_of(all, worker);
    const auto [panel, panel_end] =
        by_panels ? ops::share_of(panels, worker) : ops::Share{0, panels};
    for (int64_t at = begin; at < end;) {
      const int64_t image = at / positions, position = at % positions;
      const int64_t n = pointers.run(position, std::min(end - at, positions - position));
      const float* const* table =
          pointers.fill(io.input<float>(0) + image * c.windows.inputs() * c.channels,
                        packed->zeros.data(), position, n, worker.scratch);
      if (packed->depthwise) {
        by_channels(io, table, at, n);
      } else {
        for (int64_t g = panel / packed->panels; g * packed->panels < panel_end; ++g) {
          const int64_t first = g * packed->panels;
          multiply(io, table, at, n, g, std::max(panel - first, int64_t{0}),
                   std::min(panel_end - first, packed->panels));
        }
      }
      at += n;
    }
  }

  void by_channels(const Operands& io, const float* const* table, int64_t at, int64_t n) const {
    DepthwiseTask t{};
    t.weights = reinterpret_cast<const float*>(packed->data);
    t.pointers = table;
    t.taps = pointers.segments();
    t.pointer_stride = pointers.block();
    t.rows = n;
    t.channels = c.outputs;
    t.bias = has_bias ? io.input<float>(2) : nullptr;
    t.residual = has_residual ? io.input<float>(3) + at * c.outputs : nullptr;
    t.y = io.output<float>(0) + at * c.outputs;
    t.low = ending.low;
    t.high = ending.high;
    kernels.depthwise(t);
    if (ending.apply != nullptr) ending.apply(t.y, t.y, n * c.outputs);
  }

  // Panels [panel, panel_end) of one group.
  void multiply(const Operands& io, const float* const* table, int64_t at, int64_t n, int64_t group,
                int64_t panel, int64_t panel_end) const {
    const int64_t channels = c.outputs / c.groups, first = group * channels;
    const int64_t out = at * c.outputs + first;
    IndirectTask t{};
    t.panels = packed->data + group * packed->panels * packed->panel_size;
    t.panel_bytes = packed->panel_size;
    t.panel_begin = panel;
    t.panel_end = panel_end;
    t.segments = pointers.segments();
    t.length = c.groups == 1 ? pointers.length() : c.channels / c.groups;
    t.pointers = table;
    t.pointer_stride = pointers.block();
    t.offset = group * (c.channels / c.groups);
    t.rows = n;
    t.channels = channels;
    t.bias = has_bias ? io.input<float>(2) + first : nullptr;
    t.residual = has_residual ? io.input<float>(3) + out : nullptr;
    t.y = io.output<float>(0) + out;
    t.y_stride = c.outputs;
    t.low = ending.low;
    t.high = ending.high;
    kernels.linear(t);
    if (ending.apply == nullptr) return;
    const int64_t left = panel * lanes, count = std::min(panel_end * lanes, channels) - left;
    for (int64_t r = 0; r < n; ++r) {
      float* const y = t.y + r * c.outputs + left;
      ending.apply(y, y, count);
    }
  }
};

}  // namespace

Status prepare_ChannelsLastConv(const Preparation& p) {
  const float* w = p.node.data<float>(1);
  if (w == nullptr) return p.node.fail("the weights are no constant");
  const Shape& shape = p.node.shape(1);
  const int64_t groups = p.node.integer("group", 1), outputs = shape[0] / groups;
  const int64_t channels = shape[1];
  int64_t taps = 1;
  for (int i = 2; i < shape.rank; ++i) taps *= shape[i];
  auto packed = std::make_shared<PackedConvolution>();
  packed->zeros.assign(static_cast<size_t>(groups * channels), 0.0f);
  packed->depthwise = groups > 1 && channels == 1 && outputs == 1;
  ops::Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(ops::ChannelsFirstNode(p.node).node(), &c));
  if (suits_winograd(c, w)) {
    packed->winograd = pack_winograd(w, outputs, channels, p.isa);
    p.prepared = std::move(packed);
    return {};
  }
  const int64_t inner = channels * taps, lanes = p.isa.float_lanes;
  packed->panel_size = panel_bytes(DType::kF32, inner, lanes);
  packed->panels = (outputs + lanes - 1) / lanes;
  const int64_t bytes = packed->depthwise ? groups * taps * static_cast<int64_t>(sizeof(float))
                                          : groups * packed->panels * packed->panel_size;
  constexpr size_t kAlignment = 64;
  packed->memory.resize(static_cast<size_t>(bytes) + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(packed->memory.data());
  std::byte* data = packed->memory.data() + (kAlignment - address % kAlignment) % kAlignment;
  packed->data = data;
  if (packed->depthwise) {
    float* const to = reinterpret_cast<float*>(data);
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t g = 0; g < groups; ++g) to[t * groups + g] = w[g * taps + t];
    }
  } else {
    std::vector<float> rows(static_cast<size_t>(lanes * inner));
    for (int64_t panel = 0; panel < groups * packed->panels && inner > 0; ++panel) {
      const int64_t first = panel % packed->panels * lanes,
                    valid = std::min(lanes, outputs - first);
      const float* from = w + (panel / packed->panels * outputs + first) * inner;
      for (int64_t lane = 0; lane < valid; ++lane) {
        for (int64_t k = 0; k < channels; ++k) {
          for (int64_t t = 0; t < taps; ++t)
            rows[static_cast<size_t>(lane * inner + t * channels + k)] =
                from[lane * inner + k * taps + t];
        }
      }
      p.isa.pack({DType::kF32, DType::kF32, inner, reinterpret_cast<const std::byte*>(rows.data()),
                  valid, data + panel * packed->panel_size});
    }
  }
  p.prepared = std::move(packed);
  return {};
}

Status bind_ChannelsLastConv(const Binding& b) {
  const auto* packed = b.node.prepared<PackedConvolution>();
  if (packed == nullptr) return b.node.fail("its weights were not packed");
  ops::Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(ops::ChannelsFirstNode(b.node).node(), &c));
  ConvolutionEnding ending;
  LMN_RETURN_IF_ERROR(read_convolution_ending(b.node, b.isa, &ending));
  const Windows& w = c.windows;
  b.kernel.splits = true;
  b.kernel.cost = 50 + static_cast<double>(c.batch * w.outputs() * w.taps() * c.channels /
                                           c.groups * c.outputs) /
                           25;
  const bool has_bias = b.node.has(2), has_residual = b.node.has(3);
  if (packed->winograd.data != nullptr) {
    const Winograd winograd(c, packed->winograd, b.isa);
    b.kernel.scratch_bytes = winograd.scratch_bytes();
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      IndirectTask t{};
      t.bias = has_bias ? io.input<float>(2) : nullptr;
      t.residual = has_residual ? io.input<float>(3) : nullptr;
      t.y = io.output<float>(0);
      t.low = ending.low;
      t.high = ending.high;
      winograd.run(io.input<float>(0), packed->zeros.data(), t, ending.apply, worker);
    });
    return {};
  }
  const auto last = static_cast<size_t>(w.rank - 1);
  const bool joins = c.groups == 1 && w.kernel[last] > 1 && w.dilation[last] == 1;
  const bool inside = is_inside(w);
  const bool copies = joins && !inside && w.rank <= 2 && c.channels < kFewChannels;
  const WindowPointers pointers(c, joins && (inside || copies), copies);
  b.kernel.scratch_bytes = pointers.scratch_bytes();
  b.kernel.set(Convolver{c, packed, pointers, ending, b.isa.convolution, b.isa.float_lanes,
                         has_bias, has_residual});
  return {};
}

}  // namespace lmn::cpu
