// SPDX-License-Identifier: Apache-2.0
//
// The C handles behind Python's engines and sessions, for what is built on them. Need the GIL.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <memory>

namespace lmn::python {

namespace py = pybind11;

using EnginePtr = std::shared_ptr<lmn_engine>;

// Throws for what is no engine, and for a closed one.
EnginePtr engine_of(const py::handle& engine);
// Lives as long as `session`.
const lmn_session* session_of(const py::handle& session);

}  // namespace lmn::python
