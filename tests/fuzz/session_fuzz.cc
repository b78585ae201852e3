// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as an ONNX model, imported, optimised, and run with limits of time
// and memory. It must end in results or in an error with a message. Build and run:
// cmake/fuzz.cmake.
#include <cstdint>
#include <cstring>
#include <vector>

#include "cpu/cpu_device.h"
#include "formats/onnx/onnx.h"
#include "graph/passes/passes.h"
#include "models/onnx/import.h"
#include "ops/kernel.h"
#include "plan/program/program.h"

namespace {

using namespace lmn;  // NOLINT: a program of one file

constexpr int64_t kMaxBytes = 32 << 20, kMaxInput = 1 << 16;

void check(const Status& status) {
  if (!status.ok() && status.message().empty()) __builtin_trap();
}

template <typename T>
void fill(std::byte* data, int64_t count, size_t seed, T step) {
  for (int64_t i = 0; i < count; ++i) {
    const T element = static_cast<T>((static_cast<size_t>(i) + seed) % 4) * step;
    std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
  }
}

// A value for an input: small numbers, which may be sizes, axes and indices; other types are all
// ones. False: of no type that is made here.
bool make_input(const plan::ProgramPort& port, size_t seed, ops::RuntimeValue* out) {
  if (port.type.kind != graph::Kind::kTensor || port.type.dtype == DType::kString) return false;
  Shape shape;
  int64_t bytes = info(port.type.dtype).block_bytes;
  if (port.type.dims.size() > kMaxRank) return false;
  for (const graph::Dim& dim : port.type.dims) {
    const int64_t size = dim.is_constant() ? dim.size : 2;
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes) || bytes > kMaxInput) return false;
    shape[shape.rank++] = size;
  }
  auto memory = std::make_shared<std::vector<uint64_t>>(static_cast<size_t>(bytes) / 8 + 1,
                                                        0x0101010101010101u);
  auto* data = reinterpret_cast<std::byte*>(memory->data());
  const int64_t count = bytes / info(port.type.dtype).block_bytes;
  if (port.type.dtype == DType::kF32) fill<float>(data, count, seed, 0.75f);
  if (port.type.dtype == DType::kF64) fill<double>(data, count, seed, 0.75);
  if (port.type.dtype == DType::kI64) fill<int64_t>(data, count, seed, 1);
  if (port.type.dtype == DType::kI32) fill<int32_t>(data, count, seed, 1);
  out->tensor = {port.type.dtype, shape, data, memory};
  return true;
}

Status run(const formats::OnnxFile& file, size_t seed) {
  static const std::shared_ptr<Device> device = *cpu::create_cpu_device("");
  LMN_ASSIGN_OR_RETURN(graph::Graph graph, models::import_onnx(file));
  graph::PassOptions passes;
  passes.linear_input_type = device->kernels().linear_input_type;
  passes.evaluate = [](const ops::TensorNode& node, std::span<const TensorView> inputs) {
    return plan::evaluate(device, node, inputs);
  };
  LMN_ASSIGN_OR_RETURN(graph, graph::optimize(std::move(graph), passes));
  LMN_ASSIGN_OR_RETURN(
      const std::unique_ptr<plan::Program> program,
      plan::Program::create(std::move(graph), device,
                            {.max_arena_bytes = kMaxBytes, .max_run_ns = 500'000'000}));
  std::vector<ops::RuntimeValue> inputs(program->inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!make_input(program->inputs()[i], seed + i, &inputs[i])) return {};
  }
  std::vector<ops::RuntimeValue> outputs(program->outputs().size());
  return program->run(inputs, outputs, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  formats::OnnxOptions options;
  options.name = "fuzz";
  options.memory_limit = 16 << 20;
  const auto file =
      formats::parse_onnx(std::as_bytes(std::span(data, size)), nullptr, "/nowhere", options);
  check(file.status());
  if (file.ok()) check(run(*file, size));
  return 0;
}
