// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): a block of random bits as a pure function of key and counter. A token's draw depends on
// the request's seed and the token's index and on nothing else: no state to carry, so neither
// batch, nor threads, nor a recomputed sequence can change it.
#pragma once

#include <array>
#include <cstdint>

namespace lmn::engine {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits: number `index` of the stream `seed`.
inline double uniform(uint64_t seed, uint64_t index) {
  const auto bits =
      philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t joined = uint64_t{bits[1]} << 32 | bits[0];
  return static_cast<double>(joined >> 11) * 0x1p-53;
}

}  // namespace lmn::engine
