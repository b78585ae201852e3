# SPDX-License-Identifier: Apache-2.0
"""Chat templates of any family, by Jinja2 in its immutable sandbox.

The environment is the one that Hugging Face documents for chat templates: trim_blocks, lstrip_blocks, loop controls,
`raise_exception`, `strftime_now`, a `tojson` that keeps non-ASCII text, and `generation` blocks (rendered as their
body).
Imported only when such a template is met.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Sized
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.runtime
import jinja2.sandbox

from lmnative.errors import ChatTemplateError

MAX_RENDERED_CHARACTERS = 16 * 2**20
"""A template that produces more is broken; no context is that long."""


class Refused(jinja2.TemplateError):
    """raise_exception was called: the template refuses the messages."""


class _GenerationBlock(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} marks the assistant's words for training; here only its body counts."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise Refused(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(value: object, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with products and powers looked at before they are made: 'a' * 10**10 is a few bytes of template."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        both = (left, right)
        if operator == "**":
            large = any(isinstance(x, int) and abs(x) > 64 for x in both)
        else:
            length = max((len(x) for x in both if isinstance(x, Sized)), default=0)
            large = any(isinstance(x, int) and x * length > MAX_RENDERED_CHARACTERS for x in both)
        if large:
            raise jinja2.sandbox.SecurityError(f"a result of {operator} that is too large")
        return super().call_binop(context, operator, left, right)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """As it is: the default compiles code for each failure, to name the template's lines in a traceback."""
        raise  # noqa: PLE0704  called while one is handled


@lru_cache(maxsize=16)
def _compiled(source: str) -> jinja2.Template:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def render(source: str, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object]) -> str:
    """The text of `messages` by the Jinja2 template `source`. Raises ChatTemplateError, whatever the template does."""
    try:
        template = _compiled(source)
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateError(f"the chat template is malformed at line {error.lineno}: {error.message}") from error
    except Exception as error:  # A hostile template can make the compiler fail in many ways.
        raise ChatTemplateError(f"the chat template cannot be compiled: {_reason(error)}") from error
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate({"tools": None, "documents": None, **variables, "messages": messages}):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RENDERED_CHARACTERS:
                raise ChatTemplateError(f"the chat template produced more than {MAX_RENDERED_CHARACTERS} characters")
    except ChatTemplateError:
        raise
    except Refused as error:
        raise ChatTemplateError(f"the chat template refuses these messages: {error}") from error
    except jinja2.sandbox.SecurityError as error:
        raise ChatTemplateError(f"the chat template tried what its sandbox forbids: {error}") from error
    except Exception as error:  # Templates are code of somebody else: any failure in them is theirs.
        raise ChatTemplateError(f"the chat template failed: {_reason(error)}") from error
    return "".join(pieces)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
