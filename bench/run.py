#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: one entry, one JSON schema.

    python bench/run.py SUITE [SUITE …] [--peers] [--quick] [--only GLOB] [--threads N] [--model FILE]
                        [--models-dir FOLDER] [--json FILE|-] [--markdown FILE] [--plot FILE.png]

Without --peers only this project is measured. With --peers every peer that imports runs on the same input in the same
run, alternating with ours; one that is not installed is listed as absent with the command that installs it. A result
whose check fails is not reported: the run exits 1 and says which. It exits 1 without any result, too.

decode, prefill, batch and long run on model files that are made at the first use (9 GB, or 4 GB with --quick),
from the default model and from random numbers, and kept in --models-dir; cuda, which needs an NVIDIA device, on files
of 5 and 16 GB.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness

SUITES = {  # name -> module under suites/ with run(context) -> None
    "decode": "suites.language_model",
    "prefill": "suites.language_model",
    "batch": "suites.language_model",
    "long": "suites.language_model",
    "load": "suites.load",
    "memory": "suites.memory",
    "queue": "suites.queue",
    "host": "suites.host",
    "graph": "suites.graph",
    "server": "suites.server",
    "cuda": "suites.cuda",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("suites", nargs="+", choices=sorted(SUITES), metavar="SUITE", help=", ".join(sorted(SUITES)))
    parser.add_argument("--peers", action="store_true", help="measure installed peers in the same run")
    parser.add_argument("--quick", action="store_true", help="about a minute for each suite")
    parser.add_argument(
        "--only",
        action="append",
        metavar="GLOB",
        help="only results of such names, the unusual included; prefill.512.*.a16 are those with activation_bits=16, "
        "of quantised weights",
    )
    parser.add_argument("--threads", type=int, default=0, help="threads of every contender (default: usable CPUs)")
    parser.add_argument("--model", help="measure this GGUF file or known model alone (default: the known types)")
    parser.add_argument("--models-dir", metavar="FOLDER", help="where made files lie ($XDG_CACHE_HOME/lmnative/bench)")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--markdown", metavar="FILE", help="write a table")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the ratios (needs matplotlib)")
    args = parser.parse_args(argv)
    if args.threads < 0:
        parser.error("--threads must be 1 or more")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")

    context = harness.Context(args)
    try:
        for suite in dict.fromkeys(args.suites):
            importlib.import_module(SUITES[suite]).run(context, suite)
    except harness.CheckFailed as failure:
        print(f"bench: check failed: {failure}", file=sys.stderr)
        return 1
    if not context.results:
        missing = f"named {' or '.join(args.only)}" if args.only else f"of {' or '.join(args.suites)}"
        why = f"all was left out: {', '.join(context.left_out)}" if context.left_out else f"none is {missing}"
        print(f"bench: no results: {why}", file=sys.stderr)
        return 1
    report = context.report()
    if args.json:
        text = json.dumps(report, indent=1) + "\n"
        if args.json == "-":
            sys.stdout.write(text)
        else:
            Path(args.json).write_text(text)
    table = harness.markdown(report)
    if args.json != "-":
        sys.stdout.write(table)
    if args.markdown:
        Path(args.markdown).write_text(table)
    if args.plot:
        harness.plot(report, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
