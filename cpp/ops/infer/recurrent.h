// SPDX-License-Identifier: Apache-2.0
//
// RNN, GRU and LSTM: sizes and attributes, for inference and for kernels.
#pragma once

#include <vector>

#include "ops/infer/activation.h"

namespace lmn::ops {

struct Recurrence {
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0;
  int64_t directions = 1;
  bool reverse = false;      // the first direction; the second of two always is
  bool batch_first = false;  // layout 1
  bool clips = false;
  float clip = 0;
  std::vector<Activation> activations;  // per direction: those of RNN (1), GRU (2) or LSTM (3)
};

// Of an operator with so many gates and activations.
Status read_recurrence(const TensorNode& node, int gates, int activations, Recurrence* recurrence);

}  // namespace lmn::ops
