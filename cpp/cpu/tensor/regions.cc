// SPDX-License-Identifier: Apache-2.0
//
// Kernels of RoiAlign and MaxRoiPool. Planes of regions and channels are shared out.
#include <cmath>
#include <limits>

#include "cpu/tensor/product.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

struct Regions {
  int64_t regions, batch, channels, height, width, out_height, out_width;
};

Regions make_regions(const Binding& b) {
  const Shape &x = b.node.shape(0), &out = b.outputs[0].shape;
  return {out[0], x[0], x[1], x[2], x[3], out[2], out[3]};
}

// The four inputs around (y, x), which are at most a pixel outside, with weights of one product
// each: a weighted one, and the largest of these products.
template <typename S>
struct Sample {
  S sum, most;
};
template <typename T, typename S>
Sample<S> sample(const T* plane, int64_t height, int64_t width, S y, S x) {
  if (!(y >= -1 && y <= static_cast<S>(height) && x >= -1 && x <= static_cast<S>(width)))
    return {0, 0};
  const auto settle = [](S* at, int64_t size, int64_t* low, int64_t* high) {
    *at = *at > 0 ? *at : S{0};
    *low = static_cast<int64_t>(*at);
    if (*low >= size - 1) {
      *high = *low = size - 1;
      *at = static_cast<S>(*low);
    } else {
      *high = *low + 1;
    }
    return *at - static_cast<S>(*low);
  };
  int64_t top, bottom, left, right;
  const S v = settle(&y, height, &top, &bottom), h = settle(&x, width, &left, &right);
  const auto at = [&](int64_t row, int64_t column) {
    return static_cast<S>(plane[row * width + column]);
  };
  const S a = (1 - v) * (1 - h) * at(top, left), b = (1 - v) * h * at(top, right);
  const S c = v * (1 - h) * at(bottom, left), d = v * h * at(bottom, right);
  return {a + b + c + d, std::max(std::max(a, b), std::max(c, d))};
}

}  // namespace

Status bind_RoiAlign(const Binding& b) {
  const Regions r = make_regions(b);
  const bool shifts = b.node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const bool takes_max = b.node.text("mode", "avg") == "max";
  const int64_t ratio = b.node.integer("sampling_ratio", 0);
  const float spatial_scale = b.node.number("spatial_scale", 1);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(r.regions * r.channels, worker);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t region = unit / r.channels;
        T* const to = io.output<T>(0) + unit * r.out_height * r.out_width;
        const int64_t image = io.input<int64_t>(2)[region];
        if (image < 0 || image >= r.batch || r.height == 0 || r.width == 0) {
          io.fail("RoiAlign: a batch index is out of range");
          std::fill_n(to, r.out_height * r.out_width, T(0.0f));
          continue;
        }
        const T* const plane =
            io.input<T>(0) + (image * r.channels + unit % r.channels) * r.height * r.width;
        S corner[4];
        for (int i = 0; i < 4; ++i) {
          corner[i] =
              static_cast<S>(io.input<T>(1)[region * 4 + i]) * static_cast<S>(spatial_scale) -
              (shifts ? S(0.5) : S(0));
        }
        S width = corner[2] - corner[0], height = corner[3] - corner[1];
        if (!shifts) {
          width = std::max(width, S(1));
          height = std::max(height, S(1));
        }
        const S bin_height = height / static_cast<S>(r.out_height);
        const S bin_width = width / static_cast<S>(r.out_width);
        // A region may claim any size: the image has no more to tell than this.
        const auto samples = [ratio](S bin) -> int64_t {
          if (ratio > 0) return ratio;
          const S up = std::ceil(bin);
          return up > 0 ? static_cast<int64_t>(std::min(up, S(32768))) : 0;
        };
        const int64_t rows = samples(bin_height), columns = samples(bin_width);
        for (int64_t i = 0; i < r.out_height; ++i) {
          for (int64_t j = 0; j < r.out_width; ++j) {
            S sum{};
            bool first = true;
            for (int64_t p = 0; p < rows; ++p) {
              const S y = corner[1] + static_cast<S>(i) * bin_height +
                          (static_cast<S>(p) + S(0.5)) * bin_height / static_cast<S>(rows);
              for (int64_t q = 0; q < columns; ++q) {
                const S x = corner[0] + static_cast<S>(j) * bin_width +
                            (static_cast<S>(q) + S(0.5)) * bin_width / static_cast<S>(columns);
                const Sample<S> value = sample(plane, r.height, r.width, y, x);
                if (takes_max) {
                  sum = first ? value.most : std::max(sum, value.most);
                  first = false;
                } else {
                  sum += value.sum;
                }
              }
            }
            if (!takes_max) sum /= static_cast<S>(std::max<int64_t>(1, rows * columns));
            to[i * r.out_width + j] = static_cast<T>(sum);
          }
        }
      }
    });
    return {};
  });
}

// Regions are rows of image, x1, y1, x2 and y2, rounded to pixels; bins are at least one pixel.
Status bind_MaxRoiPool(const Binding& b) {
  const Regions r = make_regions(b);
  const float spatial_scale = b.node.number("spatial_scale", 1);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(r.regions * r.channels, worker);
      for (int64_t unit = begin; unit < end; ++unit) {
        const T* const roi = io.input<T>(1) + unit / r.channels * 5;
        T* const to = io.output<T>(0) + unit * r.out_height * r.out_width;
        const S image = static_cast<S>(roi[0]);
        if (!(image >= 0 && image < static_cast<S>(r.batch))) {
          io.fail("MaxRoiPool: a batch index is out of range");
          std::fill_n(to, r.out_height * r.out_width, T(0.0f));
          continue;
        }
        int64_t corner[4];
        for (int i = 0; i < 4; ++i) {
          const S at = std::round(static_cast<S>(roi[i + 1]) * static_cast<S>(spatial_scale));
          corner[i] =
              std::isnan(at) ? 0 : static_cast<int64_t>(std::clamp(at, S(-1 << 30), S(1 << 30)));
        }
        const T* const plane =
            io.input<T>(0) +
            (static_cast<int64_t>(image) * r.channels + unit % r.channels) * r.height * r.width;
        const double bin_height =
            static_cast<double>(std::max<int64_t>(corner[3] - corner[1] + 1, 1)) /
            static_cast<double>(r.out_height);
        const double bin_width =
            static_cast<double>(std::max<int64_t>(corner[2] - corner[0] + 1, 1)) /
            static_cast<double>(r.out_width);
        const auto bound = [](double at, int64_t start, int64_t size) {
          return std::clamp<int64_t>(static_cast<int64_t>(at) + start, 0, size);
        };
        for (int64_t i = 0; i < r.out_height; ++i) {
          const double p = static_cast<double>(i);
          const int64_t top = bound(std::floor(p * bin_height), corner[1], r.height);
          const int64_t bottom = bound(std::ceil((p + 1) * bin_height), corner[1], r.height);
          for (int64_t j = 0; j < r.out_width; ++j) {
            const double q = static_cast<double>(j);
            const int64_t left = bound(std::floor(q * bin_width), corner[0], r.width);
            const int64_t right = bound(std::ceil((q + 1) * bin_width), corner[0], r.width);
            const bool empty = bottom <= top || right <= left;
            S most = empty ? S{} : -std::numeric_limits<S>::infinity();
            for (int64_t y = top; y < bottom; ++y) {
              for (int64_t x = left; x < right; ++x)
                most = std::max(most, static_cast<S>(plane[y * r.width + x]));
            }
            to[i * r.out_width + j] = static_cast<T>(most);
          }
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
