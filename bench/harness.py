# SPDX-License-Identifier: Apache-2.0
"""What every suite shares: machine probes, alternating runs, medians, the report."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import lmnative

BENCH = Path(__file__).resolve().parent


class CheckFailed(Exception):
    """A result is wrong, so its time means nothing."""


class Context:
    """Options of one run, its machine, and the results so far."""

    def __init__(self, args):
        self.args = args
        self.quick = args.quick
        self.threads = args.threads or len(os.sched_getaffinity(0))
        self.model = str(lmnative.Model(args.model).path)
        self.machine = probe_machine(self.threads)
        self.results: list[dict] = []
        self.absent: dict[str, str] = {}

    def peers(self, wanted: list[str]) -> list:
        """The modules of bench/peers/ among `wanted` that work here; others are noted as absent."""
        found = []
        if not self.args.peers:
            return found
        for name in wanted:
            module = __import__(f"peers.{name}", fromlist=["NAME"])
            try:
                module.version()
            except ImportError:
                self.absent[module.NAME] = module.INSTALL
            else:
                found.append(module)
        return found

    def add(
        self,
        name: str,
        unit: str,
        better: str,
        samples: dict[str, list[float]],
        floor: float | None = None,
        versions: dict[str, str] | None = None,
    ) -> None:
        """Adds one checked result. `samples` maps "lmnative" and the peers' names to their measurements."""
        ours = samples["lmnative"]
        value = statistics.median(ours)
        result = {
            "name": name,
            "value": round(value, 4),
            "unit": unit,
            "better": better,
            "n": len(ours),
            "p10": round(percentile(ours, 10), 4),
            "p90": round(percentile(ours, 90), 4),
            "check": "passed",
            "floor": None if floor is None else round(floor, 4),
            "peers": {},
        }
        for peer, theirs in samples.items():
            if peer == "lmnative":
                continue
            their_value = statistics.median(theirs)
            ratio = value / their_value if better == "higher" else their_value / value
            result["peers"][peer] = {
                "version": (versions or {}).get(peer, "?"),
                "value": round(their_value, 4),
                "ratio": round(ratio, 3),
            }
        self.results.append(result)
        print(
            f"bench: {name} {value:.4g} {unit}"
            + "".join(f"  {p} {v['value']:.4g} (x{v['ratio']})" for p, v in result["peers"].items()),
            file=sys.stderr,
        )

    def report(self) -> dict:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=BENCH, capture_output=True, text=True)
        return {
            "schema": 1,
            "commit": commit.stdout.strip(),
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": self.machine,
            "results": self.results,
            "absent": self.absent,
        }


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def alternate(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Runs every contender once to warm up, then `rounds` times in turn; returns each one's measurements."""
    for run in contenders.values():
        run()
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds):
        order = list(contenders) if i % 2 == 0 else list(reversed(contenders))
        for name in order:
            samples[name].append(contenders[name]())
    return samples


def build_client(name: str, folder: str) -> Path:
    """Builds macro/NAME.c, a client of the C ABI, against the installed package."""
    program = Path(folder) / name
    library = Path(lmnative.get_library())
    subprocess.run(
        [
            os.environ.get("CC", "cc"),
            "-O2",
            "-o",
            program,
            BENCH / "macro" / f"{name}.c",
            f"-I{lmnative.get_include()}",
            str(library),
            f"-Wl,-rpath,{library.parent}",
        ],
        check=True,
    )
    return program


def probe_machine(threads: int) -> dict:
    """CPU name and the physical limits measured by micro/probe.c on `threads` threads."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "probe"
        subprocess.run(
            [
                os.environ.get("CC", "cc"),
                "-O3",
                "-march=native",
                "-ffast-math",
                "-o",
                program,
                BENCH / "micro" / "probe.c",
                "-lpthread",
            ],
            check=True,
        )
        limits = json.loads(subprocess.run([program, str(threads)], check=True, capture_output=True).stdout)
    return {"cpu": cpu, "isa": lmnative.build_info()["cpu_target"], "threads": threads, **limits}


def markdown(report: dict) -> str:
    machine = report["machine"]
    head = "| result | lmnative | unit | of the limit | peers (ratio above 1: we are ahead) |"
    lines = [
        f"Commit {report['commit']}, {report['when']}, {machine['cpu']}, {machine['threads']} threads, kernels "
        f"{machine['isa']}; read {machine['read_gb_s']} GB/s, FMA {machine['fma_gflop_s']} GFLOP/s.",
        "",
        head,
        "|---|---|---|---|---|",
    ]
    for r in report["results"]:
        share = ""
        if r["floor"]:
            share = f"{100 * (r['value'] / r['floor'] if r['better'] == 'higher' else r['floor'] / r['value']):.0f} %"
        peers = ", ".join(f"{name} {p['version']}: {p['value']:.4g} (x{p['ratio']})" for name, p in r["peers"].items())
        lines.append(f"| {r['name']} | {r['value']:.4g} | {r['unit']} | {share} | {peers} |")
    for name, command in report["absent"].items():
        lines += ["", f"{name} is not installed: `{command}`"]
    return "\n".join(lines) + "\n"


def plot(report: dict, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [(f"{r['name']} vs {peer}", p["ratio"]) for r in report["results"] for peer, p in r["peers"].items()]
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.4 * max(1, len(bars))))
    axes.barh([b[0] for b in bars], [b[1] for b in bars])
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("ratio to the peer (above 1: lmnative is ahead)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
