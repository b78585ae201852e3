# SPDX-License-Identifier: Apache-2.0
"""The backend interface of the onnx package (onnx.backend.base) over Session.

    import lmnative.onnx_backend as backend
    outputs = backend.run_model(model, [x])

The only module of lmnative that imports onnx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

try:
    import onnx
    from onnx.backend.base import Backend, BackendRep
except ImportError as error:
    raise ImportError("lmnative.onnx_backend needs the package onnx: pip install onnx") from error

from lmnative.session import Session


class LmnativeRep(BackendRep):
    """A prepared model. Any number of threads may run it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._names = [port.name for port in session.get_inputs()]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model; `inputs`: a list in the model's order, a dict by name, or the only input itself."""
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            if not isinstance(inputs, (list, tuple)):
                inputs = [inputs]
            if len(inputs) > len(self._names):
                raise ValueError(f"{len(inputs)} inputs were given, the model has {len(self._names)}: {self._names}")
            feeds = dict(zip(self._names, inputs, strict=False))
        return tuple(self.session.run(None, feeds))


class LmnativeBackend(Backend):
    """Models and single nodes on the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> LmnativeRep:
        """Keywords are those of Session."""
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r} is not supported: use 'CPU'")
        return LmnativeRep(Session(model.SerializeToString(), **kwargs))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node on arrays, in the order of its inputs that are there. `opset_version`: of its domain; default:
        the newest that the package onnx knows."""
        names = [name for name in dict.fromkeys(node.input) if name]
        if not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        if len(inputs) != len(names):
            raise ValueError(f"{len(inputs)} inputs were given, the node reads {len(names)}: {names}")
        arrays = [np.asarray(value) for value in inputs]
        opset = kwargs.pop("opset_version", None)
        if opset is None:
            opset = onnx.defs.get_schema(node.op_type, domain=node.domain).since_version if node.domain else None
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for name, a in zip(names, arrays, strict=True)
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        imports = [onnx.helper.make_opsetid(node.domain, opset or onnx.defs.onnx_opset_version())]
        model = onnx.helper.make_model(graph, opset_imports=imports)
        return cls.prepare(model, device, **kwargs).run(arrays)


is_compatible = LmnativeBackend.is_compatible
prepare = LmnativeBackend.prepare
run_model = LmnativeBackend.run_model
run_node = LmnativeBackend.run_node
supports_device = LmnativeBackend.supports_device
