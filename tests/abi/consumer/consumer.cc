// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "lmnative/lmnative.hpp"

int main() {
  const char* status = "LMN_OK";
  try {
    lmnative::Model model("/nonexistent");
  } catch (const lmnative::Error& e) {
    status = lmn_status_name(e.status());
  }
  std::printf("%s %u %s\n", lmn_version(), lmn_abi_version(), status);
  return 0;
}
