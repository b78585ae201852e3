// SPDX-License-Identifier: Apache-2.0
//
// exp, log, tanh, erf and what is made of them, for loops over float32: no branch, no table and no
// call, so that a compiler turns a loop over them into vectors for whatever instruction set it
// compiles for (GCC needs -fno-trapping-math: cmake/cpu_isa.cmake). No multiply and add is fused
// (cmake/warnings.cmake), so every instruction set gives the same bits. The polynomials are minimax
// fits of this project. Errors were measured against float64 (tests/unit/cpu/vector_math_test.cc
// checks them) and are given in units in the last place (ulp) of the true result; NaN gives NaN,
// and infinities their limits. Other types take std::.
//
// Included within a namespace, by the baseline's vector_math.h and by the files of instruction
// sets, for which nothing here may be a function of the standard library.

template <typename To, typename From>
inline To bits_of(From x) {
  return __builtin_bit_cast(To, x);
}
constexpr float kInfinity = __builtin_huge_valf();

// condition ? a : b, by bits: both sides are always computed, and the compiler need not prove that
// they may be.
inline float select(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return bits_of<float>((bits_of<uint32_t>(a) & mask) | (bits_of<uint32_t>(b) & ~mask));
}
inline float absolute(float x) { return bits_of<float>(bits_of<uint32_t>(x) & 0x7FFFFFFFu); }
inline float with_sign_of(float magnitude, float sign) {
  return bits_of<float>((bits_of<uint32_t>(magnitude) & 0x7FFFFFFFu) |
                        (bits_of<uint32_t>(sign) & 0x80000000u));
}
inline float clamp(float x, float low, float high) {  // NaN stays NaN
  x = low > x ? low : x;
  return high < x ? high : x;
}

// To nearest even. Numbers from 2^23 on are whole; below, adding and subtracting it rounds.
inline float round_even(float x) {
  const float magnitude = absolute(x), rounded = (magnitude + 8388608.0f) - 8388608.0f;
  return with_sign_of(magnitude < 8388608.0f ? rounded : magnitude, x);
}

// e^x with 0 below -104 and infinity above 88.73, subnormal results included: at most 1.2 ulp.
// x = n ln 2 + r, |r| <= ln(2) / 2; 2^n in two factors, because n reaches from -151 to 130.
inline float exp(float x) {
  x = clamp(x, -105.0f, 90.0f);
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.3950519299e-03f;
  p = p * r + 8.3689086723e-03f;
  p = p * r + 4.1666205375e-02f;
  p = p * r + 1.6666518678e-01f;
  p = p * r + 5.0000000953e-01f;
  p = (p * (r * r) + r) + 1.0f;
  const uint32_t power = bits_of<uint32_t>(shifted) - bits_of<uint32_t>(kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(power) >> 1);
  return p * bits_of<float>((half + 127u) << 23) * bits_of<float>((power - half + 127u) << 23);
}

// Natural logarithm; -infinity of 0, NaN below: at most 1.2 ulp.
// x = 2^n m, sqrt(1/2) <= m < sqrt(2).
inline float log(float x) {
  const bool tiny = x < 1.17549435e-38f;  // subnormal, zero, negative
  const float scaled = select(tiny, x * 8388608.0f, x);
  const uint32_t bits = bits_of<uint32_t>(scaled) - 0x3F3504F3u;  // of sqrt(1/2)
  const float n = static_cast<float>(static_cast<int32_t>(bits) >> 23) - select(tiny, 23.0f, 0.0f);
  const float f = bits_of<float>((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  const float z = f * f;
  float p = 6.7466349386e-02f;
  p = p * f - 1.1675758770e-01f;
  p = p * f + 1.1888224863e-01f;
  p = p * f - 1.2405576889e-01f;
  p = p * f + 1.4219542421e-01f;
  p = p * f - 1.6667996111e-01f;
  p = p * f + 2.0002119149e-01f;
  p = p * f - 2.5000009602e-01f;
  p = p * f + 3.3333312597e-01f;
  // The small terms first: n ln 2 in two parts, of which the large one is exact.
  const float small = (p * f * z - n * 2.12194440e-4f) - 0.5f * z;
  float y = (small + f) + n * 0.693359375f;
  y = select(x == 0.0f, -kInfinity, y);
  y = select(x == kInfinity, x, y);
  return select(x < 0.0f, bits_of<float>(0x7FC00000u), select(x != x, x, y));
}

// 1 / (1 + e^-x): at most 2 ulp above -87; below, where e^-x overflows, 0 rather than a subnormal.
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// At most 1.6 ulp.
inline float tanh(float x) {
  const float a = absolute(x), z = x * x;
  float p = -5.7147618821e-03f;
  p = p * z + 2.0648635584e-02f;
  p = p * z - 5.3742930407e-02f;
  p = p * z + 1.3331484886e-01f;
  p = p * z - 3.3333283706e-01f;
  const float small = x + x * (z * p);
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return select(x != x, x, with_sign_of(select(a < 0.625f, small, large), x));
}

// erf(t) / t - 1 of |t| <= 1, from t^2.
inline float erf_by_t(float z) {
  float p = 7.8891150673e-05f;
  p = p * z - 8.0208399439e-04f;
  p = p * z + 5.1895351895e-03f;
  p = p * z - 2.6854444515e-02f;
  p = p * z + 1.1283600174e-01f;
  p = p * z - 3.7612627136e-01f;
  return p * z + 1.2837916591e-01f;
}

// e^(t^2) erfc(t), t >= 0.4.
inline float scaled_erfc(float t) {
  const float u = 1.0f / (1.0f + 0.5f * t);
  float p = -3.5230562384e-02f;
  p = p * u + 9.1537231318e-02f;
  p = p * u + 9.9896432508e-03f;
  p = p * u - 2.0852743893e-01f;
  p = p * u + 1.0572248700e-01f;
  p = p * u + 4.0187822384e-02f;
  p = p * u + 1.8661592397e-01f;
  p = p * u + 2.4538447861e-01f;
  p = p * u + 2.8220574845e-01f;
  return u * (p * u + 2.8209124282e-01f);
}

// At most 1.5 ulp.
inline float erf(float x) {
  const float a = absolute(x), t = a > 4.0f ? 4.0f : a, z = t * t;  // erf(4) rounds to 1
  const float large = 1.0f - exp(-z) * scaled_erfc(t);
  const float y = select(t < 1.0f, x + x * erf_by_t(z), large);
  return select(x != x, x, with_sign_of(y, x));
}

// x times the normal distribution function, x (1 + erf(x / sqrt 2)) / 2: relative error at most
// 4e-7 above x = -12.5, also where the result is tiny, because no 1 - 1 is computed; 0 far below.
inline float gelu(float x) {
  const float magnitude = absolute(x), a = magnitude > 16.0f ? 16.0f : magnitude;
  const float square = a * a;
  // What rounding took from the square, from the two halves of a: it counts e^square times.
  const float high = bits_of<float>(bits_of<uint32_t>(a) & 0xFFFFF000u);
  const float low = a - high;
  const float rest = ((high * high - square) + 2.0f * (high * low)) + low * low;
  const float t = x * 0.70710678118654752f;
  const float middle = 0.5f + 0.5f * (t + t * erf_by_t(0.5f * square));
  const float tail =
      0.5f * exp(-0.5f * square) * (1.0f - 0.5f * rest) * scaled_erfc(a * 0.70710678118654752f);
  const float phi = select(a < 0.6f, middle, select(x < 0.0f, tail, 1.0f - tail));
  return select(x == -kInfinity, -0.0f, x * phi);
}

// x / (1 + e^-x): at most 3 ulp above -87.
inline float silu(float x) { return select(x == -kInfinity, -0.0f, x / (1.0f + exp(-x))); }

// To whole numbers, down and up.
inline float round_down(float x) {
  const float nearest = round_even(x);
  return with_sign_of(nearest > x ? nearest - 1.0f : nearest, x);
}
inline float round_up(float x) { return -round_down(-x); }

inline float positive(float x) { return x < 0.0f ? 0.0f : x; }
inline float negative(float x) { return x > 0.0f ? 0.0f : x; }

// e^x - 1 of x <= 0; near 0 by the series, where e^x - 1 would lose what it has.
inline float exp_minus_one(float x) {
  const float series =
      x + x * x * (0.5f + x * (0.16666667f + x * (0.041666667f + x * 0.0083333333f)));
  return select(x > -0.25f, series, exp(x) - 1.0f);
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
inline float softplus(float x) {
  const float y = exp(-absolute(x));
  // log(1 + y) from u = 1 + y as rounded: the quotient corrects for what rounding took.
  const float u = 1.0f + y;
  const float denominator = u - 1.0f;
  const float rest = select(denominator == 0.0f, y, log(u) * (y / denominator));
  return positive(x) + rest;
}

// x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
inline float gelu_tanh(float x) {
  return x * sigmoid(1.5957691216057308f * (x + 0.044715f * (x * x * x)));
}

inline float swish(float x, float alpha) { return x / (1.0f + exp(-alpha * x)); }

// alpha x + beta within [0, 1].
inline float clamped_line(float x, float alpha, float beta) {
  const float y = alpha * x + beta;
  const float low = 0.0f > y ? 0.0f : y;
  return 1.0f < low ? 1.0f : low;
}
