// SPDX-License-Identifier: Apache-2.0
//
// The discrete Fourier transform of any length, of kLanes rows at once: real and imaginary parts
// lie in arrays of [length][kLanes], so that every loop runs over lanes and what a row gives does
// not depend on its neighbours. Lengths of factors up to kMaxFactor are done by Stockham's
// algorithm (C. Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992), others
// as a convolution (Bluestein). All in double: bins that should be zero come out of float32 too
// large.
#pragma once

#include <cstdint>
#include <vector>

namespace lmn::cpu {

inline constexpr int64_t kMaxFactor = 61;

class Transform {
 public:
  explicit Transform(int64_t length);  // 1 or more
  int64_t length() const { return length_; }
  int64_t lanes() const { return lanes_; }
  // Of what run() takes, in doubles.
  int64_t scratch() const { return 4 * padded_ * lanes_; }

  // `buffers` has four arrays of scratch() / 4 elements: the input's real and imaginary parts, and
  // room. The output is in the two whose numbers are returned. Forward, not scaled.
  struct Parts {
    int real, imaginary;
  };
  Parts run(double* buffers) const;

 private:
  struct Stage {
    int64_t factor, count;         // butterflies of `factor` values each, `count` different ones
    std::vector<double> twiddles;  // cos and sin, [count][factor - 1]
  };
  void make_stages(int64_t length);
  Parts run_stages(double* buffers) const;

  int64_t length_, lanes_;
  int64_t padded_;  // length of the stages: of the convolution, or length_ itself
  std::vector<Stage> stages_;
  std::vector<std::vector<double>> roots_;  // of unity, cos and sin, by stage; of general factors
  std::vector<double> chirp_, filter_;      // cos and sin; empty: no convolution
};

}  // namespace lmn::cpu
