# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the CPU."""

from __future__ import annotations

NAME = "ONNX Runtime"
INSTALL = "pip install onnxruntime"


def version() -> str:
    import onnxruntime

    return onnxruntime.__version__


class Session:
    """`path` on `threads` threads; outputs in the model's order."""

    def __init__(self, path: str, threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, feeds: dict) -> list:
        return self._session.run(None, feeds)

    def bind(self, feeds: dict):
        """What runs with these inputs and with outputs that stay where they are."""
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for port in self._session.get_outputs():
            binding.bind_output(port.name)
        return lambda: self._session.run_with_iobinding(binding)
