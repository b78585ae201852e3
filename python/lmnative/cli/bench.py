# SPDX-License-Identifier: Apache-2.0
"""lmnative bench: load, prefill and decode of one model on this machine, by medians.

With --concurrency, prefill and decode are those of one answer among others (their median), and a further row has the
generated tokens of all over the time from the first prompt to the last token. With --profile, where the time of a step
goes instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lmnative import _lmnative
from lmnative._progress import BAR_DELAY_SECONDS
from lmnative.cli import UsageError, profile
from lmnative.cli.loading import load, peak_rss_bytes
from lmnative.engine import ProfileEntry
from lmnative.errors import InvalidArgumentError
from lmnative.llm import LLM
from lmnative.results import Usage

TEXT = "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. "
BAR_SECONDS = 0.2
"""Between two looks at what is done: often enough for a person, and too rare to disturb what is measured."""


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    for name, low in (("prompt_tokens", 1), ("generate_tokens", 2), ("runs", 1), ("concurrency", 1)):
        value = getattr(options, name)
        if value < low:
            raise UsageError(f"--{name.replace('_', '-')} is {value}, must be {low} or more")
    if options.concurrency > 1024:
        raise UsageError(f"--concurrency is {options.concurrency}, must be 1024 or less")
    report = _profile(options) if options.profile else _speeds(options)
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    elif options.profile:
        profile.print_tables(report)
    else:
        _print_table(report)
    return 0


def _speeds(options: argparse.Namespace) -> dict[str, object]:
    loads, prefills, decodes, totals = [], [], [], []
    for i in range(options.runs):
        llm, seconds = _load(options)
        with llm:
            with _bar(llm, options, f"run {i + 1} of {options.runs}", runs=1):
                usages, wall = _measure(llm, options)
            stats = llm.stats()
        loads.append(seconds * 1e3)
        prefills.append(statistics.median(usage.prefill_tokens_per_second for usage in usages))
        decodes.append(statistics.median(usage.decode_tokens_per_second for usage in usages))
        totals.append(sum(usage.completion_tokens for usage in usages) / wall)
    return {
        **_setting(llm, stats, options),
        "load_ms": _summary(loads),
        "prefill_tokens_per_second": _summary(prefills),
        "decode_tokens_per_second": _summary(decodes),
        "total_tokens_per_second": _summary(totals),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def _profile(options: argparse.Namespace) -> dict[str, object]:
    llm, _ = _load(options, profile=True)
    with llm:
        with _bar(llm, options, "measuring", runs=options.runs + 1):
            _measure(llm, options)  # once to warm up
            before = _counted(llm)
            for _ in range(options.runs):
                _measure(llm, options)
            after = _counted(llm)
        stats = llm.stats()
    limit = profile.read_limit(stats["threads"])
    return {
        **_setting(llm, stats, options),
        "read_gb_s": limit / 1e9,
        **profile.report(before, after, limit),
    }


def _counted(llm: LLM) -> list[ProfileEntry]:
    """The profile once it has the last step, which the engine counts after it has handed out the tokens."""
    deadline = time.monotonic() + 1
    while True:
        entries = llm.profile()
        counted = sum(entry.calls for entry in entries if (entry.op, entry.name) == ("engine", "deliver"))
        if counted == llm.stats()["steps"] or time.monotonic() > deadline:
            return entries
        time.sleep(0.001)


def _load(options: argparse.Namespace, **engine: object) -> tuple[LLM, float]:
    needed = options.prompt_tokens + options.generate_tokens
    asked = f"--prompt-tokens and --generate-tokens need a context of {needed} tokens"
    if options.context_tokens is not None and options.context_tokens < needed:
        raise UsageError(f"{asked}; --context-tokens is {options.context_tokens}")
    # Every prompt is computed, also one that begins like another.
    engine["prefix_cache"] = False
    if options.concurrency > 1:
        engine |= {"kv_tokens": needed * options.concurrency, "max_sequences": options.concurrency}
    try:
        return load(options, context_tokens=needed, **engine)
    except InvalidArgumentError as error:
        if options.context_tokens is None and str(error).startswith("context_tokens "):
            raise UsageError(f"{asked}; {str(error).partition('; ')[2]}") from None
        raise


def _setting(llm: LLM, stats: dict[str, int], options: argparse.Namespace) -> dict[str, object]:
    return {
        "model": llm.model.path,
        "version": _lmnative.version(),
        "cpu_target": _lmnative.build_info()["cpu_target"],
        "threads": stats["threads"],
        "runs": options.runs,
        "prompt_tokens": options.prompt_tokens,
        "generate_tokens": options.generate_tokens,
        "concurrency": options.concurrency,
    }


def _measure(llm: LLM, options: argparse.Namespace) -> tuple[list[Usage], float]:
    """The usage of each answer, and the seconds that all of them took together."""
    ids = llm.tokenizer.encode(TEXT)
    prompt = (ids * (options.prompt_tokens // len(ids) + 1))[: options.prompt_tokens]
    start = time.perf_counter()
    answers = llm.generate([prompt] * options.concurrency, max_tokens=options.generate_tokens, ignore_eos=True)
    return [answer.usage for answer in answers], time.perf_counter() - start


def _summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


@contextmanager
def _bar(llm: LLM, options: argparse.Namespace, what: str, *, runs: int) -> Iterator[None]:
    """On a terminal, a progress bar over the tokens that are computed meanwhile, beside the measurement."""
    if not sys.stderr.isatty():
        yield
        return
    from tqdm import tqdm

    total = runs * options.concurrency * (options.prompt_tokens + options.generate_tokens)
    done = threading.Event()

    def watch() -> None:
        with tqdm(total=total, desc=what, unit="tok", leave=False, delay=BAR_DELAY_SECONDS, dynamic_ncols=True) as bar:
            while not done.wait(BAR_SECONDS):
                stats = llm.stats()
                bar.update(stats["prompt_tokens"] + stats["generated_tokens"] - bar.n)

    watcher = threading.Thread(target=watch, name="progress")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _print_table(report: dict) -> None:
    print(f"{report['model']}: {report['threads']} threads, {report['cpu_target']}, {report['runs']} runs")
    print(f"{'':<28}{'median':>10}{'lowest':>10}{'highest':>10}")
    rows = [
        ("load, ms", report["load_ms"]),
        (f"prefill {report['prompt_tokens']}, tok/s", report["prefill_tokens_per_second"]),
        (f"decode {report['generate_tokens']}, tok/s", report["decode_tokens_per_second"]),
    ]
    if report["concurrency"] > 1:
        rows.append((f"{report['concurrency']} answers, tok/s", report["total_tokens_per_second"]))
    for name, summary in rows:
        print(f"{name:<28}{summary['median']:>10.1f}{summary['min']:>10.1f}{summary['max']:>10.1f}")
    print(f"{'peak RSS, MiB':<28}{report['peak_rss_bytes'] / 2**20:>10.1f}")
