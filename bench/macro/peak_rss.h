/* SPDX-License-Identifier: Apache-2.0
 *
 * For programs that measure one load in a process of their own. */
#include <stdio.h>

/* Of this program alone: ru_maxrss would count the process that started it. -1: the system does not
 * tell. */
static inline long peak_rss_kib(void) {
  long kib = -1;
  char line[256];
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "VmHWM: %ld kB", &kib) == 1) break;
  }
  if (file) fclose(file);
  return kib;
}
