// SPDX-License-Identifier: Apache-2.0
//
// The C++20 face of lmnative: RAII, exceptions and views over lmnative.h. Header only, with no ABI
// of its own: everything here is compiled into the program that includes it, and only C crosses to
// the library.
//
//   lmnative::Model model("smollm2-135m");
//   lmnative::Engine engine(model, {.threads = 2});
//   auto request = engine.submit("The capital of France is", {.max_tokens = 32});
//   while (auto chunk = request.next()) std::cout << chunk->text << std::flush;
//
// - A call that fails throws lmnative::Error, with the status and the message of the C call.
// - Objects move and do not copy; a moved-from object may only be assigned to or destroyed. Any
//   order of destruction is safe: children keep their parents alive.
// - What lmnative.h says of threads, lifetimes, units and ranges holds here. Views (string_view,
//   span, pointers inside lmn_ structs) point into the object that was asked.
#ifndef LMNATIVE_LMNATIVE_HPP_
#define LMNATIVE_LMNATIVE_HPP_

#include "lmnative/engine.hpp"
#include "lmnative/graph.hpp"
#include "lmnative/model.hpp"
#include "lmnative/server.hpp"
#include "lmnative/session.hpp"

#endif  // LMNATIVE_LMNATIVE_HPP_
