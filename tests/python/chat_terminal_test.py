# SPDX-License-Identifier: Apache-2.0
"""lmnative chat on a terminal: prompt, Ctrl-C, Ctrl-D, through a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

# Makes the pseudo-terminal the controlling one, so that its ^C is a SIGINT, then becomes the command.
LAUNCH = """\
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, sys.argv[1:])
"""
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A program on a pseudo-terminal, and what it has shown."""

    def __init__(self, *arguments: str) -> None:
        self.master, terminal = pty.openpty()
        command = [sys.executable, "-c", LAUNCH, sys.executable, "-m", "lmnative", *arguments]
        environment = {**os.environ, "TERM": "dumb", "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, seconds: float) -> None:
        if not select.select([self.master], [], [], seconds)[0]:
            return
        with contextlib.suppress(OSError):  # Linux says EIO when the other side is closed
            self.shown += os.read(self.master, 65536).decode("utf-8", "replace")

    def expect(self, pattern: str, seconds: float = 120) -> str:
        """Waits until `pattern` is shown; returns what came before it and drops both."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < end, f"{pattern!r} is not in {self.shown!r}"
            assert self.process.poll() is None or select.select([self.master], [], [], 0)[0], (
                f"it ended: {self.shown!r}"
            )
            self.read(0.1)
        before, self.shown = self.shown[: found.start()], self.shown[found.end() :]
        return before

    def wait(self) -> int:
        end = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        return self.process.wait(timeout=1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture
def chat(model_path):
    terminal = Terminal("chat", model_path, "--ignore-eos", "-n", "3000")
    yield terminal
    terminal.close()


@pytest.fixture
def short_chat(model_path):
    terminal = Terminal("chat", model_path, "-n", "12")
    yield terminal
    terminal.close()


def test_a_conversation_ends_with_ctrl_d(short_chat):
    short_chat.expect(r"Ctrl-D ends\.")
    short_chat.expect("> ")
    short_chat.type("What is the capital of France?\n")
    assert "Paris" in short_chat.expect(r"\n> ")
    short_chat.type(CTRL_D)
    assert short_chat.wait() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(chat):
    chat.expect("> ")
    chat.type("Count to one million.\n")
    chat.expect(r"million\.\r\n.+")
    chat.type(CTRL_C)
    chat.expect(r"…\r\n> ")
    assert chat.process.poll() is None
    chat.type("/reset\n")
    chat.expect("> ")
    chat.type("Again.\n")
    chat.expect(r"Again\.\r\n.+")
    chat.type(CTRL_C)
    chat.expect("> ")
    chat.type("/exit\n")
    assert chat.wait() == 0


def test_ctrl_c_at_the_prompt_drops_the_line(short_chat):
    short_chat.expect("> ")
    short_chat.type("half a thou")
    short_chat.expect("half a thou")
    # A signal between readline's echo and its next wait is seen with the next key only (CPython looks when woken).
    time.sleep(0.2)
    short_chat.type(CTRL_C)
    short_chat.expect("> ")
    assert short_chat.process.poll() is None
    short_chat.type(CTRL_D)
    assert short_chat.wait() == 0


def test_help(short_chat):
    short_chat.expect("> ")
    short_chat.type("/help\n")
    short_chat.expect("/system TEXT")
    short_chat.expect("> ")  # before it, Ctrl-D is the terminal's, and is lost when the prompt takes over
    short_chat.type(CTRL_D)
    assert short_chat.wait() == 0
