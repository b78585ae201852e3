# SPDX-License-Identifier: Apache-2.0
"""lmnative chat: a conversation on a terminal, or line by line through a pipe.

Ctrl-C stops the answer, or drops the line being typed, and never ends the program; Ctrl-D does. What was said of a
stopped answer stays in the history.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from lmnative.cli import fail, in_flags
from lmnative.cli.arguments import sampling_of
from lmnative.cli.loading import load
from lmnative.errors import Error
from lmnative.llm import LLM

HELP = """\
/help          this text
/reset         forget the conversation
/system TEXT   set the system message and start over; without TEXT remove it
/exit          end, as Ctrl-D does
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.
"""


class Conversation:
    """The history, and the way a line changes it."""

    def __init__(self, llm: LLM, system: str | None, sampling: dict[str, Any], interactive: bool) -> None:
        self._llm = llm
        self._interactive = interactive
        self._sampling = sampling
        self._system = system
        self._messages: list[dict[str, str]] = []

    def reset(self) -> None:
        self._messages.clear()

    def set_system(self, text: str) -> None:
        self._system = text or None
        self.reset()

    def answer(self, text: str) -> None:
        """Streams the answer to `text` to standard output. A turn that fails leaves the history as it was."""
        turn = [*self._messages, {"role": "user", "content": text}]
        system = [{"role": "system", "content": self._system}] if self._system is not None else []
        said = ""
        with self._llm.chat_stream(system + turn, **self._sampling) as stream:
            try:
                for chunk in stream:
                    said += chunk.text
                    sys.stdout.write(chunk.text)
                    sys.stdout.flush()
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                sys.stdout.write(" …")
        print(flush=True)
        self._messages = [*turn, {"role": "assistant", "content": said}]


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    llm, _ = load(options)
    interactive = sys.stdin.isatty()
    if interactive:
        _enable_line_editing()
        if sys.stdout.isatty():
            print(f"{llm.info.name or llm.info.path}. /help lists the commands, Ctrl-D ends.", file=sys.stderr)
    with llm:
        conversation = Conversation(llm, options.system, sampling_of(options), interactive)
        return _converse(conversation, interactive)


def _converse(conversation: Conversation, interactive: bool) -> int:
    code = 0
    while True:
        try:
            line = _read_message(interactive)
        except KeyboardInterrupt:
            if not interactive:
                raise
            print()
            continue
        if line is None or line.strip() in ("/exit", "/quit"):
            return code
        try:
            _handle(conversation, line.strip())
        except Error as error:
            if in_flags(str(error)):  # of the command line, and so of every turn
                raise
            fail(f"{error} (/reset forgets the conversation)" if interactive else error)
            if not interactive:
                code = 1
        except KeyboardInterrupt:  # Between two tokens, or while the prompt was taken up.
            if not interactive:
                raise
            print()


def _handle(conversation: Conversation, line: str) -> None:
    command, _, rest = line.partition(" ")
    if not line:
        return
    if command == "/help":
        sys.stderr.write(HELP)
    elif command == "/reset":
        conversation.reset()
    elif command == "/system":
        conversation.set_system(rest.strip())
    elif command.startswith("/") and command[1:].isalpha():
        fail(f"unknown command {command}; /help lists them")
    else:
        conversation.answer(line)


def _read_message(interactive: bool) -> str | None:
    """One message, or None at the end of input. A trailing backslash continues it."""
    lines: list[str] = []
    while True:
        try:
            line = input("… " if lines else "> ") if interactive else _read_line()
        except EOFError:
            if interactive:
                print()
            return "\n".join(lines) if lines else None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _read_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _enable_line_editing() -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  Importing it is what gives input() its editing and history.
