// SPDX-License-Identifier: Apache-2.0
#include "cpu/tensor/transform.h"

#include <cmath>
#include <numbers>

namespace lmn::cpu {
namespace {

// Lanes of one pass, a vector register of AVX2; 1 where the arrays are large anyway.
constexpr int64_t kTransformLanes = 4, kLongest = 1 << 14;

struct Pair {
  double re, im;
};
Pair operator+(Pair a, Pair b) { return {a.re + b.re, a.im + b.im}; }
Pair operator-(Pair a, Pair b) { return {a.re - b.re, a.im - b.im}; }
Pair operator*(double a, Pair b) { return {a * b.re, a * b.im}; }
// a - i b
Pair minus_i(Pair a, Pair b) { return {a.re + b.im, a.im - b.re}; }
Pair plus_i(Pair a, Pair b) { return {a.re - b.im, a.im + b.re}; }

// In place, the transform of kFactor values.
template <int kFactor>
void butterfly(Pair* v) {
  if constexpr (kFactor == 2) {
    const Pair a = v[0], b = v[1];
    v[0] = a + b;
    v[1] = a - b;
  } else if constexpr (kFactor == 3) {
    const double half = 0.5, sine = 0.86602540378443864676;
    const Pair sum = v[1] + v[2], difference = sine * (v[1] - v[2]);
    const Pair middle = v[0] - half * sum;
    v[0] = v[0] + sum;
    v[1] = minus_i(middle, difference);
    v[2] = plus_i(middle, difference);
  } else if constexpr (kFactor == 4) {
    const Pair a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = v[1] - v[3];
    v[0] = a + c;
    v[1] = minus_i(b, d);
    v[2] = a - c;
    v[3] = plus_i(b, d);
  } else {
    static_assert(kFactor == 5);
    const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410,
                 s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;
    const Pair a = v[1] + v[4], b = v[2] + v[3], c = v[1] - v[4], d = v[2] - v[3];
    const Pair p = v[0] + c1 * a + c2 * b, q = v[0] + c2 * a + c1 * b;
    const Pair r = s1 * c + s2 * d, t = s2 * c - s1 * d;
    v[0] = v[0] + a + b;
    v[1] = minus_i(p, r);
    v[2] = minus_i(q, t);
    v[3] = plus_i(q, t);
    v[4] = plus_i(p, r);
  }
}

// One stage: value r of butterfly q is at [q + count r][run], its result k, times the twiddle, goes
// to [kFactor q + k][run].
template <int kFactor>
void stage(const double* __restrict re, const double* __restrict im, double* __restrict out_re,
           double* __restrict out_im, int64_t count, int64_t run, const double* twiddles) {
  for (int64_t q = 0; q < count; ++q) {
    const double* w = twiddles + q * 2 * (kFactor - 1);
    for (int64_t j = 0; j < run; ++j) {
      Pair v[kFactor];
      for (int r = 0; r < kFactor; ++r) {
        v[r] = {re[(q + count * r) * run + j], im[(q + count * r) * run + j]};
      }
      butterfly<kFactor>(v);
      out_re[kFactor * q * run + j] = v[0].re;
      out_im[kFactor * q * run + j] = v[0].im;
      for (int k = 1; k < kFactor; ++k) {
        const double c = w[2 * k - 2], s = w[2 * k - 1];
        out_re[(kFactor * q + k) * run + j] = v[k].re * c - v[k].im * s;
        out_im[(kFactor * q + k) * run + j] = v[k].re * s + v[k].im * c;
      }
    }
  }
}

// The same of any factor; `roots` are its roots of unity.
void general_stage(const double* __restrict re, const double* __restrict im,
                   double* __restrict out_re, double* __restrict out_im, int64_t factor,
                   int64_t count, int64_t run, const double* twiddles, const double* roots) {
  for (int64_t q = 0; q < count; ++q) {
    for (int64_t k = 0; k < factor; ++k) {
      double* to_re = out_re + (factor * q + k) * run;
      double* to_im = out_im + (factor * q + k) * run;
      for (int64_t j = 0; j < run; ++j) {
        to_re[j] = re[q * run + j];
        to_im[j] = im[q * run + j];
      }
      for (int64_t r = 1; r < factor; ++r) {
        const double *xs = re + (q + count * r) * run, *ys = im + (q + count * r) * run;
        const double c = roots[2 * (r * k % factor)], s = roots[2 * (r * k % factor) + 1];
        for (int64_t j = 0; j < run; ++j) {
          to_re[j] += xs[j] * c - ys[j] * s;
          to_im[j] += xs[j] * s + ys[j] * c;
        }
      }
      if (k == 0) continue;
      const double *w = twiddles + 2 * (q * (factor - 1) + k - 1), c = w[0], s = w[1];
      for (int64_t j = 0; j < run; ++j) {
        const double x = to_re[j], y = to_im[j];
        to_re[j] = x * c - y * s;
        to_im[j] = x * s + y * c;
      }
    }
  }
}

std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (const int64_t p : {4, 2, 3, 5}) {
    while (n % p == 0) {
      factors.push_back(p);
      n /= p;
    }
  }
  for (int64_t p = 7; n > 1; p += 2) {
    if (p * p > n) p = n;
    while (n % p == 0) {
      factors.push_back(p);
      n /= p;
    }
  }
  return factors;
}

// cos and sin of -2 pi numerator / denominator.
void push_root(std::vector<double>& table, int64_t numerator, int64_t denominator) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(numerator % denominator) /
                       static_cast<double>(denominator);
  table.push_back(std::cos(angle));
  table.push_back(std::sin(angle));
}

}  // namespace

bool needs_convolution(int64_t length) {
  const std::vector<int64_t> factors = factors_of(length);
  return !factors.empty() && factors.back() > kMaxFactor;
}

void Transform::make_stages(int64_t length) {
  padded_ = length;
  for (const int64_t factor : factors_of(length)) {
    Stage stage{factor, length / factor, {}};
    for (int64_t q = 0; q < stage.count; ++q) {
      for (int64_t k = 1; k < factor; ++k) push_root(stage.twiddles, q * k, length);
    }
    roots_.emplace_back();
    for (int64_t r = 0; factor > 5 && r < factor; ++r) push_root(roots_.back(), r, factor);
    stages_.push_back(std::move(stage));
    length /= factor;
  }
}

Transform::Transform(int64_t length)
    : length_(length), lanes_(length <= kLongest ? kTransformLanes : 1), padded_(length) {
  if (!needs_convolution(length)) {
    make_stages(length);
    return;
  }
  // x[k] e^(-i pi k^2 / n), convolved with e^(i pi k^2 / n).
  for (int64_t k = 0; k < length; ++k) {
    push_root(chirp_, k * k % (2 * length), 2 * length);
  }
  int64_t padded = 1;
  while (padded < 2 * length - 1) padded *= 2;
  make_stages(padded);
  std::vector<double> buffers(static_cast<size_t>(scratch()));
  double *re = buffers.data(), *im = re + padded_ * lanes_;
  for (int64_t k = 0; k < length; ++k) {
    for (const int64_t at : {k, (padded - k) % padded}) {
      re[at * lanes_] = chirp_[static_cast<size_t>(2 * k)];
      im[at * lanes_] = -chirp_[static_cast<size_t>(2 * k + 1)];
    }
  }
  const Parts parts = run_stages(buffers.data());
  const double scale = 1 / static_cast<double>(padded);
  for (int64_t k = 0; k < padded; ++k) {
    for (const int part : {parts.real, parts.imaginary}) {
      filter_.push_back(buffers[static_cast<size_t>((part * padded + k) * lanes_)] * scale);
    }
  }
}

Transform::Parts Transform::run_stages(double* buffers) const {
  const int64_t size = padded_ * lanes_;
  int from = 0;  // the input is in arrays from and from + 1
  int64_t run = lanes_;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const auto& [factor, count, twiddles] = stages_[i];
    const double *re = buffers + from * size, *im = re + size;
    double *out_re = buffers + (2 - from) * size, *out_im = out_re + size;
    const double* w = twiddles.data();
    switch (factor) {
      case 2:
        stage<2>(re, im, out_re, out_im, count, run, w);
        break;
      case 3:
        stage<3>(re, im, out_re, out_im, count, run, w);
        break;
      case 4:
        stage<4>(re, im, out_re, out_im, count, run, w);
        break;
      case 5:
        stage<5>(re, im, out_re, out_im, count, run, w);
        break;
      default:
        general_stage(re, im, out_re, out_im, factor, count, run, w, roots_[i].data());
        break;
    }
    run *= factor;
    from = 2 - from;
  }
  return {from, from + 1};
}

Transform::Parts Transform::run(double* buffers) const {
  if (chirp_.empty()) return run_stages(buffers);
  const int64_t size = padded_ * lanes_;
  const auto multiply = [&](double* re, double* im, const std::vector<double>& by, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const double c = by[static_cast<size_t>(2 * k)], s = by[static_cast<size_t>(2 * k + 1)];
      for (int64_t j = k * lanes_; j < (k + 1) * lanes_; ++j) {
        const double x = re[j], y = im[j];
        re[j] = x * c - y * s;
        im[j] = x * s + y * c;
      }
    }
  };
  multiply(buffers, buffers + size, chirp_, length_);
  for (int64_t j = length_ * lanes_; j < size; ++j) buffers[j] = buffers[size + j] = 0;
  const Parts spectrum = run_stages(buffers);
  double *re = buffers + spectrum.real * size, *im = buffers + spectrum.imaginary * size;
  multiply(re, im, filter_, padded_);
  // The inverse transform is the forward one of exchanged parts.
  double *first = buffers, *second = buffers + size;
  for (int64_t j = 0; j < size; ++j) {
    const double x = re[j], y = im[j];
    first[j] = y;
    second[j] = x;
  }
  const Parts inverse = run_stages(buffers);
  multiply(buffers + inverse.imaginary * size, buffers + inverse.real * size, chirp_, length_);
  return {inverse.imaginary, inverse.real};
}

}  // namespace lmn::cpu
