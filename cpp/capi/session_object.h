// SPDX-License-Identifier: Apache-2.0
//
// What other exports need of sessions.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "graph/graph.h"
#include "lmnative/session.h"
#include "parallel/thread_team.h"
#include "plan/program/program.h"
#include "plan/program/submitter.h"

namespace lmn::capi {

// What sessions, bindings and runs share.
struct Session {
  std::shared_ptr<Device> device;              // the host's
  std::unique_ptr<parallel::ThreadTeam> team;  // null: the calling thread alone
  std::mutex team_mutex;
  graph::Graph imported;  // as the file has it, for those who ask; shares its constants
  std::unique_ptr<plan::Program> program;
  int threads = 1;

  // run(team) with the team, where nobody else has it, or null.
  template <typename Run>
  Status with_team(Run&& run) {
    if (team == nullptr) return run(nullptr);
    LMN_RETURN_IF_ERROR(team->check_usable());
    std::unique_lock lock(team_mutex, std::try_to_lock);
    return run(lock.owns_lock() ? team.get() : nullptr);
  }
};

// INVALID_ARGUMENT unless there are `expected` values, none of them NULL.
Result<std::vector<ops::RuntimeValue>> read_values(const lmn_session_value* const* values,
                                                   size_t count, size_t expected,
                                                   const char* argument);

// A handle for a graph that nobody has optimised yet. `given` has been read.
Outcome create_session(graph::Graph graph, const lmn_session_options& given, lmn_session** session);

// What is said of a value; points into both arguments.
lmn_port_info port_info_of(const std::string& name, const graph::ValueType& type);

}  // namespace lmn::capi

struct lmn_session {
  std::shared_ptr<lmn::capi::Session> object;
  std::unique_ptr<lmn::plan::Submitter> submitter;  // goes first
};

namespace lmn::capi {

// Another handle of the same session, which lives until the last of them is destroyed.
std::unique_ptr<lmn_session> share_session(const lmn_session& session);

}  // namespace lmn::capi
