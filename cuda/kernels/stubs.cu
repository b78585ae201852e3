// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
namespace lmn::cuda {
void launch_op(const ops::EmbeddingArgs&, ops::LaunchQueue&) {}
void launch_op(const ops::LinearArgs&, ops::LaunchQueue&) {}
Result<ops::PackedMatrix> plan_pack(const ops::PackRequest&) { return error(Code::kUnsupported, "no"); }
void pack(const ops::PackRequest&, const ops::PackedMatrix&, std::byte*, const ops::Worker&) {}
void launch_op(const ops::AttentionArgs&, ops::LaunchQueue&) {}
size_t attention_workspace_bytes(const ops::WorkspaceRequest&) { return 0; }
}
