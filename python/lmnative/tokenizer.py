# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a model, its streaming decoder and its chat template."""

from __future__ import annotations

from lmnative import _lmnative
from lmnative.errors import ChatTemplateError, InvalidArgumentError, NotFoundError, UnsupportedError
from lmnative.sampling import integer, tristate

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lmnative.model import Model


class Decoder:
    """Decodes a stream of tokens; never hands out half a character. One thread at a time."""

    def __init__(self, handle: _lmnative.Decoder) -> None:
        """Made by Tokenizer.decoder."""
        self._handle = handle

    def decode(self, token_id: int) -> str:
        """Adds one token and returns the text that is complete now, perhaps none."""
        return self._handle.decode(_token_id(token_id))

    def flush(self) -> str:
        """Ends the stream: an incomplete tail becomes U+FFFD. The decoder may be used again."""
        return self._handle.flush()


class Tokenizer:
    """Text to token ids and back. Immutable; any number of threads may use it.

    Raises UnsupportedError for a tokenizer model or pre-tokeniser that this version does not know.
    """

    def __init__(self, model: Model) -> None:
        """Builds the tokenizer of an open model."""
        self._model = model
        self._handle = _lmnative.Tokenizer(model._handle)
        info = self._handle.info()
        self.model_type: str = info["model"]
        """"gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)."""
        self.pre: str = info["pre"]
        """The pre-tokeniser, such as "smollm"."""
        self.vocab_size: int = info["vocab_size"]
        self.bos_id: int | None = info["bos_id"]
        """None where the model has none; so below."""
        self.eos_id: int | None = info["eos_id"]
        self.eot_id: int | None = info["eot_id"]
        self.unk_id: int | None = info["unk_id"]
        self.pad_id: int | None = info["pad_id"]
        self.add_bos: bool = info["add_bos"]
        """True if encode adds the BOS token by default."""
        self.add_eos: bool = info["add_eos"]
        self._vocab: tuple[bytes, ...] | None = None

    def __len__(self) -> int:
        return self.vocab_size

    def encode(
        self,
        text: str | bytes,
        *,
        parse_special: bool = False,
        add_bos: bool | None = None,
        add_eos: bool | None = None,
    ) -> list[int]:
        """Text to token ids.

        Args:
            text: Any text (str, or UTF-8 as bytes).
            parse_special: True: the text of control tokens ("<|im_start|>") becomes those tokens. Default False: it is
                plain text, so that user input cannot smuggle them in.
            add_bos, add_eos: Put the BOS token first, the EOS token last. Default None: as the model says.

        Raises:
            InvalidArgumentError: text that is not valid Unicode, with the position.
        """
        return self._handle.encode(
            text, bool(parse_special), tristate("add_bos", add_bos), tristate("add_eos", add_eos)
        )

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Token ids (list, numpy, torch, any DLPack array) to text. Ill-formed bytes become U+FFFD.

        Args:
            skip_special: True: control tokens give no text. Default False.

        Raises:
            InvalidArgumentError: an id out of range.
        """
        return self._handle.decode(ids, bool(skip_special))

    def decoder(self, *, skip_special: bool = False) -> Decoder:
        """A streaming decoder."""
        return Decoder(_lmnative.Decoder(self._handle, bool(skip_special)))

    def token_bytes(self, token_id: int) -> bytes:
        """What one token decodes to; may be half a character. InvalidArgumentError if the id is out of range."""
        return self._handle.token(_token_id(token_id))[0]

    def is_control(self, token_id: int) -> bool:
        """True for control tokens such as "<|im_start|>"."""
        return self._handle.token(_token_id(token_id))[1] == _lmnative.TOKEN_CONTROL

    def is_end(self, token_id: int) -> bool:
        """True if generation stops at this token."""
        return self._handle.token(_token_id(token_id))[2]

    @property
    def vocab(self) -> tuple[bytes, ...]:
        """The bytes of every token, by id."""
        if self._vocab is None:
            self._vocab = tuple(self._handle.token(i)[0] for i in range(self.vocab_size))
        return self._vocab

    @property
    def chat_template(self) -> str | None:
        """The model's own chat template (Jinja2 source), or None."""
        value = self._model.metadata.get("tokenizer.chat_template")
        return value if isinstance(value, str) else None

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        template: str | None = None,
        **variables: object,
    ) -> str:
        """Messages to the text that the model expects; encode it with ``parse_special=True``.

        Args:
            messages: Mappings with "role" ("system", "user", "assistant", …) and "content", in order.
            add_generation_prompt: True (default): open the assistant's turn at the end.
            template: Jinja2 source to use in place of the model's own.
            variables: More variables for the template, such as ``tools``.

        Known families are rendered by the library; any other template by Jinja2 in a sandbox.

        Raises:
            ChatTemplateError: no template, a malformed one, or one that refuses the messages (with its reason).
            TypeError: what is not a list of mappings with a role and a content.
        """
        if hasattr(messages, "keys") or isinstance(messages, (str, bytes)) or not hasattr(messages, "__iter__"):
            raise TypeError(f"messages must be a list of messages, not {type(messages).__name__}")
        checked = [_checked_message(position, message) for position, message in enumerate(messages)]
        plain = all(set(message) == {"role", "content"} and isinstance(message["content"], str) for message in checked)
        if template is None and plain and not variables:
            pairs = [(message["role"], message["content"]) for message in checked]
            try:
                return self._handle.render(pairs, bool(add_generation_prompt))
            except InvalidArgumentError as error:
                raise ChatTemplateError(str(error)) from None
            except (UnsupportedError, NotFoundError):
                pass  # a template that the library does not know, or none
        source = template if template is not None else self.chat_template
        if source is None:
            raise ChatTemplateError(f"{self._model.path} has no chat template: use generate(), or give template=")
        from lmnative.chat_template import render

        given = {"add_generation_prompt": bool(add_generation_prompt), **variables}
        return render(source, checked, {**special_tokens(self._handle), **given})

    def __repr__(self) -> str:
        return f"<lmnative.Tokenizer {self.model_type}/{self.pre} of {self.vocab_size} tokens>"


def special_tokens(handle: _lmnative.Tokenizer) -> dict[str, str]:
    """The texts of special tokens, by the names that chat templates have for them; "" where there is none."""
    info = handle.info()
    ids = {name: info[f"{name}_id"] for name in ("bos", "eos", "unk", "pad")}
    return {
        f"{name}_token": handle.token(token)[0].decode("utf-8", "replace") if token is not None else ""
        for name, token in ids.items()
    }


def _token_id(value: object) -> int:
    return integer("token id", value, -(2**31), 2**31 - 1)


def _checked_message(position: int, message: object) -> dict[str, object]:
    if not hasattr(message, "keys"):
        raise TypeError(f'message {position} must be a mapping with "role" and "content", not {type(message).__name__}')
    result = dict(message)  # type: ignore[call-overload]
    if not isinstance(result.get("role"), str):
        raise TypeError(f'message {position} needs a "role" of type str')
    if "content" not in result:
        raise TypeError(f'message {position} needs a "content"')
    return result
