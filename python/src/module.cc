// SPDX-License-Identifier: Apache-2.0
//
// The extension module lmnative._lmnative: the C ABI with Python types, and no policy. Defaults,
// names and documentation are in the Python package. Includes of the library are <lmnative/…> only.
#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include "graph.h"
#include "model.h"
#include "request.h"
#include "session_value.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {

void bind_engine(py::module_& module);
void bind_probe(py::module_& module);
void bind_server(py::module_& module);
void bind_session(py::module_& module);

namespace {

py::dict build_info() {
  auto info = sized<lmn_build_info>();
  ErrorSlot error;
  check(lmn_build_info_get(&info, error.out()), error);
  py::dict result;
  result["version"] = info.version;
  result["abi_version"] = info.abi_version;
  result["compiler"] = info.compiler;
  result["build_type"] = info.build_type;
  result["backends"] = info.backends;
  result["cpu_target"] = info.cpu_target;
  result["cpu_targets"] = info.cpu_targets;
  result["cpu_threads"] = info.cpu_threads;
  return result;
}

void bind_constants(py::module_& module) {
  module.attr("READ_MAP") = LMN_READ_MAP;
  module.attr("KV_F16") = LMN_KV_F16;
  module.attr("KV_F32") = LMN_KV_F32;
  module.attr("KV_Q8_0") = LMN_KV_Q8_0;
  module.attr("READ_MAP_POPULATE") = LMN_READ_MAP_POPULATE;
  module.attr("READ_COPY") = LMN_READ_COPY;
  module.attr("DEFAULT") = LMN_DEFAULT;
  module.attr("YES") = LMN_YES;
  module.attr("NO") = LMN_NO;
  module.attr("TOKEN_CONTROL") = LMN_TOKEN_CONTROL;
  module.attr("VALUE_TENSOR") = LMN_SESSION_VALUE_TENSOR;
  module.attr("VALUE_SEQUENCE") = LMN_SESSION_VALUE_SEQUENCE;
  module.attr("VALUE_OPTIONAL") = LMN_SESSION_VALUE_OPTIONAL;
  module.attr("VALUE_MAP") = LMN_SESSION_VALUE_MAP;
  module.attr("POOLING_MEAN") = LMN_POOLING_MEAN;
  module.attr("POOLING_CLS") = LMN_POOLING_CLS;
  module.attr("POOLING_LAST") = LMN_POOLING_LAST;
  module.attr("REQUEST_PARSE_SPECIAL") = LMN_REQUEST_PARSE_SPECIAL;
  module.attr("REQUEST_SEED") = LMN_REQUEST_SEED;
  module.attr("REQUEST_IGNORE_EOS") = LMN_REQUEST_IGNORE_EOS;
  module.attr("REQUEST_LOGPROBS") = LMN_REQUEST_LOGPROBS;
  module.attr("REQUEST_LOGITS") = LMN_REQUEST_LOGITS;
  module.attr("REQUEST_KEEP_SPECIAL") = LMN_REQUEST_KEEP_SPECIAL;
}

}  // namespace
}  // namespace lmn::python

PYBIND11_MODULE(_lmnative, module) {
  using namespace lmn::python;
  module.doc() = "The C ABI of lmnative with Python types.";
  bind_constants(module);
  bind_tensor(module);
  bind_model(module);
  bind_tokenizer(module);
  bind_request(module);
  bind_engine(module);
  bind_probe(module);
  bind_session_value(module);
  bind_graph(module);
  bind_session(module);
  bind_server(module);
  module.def("build_info", &build_info);
  module.def("version", [] { return lmn_version(); });
  module.def("abi_version", [] { return lmn_abi_version(); });
  module.def("status_name", [](int32_t status) { return lmn_status_name(status); });
}
