# SPDX-License-Identifier: Apache-2.0
"""lmnative: language models and ONNX models through one native library with a stable C ABI.

    llm = lmnative.LLM("smollm2-135m")
    print(llm.chat("What is a lighthouse for?").text)

    session = lmnative.Session("model.onnx")
    (y,) = session.run(None, {"x": x})

    with lmnative.Server("smollm2-135m", port=8080) as server:
        server.wait()  # answers over HTTP, with OpenAI's API, until Ctrl-C

Importing this loads the library and nothing else: numpy, jinja2 and tqdm are imported by the calls that need them.
"""

from __future__ import annotations

import os as _os

from lmnative import _lmnative
from lmnative._lmnative import Tensor
from lmnative.engine import Engine, Histogram, MemoryUse, ProfileEntry, TraceEvent
from lmnative.errors import (
    CancelledError,
    ChatTemplateError,
    ClosedError,
    CorruptError,
    Error,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OutOfMemoryError,
    QueueFullError,
    UnsupportedError,
    WaitTimeoutError,
)
from lmnative.graph import Graph, Value
from lmnative.llm import LLM
from lmnative.model import Metadata, Model, ModelInfo, TensorInfo
from lmnative.request import Request
from lmnative.results import Chunk, Completion, Usage
from lmnative.session import Binding, Port, Session
from lmnative.tokenizer import Decoder, Tokenizer

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from lmnative.server import Server, ServerInfo
    from lmnative.torch_export import from_torch

__version__: str = _lmnative.version()

__all__ = [
    "LLM",
    "Binding",
    "CancelledError",
    "ChatTemplateError",
    "Chunk",
    "ClosedError",
    "Completion",
    "CorruptError",
    "Decoder",
    "Engine",
    "Error",
    "Graph",
    "Histogram",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "MemoryUse",
    "Metadata",
    "Model",
    "ModelInfo",
    "NotFoundError",
    "OutOfMemoryError",
    "Port",
    "ProfileEntry",
    "QueueFullError",
    "Request",
    "Server",
    "ServerInfo",
    "Session",
    "Tensor",
    "TensorInfo",
    "Tokenizer",
    "TraceEvent",
    "UnsupportedError",
    "Usage",
    "Value",
    "WaitTimeoutError",
    "build_info",
    "from_torch",
    "get_cmake_dir",
    "get_include",
    "get_library",
]


_MODULES = {"Server": "server", "ServerInfo": "server", "from_torch": "torch_export"}
"""Of what most programs never need: imported when it is asked for."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"lmnative.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'lmnative' has no attribute {name!r}")


_HERE = _os.path.dirname(_os.path.abspath(__file__))


def build_info() -> dict[str, str | int]:
    """What this library is and runs on: version, abi_version, compiler, build_type, backends, cpu_target,
    cpu_targets (comma-separated) and cpu_threads (the default thread count).

    Raises InvalidArgumentError or UnsupportedError when LMN_CPU_TARGET names a target that is unknown or not available.
    """
    return _lmnative.build_info()


def get_include() -> str:
    """The folder to give a C or C++ compiler with -I for ``#include <lmnative/lmnative.h>``."""
    return _os.path.join(_HERE, "include")


def get_library() -> str:
    """The shared library: to link with, or to load with ctypes or dlopen."""
    return _os.path.join(_HERE, "lib", f"liblmnative.so.{_lmnative.abi_version()}")


def get_cmake_dir() -> str:
    """The folder to give CMake as lmnative_DIR for ``find_package(lmnative)``."""
    return _os.path.join(_HERE, "lib", "cmake", "lmnative")
