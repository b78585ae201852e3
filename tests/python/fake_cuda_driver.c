/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 that says no, in the ways that a driver can say it before it shows a device:
 * FAKE_CUDA_VERSION is what it was made for (13000 is 13.0), FAKE_CUDA_INIT what cuInit answers
 * (100: no device). For device_test.py. */
#include <stdlib.h>
#include <string.h>

static int from_environment(const char *name, int fallback) {
  const char *value = getenv(name);
  return value == NULL ? fallback : atoi(value);
}

int cuDriverGetVersion(int *version) {
  *version = from_environment("FAKE_CUDA_VERSION", 99000);
  return 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return from_environment("FAKE_CUDA_INIT", 100);
}

static int not_supported(void) { return 801; }

int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags,
                        int *status) {
  (void)version, (void)flags;
  if (status != NULL) *status = 0;
  if (strcmp(symbol, "cuInit") == 0) {
    *function = (void *)cuInit;
  } else if (strcmp(symbol, "cuDriverGetVersion") == 0) {
    *function = (void *)cuDriverGetVersion;
  } else if (strncmp(symbol, "cuGetProcAddress", 16) == 0) {
    *function = (void *)cuGetProcAddress_v2;
  } else {
    *function = (void *)not_supported;
  }
  return 0;
}

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
