// SPDX-License-Identifier: Apache-2.0
//
// What an lmn_graph holds.
#pragma once

#include "graph/graph.h"
#include "lmnative/graph.h"

struct lmn_graph {
  lmn::graph::Graph object;
};
