# SPDX-License-Identifier: Apache-2.0
"""Server: models over HTTP, with OpenAI's API. Python configures it; the library's own threads do the serving."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping

from lmnative import _lmnative
from lmnative._record import Record
from lmnative.engine import Engine
from lmnative.errors import InvalidArgumentError
from lmnative.llm import LLM
from lmnative.sampling import boolean, integer, number, path_bytes, seconds_to_ns
from lmnative.server_callbacks import render_chat, tokenize_with
from lmnative.session import Session
from lmnative.tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    Served = str | os.PathLike[str] | Engine | LLM

POOLING = {"mean": _lmnative.POOLING_MEAN, "cls": _lmnative.POOLING_CLS, "last": _lmnative.POOLING_LAST}
GRACE_SECONDS = 30.0


class ServerInfo(Record):
    """Where a server listens, and what it has done."""

    __slots__ = (
        "address",
        "port",
        "threads",
        "models",
        "connections",
        "requests",
        "accepted",
        "answered",
        "refused",
        "failed",
        "aborted",
        "log_lost",
    )

    address: str
    """"http://127.0.0.1:8080" or "unix:/run/lmnative.sock"."""
    port: int
    """0 with a UNIX socket."""
    threads: int
    """For connections."""
    models: int
    """That are served now."""
    connections: int
    """Open ones."""
    requests: int
    """In work."""
    accepted: int
    """Connections since the server began; so below."""
    answered: int
    """Requests that got a status line."""
    refused: int
    """Of those, with 4xx."""
    failed: int
    """Of those, with 5xx."""
    aborted: int
    """Requests whose client was gone before their answer ended."""
    log_lost: int
    """Lines that the log did not take in time."""


class Server:
    """Serves models over HTTP, with OpenAI's API, from the library's own threads: Python is not on any token's path.

    It listens when it is made, on this machine only unless `host` says otherwise; models may be added and removed while
    it runs. Any number of threads may use it.

        with lmnative.Server("smollm2-135m", port=8080) as server:
            print(server.url)  # /v1/chat/completions, /v1/completions, /v1/models, /metrics, a page at /, …
            server.wait()  # until Ctrl-C

    Leaving the block lets what runs come to its end, for 30 seconds; an exception, as Ctrl-C is one, ends it at once.

    Args:
        models: A model to serve: a path, a known name, or an Engine or LLM; or several, as a mapping of names to those.
        host: Address or name to listen on. Default None: "127.0.0.1".
        port: Default 0: a free one, see `port`.
        unix_path: Listen on a UNIX socket of this path instead; it is removed in the end.
        unix_mode: Permissions of the UNIX socket. Default None: 0o600.
        threads: For connections, 1 to 64. Default None: 1, or 2 from 16 usable CPUs on.
        api_keys: Keys, one of which requests must then have ("Authorization: Bearer KEY").
        admin_keys: Keys that open /admin, and the rest as well. Default: there is no /admin.
        cors_origins: Origins ("https://example.com", or "*") whose pages may use the server from a browser.
        max_connections: More wait in the system's backlog. Default None: 65536.
        max_requests: In work at once; more get 429. Default None: 16384.
        max_header_bytes: Of request line and header, up to 1 MiB; larger ones get 431. Default None: 16 KiB.
        max_body_bytes: Larger ones get 413. Default None: 8 MiB.
        max_stream_bytes: Unsent bytes of an answer, beyond which it pauses. Default None: 256 KiB.
        header_timeout: Seconds from a request's first byte to the end of its header. Default None: 10.
        body_timeout: Seconds from there to the end of its body. Default None: 60.
        idle_timeout: Seconds between requests of a connection. Default None: 120.
        write_timeout: Seconds in which a client takes nothing of what it has to read, after which it is dropped.
            Default None: 30.
        log: Where a line of JSON goes for each request: an open file (with fileno()), or a descriptor above 0. Default
            None: no log.
        page: False: no page for people at "/". Default True.

    Raises:
        IoError: names an address or path that cannot be listened on.
        InvalidArgumentError: names a keyword and its range. What opening a model raises.
    """

    def __init__(
        self,
        models: Served | Mapping[str, Served] | None = None,
        *,
        host: str | None = None,
        port: int = 0,
        unix_path: str | os.PathLike[str] | None = None,
        unix_mode: int | None = None,
        threads: int | None = None,
        api_keys: Iterable[str] = (),
        admin_keys: Iterable[str] = (),
        cors_origins: Iterable[str] = (),
        max_connections: int | None = None,
        max_requests: int | None = None,
        max_header_bytes: int | None = None,
        max_body_bytes: int | None = None,
        max_stream_bytes: int | None = None,
        header_timeout: float | None = None,
        body_timeout: float | None = None,
        idle_timeout: float | None = None,
        write_timeout: float | None = None,
        log: IO[Any] | int | None = None,
        page: bool = True,
    ) -> None:
        """Listens, and then opens and serves `models`."""
        self._stopped = threading.Event()
        self._log = log  # stays open as long as the server writes to it
        self._handle = _lmnative.Server(
            host=None if host is None else _text("host", host),
            port=integer("port", port, 0, 65535),
            unix_path=None if unix_path is None else path_bytes("unix_path", unix_path),
            unix_mode=_count("unix_mode", unix_mode, 0o777),
            threads=_count("threads", threads, 64),
            max_connections=_count("max_connections", max_connections, 2**32 - 1),
            max_requests=_count("max_requests", max_requests, 2**32 - 1),
            max_header_bytes=_count("max_header_bytes", max_header_bytes, 2**20),
            max_body_bytes=_count("max_body_bytes", max_body_bytes, 2**63 - 1),
            max_stream_bytes=_count("max_stream_bytes", max_stream_bytes, 2**63 - 1),
            header_timeout_ns=_nanoseconds("header_timeout", header_timeout),
            body_timeout_ns=_nanoseconds("body_timeout", body_timeout),
            idle_timeout_ns=_nanoseconds("idle_timeout", idle_timeout),
            write_timeout_ns=_nanoseconds("write_timeout", write_timeout),
            api_keys=_texts("api_keys", api_keys),
            admin_keys=_texts("admin_keys", admin_keys),
            cors_origins=_texts("cors_origins", cors_origins),
            log_descriptor=0 if log is None else _descriptor(log),
            page=boolean("page", page),
            chat=render_chat,
        )
        _servers.add(self)
        try:
            if isinstance(models, Mapping):
                for name, model in models.items():
                    self.add(model, name)
            elif models is not None:
                self.add(models)
        except BaseException:
            self.close()
            raise

    def add(self, model: Served, name: str | None = None) -> str:
        """Serves one more model, for completions, chat and tokens.

        Args:
            model: A path or a known name, which is opened with the defaults of Engine; or an Engine or LLM, which goes
                on being served when it is closed here.
            name: For the "model" of requests. Default None: the known name, or the file's name without its folder and
                ending.

        Returns:
            The name.

        Raises:
            InvalidArgumentError: the name is taken. What opening a model raises.
        """
        engine = model.engine if isinstance(model, LLM) else model
        if name is None:
            name = served_name(engine.model.path if isinstance(engine, Engine) else engine)
        name = _text("name", name)
        if not isinstance(engine, Engine):
            engine = Engine(engine)
        self._handle.add_engine(engine._handle, name)
        return name

    def add_embedding(
        self,
        session: Session,
        name: str,
        *,
        tokenizer: Tokenizer | Callable[[str], Any] | None = None,
        pooling: str = "mean",
        normalize: bool = True,
        max_tokens: int | None = None,
        max_batch: int | None = None,
        pad_id: int = 0,
    ) -> None:
        """Serves an ONNX model for embeddings.

        Args:
            session: Has the inputs input_ids, attention_mask and perhaps token_type_ids and position_ids, int64 or
                int32 [batch, tokens]; its first output is floats [batch, tokens, size] or [batch, size].
            name: For the "model" of requests.
            tokenizer: Makes ids of texts, special tokens included: a Tokenizer; a callable that takes a text and
                returns ids, or, as tokenizers of transformers do, has them under "input_ids"; or a Tokenizer of the
                package tokenizers. A ValueError of it blames the request. Default None: requests give ids.
            pooling: Of an output with tokens: "mean" over them, "cls" (the first) or "last". Default "mean".
            normalize: True (default): vectors have length 1.
            max_tokens: Of an input; longer ones are refused. Default None: 512.
            max_batch: Inputs of one run. Default None: 32.
            pad_id: Fills up shorter inputs of a run. Default 0.
        """
        if pooling not in POOLING:
            raise InvalidArgumentError(f"pooling is {pooling!r}, must be one of {', '.join(map(repr, POOLING))}")
        if not isinstance(session, Session):
            raise TypeError(f"session must be a Session, not {type(session).__name__}")
        given = tokenizer._handle if isinstance(tokenizer, Tokenizer) else tokenizer
        self._handle.add_session(
            session._handle,
            _text("name", name),
            tokenizer=given if given is None or isinstance(tokenizer, Tokenizer) else tokenize_with(given),
            pooling=POOLING[pooling],
            normalize=boolean("normalize", normalize),
            max_tokens=_count("max_tokens", max_tokens, 2**32 - 1),
            max_batch=_count("max_batch", max_batch, 2**32 - 1),
            pad_id=integer("pad_id", pad_id, -(2**31), 2**31 - 1),
        )

    def remove(self, name: str) -> None:
        """Ends serving the model of that name; its requests are cancelled. NotFoundError: there is none."""
        self._handle.remove(_text("name", name))

    @property
    def address(self) -> str:
        """Where it listens: "http://127.0.0.1:8080" or "unix:/run/lmnative.sock"."""
        return self._handle.info()["address"]

    @property
    def url(self) -> str:
        """The address where it has a port, else "". Clients of OpenAI's API take ``url + "/v1"`` as their base URL."""
        return self.address if self.port else ""

    @property
    def port(self) -> int:
        """The port, also one that the system chose; 0 with a UNIX socket."""
        return self._handle.info()["port"]

    def info(self) -> ServerInfo:
        """Address and counters."""
        return ServerInfo(**self._handle.info())

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until another thread stops the server; Ctrl-C ends it. False if `timeout` seconds passed first."""
        return self._stopped.wait(timeout)

    def stop(self, grace: float = GRACE_SECONDS) -> bool:
        """Accepts nothing more, lets what runs come to its end for `grace` seconds, and cancels the rest then.

        Ctrl-C meanwhile ends the grace. Returns True if nothing was cancelled. More calls do nothing.
        """
        seconds = number("grace", grace)
        if not seconds >= 0:
            raise InvalidArgumentError(f"grace is {seconds:g}, must be 0 or more seconds")
        try:
            return self._handle.stop(seconds_to_ns("grace", seconds) if seconds else 0)
        finally:
            self._stopped.set()

    def close(self) -> None:
        """Stops without grace, and frees everything. May be called more than once."""
        self._handle.close()
        self._stopped.set()

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle.closed

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if not self.closed:
                self.stop(GRACE_SECONDS if kind is None else 0)
        finally:
            self.close()

    def __repr__(self) -> str:
        return "<lmnative.Server (closed)>" if self.closed else f"<lmnative.Server {self.address}>"


_servers: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Their threads must not ask for the interpreter's lock when it is gone."""
    for server in list(_servers):
        server.close()


def served_name(model: str | os.PathLike[str]) -> str:
    """A model's name if nobody gives it one: the known name, or that of the file without its folder and ending."""
    path = os.fsdecode(path_bytes("model", model))
    if path.startswith("null:"):
        return "null"
    name = os.path.basename(path)
    return name[: -len(".gguf")] if name.lower().endswith(".gguf") and len(name) > len(".gguf") else name


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value or "\0" in value:
        raise InvalidArgumentError(f"{name} is {value!r}, must be some text without NUL characters")
    return value


def _texts(name: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} must be a list of str, not {type(values).__name__}")
    return [_text(name, value) for value in values]


def _count(name: str, value: int | None, high: int) -> int:
    """0, which is the default of the C ABI, for None."""
    return 0 if value is None else integer(name, value, 1, high)


def _nanoseconds(name: str, value: float | None) -> int:
    return 0 if value is None else seconds_to_ns(name, value)


def _descriptor(log: IO[Any] | int) -> int:
    if not isinstance(log, int) and not hasattr(log, "fileno"):
        raise TypeError(f"log must be an open file or a descriptor, not {type(log).__name__}")
    return integer("log", log if isinstance(log, int) else log.fileno(), 1, 2**31 - 1)
