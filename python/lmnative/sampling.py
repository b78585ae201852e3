# SPDX-License-Identifier: Apache-2.0
"""Keywords of generate, stream, chat and chat_stream: their names, types and defaults, and the way into the C ABI.

Ranges are the library's to check, except where the C ABI reads 0 as "default" and Python means it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

from lmnative import _lmnative
from lmnative.errors import InvalidArgumentError

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    import os
    from typing import Any, TypedDict

    class GenerateOptions(TypedDict, total=False):
        """Every keyword that a request takes; documented at LLM.generate."""

        max_tokens: int | None
        temperature: float
        top_k: int
        top_p: float
        min_p: float
        repetition_penalty: float
        presence_penalty: float
        frequency_penalty: float
        penalty_last_n: int | None
        seed: int | None
        stop: str | Iterable[str]
        stop_token_ids: Iterable[int]
        ignore_eos: bool
        logprobs: bool
        top_logprobs: int
        logits: bool
        logit_bias: Mapping[int, float] | None
        priority: int
        deadline: float | None
        token_interval: float | None
        tenant: int
        n: int
        keep_special: bool
        parse_special: bool
        add_bos: bool | None


def path_bytes(name: str, path: str | os.PathLike[str]) -> bytes:
    """The path as C takes it; InvalidArgumentError where C would see the end of it inside."""
    import os

    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{name} {os.fspath(path)!r} holds a NUL byte")
    return encoded


def integer(name: str, value: object, low: int, high: int) -> int:
    """`value` as an int in [low, high]; TypeError or InvalidArgumentError names the keyword."""
    try:
        if isinstance(value, bool):  # which counts as an integer, and is never meant
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not low <= number <= high:
        # Python refuses to print integers of thousands of digits.
        shown = str(number) if number.bit_length() <= 128 else f"an integer of {number.bit_length()} bits"
        raise InvalidArgumentError(f"{name} is {shown}, must be {low} to {high}")
    return number


def number(name: str, value: object) -> float:
    """`value` as a float; TypeError names the keyword."""
    # bool: Python's and numpy's, which count as numbers and are never meant
    if isinstance(value, (str, bytes)) or type(value).__name__ in ("bool", "bool_"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    except OverflowError:
        raise InvalidArgumentError(f"{name} is an integer beyond the range of a float") from None


SMALLEST = 2.0**-126
"""Of positive float32 numbers at full precision: what is less would arrive as 0, which means "default"."""


def positive(name: str, value: object) -> float:
    """`value` as a float above 0: for what the C ABI takes 0 for "default"."""
    result = number(name, value)
    if not result >= SMALLEST:
        raise InvalidArgumentError(f"{name} is {result:g}, must be above 0")
    return result


def boolean(name: str, value: object) -> bool:
    """`value`, which must be a bool: other libraries take a number for logprobs, and it means something else."""
    if not isinstance(value, bool):
        hint = "; top_logprobs takes a number" if name == "logprobs" else ""
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}{hint}")
    return value


def one_of(name: str, value: object, choices: tuple[int, ...]) -> int:
    """`value` as one of the integers; TypeError or InvalidArgumentError names the keyword."""
    number = integer(name, value, -(2**63), 2**63 - 1)
    if number not in choices:
        raise InvalidArgumentError(f"{name} is {number}, must be {' or '.join(map(str, choices))}")
    return number


def yes_or_no(name: str, value: object) -> int:
    """True, False as LMN_YES, LMN_NO."""
    return _lmnative.YES if boolean(name, value) else _lmnative.NO


def tristate(name: str, value: object) -> int:
    """None, True, False as LMN_DEFAULT, LMN_YES, LMN_NO."""
    return _lmnative.DEFAULT if value is None else yes_or_no(name, value)


def seconds_to_ns(name: str, value: object) -> int:
    """Seconds above 0 as nanoseconds, 1 or more."""
    seconds = positive(name, value)
    return min(int(seconds * 1e9) or 1, 2**63 - 1) if seconds < 1e10 else 2**63 - 1


def request_options(
    *,
    max_tokens: int | None = 256,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    penalty_last_n: int | None = None,
    seed: int | None = None,
    stop: str | Iterable[str] = (),
    stop_token_ids: Iterable[int] = (),
    ignore_eos: bool = False,
    logprobs: bool = False,
    top_logprobs: int = 0,
    logits: bool = False,
    logit_bias: Mapping[int, float] | None = None,
    priority: int = 0,
    deadline: float | None = None,
    token_interval: float | None = None,
    tenant: int = 0,
    n: int = 1,
    keep_special: bool = False,
    parse_special: bool = False,
    add_bos: bool | None = None,
) -> dict[str, Any]:
    """The keywords of _lmnative.Engine.submit, from those of LLM.generate."""
    int32 = (-(2**31), 2**31 - 1)
    flags = 0
    for wanted, flag in (
        (parse_special, _lmnative.REQUEST_PARSE_SPECIAL),
        (seed is not None, _lmnative.REQUEST_SEED),
        (ignore_eos, _lmnative.REQUEST_IGNORE_EOS),
        (boolean("logprobs", logprobs), _lmnative.REQUEST_LOGPROBS),
        (logits, _lmnative.REQUEST_LOGITS),
        (keep_special, _lmnative.REQUEST_KEEP_SPECIAL),
    ):
        flags |= flag if wanted else 0
    if logit_bias is not None and not isinstance(logit_bias, Mapping):
        raise TypeError(f"logit_bias must be a mapping of token ids to numbers, not {type(logit_bias).__name__}")
    if stop is not None and not isinstance(stop, (str, bytes, Iterable)):
        raise TypeError(f"stop must be a string or a list of strings, not {type(stop).__name__}")
    stops = [stop] if isinstance(stop, (str, bytes)) else list(stop or ())
    return {
        "flags": flags,
        "add_bos": tristate("add_bos", add_bos),
        "max_tokens": 0 if max_tokens is None else integer("max_tokens", max_tokens, 1, 2**32 - 1),
        "temperature": number("temperature", temperature),
        "top_k": integer("top_k", top_k, *int32),
        "top_p": positive("top_p", top_p),
        "min_p": number("min_p", min_p),
        "repetition_penalty": positive("repetition_penalty", repetition_penalty),
        "presence_penalty": number("presence_penalty", presence_penalty),
        "frequency_penalty": number("frequency_penalty", frequency_penalty),
        "penalty_last_n": 0 if penalty_last_n is None else integer("penalty_last_n", penalty_last_n, 1, 2**32 - 1),
        "seed": 0 if seed is None else integer("seed", seed, 0, 2**64 - 1),
        "top_logprobs": integer("top_logprobs", top_logprobs, 0, 2**32 - 1),
        "priority": integer("priority", priority, *int32),
        "logit_bias": [
            (integer("logit_bias token", token, *int32), number("logit_bias", bias))
            for token, bias in (logit_bias or {}).items()
        ],
        "stop": stops,
        "stop_token_ids": [integer("stop_token_ids", token, *int32) for token in stop_token_ids or ()],
        "tenant": integer("tenant", tenant, 0, 2**64 - 1),
        "n": integer("n", n, 1, 64),
        "deadline_ns": 0 if deadline is None else seconds_to_ns("deadline", deadline),
        "token_interval_ns": 0 if token_interval is None else seconds_to_ns("token_interval", token_interval),
    }
