# SPDX-License-Identifier: Apache-2.0
"""The command lmnative. One module per subcommand, imported when it is used.

A Unix tool: results on standard output, everything else on standard error, errors as one line; exit code 0, 1 (failed),
2 (usage, options out of range) or 130 (Ctrl-C); a closed pipe ends it silently, by SIGPIPE (141 in a shell).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

USAGE_ERROR = 2
INTERRUPTED = 130


class UsageError(Exception):
    """The command line asks for what cannot be. The message names the option."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `arguments` (default: sys.argv) and returns the exit code."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # The caller closed it: nothing comes, and nobody reads.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows "?" and does not stop the answer.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    from lmnative.cli.arguments import parse

    options = parse(arguments)
    from lmnative.errors import Error, InvalidArgumentError

    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more. The interpreter would complain when it flushes at exit: let it flush into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        fail(error)
        return USAGE_ERROR
    except InvalidArgumentError as error:
        message = in_flags(str(error))
        fail(message or error)
        return USAGE_ERROR if message else 1
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error)
        return 1
    except (Error, MemoryError) as error:
        fail(error)
        return 1


def in_flags(message: str) -> str | None:
    """What the library says of a keyword ("top_p is 2; it is 0 to 1"), said of its option ("--top-p is 2; …"); None for
    any other message."""
    from lmnative.cli.arguments import ENGINE_NAMES, SAMPLING_NAMES, SERVER_NAMES

    name, _, rest = message.partition(" ")
    if name not in (*ENGINE_NAMES, *SAMPLING_NAMES, *SERVER_NAMES) or not rest.startswith("is "):
        return None
    return f"--{name.replace('_', '-')} {rest}"


def fail(error: object) -> None:
    """Prints an error as one line on standard error."""
    sys.stdout.flush()
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"lmnative: error: {text}", file=sys.stderr, flush=True)
