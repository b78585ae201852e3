# SPDX-License-Identifier: Apache-2.0
"""What a server asks Python for, on its helper thread: chats by Jinja2, and ids by tokenizers of Python.

Answers are (status of the C ABI, text or ids), with a message in place of the answer where the status is not 0.
INVALID_ARGUMENT blames the request, INTERNAL the server. Knows nothing of servers: what they hold must not hold them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from lmnative import _lmnative
from lmnative.errors import ChatTemplateError, InternalError, InvalidArgumentError
from lmnative.tokenizer import special_tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OK, INVALID_ARGUMENT, INTERNAL = 0, InvalidArgumentError.status, InternalError.status


def render_chat(tokenizer: _lmnative.Tokenizer, template: bytes | None, body: bytes) -> tuple[int, str]:
    """The prompt of a chat completion, whose request is the JSON object `body`."""
    if template is None:
        return INVALID_ARGUMENT, "this model has no chat template: use /v1/completions"
    from lmnative.chat_template import Refused, render

    source = template.decode("utf-8", "replace")
    try:
        request = json.loads(body)
        messages = [_message(position, message) for position, message in enumerate(request["messages"])]
        given = request.get("chat_template_kwargs") or {}
        if not isinstance(given, dict):
            raise InvalidArgumentError("chat_template_kwargs must be an object")
    except InvalidArgumentError as error:
        return INVALID_ARGUMENT, str(error)
    special = {**special_tokens(tokenizer), "add_generation_prompt": True}
    variables = {**special, **{name: request.get(name) for name in ("tools", "documents")}, **given}
    try:
        return OK, render(source, messages, variables)
    except ChatTemplateError as error:
        if isinstance(error.__cause__, Refused):
            return INVALID_ARGUMENT, str(error)
        try:  # It fails: over these messages, or over the plainest ones, too?
            render(source, [{"role": "user", "content": "Hi"}], special)
        except ChatTemplateError as plain:
            return (INVALID_ARGUMENT if isinstance(plain.__cause__, Refused) else INTERNAL), str(error)
        return INVALID_ARGUMENT, str(error)


def _message(position: int, message: object) -> dict[str, Any]:
    """A message as templates know it: texts in parts become one, and arguments of calls objects."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise InvalidArgumentError(f'messages[{position}] must be an object with a "role" of type string')
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(_text(position, part) for part in content)
    elif content is not None and not isinstance(content, str):
        raise InvalidArgumentError(f"messages[{position}].content must be a string, an array of parts or null")
    result = {**message, "content": content}
    if isinstance(calls := message.get("tool_calls"), list):
        result["tool_calls"] = [_call(call) for call in calls]
    return result


def _text(position: int, part: object) -> str:
    if isinstance(part, dict) and part.get("type") in ("text", "refusal"):
        text = part.get(part["type"])
        if isinstance(text, str):
            return text
    raise InvalidArgumentError(f"messages[{position}].content has a part that is no text: this model reads text only")


def _call(call: object) -> object:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):  # not there, or no JSON: as it is
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def tokenize_with(tokenizer: Any) -> Callable[[str], tuple[int, list[int] | str]]:
    """What a server calls for the ids of a text, from a tokenizer of some kind: a callable that returns ids or has them
    under "input_ids" (transformers), or an object with `encode` (tokenizers)."""
    ask = tokenizer if callable(tokenizer) else getattr(tokenizer, "encode", None)
    if ask is None:
        raise TypeError(f"tokenizer must be a Tokenizer or a callable, not {type(tokenizer).__name__}")

    def tokenize(text: str) -> tuple[int, list[int] | str]:
        try:
            result = ask(text)
            if isinstance(result, Mapping) or hasattr(result, "input_ids"):
                result = result["input_ids"]
            return OK, [int(token) for token in getattr(result, "ids", result)]
        except ValueError as error:
            return INVALID_ARGUMENT, str(error)
        except Exception as error:  # Of somebody else's code: it must not take the server along.
            return INTERNAL, f"the tokenizer failed: {type(error).__name__}: {error}"

    return tokenize
