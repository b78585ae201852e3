# SPDX-License-Identifier: Apache-2.0
"""What every suite shares: machine probes, alternating runs, medians, the report."""

from __future__ import annotations

import datetime
import fnmatch
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lmnative
from models.catalogue import Catalogue

BENCH = Path(__file__).resolve().parent
DEFAULT_MODEL = "smollm2-135m"
PAUSE_S = 0.05  # between contenders: the threads of the last one stop spinning


class CheckFailed(Exception):
    """A result is wrong, so its time means nothing."""


class Context:
    """Options of one run, its machine, and the results so far."""

    def __init__(self, args):
        self.args = args
        self.quick = args.quick
        self.threads = args.threads or len(os.sched_getaffinity(0))
        self.model_given = args.model is not None
        self.model = str(lmnative.Model(args.model or os.environ.get("LMN_TEST_MODEL") or DEFAULT_MODEL).path)
        self.catalogue = Catalogue(self.model, args.models_dir)
        self._probe = Probe(self.threads)
        self.machine = describe_machine(self.threads)
        self.probe()
        self.results: list[dict] = []
        self.absent: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    def probe(self) -> dict[str, float]:
        """The limits now; `machine` keeps the best of the run."""
        limits = self._probe()
        for name, value in limits.items():
            self.machine[name] = max(value, self.machine.get(name, 0.0))
        return limits

    def is_wanted(self, name: str, usual: bool = True) -> bool:
        """True for a result that --only names, or without --only for a usual one."""
        only = self.args.only
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in only) if only else usual

    def leave_out(self, name: str, reason: str) -> None:
        """Notes why a result that was asked for is not there."""
        self.left_out[name] = reason
        print(f"bench: {name} left out: {reason}", file=sys.stderr)

    def peers(self, wanted: list[str]) -> list:
        """The modules of bench/peers/ among `wanted` that work here; others are noted as absent."""
        found = []
        if not self.args.peers:
            return found
        for name in wanted:
            module = importlib.import_module(f"peers.{name}")
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
        figures: dict[str, float] | None = None,
    ) -> None:
        """Adds one checked result. `samples` maps "lmnative" and the peers' names to their measurements; `figures` are
        more facts about it, by name: bytes_per_token, gb_s, gop_s."""
        if not self.is_wanted(name):
            return
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
            **(figures or {}),
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
            + "".join(f"  {p} {v['value']:.4g} (x{v['ratio']})" for p, v in result["peers"].items())
            + (f"; {figure_text(result)}" if figures else ""),
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
            "left_out": self.left_out,
        }


def figure_text(result: dict) -> str:
    """MB a token and GB/s, and what is computed in that time."""
    if "bytes_per_token" not in result:
        return ""
    return f"{result['bytes_per_token'] / 1e6:.4g} MB a token, {result['gb_s']} GB/s, {result['gop_s']} GOP/s"


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


Drop = Callable[[str, str], None]  # takes a peer that failed, and the reason


def attempt(name: str, run: Callable[[], float | None], drop: Drop | None) -> float | None:
    """run(), or None and drop(name, reason) where a peer fails: whatever another project raises costs its own figures
    only. Our failures end the run, and so do wrong answers."""
    try:
        return run()
    except CheckFailed:
        raise
    except Exception as error:
        if drop is None or name == "lmnative":
            raise
        drop(name, str(error) or type(error).__name__)
        return None


def alternate(
    contenders: dict[str, Callable[[], float]],
    rounds: int,
    drop: Drop | None = None,
    between: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Runs every contender once to warm up, then `rounds` times in turn; returns each one's measurements. With `drop`,
    one that fails and is not ours has none. `between` is called before every round and after the last."""
    samples: dict[str, list[float]] = {}
    for name, run in contenders.items():
        if attempt(name, run, drop) is not None:
            samples[name] = []
    pause = PAUSE_S if len(samples) > 1 else 0
    for i in range(rounds):
        time.sleep(pause)
        between()
        order = list(samples) if i % 2 == 0 else list(reversed(samples))
        for name in order:
            time.sleep(pause)
            measured = attempt(name, contenders[name], drop)
            if measured is None:
                del samples[name]
            else:
                samples[name].append(measured)
    time.sleep(pause)
    between()
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


class Probe:
    """The physical limits measured by micro/probe.c on `threads` threads: each call measures anew, in 0.3 s."""

    def __init__(self, threads: int):
        self._threads = threads
        self._folder = tempfile.TemporaryDirectory()
        self._program = Path(self._folder.name) / "probe"
        flags = ["-O3", "-march=native", "-ffast-math"]
        source = BENCH / "micro" / "probe.c"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, *flags, "-o", self._program, source, "-lpthread"], check=True)

    def __call__(self) -> dict[str, float]:
        done = subprocess.run([self._program, str(self._threads)], check=True, capture_output=True)
        return json.loads(done.stdout)


def describe_machine(threads: int) -> dict:
    """CPU name, kernels and threads."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"cpu": cpu, "isa": lmnative.build_info()["cpu_target"], "threads": threads}


def share_of_limit(result: dict) -> str:
    """How near the value is to its physical limit."""
    if not result["floor"]:
        return ""
    value, floor = result["value"], result["floor"]
    return f"{100 * (value / floor if result['better'] == 'higher' else floor / value):.0f} %"


def markdown(report: dict) -> str:
    """A table with a column for each peer: its value, and the ratio."""
    machine = report["machine"]
    peers: dict[str, str] = {}  # name -> version
    for result in report["results"]:
        peers |= {name: peer["version"] for name, peer in result["peers"].items()}
    head = ["result", "lmnative", "unit", "of the limit", "reads and computes"]
    head += [f"{name} {version}" for name, version in peers.items()]
    lines = [
        f"Commit {report['commit']}, {report['when']}, {machine['cpu']}, {machine['threads']} threads, kernels "
        f"{machine['isa']}; read {machine['read_gb_s']} GB/s, FMA {machine['fma_gflop_s']} GFLOP/s. In brackets the "
        "ratio to the peer: above 1 lmnative is ahead.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for r in report["results"]:
        cells = [r["name"], f"{r['value']:.4g}", r["unit"], share_of_limit(r), figure_text(r)]
        for name in peers:
            peer = r["peers"].get(name)
            cells.append(f"{peer['value']:.4g} (x{peer['ratio']:.2f})" if peer else "")
        lines.append("| " + " | ".join(cells) + " |")
    for name, command in report["absent"].items():
        lines += ["", f"{name} is not installed: `{command}`"]
    for name, reason in report["left_out"].items():
        lines += ["", f"{name} was left out: {reason}"]
    return "\n".join(lines) + "\n"


def plot(report: dict, path: str) -> None:
    """A bar for every ratio, results from top to bottom, a colour for each peer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [(r["name"], peer, p["ratio"]) for r in report["results"] for peer, p in r["peers"].items()]
    peers = list(dict.fromkeys(peer for _, peer, _ in bars))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.25 * max(1, len(bars))))
    for peer in peers:
        rows = [(i, ratio) for i, (_, who, ratio) in enumerate(bars) if who == peer]
        drawn = axes.barh([i for i, _ in rows], [ratio for _, ratio in rows], label=peer)
        axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=8)
    names = ["" if i and bars[i - 1][0] == name else name for i, (name, _, _) in enumerate(bars)]
    axes.set_yticks(range(len(bars)), names, fontsize=8)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("ratio to the peer (above 1: lmnative is ahead)")
    if peers:
        axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
