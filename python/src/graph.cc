// SPDX-License-Identifier: Apache-2.0
//
// Graphs that are built by hand. Values are numbers here; python/lmnative/graph.py gives them
// operators.
#include "graph.h"

#include <pybind11/stl.h>

#include "model.h"
#include "status.h"

namespace lmn::python {
namespace {

// The attributes of one node in the form of the ABI, and what they point at.
class AttributeList {
 public:
  explicit AttributeList(const py::dict& attributes) {
    for (const auto& [name, value] : attributes) {
      names_.push_back(name.cast<std::string>());
      add(names_.back().c_str(), value);
    }
  }
  const lmn_attribute* data() const { return items_.data(); }
  size_t size() const { return items_.size(); }

 private:
  void add(const char* name, const py::handle& value) {
    lmn_attribute out{};
    out.name = name;
    const auto list = [&](int32_t kind, const void* data, size_t count) {
      out.kind = kind;
      out.data = data;
      out.count = count;
    };
    if (PyFloat_Check(value.ptr())) {
      out.kind = LMN_ATTRIBUTE_FLOAT;
      out.f = value.cast<float>();
    } else if (PyLong_Check(value.ptr())) {
      out.kind = LMN_ATTRIBUTE_INT;
      out.i = value.cast<int64_t>();
    } else if (PyUnicode_Check(value.ptr())) {
      const std::string& text = texts_.emplace_back(value.cast<std::string>());
      list(LMN_ATTRIBUTE_STRING, text.data(), text.size());
    } else if (py::isinstance<SessionValue>(value)) {
      list(LMN_ATTRIBUTE_TENSOR, value.cast<const SessionValue&>().get(), 0);
    } else if (py::isinstance<Graph>(value)) {
      list(LMN_ATTRIBUTE_GRAPH, value.cast<const Graph&>().get(), 0);
    } else {
      const auto items = py::reinterpret_borrow<py::sequence>(value);
      bool strings = false, floats = false;
      for (const py::handle item : items) {
        strings |= PyUnicode_Check(item.ptr()) != 0;
        floats |= PyFloat_Check(item.ptr()) != 0;
      }
      if (strings) {
        auto& pointers = pointers_.emplace_back();
        for (const py::handle item : items)
          pointers.push_back(texts_.emplace_back(item.cast<std::string>()).c_str());
        list(LMN_ATTRIBUTE_STRINGS, pointers.data(), pointers.size());
      } else if (floats) {
        const auto& all = floats_.emplace_back(items.cast<std::vector<float>>());
        list(LMN_ATTRIBUTE_FLOATS, all.data(), all.size());
      } else {
        const auto& all = ints_.emplace_back(items.cast<std::vector<int64_t>>());
        list(LMN_ATTRIBUTE_INTS, all.data(), all.size());
      }
    }
    items_.push_back(out);
  }

  std::vector<lmn_attribute> items_;
  std::deque<std::string> names_, texts_;  // whose elements stay where they are
  std::deque<std::vector<const char*>> pointers_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<int64_t>> ints_;
};

}  // namespace

Graph::Graph() {
  lmn_graph* graph = nullptr;
  ErrorSlot error;
  check(lmn_graph_create(&graph, error.out()), error);
  graph_.reset(graph);
}

lmn_graph* Graph::idle() const {
  if (busy_) raise(LMN_INVALID_ARGUMENT, "the graph is in use by another thread");
  return graph_.get();
}

int32_t Graph::input(const std::string& name, const std::string& dtype, const py::object& shape) {
  std::vector<int64_t> sizes;
  std::deque<std::string> texts;
  std::vector<const char*> symbols;
  if (!shape.is_none()) {
    for (const py::handle dim : shape) {
      const bool symbol = PyUnicode_Check(dim.ptr()) != 0;
      sizes.push_back(symbol || dim.is_none() ? -1 : dim.cast<int64_t>());
      symbols.push_back(symbol ? texts.emplace_back(dim.cast<std::string>()).c_str() : nullptr);
    }
  }
  int32_t id = LMN_GRAPH_ABSENT;
  ErrorSlot error;
  check(lmn_graph_input_create(idle(), name.c_str(), dtype.c_str(),
                               shape.is_none() ? -1 : static_cast<int32_t>(sizes.size()),
                               sizes.data(), symbols.data(), &id, error.out()),
        error);
  return id;
}

int32_t Graph::constant(const std::string& name, const SessionValue& value) {
  int32_t id = LMN_GRAPH_ABSENT;
  ErrorSlot error;
  check(lmn_graph_constant_create(idle(), name.c_str(), value.get(), &id, error.out()), error);
  return id;
}

std::vector<int32_t> Graph::node(const std::string& op, const std::vector<int32_t>& inputs,
                                 const py::dict& attributes, size_t outputs) {
  const AttributeList list(attributes);
  std::vector<int32_t> made(outputs);
  ErrorSlot error;
  check(lmn_graph_node_create(idle(), op.c_str(), inputs.data(), inputs.size(), list.data(),
                              list.size(), made.data(), made.size(), error.out()),
        error);
  return made;
}

void Graph::output(const std::string& name, int32_t value) {
  ErrorSlot error;
  check(lmn_graph_output_create(idle(), name.c_str(), value, error.out()), error);
}

py::tuple Graph::value(int32_t id) const {
  auto info = sized<lmn_port_info>();
  ErrorSlot error;
  check(lmn_graph_value_get(idle(), id, &info, error.out()), error);
  return port_tuple(info);
}

void bind_graph(py::module_& module) {
  module.attr("GRAPH_ABSENT") = LMN_GRAPH_ABSENT;
  py::class_<Graph>(module, "Graph")
      .def(py::init<>())
      .def("input", &Graph::input)
      .def("constant", &Graph::constant)
      .def("node", &Graph::node)
      .def("output", &Graph::output)
      .def("value", &Graph::value);
}

}  // namespace lmn::python
