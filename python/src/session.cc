// SPDX-License-Identifier: Apache-2.0
//
// Sessions and bindings. A call keeps what it uses by its arguments: pybind11 holds the Python
// object of a session or binding for as long as a method runs, so nothing goes while the GIL is
// let go.
#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "graph.h"
#include "handles.h"
#include "interrupt.h"
#include "model.h"
#include "session_value.h"
#include "status.h"

namespace lmn::python {
namespace {

lmn_port_info port_info(const lmn_session* session, uint32_t index, bool input) {
  auto info = sized<lmn_port_info>();
  ErrorSlot error;
  check(input ? lmn_session_input_get(session, index, &info, error.out())
              : lmn_session_output_get(session, index, &info, error.out()),
        error);
  return info;
}

// What one run or binding holds of the values that go in or out.
struct Values {
  std::vector<SessionValuePtr> owned;
  std::vector<py::object> kept;  // values that Python owns
  std::vector<const lmn_session_value*> handles;

  void add(SessionValuePtr value) {
    handles.push_back(value.get());
    owned.push_back(std::move(value));
  }
  void add(const py::object& value) {
    handles.push_back(value.cast<const SessionValue&>().get());
    kept.push_back(value);
  }
};

class Session;

// A run in the queue.
class Run {
 public:
  Run(const Session& session, lmn_run* run, std::vector<size_t> wanted, size_t output_count)
      : session_(session), run_(run), wanted_(std::move(wanted)), output_count_(output_count) {}
  // Blocks until the end; for a thread that handles no signals. The session outlives it.
  py::list wait() const;
  void cancel() const { lmn_run_cancel(run_.get()); }

 private:
  struct Delete {
    void operator()(lmn_run* run) const { lmn_run_destroy(run); }
  };
  const Session& session_;
  std::unique_ptr<lmn_run, Delete> run_;
  std::vector<size_t> wanted_;
  size_t output_count_;
};

class Session {
 public:
  // `source`: the path of a model, the model itself as bytes, or a Graph.
  Session(const py::object& source, bool is_path, int32_t threads, uint32_t optimize,
          uint32_t max_shapes, uint64_t max_arena_bytes,
          const std::optional<std::string>& base_folder, uint32_t max_run_ms, uint32_t runner,
          uint32_t batch_window_us, uint32_t max_batch, uint32_t max_queue,
          const std::string& device) {
    auto options = sized<lmn_session_options>();
    options.threads = threads;
    options.optimize = optimize;
    options.max_shapes = max_shapes;
    options.max_arena_bytes = max_arena_bytes;
    options.base_folder = base_folder ? base_folder->c_str() : nullptr;
    options.max_run_ms = max_run_ms;
    options.runner = runner;
    options.batch_window_us = batch_window_us;
    options.max_batch = max_batch;
    options.max_queue = max_queue;
    options.device = device.c_str();
    const Graph* graph = py::isinstance<Graph>(source) ? &source.cast<const Graph&>() : nullptr;
    const lmn_graph* handle = graph == nullptr ? nullptr : graph->get();
    const std::string_view bytes =
        graph == nullptr ? utf8_view(source, "model") : std::string_view();
    lmn_session* session = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const Graph::Busy busy(graph);
      const WithoutGil nogil;
      status = handle != nullptr ? lmn_graph_session_create(handle, &options, &session, error.out())
               : is_path         ? lmn_session_create(bytes.data(), &options, &session, error.out())
                         : lmn_session_bytes_create(bytes.data(), bytes.size(), &options, &session,
                                                    error.out());
    }
    check(status, error);
    session_.reset(session);
    auto info = sized<lmn_session_info>();
    ErrorSlot info_error;
    check(lmn_session_info_get(session, &info, info_error.out()), info_error);
    threads_ = info.threads;
    for (uint32_t i = 0; i < info.input_count; ++i) {
      const lmn_port_info port = port_info(session, i, true);
      input_types_.emplace_back(port.kind == LMN_SESSION_VALUE_TENSOR ? port.dtype : "");
      input_names_.append(py::str(port.name));
    }
    output_count_ = info.output_count;
    for (uint32_t i = 0; i < info.output_count; ++i)
      output_index_[py::str(port_info(session, i, false).name)] = i;
  }
  ~Session() {
    const WithoutGil nogil;  // threads end
    session_.reset();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `feed(input index, value or ... where there is none, feeds)` gives a SessionValue and
  // `result(SessionValue)` what run() returns, for all that is no array of a type that numpy has.
  void set_converters(py::object feed, py::object result) {
    feed_ = std::move(feed);
    result_ = std::move(result);
  }

  // `names`: outputs, None: all. `feeds`: name -> value. The results in the order of `names`.
  py::list run(const py::object& names, const py::dict& feeds) const {
    const std::vector<size_t> wanted = select(names);
    Values inputs;
    read_feeds(feeds, &inputs);
    std::vector<lmn_session_value*> raw(output_count_, nullptr);
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_session_run(session_.get(), inputs.handles.data(), inputs.handles.size(),
                               raw.data(), raw.size(), error.out());
    }
    std::vector<SessionValuePtr> outputs;
    for (lmn_session_value* value : raw) outputs.emplace_back(value);
    check(status, error);
    return results_of(std::move(outputs), wanted);
  }

  // The same into the queue.
  std::unique_ptr<Run> submit(const py::object& names, const py::dict& feeds) const;

  // `outputs`: all. The chosen ones as Python has them.
  py::list results_of(std::vector<SessionValuePtr> outputs,
                      const std::vector<size_t>& wanted) const {
    std::vector<py::object> made(outputs.size());
    py::list results(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const size_t output = wanted[i];
      if (!made[output]) {
        made[output] = array_of_value(outputs[output].get());
        if (!made[output]) made[output] = result_(SessionValue(std::move(outputs[output])));
      }
      results[i] = made[output];
    }
    return results;
  }

  // Combinations of input shapes that are prepared: in lockstep, as a task graph; whether runs are
  // joined; operators on the device that is not the CPU, on the CPU, and on the device by cuBLASLt.
  py::tuple plan() const {
    auto info = sized<lmn_session_info>();
    ErrorSlot error;
    check(lmn_session_info_get(session_.get(), &info, error.out()), error);
    return py::make_tuple(info.lockstep_shapes, info.graph_shapes, info.batches != 0,
                          info.device_operators, info.host_operators, info.library_operators);
  }

  py::list ports(bool input) const {
    py::list out;
    const size_t count = input ? input_types_.size() : output_count_;
    for (uint32_t i = 0; i < count; ++i)
      out.append(port_tuple(port_info(session_.get(), i, input)));
    return out;
  }

  std::string graph(bool optimized) const {
    std::string text;
    for (;;) {
      size_t length = 0;
      ErrorSlot error;
      const lmn_status status = lmn_session_graph_get(
          session_.get(), optimized ? 1 : 0, text.data(), text.size(), &length, error.out());
      if (status != LMN_BUFFER_TOO_SMALL) {
        check(status, error);
        text.resize(length);
        return text;
      }
      text.resize(length);
    }
  }

  int threads() const { return threads_; }
  lmn_session* get() const { return session_.get(); }

 private:
  struct Delete {
    void operator()(lmn_session* session) const { lmn_session_destroy(session); }
  };

  std::vector<size_t> select(const py::object& names) const {
    std::vector<size_t> wanted;
    if (names.is_none()) {
      for (size_t i = 0; i < output_count_; ++i) wanted.push_back(i);
      return wanted;
    }
    if (PyUnicode_Check(names.ptr()))
      throw py::type_error("output_names must be a list of names, not str");
    for (const py::handle name : names) {
      PyObject* index = PyDict_GetItemWithError(output_index_.ptr(), name.ptr());
      if (index == nullptr) {
        if (PyErr_Occurred() != nullptr) throw py::error_already_set();
        raise(LMN_INVALID_ARGUMENT, "there is no output " + py::repr(name).cast<std::string>() +
                                        "; the outputs are " + list_of(output_index_));
      }
      wanted.push_back(PyLong_AsSize_t(index));
    }
    return wanted;
  }

  void read_feeds(const py::dict& feeds, Values* inputs) const {
    size_t found = 0;
    for (size_t i = 0; i < input_types_.size(); ++i) {
      PyObject* value =
          PyDict_GetItemWithError(feeds.ptr(), PyList_GET_ITEM(input_names_.ptr(), i));
      if (value == nullptr) {
        if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      } else {
        ++found;
        SessionValuePtr fast = value_of_array(value, input_types_[i].c_str(), false);
        if (fast != nullptr) {
          inputs->add(std::move(fast));
          continue;
        }
      }
      // Inputs that may be left out are for the converter to know.
      inputs->add(feed_(i, value == nullptr ? py::handle(Py_Ellipsis) : py::handle(value), feeds));
    }
    if (found != feeds.size()) refuse_unknown(feeds);
  }

  [[noreturn]] void refuse_unknown(const py::dict& feeds) const {
    std::string unknown;
    for (const auto& [name, value] : feeds) {
      if (input_names_.contains(name)) continue;
      unknown += (unknown.empty() ? "" : ", ") + py::repr(name).cast<std::string>();
    }
    raise(LMN_INVALID_ARGUMENT,
          "there is no input " + unknown + "; the inputs are " + list_of(input_names_));
  }

  static std::string list_of(const py::object& names) {
    std::string out;
    for (const py::handle name : names)
      out += (out.empty() ? "" : ", ") + py::repr(name).cast<std::string>();
    return out.empty() ? "none" : out;
  }

  std::unique_ptr<lmn_session, Delete> session_;
  int threads_ = 0;
  std::vector<std::string> input_types_;  // "": not a tensor
  size_t output_count_ = 0;
  py::list input_names_;
  py::dict output_index_;  // name -> index
  py::object feed_, result_;
};

std::unique_ptr<Run> Session::submit(const py::object& names, const py::dict& feeds) const {
  std::vector<size_t> wanted = select(names);
  Values inputs;
  read_feeds(feeds, &inputs);
  lmn_run* run = nullptr;
  ErrorSlot error;
  check(lmn_session_submit(session_.get(), inputs.handles.data(), inputs.handles.size(), nullptr,
                           output_count_, nullptr, nullptr, &run, error.out()),
        error);
  return std::make_unique<Run>(*this, run, std::move(wanted), output_count_);
}

py::list Run::wait() const {
  std::vector<lmn_session_value*> raw(output_count_, nullptr);
  ErrorSlot error;
  lmn_status status = LMN_OK;
  {
    const WithoutGil nogil;
    status = lmn_run_wait(run_.get(), -1, raw.data(), raw.size(), error.out());
  }
  std::vector<SessionValuePtr> outputs;
  for (lmn_session_value* value : raw) outputs.emplace_back(value);
  check(status, error);
  return session_.results_of(std::move(outputs), wanted_);
}

// A run of fixed buffers. One run at a time, which Python callers see to.
class Binding {
 public:
  Binding(const Session& session, const py::list& inputs, const py::list& outputs) {
    Values in, out;
    for (const py::handle value : inputs) in.add(py::reinterpret_borrow<py::object>(value));
    for (const py::handle value : outputs) out.add(py::reinterpret_borrow<py::object>(value));
    lmn_binding* binding = nullptr;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_binding_create(session.get(), in.handles.data(), in.handles.size(),
                                  out.handles.data(), out.handles.size(), &binding, error.out());
    }
    check(status, error);
    binding_.reset(binding);
  }
  void run() const {
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_binding_run(binding_.get(), error.out());
    }
    check(status, error);
  }

 private:
  struct Delete {
    void operator()(lmn_binding* binding) const { lmn_binding_destroy(binding); }
  };
  std::unique_ptr<lmn_binding, Delete> binding_;
};

}  // namespace

const lmn_session* session_of(const py::handle& session) {
  return session.cast<const Session&>().get();
}

py::tuple port_tuple(const lmn_port_info& info) {
  py::object shape = py::none();
  if (info.ndim >= 0) {
    py::list dims;
    for (int d = 0; d < info.ndim; ++d) {
      if (info.shape[d] >= 0) {
        dims.append(info.shape[d]);
      } else if (info.symbols[d] != nullptr) {
        dims.append(py::str(info.symbols[d]));
      } else {
        dims.append(py::none());
      }
    }
    shape = dims;
  }
  return py::make_tuple(info.name, info.kind, info.dtype, shape);
}

void bind_session(py::module_& module) {
  py::class_<Session>(module, "Session")
      .def(py::init<const py::object&, bool, int32_t, uint32_t, uint32_t, uint64_t,
                    const std::optional<std::string>&, uint32_t, uint32_t, uint32_t, uint32_t,
                    uint32_t, const std::string&>())
      .def("set_converters", &Session::set_converters)
      .def("run", &Session::run)
      .def("submit", &Session::submit, py::keep_alive<0, 1>())
      .def("plan", &Session::plan)
      .def("inputs", [](const Session& self) { return self.ports(true); })
      .def("outputs", [](const Session& self) { return self.ports(false); })
      .def("graph", &Session::graph)
      .def_property_readonly("threads", &Session::threads);
  py::class_<Run>(module, "SessionRun").def("wait", &Run::wait).def("cancel", &Run::cancel);
  py::class_<Binding>(module, "Binding")
      .def(py::init<const Session&, const py::list&, const py::list&>())
      .def("run", &Binding::run);
}

}  // namespace lmn::python
