// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/spatial.h"

#include <cinttypes>

namespace lmn::ops {
namespace {

constexpr int64_t kMaxWindow = int64_t{1} << 31;

}  // namespace

Status read_sizes(const TensorNode& node, const char* key, int count, int64_t least, int64_t most,
                  int64_t fallback, int64_t* out) {
  const Ints* given = node.integers(key);
  if (given == nullptr) {
    std::fill_n(out, count, fallback);
    return {};
  }
  if (given->size() != static_cast<size_t>(count)) {
    return node.fail("%s has %zu numbers; %d are needed", key, given->size(), count);
  }
  for (int i = 0; i < count; ++i) {
    out[i] = (*given)[static_cast<size_t>(i)];
    if (out[i] < least || out[i] > most) {
      return node.fail("%s[%d] is %" PRId64 "; it is between %" PRId64 " and %" PRId64, key, i,
                       out[i], least, most);
    }
  }
  return {};
}

Status read_windows(const TensorNode& node, const Shape& x, std::span<const int64_t> kernel,
                    bool ceil, Windows* windows) {
  if (x.rank < 3) {
    return node.fail("input 0 has shape %s; it is [batch, channels, spatial...]",
                     x.to_string().c_str());
  }
  Windows w;
  w.rank = x.rank - 2;
  if (kernel.size() != static_cast<size_t>(w.rank)) {
    return node.fail("the kernel has %zu sizes, and the input %d spatial dimensions", kernel.size(),
                     w.rank);
  }
  std::array<int64_t, 2 * kMaxSpatial> pads{};
  LMN_RETURN_IF_ERROR(read_sizes(node, "strides", w.rank, 1, kMaxWindow, 1, w.stride.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "dilations", w.rank, 1, kMaxWindow, 1, w.dilation.data()));
  LMN_RETURN_IF_ERROR(read_sizes(node, "pads", 2 * w.rank, 0, kMaxWindow, 0, pads.data()));
  const std::string_view auto_pad = node.text("auto_pad", "NOTSET");
  const bool same_upper = auto_pad == "SAME_UPPER", same = same_upper || auto_pad == "SAME_LOWER";
  const bool is_explicit = auto_pad.empty() || auto_pad == "NOTSET";
  if (!same && !is_explicit && auto_pad != "VALID") {
    return node.fail("auto_pad is '%.40s'; it is NOTSET, SAME_UPPER, SAME_LOWER or VALID",
                     std::string(auto_pad).c_str());
  }
  for (int d = 0; d < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    w.kernel[i] = kernel[i];
    w.in[i] = x[d + 2];
    w.out[i] = kUnknownSize;
    if (is_explicit) {
      w.pad_begin[i] = pads[i];
      w.pad_end[i] = pads[i + static_cast<size_t>(w.rank)];
    }
    if (w.kernel[i] == 0 || w.kernel[i] > kMaxWindow) {
      return node.fail("the kernel's size %d is %" PRId64 "; it is between 1 and %" PRId64, d,
                       w.kernel[i], kMaxWindow);
    }
    if (w.kernel[i] < 0) continue;
    const int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1;
    if (w.in[i] < 0) {
      const bool keeps = w.stride[i] == 1 && (same || w.pad_begin[i] + w.pad_end[i] == extent - 1);
      if (keeps) w.out[i] = w.in[i];
      continue;
    }
    if (w.in[i] > kMaxElements) return check_elements(node, x);
    if (same) {
      w.out[i] = (w.in[i] + w.stride[i] - 1) / w.stride[i];
      const int64_t pad = std::max<int64_t>(0, (w.out[i] - 1) * w.stride[i] + extent - w.in[i]);
      w.pad_begin[i] = same_upper ? pad / 2 : pad - pad / 2;
      w.pad_end[i] = pad - w.pad_begin[i];
      continue;
    }
    const int64_t room = w.in[i] + w.pad_begin[i] + w.pad_end[i] - extent;
    if (room < 0) {
      return node.fail("a window of %" PRId64 " is larger than dimension %d: %" PRId64
                       " and %" PRId64 " of padding",
                       extent, d + 2, w.in[i], w.pad_begin[i] + w.pad_end[i]);
    }
    w.out[i] = room / w.stride[i] + 1;
    if (is_explicit && ceil && room % w.stride[i] != 0 &&
        w.out[i] * w.stride[i] < w.in[i] + w.pad_begin[i]) {
      ++w.out[i];
    }
  }
  *windows = w;
  return {};
}

}  // namespace lmn::ops
