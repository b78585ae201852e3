#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# cuda_compile.sh COMMAND... -o OBJECT ...: runs a compiler of CUDA code. What the assembler reports of each kernel's resources
# goes to OBJECT.resources (cmake/cuda_resources.py reads it), anything else to standard error as usual.
output=
previous=
for word; do
  [ "$previous" = -o ] && output=$word
  previous=$word
done
[ -n "$output" ] || exec "$@"
"$@" 2> "$output.resources"
status=$?
grep -v -E '^ptxas info  *:|^    [0-9]+ bytes stack frame, ' "$output.resources" >&2
exit $status
