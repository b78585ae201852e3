# SPDX-License-Identifier: Apache-2.0
"""lmnative run: one prompt, one streamed answer."""

from __future__ import annotations

import argparse
import sys

from lmnative.cli import UsageError
from lmnative.cli.arguments import sampling_of
from lmnative.cli.loading import load, peak_rss_bytes
from lmnative.llm import LLM
from lmnative.request import Request


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    if options.raw and options.system is not None:
        raise UsageError("--system needs the chat template, which --raw leaves out")
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace") if options.prompt == "-" else options.prompt
    llm, load_seconds = load(options)
    with llm, _start(llm, prompt, options) as stream:
        text = ""
        for chunk in stream:
            text = chunk.text or text
            sys.stdout.write(chunk.text)
            sys.stdout.flush()
        if not text.endswith("\n"):
            print(flush=True)
        if options.stats:
            print(_stats_line(stream, load_seconds), file=sys.stderr)
    return 0


def _start(llm: LLM, prompt: str, options: argparse.Namespace) -> Request:
    sampling = sampling_of(options)
    if options.raw or llm.tokenizer.chat_template is None:
        if options.system is not None:
            raise UsageError(f"{llm.model.path} has no chat template, so --system cannot be used")
        return llm.stream(prompt, **sampling)
    messages = [{"role": "system", "content": options.system}] if options.system is not None else []
    return llm.chat_stream([*messages, {"role": "user", "content": prompt}], **sampling)


def _stats_line(stream: Request, load_seconds: float) -> str:
    usage = stream.usage
    return (
        f"load {load_seconds * 1e3:.0f} ms · prompt {usage.prompt_tokens} tokens, "
        f"prefill {usage.prefill_tokens_per_second:.1f} tok/s · generated {usage.completion_tokens} tokens, "
        f"decode {usage.decode_tokens_per_second:.1f} tok/s · peak RSS {peak_rss_bytes() / 2**20:.0f} MiB"
    )
