# SPDX-License-Identifier: Apache-2.0
"""lmnative bench: load, prefill and decode of one model on this machine, by medians.

With --concurrency, prefill and decode are those of one answer among others (their median), and a further row has the
generated tokens of all over the time from the first prompt to the last token.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

from lmnative import _lmnative
from lmnative.cli import UsageError
from lmnative.cli.loading import load, peak_rss_bytes
from lmnative.llm import LLM
from lmnative.results import Usage

TEXT = "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. "


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    for name, low in (("prompt_tokens", 1), ("generate_tokens", 2), ("runs", 1), ("concurrency", 1)):
        value = getattr(options, name)
        if value < low:
            raise UsageError(f"--{name.replace('_', '-')} is {value}, must be {low} or more")
    loads, prefills, decodes, totals = [], [], [], []
    needed = options.prompt_tokens + options.generate_tokens
    # Every prompt is computed, also one that begins like another.
    engine: dict[str, object] = {"prefix_cache": False}
    if options.concurrency > 1:
        engine |= {"kv_tokens": needed * options.concurrency, "max_sequences": options.concurrency}
    for _ in _shown(options.runs):
        llm, seconds = load(options, context_tokens=needed, **engine)
        with llm:
            usages, wall = _measure(llm, options)
            stats = llm.stats()
        loads.append(seconds * 1e3)
        prefills.append(statistics.median(usage.prefill_tokens_per_second for usage in usages))
        decodes.append(statistics.median(usage.decode_tokens_per_second for usage in usages))
        totals.append(sum(usage.completion_tokens for usage in usages) / wall)
    report = {
        "model": llm.model.path,
        "version": _lmnative.version(),
        "cpu_target": _lmnative.build_info()["cpu_target"],
        "threads": stats["threads"],
        "runs": options.runs,
        "prompt_tokens": options.prompt_tokens,
        "generate_tokens": options.generate_tokens,
        "concurrency": options.concurrency,
        "load_ms": _summary(loads),
        "prefill_tokens_per_second": _summary(prefills),
        "decode_tokens_per_second": _summary(decodes),
        "total_tokens_per_second": _summary(totals),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        _print_table(report)
    return 0


def _measure(llm: LLM, options: argparse.Namespace) -> tuple[list[Usage], float]:
    """The usage of each answer, and the seconds that all of them took together."""
    ids = llm.tokenizer.encode(TEXT)
    prompt = (ids * (options.prompt_tokens // len(ids) + 1))[: options.prompt_tokens]
    start = time.perf_counter()
    answers = llm.generate([prompt] * options.concurrency, max_tokens=options.generate_tokens, ignore_eos=True)
    return [answer.usage for answer in answers], time.perf_counter() - start


def _summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def _shown(runs: int):
    if not sys.stderr.isatty():
        return range(runs)
    from tqdm import tqdm

    return tqdm(range(runs), desc="measuring", leave=False, delay=1.0)


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
