// SPDX-License-Identifier: Apache-2.0
//
// What tests of programs share: nodes of their graphs, and a program on the CPU. What cannot be
// made ends the test.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cpu/cpu_device.h"
#include "plan/program/program.h"
#include "testing.h"

namespace program_test {

using namespace lmn;

inline graph::ValueId node(graph::Graph* g, graph::Op op, std::vector<graph::ValueId> inputs,
                           ops::Attributes attributes = {}, int outputs = 1) {
  auto id = g->add(op, std::move(inputs), std::move(attributes), "n", outputs);
  ASSERT_OK(id);
  return g->node(*id).outputs[0];
}

inline std::unique_ptr<plan::Program> program(graph::Graph g, const plan::ProgramOptions& options) {
  auto made = plan::Program::create(std::move(g), *cpu::create_cpu_device(""), options);
  ASSERT_OK(made);
  return std::move(*made);
}

}  // namespace program_test
