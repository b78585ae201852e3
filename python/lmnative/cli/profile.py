# SPDX-License-Identifier: Apache-2.0
"""lmnative bench --profile: where the time of a step goes, operator by operator, as the plan itself measures it.

Two tables, of decode and of prefill steps. What an operator moves and computes is counted from its arguments (weights
once, rows in and out, keys and values attended to), so GB/s and GOP/s say how well it does and not how much it wastes.
The limit that GB/s are compared with is measured in the same run.
"""

from __future__ import annotations

from lmnative import _lmnative
from lmnative.engine import ProfileEntry

STEP_KINDS = ("decode", "prefill")
OUTSIDE = "engine"
"""Where rows of what is outside the plan begin: the engine's parts of a step, and what the profile itself costs."""

Row = dict[str, object]


def read_limit(threads: int) -> float:
    """Bytes per second that so many threads read from memory."""
    return _lmnative.read_bandwidth(threads)


def report(before: list[ProfileEntry], after: list[ProfileEntry], limit: float) -> dict[str, Row]:
    """Of each kind of step what happened between two profiles of an engine."""
    result: dict[str, Row] = {}
    for kind in STEP_KINDS:
        sums: dict[str, list[float]] = {}
        steps, run_ns, stages_ns = 0, 0.0, 0.0
        for old, new in zip(before, after, strict=True):
            calls = new.calls - old.calls
            if new.step_kind != kind or calls == 0:
                continue
            # Of a step: the engine may be in the middle of counting the last one.
            run, wait, moved, operations = (
                (getattr(new, field) - getattr(old, field)) / calls
                for field in ("run_ns", "wait_ns", "bytes", "operations")
            )
            if new.op != OUTSIDE:
                stages_ns += run + wait
            elif new.name == "run":
                steps, run_ns = calls, run
                continue
            for i, value in enumerate((run + wait, wait, moved, operations)):
                sums.setdefault(_label(new), [0.0] * 4)[i] += value
        if steps:
            if stages_ns:  # a model without stages runs all the same
                sums[f"{OUTSIDE} profile"] = [max(run_ns - stages_ns, 0.0), 0.0, 0.0, 0.0]
            else:
                sums[f"{OUTSIDE} run"] = [run_ns, 0.0, 0.0, 0.0]
        result[kind] = _table(sums, steps, limit)
    return result


def _label(entry: ProfileEntry) -> str:
    """What rows are summed over: all layers, by operator; matrix products by what they are for."""
    if entry.op in (OUTSIDE, "team"):
        return f"{entry.op} {entry.name}"
    if entry.op != "linear":
        return entry.op
    parts = entry.name.split(".")
    return "linear " + (".".join(parts[2:]) if parts[0] == "blk" and len(parts) > 2 else entry.name)


def _table(sums: dict[str, list[float]], steps: int, limit: float) -> Row:
    total = [sum(column) for column in zip(*sums.values(), strict=True)] or [0.0] * 4
    rows = [_row(name, values, total[0], limit) for name, values in sums.items()]
    rows.sort(key=lambda row: -float(row["us"]))  # type: ignore[arg-type]
    return {"steps": steps, "rows": rows, "total": _row("step", total, total[0], limit)}


def _row(name: str, values: list[float], step_ns: float, limit: float) -> Row:
    ns, wait_ns, moved, operations = values
    rate = moved / ns if ns else 0.0  # bytes per ns: GB/s
    return {
        "name": name,
        "us": ns / 1e3,
        "wait_us": wait_ns / 1e3,
        "share": ns / step_ns if step_ns else 0.0,
        "bytes": round(moved),
        "operations": round(operations),
        "gb_s": rate,
        "gop_s": operations / ns if ns else 0.0,
        "of_read_limit": rate * 1e9 / limit,
    }


def print_tables(report: dict) -> None:
    """The report of `lmnative bench --profile`, for people."""
    print(
        f"{report['model']}: {report['threads']} threads, {report['cpu_target']}; "
        f"memory gives {report['read_gb_s']:.1f} GB/s"
    )
    for kind in STEP_KINDS:
        table = report[kind]
        print(f"\n{kind}: the mean of {table['steps']} steps")
        if not table["steps"]:
            continue
        print(f"{'':<26}{'µs':>10}{'waiting':>10}{'share':>8}{'MB':>10}{'GB/s':>8}{'limit':>7}{'GOP/s':>9}")
        for row in [*table["rows"], table["total"]]:
            line = f"{row['name']:<26}{row['us']:>10.1f}{row['wait_us']:>10.1f}{row['share']:>8.1%}"
            if row["bytes"]:
                line += f"{row['bytes'] / 1e6:>10.3f}{row['gb_s']:>8.1f}{row['of_read_limit']:>7.0%}"
                line += f"{row['gop_s']:>9.1f}"
            print(line)
