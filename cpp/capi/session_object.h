// SPDX-License-Identifier: Apache-2.0
//
// What other exports need of sessions.
#pragma once

#include <string>

#include "capi/guard.h"
#include "graph/graph.h"
#include "lmnative/session.h"

namespace lmn::capi {

// A handle for a graph that nobody has optimised yet. `given` has been read.
Outcome create_session(graph::Graph graph, const lmn_session_options& given, lmn_session** session);

// What is said of a value; points into both arguments.
lmn_port_info port_info_of(const std::string& name, const graph::ValueType& type);

}  // namespace lmn::capi
