/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "lmnative/lmnative.h"

int main(void) {
  lmn_model *model = NULL;
  const lmn_status status = lmn_model_open("/nonexistent", NULL, &model, NULL);
  printf("%s %u %s\n", lmn_version(), lmn_abi_version(), lmn_status_name(status));
  return lmn_abi_version() == LMN_ABI_VERSION ? 0 : 1;
}
