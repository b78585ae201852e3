// SPDX-License-Identifier: Apache-2.0
//
// What lmn_reply_*_set fill.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmnative/server.h"

struct lmn_reply {
  std::string text;
  std::vector<int32_t> ids;
};
