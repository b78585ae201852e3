// SPDX-License-Identifier: Apache-2.0
//
// Builder: a graph written down operator by operator, as model files and tests do it. The first
// error sticks: every later call does nothing and returns kNone, and finish() returns that error.
// Errors are those of Graph::add.
#pragma once

#include <string>
#include <utility>

#include "graph/graph.h"

namespace lmn::graph {

class Builder {
 public:
  ValueId input(std::string name, ValueType type) {
    return graph_.add_input(std::move(name), std::move(type));
  }
  ValueId constant(Piece piece);
  ValueId constant(Constant constant) { return graph_.add_constant(std::move(constant)); }
  void output(ValueId id, std::string name);

  // Each takes a name for its node and returns its (first) output. What they compute: ops.def.
  ValueId embedding(ValueId ids, ValueId table, std::string name);
  ValueId rms_norm(ValueId x, ValueId weight, float eps, std::string name);
  ValueId linear(ValueId x, ValueId weight, ValueId bias, bool precise, std::string name);
  ValueId rope_table(ValueId positions, ValueId inv_freq, float magnitude, std::string name);
  ValueId rope(ValueId x, ValueId cos_sin, int64_t heads, std::string_view style, std::string name);
  ValueId kv_write(ValueId k, ValueId v, ValueId slots, ValueId kv, std::string name);
  ValueId attention(ValueId q, ValueId kv, ValueId positions, ValueId sequence_index,
                    ValueId block_tables, int64_t heads, float scale, std::string name);
  ValueId silu_mul(ValueId gate, ValueId up, std::string name);
  ValueId add(ValueId a, ValueId b, std::string name);
  ValueId gather_rows(ValueId x, ValueId indices, std::string name);

  // Any operator, by its operands and attributes.
  ValueId node(Op op, std::vector<ValueId> inputs, Attributes attributes, std::string name);

  // Records an error of the caller's own, as if an operator had failed.
  void fail(Status status);
  bool ok() const { return status_.ok(); }

  // The verified graph. The builder is empty afterwards.
  Result<Graph> finish();

 private:
  Graph graph_;
  Status status_;
};

}  // namespace lmn::graph
