// SPDX-License-Identifier: Apache-2.0
//
// The handle of a graph, which sessions are made from (session.cc), too.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "session_value.h"

namespace lmn::python {

class Graph {
 public:
  Graph();
  // Sizes of `shape`: numbers, names, None; no shape: None.
  int32_t input(const std::string& name, const std::string& dtype, const py::object& shape);
  int32_t constant(const std::string& name, const SessionValue& value);
  // Attributes: int, float, str, lists of one of them, SessionValue, Graph. An empty list is one of
  // integers.
  std::vector<int32_t> node(const std::string& op, const std::vector<int32_t>& inputs,
                            const py::dict& attributes, size_t outputs);
  void output(const std::string& name, int32_t value);
  py::tuple value(int32_t id) const;  // as Session.inputs() has them
  const lmn_graph* get() const { return idle(); }

  // While one of these lives, the GIL may be let go: calls of other threads on the graph are
  // errors.
  class Busy {
   public:
    explicit Busy(const Graph* graph) : graph_(graph) {
      if (graph_ != nullptr) graph_->busy_ = true;
    }
    ~Busy() {
      if (graph_ != nullptr) graph_->busy_ = false;
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    const Graph* graph_;
  };

 private:
  lmn_graph* idle() const;  // the handle; raises while another thread is busy with it

  struct Delete {
    void operator()(lmn_graph* graph) const { lmn_graph_destroy(graph); }
  };
  std::unique_ptr<lmn_graph, Delete> graph_;
  mutable bool busy_ = false;  // under the GIL
};

// (name, kind, dtype, shape): sizes are numbers, names or None; shape is None if the rank is not
// known.
py::tuple port_tuple(const lmn_port_info& info);

void bind_graph(py::module_& module);

}  // namespace lmn::python
