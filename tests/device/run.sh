#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [-h] [REPORT.json]: on a machine with an NVIDIA GPU, a CUDA toolkit and Python with numpy (PyTorch's images have them),
# without a network: builds the library for this GPU, runs conformance, operators of ONNX graphs, sampling, the golden values,
# exactness and the benchmark on it, and writes one JSON (build/device.json), in less than ten minutes. What it needs beyond that is
# said by device.py.
set -eu
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" tests/device/device.py "$@"
