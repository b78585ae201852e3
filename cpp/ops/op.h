// SPDX-License-Identifier: Apache-2.0
//
// The enum and names of ops.def.
#pragma once

#include <cstdint>
#include <string_view>

namespace lmn::ops {

enum class Op : uint16_t {
#define LMN_OP(e, name, args, text) k##e,
#include "ops/ops.def"
#undef LMN_OP
};

inline constexpr int kOpCount = 0
#define LMN_OP(e, name, args, text) +1
#include "ops/ops.def"
#undef LMN_OP
    ;

inline constexpr std::string_view kOpNames[] = {
#define LMN_OP(e, name, args, text) name,
#include "ops/ops.def"
#undef LMN_OP
};

inline constexpr std::string_view name(Op op) { return kOpNames[static_cast<int>(op)]; }

}  // namespace lmn::ops
