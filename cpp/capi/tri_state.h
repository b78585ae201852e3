// SPDX-License-Identifier: Apache-2.0
//
// LMN_DEFAULT, LMN_YES, LMN_NO as the inner rooms say it.
#pragma once

#include <cstdint>
#include <optional>

#include "core/status.h"
#include "lmnative/tokenizer.h"

namespace lmn::capi {

inline Result<std::optional<bool>> tri_state(uint32_t value, const char* field) {
  switch (value) {
    case LMN_DEFAULT:
      return std::optional<bool>();
    case LMN_YES:
      return std::optional<bool>(true);
    case LMN_NO:
      return std::optional<bool>(false);
    default:
      return error(Code::kInvalidArgument, "%s is %u; it is LMN_DEFAULT, LMN_YES or LMN_NO", field,
                   value);
  }
}

}  // namespace lmn::capi
