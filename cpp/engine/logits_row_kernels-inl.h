// SPDX-License-Identifier: Apache-2.0
//
// The body of RowKernels, included once per instruction set inside a region of that target and a
// namespace of its own, with LMN_ROW_WIDTH floats to a vector. No templates and nothing of std,
// which the linker might share with code for older machines. The compilers' vector extension, no
// intrinsics: the same operations lane by lane on every machine, so the results are the same too.

using Floats = float __attribute__((vector_size(4 * LMN_ROW_WIDTH)));
using Ints = int32_t __attribute__((vector_size(4 * LMN_ROW_WIDTH)));
using Quad = float __attribute__((vector_size(16)));
using HalfFloats = float __attribute__((vector_size(2 * LMN_ROW_WIDTH)));
using Doubles = double __attribute__((vector_size(4 * LMN_ROW_WIDTH)));

#define LMN_ROW_INLINE static inline __attribute__((always_inline))

enum : int { kWidth = LMN_ROW_WIDTH, kVectors = kRowBlock / kWidth, kSumVectors = 16 / kWidth };

LMN_ROW_INLINE Floats load(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
LMN_ROW_INLINE void store(float* to, Floats value) { __builtin_memcpy(to, &value, sizeof(value)); }
LMN_ROW_INLINE Floats all(float value) { return value - Floats{}; }  // -0 stays -0
LMN_ROW_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
LMN_ROW_INLINE Floats where(Ints mask, Floats value) { return (Floats)((Ints)value & mask); }

LMN_ROW_INLINE float largest(Floats v) {
#if LMN_ROW_WIDTH == 16
  using Oct = float __attribute__((vector_size(32)));
  const Oct o0 = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const Oct o1 = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const Oct o = o0 > o1 ? o0 : o1;
#else
  const Floats o = v;
#endif
#if LMN_ROW_WIDTH >= 8
  const Quad q0 = __builtin_shufflevector(o, o, 0, 1, 2, 3);
  const Quad q1 = __builtin_shufflevector(o, o, 4, 5, 6, 7);
  const Quad q = q0 > q1 ? q0 : q1;
#else
  const Quad q = o;
#endif
  const Quad r = __builtin_shufflevector(q, q, 2, 3, 0, 1);
  const Quad s = q > r ? q : r;
  const Quad t = __builtin_shufflevector(s, s, 1, 0, 3, 2);
  return (s > t ? s : t)[0];
}

// One bit for each of 32 values at x, lowest first: whether low <= x < high.
LMN_ROW_INLINE uint32_t bits_between(const float* x, Floats low, Floats high) {
  Ints lane_bit;
  for (int i = 0; i < kWidth; ++i) lane_bit[i] = 1 << i;
  Ints bits{};
  for (int i = 0; i < 32 / kWidth; ++i) {
    const Floats v = load(x + i * kWidth);
    bits |= (v >= low) & (v < high) & (lane_bit << (i * kWidth));
  }
#if LMN_ROW_WIDTH == 16
  using Eight = int32_t __attribute__((vector_size(32)));
  const Eight o = __builtin_shufflevector(bits, bits, 0, 1, 2, 3, 4, 5, 6, 7) |
                  __builtin_shufflevector(bits, bits, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  const Ints o = bits;
#endif
#if LMN_ROW_WIDTH >= 8
  using Four = int32_t __attribute__((vector_size(16)));
  const Four q =
      __builtin_shufflevector(o, o, 0, 1, 2, 3) | __builtin_shufflevector(o, o, 4, 5, 6, 7);
#else
  const Ints q = o;
#endif
  return static_cast<uint32_t>((q[0] | q[1]) | (q[2] | q[3]));
}

// The last steps of a block sum: 16 lanes to one.
LMN_ROW_INLINE float lanes_sum(const Floats* lanes) {
#if LMN_ROW_WIDTH == 16
  using Oct = float __attribute__((vector_size(32)));
  const Floats v = lanes[0];
  const Oct o = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LMN_ROW_WIDTH == 8
  const Floats o = lanes[0] + lanes[1];
#endif
#if LMN_ROW_WIDTH >= 8
  const Quad q =
      __builtin_shufflevector(o, o, 0, 1, 2, 3) + __builtin_shufflevector(o, o, 4, 5, 6, 7);
#else
  const Quad q = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
#endif
  const Quad s = q + __builtin_shufflevector(q, q, 2, 3, 0, 1);
  return s[0] + s[1];
}

LMN_ROW_INLINE double rounded(float sum) {
  return (static_cast<double>(sum) + kMassRound) - kMassRound;
}
// In two halves, as vectors of double hold no more.
LMN_ROW_INLINE void add_masses(Floats w, Doubles* sums) {
#if LMN_ROW_WIDTH == 16
  const HalfFloats low = __builtin_shufflevector(w, w, 0, 1, 2, 3, 4, 5, 6, 7);
  const HalfFloats high = __builtin_shufflevector(w, w, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LMN_ROW_WIDTH == 8
  const HalfFloats low = __builtin_shufflevector(w, w, 0, 1, 2, 3);
  const HalfFloats high = __builtin_shufflevector(w, w, 4, 5, 6, 7);
#else
  const HalfFloats low = __builtin_shufflevector(w, w, 0, 1);
  const HalfFloats high = __builtin_shufflevector(w, w, 2, 3);
#endif
  sums[0] += (__builtin_convertvector(low, Doubles) + kMassRound) - kMassRound;
  sums[1] += (__builtin_convertvector(high, Doubles) + kMassRound) - kMassRound;
}
LMN_ROW_INLINE double total_of(const Doubles* masses) {
  double total = 0;
  for (int i = 0; i < kWidth / 2; ++i) total += masses[0][i] + masses[1][i];
  return total;
}

// Where block b lies; the last one, when it is not whole, in `tail`, filled up with `filler`.
LMN_ROW_INLINE const float* block_of(const float* logits, int32_t vocab, int32_t b, float filler,
                                     float* tail) {
  const float* x = logits + static_cast<int64_t>(b) * kRowBlock;
  const int32_t count = vocab - b * kRowBlock;
  if (count >= kRowBlock) return x;
  for (int32_t i = 0; i < kRowBlock; ++i) tail[i] = i < count ? x[i] : filler;
  return tail;
}

LMN_ROW_INLINE float bound_in(const RowCut& cut, int32_t b) {
  return cut.last_id >= b * kRowBlock ? cut.bound : cut.beyond;
}

LMN_ROW_INLINE RowScan scan_as(const float* logits, int32_t vocab, float* block_max, float* copy) {
  RowScan result{-std::numeric_limits<float>::infinity(), 0, true};
  Ints bad{};
  float tail[kRowBlock];
  const int32_t blocks = row_blocks(vocab);
  for (int32_t b = 0; b < blocks; ++b) {
    const float* x = block_of(logits, vocab, b, logits[b * kRowBlock], tail);
    float* const home = copy + (copy != nullptr ? static_cast<int64_t>(b) * kRowBlock : 0);
    float* const to = x == tail ? tail : home;
    Floats max = load(x);
    for (int i = 0; i < kVectors; ++i) {
      const Floats v = load(x + i * kWidth);
      bad |= (Ints)(v - v);  // +0, or NaN for what is not finite
      max = larger(v, max);
      if (copy != nullptr) store(to + i * kWidth, v);
    }
    if (copy != nullptr && x == tail)
      __builtin_memcpy(home, tail, sizeof(float) * static_cast<size_t>(vocab - b * kRowBlock));
    const float best = largest(max);
    block_max[b] = best;
    if (best > result.max) {
      result.max = best;
      result.block = b;
    }
  }
  int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= bad[i];
  result.finite = any == 0;
  return result;
}

static RowScan scan(const float* logits, int32_t vocab, float* block_max, float* copy) {
  return copy == nullptr ? scan_as(logits, vocab, block_max, nullptr)
                         : scan_as(logits, vocab, block_max, copy);
}

// exp2_weight of logits_row.h, kGroup vectors step by step: each waits for its own last step, so
// the others fill the time.
enum : int { kGroup = 4 };
LMN_ROW_INLINE void weights_of(const float* x, Floats max, Floats scale, Floats* w) {
  Floats y[kGroup], rounded[kGroup], t[kGroup], p[kGroup];
  for (int g = 0; g < kGroup; ++g) y[g] = (load(x + g * kWidth) - max) * scale;
  for (int g = 0; g < kGroup; ++g) y[g] = y[g] > all(kLowestExponent) ? y[g] : all(kNoExponent);
  for (int g = 0; g < kGroup; ++g) rounded[g] = y[g] + all(kRound);
  for (int g = 0; g < kGroup; ++g) t[g] = y[g] - (rounded[g] - all(kRound));
  for (int g = 0; g < kGroup; ++g) p[g] = all(kExp2[0]);
  for (int i = 1; i < kExp2Terms; ++i) {
    for (int g = 0; g < kGroup; ++g) p[g] = p[g] * t[g] + all(kExp2[i]);
  }
  for (int g = 0; g < kGroup; ++g) w[g] = (Floats)((Ints)p[g] + ((Ints)rounded[g] << 23));
}

LMN_ROW_INLINE double weigh_as(const RowView& row, const WeightPass& pass, bool cut, bool keep,
                               bool known) {
  const Floats max = all(pass.weight.max), scale = all(pass.weight.scale);
  const Floats least = all(pass.min_weight);
  float tail[kRowBlock], kept[kRowBlock];
  double total = 0;
  const int32_t blocks = row_blocks(row.vocab);
  for (int32_t b = 0; b < blocks; ++b) {
    const float bound = cut ? bound_in(*pass.cut, b) : 0;
    const float best = row.block_max[b];
    const bool dropped = cut && best < bound;
    if (dropped || !((best - pass.weight.max) * pass.weight.scale > kLowestExponent)) {
      float* const weights = pass.weights + static_cast<int64_t>(b) * kRowBlock;
      if (keep && !dropped) __builtin_memset(weights, 0, sizeof(tail));
      if (pass.running_sum != nullptr) pass.running_sum[b] = total;
      continue;
    }
    const float* x =
        block_of(row.logits, row.vocab, b, -std::numeric_limits<float>::infinity(), tail);
    const int32_t begin = b * kRowBlock;
    if (cut && pass.cut->last_id >= begin && pass.cut->last_id - begin < kRowBlock) {
      for (int32_t i = 0; i < kRowBlock; ++i) {
        const bool behind = x[i] == bound && begin + i > pass.cut->last_id;
        kept[i] = behind ? -std::numeric_limits<float>::infinity() : x[i];
      }
      x = kept;
    }
    Floats lanes[kSumVectors] = {};
    for (int i = 0; i < kVectors; i += kGroup) {
      Floats w[kGroup];
      if (known) {
        const float* from = pass.known + static_cast<int64_t>(begin) + i * kWidth;
        for (int g = 0; g < kGroup; ++g) w[g] = load(from + g * kWidth);
      } else {
        weights_of(x + i * kWidth, max, scale, w);
      }
      for (int g = 0; g < kGroup; ++g) {
        const int at = (i + g) * kWidth;
        if (cut) w[g] = where((load(x + at) >= all(bound)) & (w[g] >= least), w[g]);
        if (keep) store(pass.weights + static_cast<int64_t>(begin) + at, w[g]);
        lanes[(i + g) % kSumVectors] += w[g];
      }
    }
    total += rounded(lanes_sum(lanes));
    if (pass.running_sum != nullptr) pass.running_sum[b] = total;
  }
  return total;
}

static double weigh(const RowView& row, const WeightPass& pass) {
  if (pass.cut == nullptr) return weigh_as(row, pass, false, false, false);
  if (pass.known != nullptr) return weigh_as(row, pass, true, false, true);
  return pass.weights != nullptr ? weigh_as(row, pass, true, true, false)
                                 : weigh_as(row, pass, true, false, false);
}

static void sums_above(const RowView& row, const float* weights, const float* bounds,
                       double* sums) {
  Floats bound[kBounds], lanes[kBounds][kSumVectors] = {};
  for (int k = 0; k < kBounds; ++k) {
    bound[k] = all(bounds[k]);
    sums[k] = 0;
  }
  float tail[kRowBlock];
  const int32_t blocks = row_blocks(row.vocab);
  enum : int32_t { kFloatBlocks = 4 };  // so many weights to a lane before it moves to double
  int32_t pending = 0;
  for (int32_t b = 0; b < blocks; ++b) {
    if (row.block_max[b] >= bounds[0]) {
      const float* x =
          block_of(row.logits, row.vocab, b, -std::numeric_limits<float>::infinity(), tail);
      const float* w = weights + static_cast<int64_t>(b) * kRowBlock;
      for (int i = 0; i < kVectors; ++i) {
        const Floats v = load(x + i * kWidth), u = load(w + i * kWidth);
        for (int k = 0; k < kBounds; ++k) lanes[k][i % kSumVectors] += where(v >= bound[k], u);
      }
      ++pending;
    }
    if (pending == kFloatBlocks || (pending > 0 && b + 1 == blocks)) {
      for (int k = 0; k < kBounds; ++k) {
        sums[k] += static_cast<double>(lanes_sum(lanes[k]));
        for (int i = 0; i < kSumVectors; ++i) lanes[k][i] = Floats{};
      }
      pending = 0;
    }
  }
}

static double mass_above(const RowView& row, const float* weights, float bound) {
  Doubles mass[2] = {};
  float tail[kRowBlock];
  const int32_t blocks = row_blocks(row.vocab);
  for (int32_t b = 0; b < blocks; ++b) {
    if (row.block_max[b] < bound) continue;
    const float* x =
        block_of(row.logits, row.vocab, b, -std::numeric_limits<float>::infinity(), tail);
    const float* w = weights + static_cast<int64_t>(b) * kRowBlock;
    for (int i = 0; i < kVectors; ++i) {
      const Floats v = load(x + i * kWidth);
      add_masses(where(v >= all(bound), load(w + i * kWidth)), mass);
    }
  }
  return total_of(mass);
}

static int32_t count_above(const float* values, int32_t count, float bound) {
  Ints lanes{};
  int32_t i = 0;
  for (; i + kWidth <= count; i += kWidth) lanes -= load(values + i) >= all(bound);
  int32_t total = 0;
  for (int k = 0; k < kWidth; ++k) total += lanes[k];
  for (; i < count; ++i) total += values[i] >= bound ? 1 : 0;
  return total;
}

static int32_t gather(const RowView& row, const RowCut& cut, float ceiling, const float* weights,
                      Candidate* out) {
  int32_t count = 0;
  float tail[kRowBlock];
  const int32_t blocks = row_blocks(row.vocab);
  for (int32_t b = 0; b < blocks; ++b) {
    const float bound = bound_in(cut, b);
    if (row.block_max[b] < bound) continue;
    const float* x =
        block_of(row.logits, row.vocab, b, -std::numeric_limits<float>::infinity(), tail);
    uint64_t in = bits_between(x, all(bound), all(ceiling));
    in |= static_cast<uint64_t>(bits_between(x + 32, all(bound), all(ceiling))) << 32;
    for (; in != 0; in &= in - 1) {
      const int32_t i = __builtin_ctzll(in);
      const int32_t id = b * kRowBlock + i;
      if (x[i] == cut.bound && id > cut.last_id) continue;
      out[count].logit = x[i];
      out[count].weight = weights == nullptr ? 0 : weights[id];
      out[count].id = id;
      ++count;
    }
  }
  return count;
}

#undef LMN_ROW_INLINE
