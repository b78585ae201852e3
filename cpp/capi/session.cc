// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/session.h: a model file becomes a graph, the graph a program.
#include "lmnative/session.h"

#include <cstring>
#include <mutex>

#include "capi/devices.h"
#include "capi/options.h"
#include "capi/session_object.h"
#include "capi/session_value.h"
#include "capi/tri_state.h"
#include "cpu/cpu_device.h"
#include "formats/bytes.h"
#include "formats/onnx/onnx.h"
#include "graph/passes/passes.h"
#include "models/onnx/import.h"
#include "ops/kernel.h"
#include "parallel/cpu_topology.h"
#include "parallel/thread_team.h"
#include "plan/program/program.h"

struct lmn_binding {
  std::shared_ptr<lmn::capi::Session> session;
  std::unique_ptr<lmn::plan::BoundProgram> program;  // goes first
};

namespace lmn::capi {
namespace {

// Eight bytes each.
constexpr uint32_t kMostQueue = 1 << 20;

// Passes compute constants with the kernels that would compute them in a run.
graph::PassOptions pass_options(const std::shared_ptr<Device>& device) {
  graph::PassOptions options;
  options.linear_input_type = device->kernels().linear_input_type;
  options.evaluate = [device](const ops::TensorNode& node, std::span<const TensorView> inputs) {
    return plan::evaluate(device, node, inputs);
  };
  return options;
}

Result<std::shared_ptr<Session>> make_session(const lmn_session_options& given,
                                              graph::Graph graph) {
  LMN_ASSIGN_OR_RETURN(const std::optional<bool> optimize,
                       tri_state(given.optimize, "lmn_session_options.optimize"));
  if (given.threads < 0)
    return error(Code::kInvalidArgument, "lmn_session_options.threads is %d; it is 0 or more",
                 given.threads);
  if (given.runner > LMN_RUNNER_GRAPH)
    return error(Code::kInvalidArgument, "lmn_session_options.runner is %u; it is a LMN_RUNNER_*",
                 given.runner);
  if (given.max_queue > kMostQueue)
    return error(Code::kInvalidArgument, "lmn_session_options.max_queue is %u; it is %u at most",
                 given.max_queue, kMostQueue);
  LMN_RETURN_IF_ERROR(check_reserved(given.reserved, "lmn_session_options.reserved"));
  auto session = std::make_shared<Session>();
  plan::ProgramOptions options;
  LMN_ASSIGN_OR_RETURN(std::shared_ptr<Device> device,
                       open_device(given.device == nullptr ? "cpu" : given.device));
  if (device->is_host()) {
    session->device = std::move(device);
  } else {
    options.accelerator = std::move(device);
    LMN_ASSIGN_OR_RETURN(session->device, cpu::create_cpu_device(""));
  }
  session->threads = given.threads > 0 ? given.threads : parallel::default_thread_count();
  if (session->threads > 1) {
    LMN_ASSIGN_OR_RETURN(session->team,
                         parallel::ThreadTeam::create({.threads = session->threads}));
  }
  session->imported = graph;
  if (optimize.value_or(true)) {
    LMN_ASSIGN_OR_RETURN(graph, graph::optimize(std::move(graph), pass_options(session->device)));
  }
  if (given.max_shapes > 0) options.max_specializations = given.max_shapes;
  options.max_arena_bytes = static_cast<int64_t>(
      std::min<uint64_t>(given.max_arena_bytes, std::numeric_limits<int64_t>::max()));
  options.workers = session->threads;
  options.runner = static_cast<plan::Runner>(given.runner);
  options.max_run_ns = given.max_run_ms * int64_t{1'000'000};
  LMN_ASSIGN_OR_RETURN(session->program,
                       plan::Program::create(std::move(graph), session->device, options));
  return session;
}

Outcome get_port(const std::vector<plan::ProgramPort>& ports, uint32_t index, const char* what,
                 lmn_port_info* out) {
  LMN_RETURN_IF_ERROR(check_output(out, "info", "lmn_port_info"));
  if (index >= ports.size())
    return error(Code::kNotFound, "%s %u of %zu", what, index, ports.size());
  write_output(port_info_of(ports[index].name, ports[index].type), out);
  return {};
}

// By the queue, where runs are joined. False: it is full.
Result<bool> run_with_others(lmn_session* session, const std::vector<ops::RuntimeValue>& inputs,
                             std::vector<ops::RuntimeValue>* outputs) {
  auto submission = std::make_shared<plan::Submission>();
  submission->inputs = inputs;
  submission->outputs = *outputs;
  Status status = session->submitter->submit(submission);
  if (status.code() == Code::kQueueFull) return false;
  LMN_RETURN_IF_ERROR(std::move(status));
  LMN_RETURN_IF_ERROR(submission->wait(parallel::kNoDeadline));
  *outputs = std::move(submission->outputs);
  return true;
}

Outcome create(const formats::OnnxFile& file, const lmn_session_options& given,
               lmn_session** session) {
  LMN_ASSIGN_OR_RETURN(graph::Graph graph, models::import_onnx(file));
  return create_session(std::move(graph), given, session);
}

bool overlap(const ops::RuntimeValue& a, const ops::RuntimeValue& b) {
  if (a.tensor.data == nullptr || b.tensor.data == nullptr) return false;
  const auto begin = [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data); };
  const auto bytes = [](const Tensor& t) { return static_cast<uintptr_t>(t.view().bytes()); };
  return begin(a.tensor) < begin(b.tensor) + bytes(b.tensor) &&
         begin(b.tensor) < begin(a.tensor) + bytes(a.tensor);
}

// A result is written when others may still be computed from an input.
Status check_apart(const plan::Program& program, const std::vector<ops::RuntimeValue>& in,
                   const std::vector<ops::RuntimeValue>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string& name = program.outputs()[i].name;
    const auto refuse = [&](const char* what, const std::string& other) {
      return error(Code::kInvalidArgument,
                   "output '%s' overlaps %s '%s' in memory: give it memory of its own",
                   name.c_str(), what, other.c_str());
    };
    for (size_t k = 0; k < in.size(); ++k) {
      if (overlap(out[i], in[k])) return refuse("input", program.inputs()[k].name);
    }
    for (size_t k = 0; k < i; ++k) {
      if (overlap(out[i], out[k])) return refuse("output", program.outputs()[k].name);
    }
  }
  return {};
}

std::unique_ptr<plan::Submitter> make_submitter(const std::shared_ptr<Session>& session,
                                                const plan::SubmitterOptions& options) {
  return std::make_unique<plan::Submitter>(
      *session->program,
      [session](std::span<const ops::RuntimeValue> inputs, std::span<ops::RuntimeValue> outputs,
                const std::atomic<bool>* cancelled) {
        return session->with_team([&](parallel::ThreadTeam* team) {
          return session->program->run(inputs, outputs, {.team = team, .cancelled = cancelled});
        });
      },
      options);
}

}  // namespace

Result<std::vector<ops::RuntimeValue>> read_values(const lmn_session_value* const* values,
                                                   size_t count, size_t expected,
                                                   const char* argument) {
  if (count != expected)
    return error(Code::kInvalidArgument, "%zu %s; the model has %zu", count, argument, expected);
  if (count > 0) LMN_RETURN_IF_ERROR(require(values, argument));
  std::vector<ops::RuntimeValue> out;
  for (size_t i = 0; i < count; ++i) {
    if (values[i] == nullptr) return error(Code::kInvalidArgument, "%s[%zu] is NULL", argument, i);
    out.push_back(values[i]->object);
  }
  return out;
}

Outcome create_session(graph::Graph graph, const lmn_session_options& given,
                       lmn_session** session) {
  auto handle = std::make_unique<lmn_session>();
  LMN_ASSIGN_OR_RETURN(handle->object, make_session(given, std::move(graph)));
  plan::SubmitterOptions options;
  if (given.max_queue > 0) options.max_queue = given.max_queue;
  if (given.max_batch > 0) options.max_batch = given.max_batch;
  options.batch_window_ns = given.batch_window_us * int64_t{1'000};
  handle->submitter = make_submitter(handle->object, options);
  *session = handle.release();
  return {};
}

std::unique_ptr<lmn_session> share_session(const lmn_session& session) {
  auto handle = std::make_unique<lmn_session>();
  handle->object = session.object;
  handle->submitter = make_submitter(handle->object, {});
  return handle;
}

lmn_port_info port_info_of(const std::string& name, const graph::ValueType& type) {
  lmn_port_info filled{};
  filled.name = name.c_str();
  filled.dtype = info(type.dtype).name.data();
  switch (type.kind) {
    case graph::Kind::kSequence:
      filled.kind = LMN_SESSION_VALUE_SEQUENCE;
      break;
    case graph::Kind::kOptional:
      filled.kind = LMN_SESSION_VALUE_OPTIONAL;
      break;
    case graph::Kind::kMap:
      filled.kind = LMN_SESSION_VALUE_MAP;
      break;
    default:
      filled.kind = LMN_SESSION_VALUE_TENSOR;
      break;
  }
  filled.ndim = type.ranked ? static_cast<int32_t>(type.dims.size()) : -1;
  for (int i = 0; i < filled.ndim; ++i) {
    const graph::Dim& dim = type.dims[static_cast<size_t>(i)];
    filled.shape[i] = dim.is_constant() ? dim.size : -1;
    if (!dim.is_constant() && dim.symbol != "?") filled.symbols[i] = dim.symbol.c_str();
  }
  return filled;
}

}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_session_create(const char* path, const lmn_session_options* options,
                              lmn_session** session, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(path);
    LMN_REQUIRE_ONE(session);
    lmn_session_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_session_options", &given));
    LMN_ASSIGN_OR_RETURN(const formats::OnnxFile file, formats::open_onnx(path));
    return create(file, given, session);
  });
}

lmn_status lmn_session_bytes_create(const void* data, size_t size,
                                    const lmn_session_options* options, lmn_session** session,
                                    lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(data);
    LMN_REQUIRE_ONE(session);
    lmn_session_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_session_options", &given));
    LMN_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> copy, allocate_zeroed(size, "model"));
    std::memcpy(copy.get(), data, size);
    const std::span<const std::byte> bytes(copy.get(), size);
    const std::string base = given.base_folder == nullptr ? "" : given.base_folder;
    LMN_ASSIGN_OR_RETURN(const formats::OnnxFile file,
                         formats::parse_onnx(bytes, std::move(copy), base));
    return create(file, given, session);
  });
}

void lmn_session_destroy(lmn_session* session) {
  guard_destroy([&] { delete session; });
}

lmn_status lmn_session_info_get(const lmn_session* session, lmn_session_info* out,
                                lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    LMN_RETURN_IF_ERROR(check_output(out, "info", "lmn_session_info"));
    lmn_session_info filled{};
    filled.input_count = static_cast<uint32_t>(session->object->program->inputs().size());
    filled.output_count = static_cast<uint32_t>(session->object->program->outputs().size());
    filled.threads = session->object->threads;
    const plan::Program::RunnerCounts counts = session->object->program->runner_counts();
    filled.lockstep_shapes = static_cast<uint32_t>(counts.lockstep);
    filled.graph_shapes = static_cast<uint32_t>(counts.task_graph);
    filled.batches = session->submitter->batches() ? 1 : 0;
    const plan::Program::PlaceCounts places = session->object->program->place_counts();
    filled.device_operators = static_cast<uint32_t>(places.device);
    filled.host_operators = static_cast<uint32_t>(places.host);
    filled.library_operators = static_cast<uint32_t>(places.library);
    write_output(filled, out);
    return {};
  });
}

lmn_status lmn_session_input_get(const lmn_session* session, uint32_t index, lmn_port_info* out,
                                 lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    return get_port(session->object->program->inputs(), index, "input", out);
  });
}

lmn_status lmn_session_output_get(const lmn_session* session, uint32_t index, lmn_port_info* out,
                                  lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    return get_port(session->object->program->outputs(), index, "output", out);
  });
}

lmn_status lmn_session_run(lmn_session* session, const lmn_session_value* const* inputs,
                           size_t input_count, lmn_session_value** outputs, size_t output_count,
                           lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    const plan::Program& program = *session->object->program;
    LMN_ASSIGN_OR_RETURN(const std::vector<ops::RuntimeValue> in,
                         read_values(inputs, input_count, program.inputs().size(), "inputs"));
    if (output_count != program.outputs().size())
      return error(Code::kInvalidArgument, "%zu outputs; the model has %zu", output_count,
                   program.outputs().size());
    if (output_count > 0) LMN_REQUIRE_ONE(outputs);
    std::vector<ops::RuntimeValue> out(output_count);
    std::vector<std::unique_ptr<lmn_session_value>> made(output_count);
    for (size_t i = 0; i < output_count; ++i) {
      if (outputs[i] != nullptr) {
        out[i] = outputs[i]->object;
      } else {
        made[i] = std::make_unique<lmn_session_value>();
      }
    }
    LMN_RETURN_IF_ERROR(check_apart(program, in, out));
    bool done = false;
    if (session->submitter->batches()) {
      LMN_ASSIGN_OR_RETURN(done, run_with_others(session, in, &out));
    }
    if (!done) {
      LMN_RETURN_IF_ERROR(session->object->with_team(
          [&](parallel::ThreadTeam* team) { return program.run(in, out, {.team = team}); }));
    }
    for (size_t i = 0; i < output_count; ++i) {
      if (outputs[i] != nullptr) continue;
      made[i]->object = std::move(out[i]);
      outputs[i] = made[i].release();
    }
    return {};
  });
}

lmn_status lmn_session_graph_get(const lmn_session* session, uint32_t optimized, char* buffer,
                                 size_t capacity, size_t* length, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    LMN_RETURN_IF_ERROR(check_bool(optimized, "optimized"));
    LMN_RETURN_IF_ERROR(check_buffer(buffer, capacity, "buffer", length, "length"));
    std::string text = graph::to_text(optimized != 0 ? session->object->program->graph()
                                                     : session->object->imported);
    formats::make_utf8_without_nul(text);  // string attributes may be any bytes
    return write_items(buffer, capacity, text.size(), length,
                       [&](char* to) { std::memcpy(to, text.data(), text.size()); });
  });
}

lmn_status lmn_binding_create(lmn_session* session, const lmn_session_value* const* inputs,
                              size_t input_count, const lmn_session_value* const* outputs,
                              size_t output_count, lmn_binding** binding, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    LMN_REQUIRE_ONE(binding);
    const plan::Program& program = *session->object->program;
    auto handle = std::make_unique<lmn_binding>();
    handle->session = session->object;
    LMN_ASSIGN_OR_RETURN(std::vector<ops::RuntimeValue> in,
                         read_values(inputs, input_count, program.inputs().size(), "inputs"));
    LMN_ASSIGN_OR_RETURN(std::vector<ops::RuntimeValue> out,
                         read_values(outputs, output_count, program.outputs().size(), "outputs"));
    LMN_RETURN_IF_ERROR(check_apart(program, in, out));
    LMN_ASSIGN_OR_RETURN(handle->program,
                         program.bind(std::move(in), std::move(out), session->object->threads));
    *binding = handle.release();
    return {};
  });
}

lmn_status lmn_binding_run(lmn_binding* binding, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(binding);
    return binding->session->with_team(
        [&](parallel::ThreadTeam* team) { return binding->program->run({.team = team}); });
  });
}

void lmn_binding_destroy(lmn_binding* binding) {
  guard_destroy([&] { delete binding; });
}

}  // extern "C"
