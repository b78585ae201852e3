# SPDX-License-Identifier: Apache-2.0
"""lmnative serve: models over HTTP until a signal comes.

It listens before models are loaded (/health/ready says 503 until then). The first SIGTERM, SIGINT or SIGHUP lets what
runs come to its end within the grace time; the next one ends all at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Iterator
from typing import Any

from lmnative.cli import INTERRUPTED, UsageError
from lmnative.cli.loading import engine_keywords
from lmnative.engine import Engine
from lmnative.sampling import integer
from lmnative.server import Server, served_name

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # SIGHUP: the terminal has gone
DEFAULT_PORT = 8080
API_KEY, ADMIN_KEY = "LMNATIVE_API_KEY", "LMNATIVE_ADMIN_KEY"


class Signalled(BaseException):
    """A signal came; raised wherever the main thread was."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    if hasattr(signal, "SIGPIPE"):  # The reader of the log may go: the server goes on.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if not options.grace >= 0:
        raise UsageError(f"--grace is {options.grace:g}, must be 0 or more seconds")
    models = dict(_named(text) for text in options.models)
    if len(models) < len(options.models):
        raise UsageError("two models have the same name; NAME=MODEL gives each its own")
    if options.unix_socket is not None and (options.host is not None or options.port is not None):
        raise UsageError("--unix-socket goes without --host and --port")
    if options.unix_mode is not None and options.unix_socket is None:
        raise UsageError("--unix-mode goes with --unix-socket")
    for origin in options.cors_origin:
        _check_origin(origin)
    api_keys, admin_keys = _keys(options.api_key_file, API_KEY), _keys(options.admin_key_file, ADMIN_KEY)
    if set(api_keys) & set(admin_keys):
        raise UsageError("a key is an API key and an admin key: whoever has it could unload models")
    if options.unix_socket is None and not api_keys and not _is_loopback(options.host):
        _warn(f"{options.host} can be reached from other machines, and no API key is asked for: see --api-key-file")
    with _log(options.log) as log, _signals():
        server = Server(
            host=options.host,
            port=DEFAULT_PORT if options.port is None else options.port,
            unix_path=options.unix_socket,
            unix_mode=options.unix_mode,
            threads=None if options.io_threads is None else integer("io_threads", options.io_threads, 1, 64),
            api_keys=api_keys,
            admin_keys=admin_keys,
            cors_origins=options.cors_origin,
            max_connections=options.max_connections,
            max_requests=options.max_requests,
            max_body_bytes=options.max_body_bytes,
            log=log,
            page=not options.no_page,
        )
        try:
            return _serve(server, models, options)
        finally:
            lost = server.info().log_lost
            server.close()
            if lost:
                _warn(f"{lost} lines of the log were lost: it could not be written, or not in time")


def _serve(server: Server, models: dict[str, str], options: argparse.Namespace) -> int:
    keywords = engine_keywords(options)
    for name in ("kv_tokens", "max_sequences", "queue_capacity"):
        if getattr(options, name) is not None:
            keywords[name] = getattr(options, name)
    try:
        try:
            for name, model in models.items():
                server.add(Engine(model, **keywords, progress=sys.stderr.isatty()), name)
            page = "" if options.no_page else " (page at /)"
            print(f"lmnative: serving {', '.join(models)} at {server.address}{page}", file=sys.stderr, flush=True)
            server.wait()
        except Signalled:
            if not server.stop(options.grace):
                _warn(f"what still ran after {options.grace:g} s was cancelled")
        return 0
    except Signalled as again:
        return INTERRUPTED if again.number == signal.SIGINT else 0


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGINT raise Signalled meanwhile."""

    def raise_it(number: int, frame: Any) -> None:
        raise Signalled(number)

    before = [signal.signal(number, raise_it) for number in SIGNALS]
    try:
        yield
    except Signalled as late:  # while the server was made or freed
        raise SystemExit(INTERRUPTED if late.number == signal.SIGINT else 0) from None
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _log(name: str | None) -> Iterator[Any]:
    """What Server takes as `log`."""
    if name is None or name == "-":
        yield sys.stdout if name else None
    else:
        with open(name, "ab", buffering=0) as file:
            yield file


def _named(text: str) -> tuple[str, str]:
    """(name, model) of NAME=MODEL or MODEL. A file of that very name is taken first; "null:vocab=…" has no name."""
    name, equals, model = text.partition("=")
    if not equals or ":" in name or os.path.exists(text):
        return served_name(text), text
    if not name or not model:
        raise UsageError(f"{text} is not NAME=MODEL")
    return name, model


def _keys(file: str | None, variable: str) -> list[str]:
    """The keys of the environment and of a file, one a line."""
    keys = []
    if (given := os.environ.get(variable)) is not None:
        if not given.strip():
            raise UsageError(f"the environment's {variable} is set and empty: unset it, or put a key in it")
        keys.append(_key(given.strip(), f"the environment's {variable}"))
    if file is None:
        return keys
    with open(file, "rb") as lines:
        if os.fstat(lines.fileno()).st_mode & stat.S_IROTH:
            _warn(f"{file} can be read by every user of this machine: chmod 600 it")
        of_file = [
            _key(line.strip().decode("utf-8", "replace"), f"line {number} of {file}")
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    if not of_file:
        raise UsageError(f"{file} has no key in it")
    return keys + of_file


def _key(text: str, source: str) -> str:
    if not all("!" <= character <= "~" for character in text):
        raise UsageError(f"{source} is no key: it has spaces or characters beyond ASCII, which no header can carry")
    return text


def _check_origin(origin: str) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(origin)
    if origin != "*" and (not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}"):
        raise UsageError(f"--cors-origin {origin} is no origin: browsers write https://example.com; or give *")


def _is_loopback(host: str | None) -> bool:
    from ipaddress import ip_address

    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _warn(text: str) -> None:
    print(f"lmnative: warning: {text}", file=sys.stderr, flush=True)
