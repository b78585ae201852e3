// SPDX-License-Identifier: Apache-2.0
//
// How work is split among workers, and the operators whose elements depend on nothing but
// themselves.

struct Range {
  int64_t begin, end;
};

// Worker's share of `count` units, in order.
LMN_INLINE Range part_of(int64_t count, const ops::Worker& worker) {
  return {count * worker.part / worker.parts, count * (worker.part + 1) / worker.parts};
}

// Elements of a unit where a row is shared out: a whole number of cache lines and of vectors.
constexpr int64_t kUnitElements = 256;

// Calls body(row, first column, columns) for this worker's pieces of a rows x columns matrix.
template <typename Body>
LMN_INLINE void for_pieces(int64_t rows, int64_t columns, const ops::Worker& worker, Body body) {
  const int64_t units = (columns + kUnitElements - 1) / kUnitElements;
  const Range range = part_of(rows * units, worker);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t first = i % units * kUnitElements;
    body(i / units, first, columns - first < kUnitElements ? columns - first : kUnitElements);
  }
}

void add_rows(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::AddArgs*>(args);
  for_pieces(a.rows, a.columns, worker, [&](int64_t t, int64_t first, int64_t count) {
    const int64_t at = t * a.columns + first;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      store(a.y + at + i, add(load(a.a + at + i), load(a.b + at + i)));
    if (i < count) {
      const int64_t n = count - i;
      store_n(a.y + at + i, add(load_n(a.a + at + i, n), load_n(a.b + at + i, n)), n);
    }
  });
}

void silu_mul(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::SiluMulArgs*>(args);
  for_pieces(a.rows, a.columns, worker, [&](int64_t t, int64_t first, int64_t count) {
    const float* gate = a.gate + t * a.gate_stride + first;
    const float* up = a.up + t * a.up_stride + first;
    float* y = a.y + t * a.columns + first;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(y + i, mul(silu(load(gate + i)), load(up + i)));
    if (i < count) {
      const int64_t n = count - i;
      store_n(y + i, mul(silu(load_n(gate + i, n)), load_n(up + i, n)), n);
    }
  });
}
