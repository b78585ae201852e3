// SPDX-License-Identifier: Apache-2.0
//
// Small graphs of general tensors for tests: constants, inputs and nodes by the names of operators.
// What cannot be made throws.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace graph_test {

using namespace lmn;
using namespace lmn::graph;

template <typename T>
ValueId constant(Graph* g, const char* name, DType dtype, Shape shape, std::vector<T> values) {
  auto memory = std::make_shared<std::vector<T>>(std::move(values));
  Tensor tensor{dtype, shape, reinterpret_cast<std::byte*>(memory->data()), memory};
  return g->add_constant(name, tensor);
}
inline ValueId floats(Graph* g, const char* name, Shape shape, std::vector<float> values) {
  return constant<float>(g, name, DType::kF32, shape, std::move(values));
}
inline ValueId node(Graph* g, std::string_view op, std::vector<ValueId> inputs,
                    Attributes attributes = {}, const char* name = "") {
  const ops::TensorOp* found = ops::find_tensor_op(op);
  if (found == nullptr) throw std::runtime_error("no operator " + std::string(op));
  auto id = g->add(op_of(*found), std::move(inputs), std::move(attributes), name);
  if (!id.ok()) throw std::runtime_error(std::string(id.status().message()));
  return g->node(*id).outputs[0];
}
inline ValueId input(Graph* g, Dims dims) { return g->add_input("x", tensor(DType::kF32, dims)); }

}  // namespace graph_test
