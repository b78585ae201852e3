# SPDX-License-Identifier: Apache-2.0
"""lmnative bench: load, prefill and decode of one model on this machine, by medians."""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from lmnative import _lmnative
from lmnative.cli.loading import load, peak_rss_bytes
from lmnative.errors import InvalidArgumentError
from lmnative.llm import LLM

TEXT = "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. "


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    for name, low in (("prompt_tokens", 1), ("generate_tokens", 2), ("runs", 1)):
        value = getattr(options, name)
        if value < low:
            raise InvalidArgumentError(f"--{name.replace('_', '-')} is {value}, must be {low} or more")
    loads, prefills, decodes = [], [], []
    needed = options.prompt_tokens + options.generate_tokens
    for _ in _shown(options.runs):
        llm, seconds = load(options, context_tokens=needed)
        with llm:
            usage = _measure(llm, options)
            stats = llm.stats()
        loads.append(seconds * 1e3)
        prefills.append(usage.prefill_tokens_per_second)
        decodes.append(usage.decode_tokens_per_second)
    report = {
        "model": llm.model.path,
        "version": _lmnative.version(),
        "cpu_target": _lmnative.build_info()["cpu_target"],
        "threads": stats["threads"],
        "runs": options.runs,
        "prompt_tokens": options.prompt_tokens,
        "generate_tokens": options.generate_tokens,
        "load_ms": _summary(loads),
        "prefill_tokens_per_second": _summary(prefills),
        "decode_tokens_per_second": _summary(decodes),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        _print_table(report)
    return 0


def _measure(llm: LLM, options: argparse.Namespace):
    ids = llm.tokenizer.encode(TEXT)
    prompt = (ids * (options.prompt_tokens // len(ids) + 1))[: options.prompt_tokens]
    return llm.generate(prompt, max_tokens=options.generate_tokens, ignore_eos=True).usage


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
    rows = (
        ("load, ms", report["load_ms"]),
        (f"prefill {report['prompt_tokens']}, tok/s", report["prefill_tokens_per_second"]),
        (f"decode {report['generate_tokens']}, tok/s", report["decode_tokens_per_second"]),
    )
    for name, summary in rows:
        print(f"{name:<28}{summary['median']:>10.1f}{summary['min']:>10.1f}{summary['max']:>10.1f}")
    print(f"{'peak RSS, MiB':<28}{report['peak_rss_bytes'] / 2**20:>10.1f}")
