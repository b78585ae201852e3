// SPDX-License-Identifier: Apache-2.0
//
// From an ONNX file to a graph in the meaning of the newest operator set (ops/tensor_ops.def).
// Functions of the model are inlined, Constants become constants, subgraphs become graphs whose
// inputs name what they take from outside, and nodes of older operator sets are rewritten
// (upgrade.cc).
#pragma once

#include "core/status.h"
#include "formats/onnx/onnx.h"
#include "graph/graph.h"

namespace lmn::models {

// Constants stay views into the file, which the graph keeps alive; what the file packs or does not
// align is copied. UNSUPPORTED lists the operators that are not known, with the nodes that want
// them; CORRUPT and INVALID_ARGUMENT name the node and what is wrong with it.
Result<graph::Graph> import_onnx(const formats::OnnxFile& file);

}  // namespace lmn::models
