# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class per status of the C ABI, each also deriving from the built-in exception that fits it.

``except lmnative.Error`` catches everything that the library reports; ``except ValueError`` and the like work as well.
Wrong Python types raise a plain TypeError before the library is asked.
"""

from __future__ import annotations


class Error(Exception):
    """What the library reports. The message names the input and the remedy."""

    status: int = 12
    """The lmn_status number of the C ABI."""
    status_name: str = "LMN_INTERNAL"
    """Its name, such as "LMN_NOT_FOUND"."""


class InvalidArgumentError(Error, ValueError):
    """An argument that could never be valid."""

    status, status_name = 1, "LMN_INVALID_ARGUMENT"


class NotFoundError(Error, FileNotFoundError):
    """A file or a known model name that does not exist."""

    status, status_name = 2, "LMN_NOT_FOUND"


class IoError(Error, OSError):
    """The operating system refused."""

    status, status_name = 3, "LMN_IO_ERROR"


class CorruptError(Error, ValueError):
    """The bytes of a file contradict its format."""

    status, status_name = 4, "LMN_CORRUPT"


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but not done by this version."""

    status, status_name = 5, "LMN_UNSUPPORTED"


class OutOfMemoryError(Error, MemoryError):
    """Memory or a budget was refused."""

    status, status_name = 6, "LMN_OUT_OF_MEMORY"


class QueueFullError(Error, RuntimeError):
    """Too many requests are waiting: try again later."""

    status, status_name = 7, "LMN_QUEUE_FULL"


class WaitTimeoutError(Error, TimeoutError):
    """Nothing arrived in the time given."""

    status, status_name = 8, "LMN_TIMEOUT"


class CancelledError(Error, RuntimeError):
    """Ended by a cancel or a close."""

    status, status_name = 9, "LMN_CANCELLED"


class ClosedError(Error, RuntimeError):
    """The LLM was closed, or was inherited through fork."""

    status, status_name = 11, "LMN_CLOSED"


class InternalError(Error, RuntimeError):
    """A GPU that failed or cannot be used; else a broken invariant of the library: please report it."""


class ChatTemplateError(Error, ValueError):
    """A chat template that is missing, malformed, or refuses the messages."""

    status, status_name = 1, "LMN_INVALID_ARGUMENT"


_BY_STATUS = {
    cls.status: cls
    for cls in (
        InvalidArgumentError,
        NotFoundError,
        IoError,
        CorruptError,
        UnsupportedError,
        OutOfMemoryError,
        QueueFullError,
        WaitTimeoutError,
        CancelledError,
        ClosedError,
        InternalError,
    )
}


def from_status(status: int, message: str) -> Error:
    """The exception for an lmn_status. Called by the extension module."""
    return _BY_STATUS.get(status, InternalError)(message)
