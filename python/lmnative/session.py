# SPDX-License-Identifier: Apache-2.0
"""ONNX models: load once, run many times.

    session = lmnative.Session("model.onnx")
    (y,) = session.run(None, {"x": x})

The calling convention is ONNX Runtime's, so that a user changes one import.
"""

from __future__ import annotations

from lmnative import _lmnative
from lmnative.errors import InvalidArgumentError
from lmnative.sampling import integer, path_bytes, yes_or_no

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Any

    from lmnative.graph import Graph
    from lmnative.session_runs import RunFuture, Waiter

_RUNNERS = ("auto", "lockstep", "graph")


class Port:
    """An input or output of a model."""

    __slots__ = ("name", "shape", "type")

    def __init__(self, name: str, type: str, shape: list[int | str | None] | None) -> None:
        """Made by Session.get_inputs and get_outputs."""
        self.name = name
        self.type = type
        """As ONNX Runtime says it: "tensor(float)", "seq(tensor(int64))", …"""
        self.shape = shape
        """Sizes, outermost first: a number, the name of a size that differs from run to run, or None for one without a
        name. None instead of a list: not known, or not a tensor."""

    def __repr__(self) -> str:
        return f"Port(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class Binding:
    """A run with fixed arrays, made by Session.bind: the fastest way to call a small model. One run at a time."""

    def __init__(self, session: Session, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Made by Session.bind."""
        from lmnative.session_values import buffer_value

        def values(ports: list[_lmnative.SessionPort], arrays: dict[str, Any], what: str, writable: bool) -> list[Any]:
            return [buffer_value(arrays[name], dtype, f"{what} {name!r}", writable) for name, _, dtype, _ in ports]

        self.inputs = inputs
        """The arrays that every run reads, by name."""
        self.outputs = outputs
        """The arrays that every run writes, by name."""
        self._handle = _lmnative.Binding(
            session._handle,
            values(session._inputs, inputs, "input", False),
            values(session._outputs, outputs, "output", True),
        )
        self.run = self._handle.run
        """Reads `inputs` as they are now and writes `outputs` in place."""


class Session:
    """An ONNX model, optimised and ready to run. Any number of threads may run one session.

    Args:
        model: Path of an ONNX file (operator sets 7 and newer), whose weights stay in the mapped file, or the bytes of
            one; or a Graph.
        threads: Worker threads; default 0: usable CPUs. Results do not depend on it.
        optimize: False: run the graph as the file has it.
        max_shapes: Combinations of input shapes that stay prepared; default 0: 64.
        max_arena_bytes: OutOfMemoryError for a run that needs more: intermediate values, outputs, and what is computed
            beforehand. What stays between runs is bounded by the same. Default 0: no limit.
        base_folder: Where the external data of a model given as bytes lies.
        max_run_ms: A run that takes longer ends, between two operators or iterations of a loop, with
            WaitTimeoutError; default 0: no limit.
        runner: "lockstep": threads go through the operators together; "graph": each takes operators whose inputs are
            there, for graphs with many small ones side by side; default "auto": by the graph. Results are the same.
        batch_window_us: How long a run waits for others that differ in the number of rows only, to run as one with
            them, where no operator of the model mixes rows; default 0: not at all. Results are the same.
        max_batch: Rows of such a run; default 0: 64.
        max_queue: Runs of run_async that have not ended; default 0: 1024.
        device: Where the model runs: "cpu" (default), "cuda", or "cuda:N", the N-th NVIDIA device from 0. Operators
            that the device has no kernel for run on the CPU. Results are reproducible on each kind of device; between
            kinds they differ in the last bits.

    Raises:
        NotFoundError, CorruptError: no such file; a damaged one.
        UnsupportedError: operators that this version does not have, by name; why there is no such device.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | bytearray | memoryview | Graph,
        *,
        threads: int = 0,
        optimize: bool = True,
        max_shapes: int = 0,
        max_arena_bytes: int = 0,
        base_folder: str | os.PathLike[str] | None = None,
        max_run_ms: int = 0,
        runner: str = "auto",
        batch_window_us: int = 0,
        max_batch: int = 0,
        max_queue: int = 0,
        device: str = "cpu",
    ) -> None:
        """Opens the model; arguments and errors are described with the class."""
        import os

        from lmnative.graph import Graph

        if runner not in _RUNNERS:
            raise InvalidArgumentError(f"runner is {runner!r}; it is one of {', '.join(map(repr, _RUNNERS))}")
        is_path = isinstance(model, (str, os.PathLike))
        if not isinstance(device, str):
            raise TypeError(f"device must be a str, not {type(device).__name__}")
        if isinstance(model, Graph):
            source = model._handle
        else:
            source = path_bytes("path", model) if isinstance(model, (str, os.PathLike)) else bytes(model)
        self._handle = _lmnative.Session(
            source,
            is_path,
            integer("threads", threads, 0, 2**31 - 1),
            yes_or_no("optimize", optimize),
            integer("max_shapes", max_shapes, 0, 2**32 - 1),
            integer("max_arena_bytes", max_arena_bytes, 0, 2**64 - 1),
            None if base_folder is None else os.fsdecode(path_bytes("base_folder", base_folder)),
            integer("max_run_ms", max_run_ms, 0, 2**32 - 1),
            _RUNNERS.index(runner),
            integer("batch_window_us", batch_window_us, 0, 2**32 - 1),
            integer("max_batch", max_batch, 0, 2**32 - 1),
            integer("max_queue", max_queue, 0, 2**32 - 1),
            device,
        )
        self._inputs = self._handle.inputs()
        self._outputs = self._handle.outputs()
        self._waiter: Waiter | None = None
        from lmnative.session_values import from_value

        self._handle.set_converters(_Feeder(self._inputs), from_value)

    def get_inputs(self) -> list[Port]:
        """The inputs, in the model's order. Weights that the file lists as inputs as well are none."""
        return _ports(self._inputs)

    def get_outputs(self) -> list[Port]:
        """The outputs, in the model's order."""
        return _ports(self._outputs)

    @property
    def threads(self) -> int:
        """Worker threads, this one among them."""
        return self._handle.threads

    def run(self, output_names: Iterable[str] | None, feeds: Mapping[str, Any], run_options: None = None) -> list[Any]:
        """Runs the model.

        Args:
            output_names: Which outputs to return, in this order; None: all.
            feeds: A value for every input, by name. For tensors: numpy arrays, tensors of torch or anything else that
                speaks DLPack, all without a copy if they are compact, or numbers and nested lists; arrays of str or
                bytes for strings; ml_dtypes arrays, or the bits as uint8, int8 or uint16, for bfloat16 and narrower
                types. Lists for sequences, None or a value for optionals, dicts for maps.
            run_options: For compatibility; ignored.

        Returns:
            A list of numpy arrays that own their memory (of ml_dtypes' types where numpy has none and ml_dtypes is
            installed; object arrays of str for strings), of lists for sequences, None for empty optionals.

        Raises:
            InvalidArgumentError: a missing or unknown name, a wrong type or shape, or values that an operator refuses.
        """
        return self._handle.run(output_names, _by_name(feeds))

    def run_async(self, output_names: Iterable[str] | None, feeds: Mapping[str, Any]) -> RunFuture:
        """As run(), without waiting: runs begin in the order of these calls.

        The arrays of `feeds` must stay as they are until the run has ended.

        Returns:
            A concurrent.futures.Future of what run() returns, that may also be awaited in asyncio. Its cancel() ends
            the run before its next operator.

        Raises:
            QueueFullError: `max_queue` runs have not ended yet.
        """
        if self._waiter is None:
            from lmnative.session_runs import Waiter

            self._waiter = Waiter(self)
        return self._waiter.submit(self, output_names, _by_name(feeds))

    @property
    def runners(self) -> dict[str, int]:
        """How many combinations of input shapes are prepared, by the runner that was chosen for them."""
        lockstep, graph, *_ = self._handle.plan()
        return {"lockstep": lockstep, "graph": graph}

    @property
    def batches(self) -> bool:
        """Whether runs are joined: `batch_window_us` asks for it, and the model allows it."""
        return self._handle.plan()[2]

    @property
    def places(self) -> dict[str, int]:
        """How many operators run on `device`, where that is not the CPU, and how many on the CPU, in the combination of
        input shapes that ran last; "cublas_lt": how many of those on the device leave their product to cuBLASLt."""
        device, cpu, library = self._handle.plan()[3:]
        return {"device": device, "cpu": cpu, "cublas_lt": library}

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> Binding:
        """Fixes the arrays that runs read and write, and prepares them; Binding.run() runs.

        Args:
            inputs: An array for every input: compact arrays of numpy, or of any library that speaks DLPack.
            outputs: The same for every output, of the type and shape of the result, in memory of its own; None: new
                numpy arrays.
        """
        given = _complete(inputs, self._inputs, "input")
        if outputs is None:
            results = self.run(None, given)
            results_by_name = {port[0]: result for port, result in zip(self._outputs, results, strict=True)}
        else:
            results_by_name = _complete(outputs, self._outputs, "output")
        return Binding(self, given, results_by_name)

    def graph(self, optimized: bool = True) -> str:
        """The graph as text, one line a node: as it runs, or as the file has it."""
        return self._handle.graph(bool(optimized))


def _by_name(feeds: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(feeds, dict):
        return feeds
    try:
        return dict(feeds)
    except (TypeError, ValueError):
        raise TypeError(f"feeds is {type(feeds).__name__}; it maps names of inputs to values") from None


class _Feeder:
    """Values for inputs that are no arrays of a type that numpy has. Called by the extension module."""

    def __init__(self, ports: list[_lmnative.SessionPort]) -> None:
        from lmnative.session_values import to_value

        self._ports = ports
        self._to_value = to_value

    def __call__(self, index: int, value: object, feeds: dict[str, Any]) -> _lmnative.SessionValue:
        name, kind, dtype, _ = self._ports[index]
        if value is ...:
            if kind != _lmnative.VALUE_OPTIONAL:
                _complete(feeds, [port for port in self._ports if port[1] != _lmnative.VALUE_OPTIONAL], "input")
            value = None
        return self._to_value(value, kind, dtype, f"input {name!r}")


def _complete(given: Mapping[str, Any], ports: list[_lmnative.SessionPort], what: str) -> dict[str, Any]:
    """`given` as a dict; raises if a port is missing in it."""
    missing = [repr(port[0]) for port in ports if port[0] not in given]
    if missing:
        raise InvalidArgumentError(f"no value for {what} {', '.join(missing)}")
    names = {port[0] for port in ports}
    unknown = [repr(name) for name in given if name not in names]
    if unknown and what == "output":
        raise InvalidArgumentError(
            f"there is no {what} {', '.join(unknown)}; the {what}s are {', '.join(map(repr, names))}"
        )
    return dict(given)


def _ports(ports: list[_lmnative.SessionPort]) -> list[Port]:
    from lmnative.session_values import type_text

    return [Port(name, type_text(kind, dtype), shape) for name, kind, dtype, shape in ports]
