# SPDX-License-Identifier: Apache-2.0
"""decode, prefill, batch and long: all contenders on the same file, prompt and thread count.

    decode.b1.LABEL         one sequence after a prompt of 32 tokens
    prefill.512.LABEL       a prompt of 512 tokens to the first token
    prefill.512.LABEL.a16   the same of quantised weights with activation_bits=16
    decode.bN.LABEL         N sequences of 32 tokens and more, tokens of all together
    decode.b32.LABEL.a16    the same with activation_bits=16
    decode.ctxN.LABEL       one sequence whose context ends at N tokens

LABEL is of models/catalogue.py. Floors: a decode step reads every weight once, and the cache of its sequences, so
bytes over bandwidth; products are done at the float rate of the probe with weights that are floats, at twice that with
16-bit integers (.a16), at four times with bytes: the limit of a prefill, and of a step of many sequences where it is
the lower one.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller

import contenders
import harness
import lmnative
from models import files
from models.catalogue import LARGE, NOT_QUICK, SMALL

# English text of any kind: what matters is its length and that everybody gets the same ids.
TEXT = (
    "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. "
    "Every evening its keeper climbed the stairs, counted them, and wrote the number into a ledger, although "
    "it had never changed. "
)
PROMPT = 32
PREFILL = 512
DECODE_TOKENS = 128  # at most, and fewer of what is slow
BATCHES = (2, 4, 8, 16, 32)
CONTEXTS = (4096, 8192)


def names(context: harness.Context, suite: str) -> Iterator[tuple[str, str, int, int]]:
    """(result, label, N, activation bits) of every result to measure, model by model. By default what the project
    promises; --only reaches every label."""
    if context.model_given:
        small, large = (contenders.main_type(lmnative.Model(context.model)),), ()
    else:
        small, large = SMALL, LARGE
    sizes = {"batch": BATCHES, "long": CONTEXTS, "prefill": (PREFILL,)}.get(suite, (1,))
    usual = {"decode": small + large, "prefill": small}.get(suite, small[:1])
    for label in small + large:
        is_float = label.rpartition(".")[2] in contenders.FLOAT_TYPES
        for n, bits in itertools.product(sizes, (8,) if is_float else (8, 16)):
            if bits == 16 and suite != "prefill" and (suite, n) != ("batch", max(BATCHES)):
                continue
            name = {
                "decode": f"decode.b1.{label}",
                "prefill": f"prefill.{n}.{label}",
                "batch": f"decode.b{n}.{label}",
                "long": f"decode.ctx{n}.{label}",
            }[suite] + (".a16" if bits == 16 else "")
            if not context.is_wanted(name, label in usual):
                continue
            if context.quick and not context.args.only and (label in NOT_QUICK or (suite == "long" and n > 4096)):
                context.leave_out(name, "takes too long for --quick; --only names it")
                continue
            yield name, label, n, bits


def prompt_ids(tokenizer: lmnative.Tokenizer, length: int) -> list[int]:
    ids = list(tokenizer.encode(TEXT))
    return (ids * (length // len(ids) + 1))[:length]


class Match:
    """One model, opened by everybody who runs it in this suite."""

    def __init__(
        self,
        context: harness.Context,
        suite: str,
        label: str,
        tokens: int,
        sequences: int,
        activation_bits: int | None = 8,
        **device: object,  # of suites on a device: `device` and `kv_tokens` of a Session
    ):
        path = context.model if context.model_given else context.catalogue.path(label)
        model = lmnative.Model(path)
        self.cost = contenders.Cost(model)
        self.context = context
        keep_prompts = suite in ("batch", "long", "cuda")
        self.ours = contenders.Session(
            path, context.threads, tokens, sequences, keep_prompts, activation_bits, **device
        )
        self.peers = {}
        self.failed: dict[str, str] = {}  # peers that take part no more, and why
        self.versions = {}
        self.tolerances = {}
        for peer in context.peers(["llama_cpp", "openvino_genai", "ctranslate2"]):
            wanted = peer.LABELS if peer.LABELS is None or not context.quick else peer.LABELS[:1]
            if suite in peer.SUITES and (wanted is None or label in wanted):
                try:
                    self.peers[peer.NAME] = peer.Session(path, context.threads, tokens, sequences, **device)
                    self.versions[peer.NAME] = peer.version()
                    self.tolerances[peer.NAME] = getattr(peer, "TOLERANCE", contenders.OFFSET_FREE_RMS)
                except Exception as error:  # whatever another project raises: the others go on
                    context.leave_out(f"{suite} of {label} by {peer.NAME}", str(error))

    def drop(self, name: str, peer: str, reason: str) -> None:
        """From the result `name` on, `peer` is left out."""
        self.context.leave_out(f"{name} by {peer}", reason)
        self.failed[peer] = reason
        self.close_peer(peer)

    def each_peer(self, name: str, run: Callable[[str, object], object]) -> None:
        """run(peer, session) of all; who fails is dropped."""
        for peer, session in list(self.peers.items()):
            harness.attempt(peer, partial(run, peer, session), partial(self.drop, name))

    def prepare(self, prompt: list[int], name: str, run: Callable[[object], object]) -> None:
        """run(session) leads every peer to where it has answered `prompt`; answers are compared."""
        for peer, reason in self.failed.items():
            self.context.leave_out(f"{name} by {peer}", reason)
        self.each_peer(name, lambda peer, session: run(session))
        logits = self.ours.logits(prompt)
        self.each_peer(
            name,
            lambda peer, session: contenders.check_against(session, logits, f"{name} of {peer}", self.tolerances[peer]),
        )

    def measure(
        self,
        name: str,
        run: Callable[[object], float],
        rounds: int,
        tokens: int,
        read: float,
        macs: int,
        float_macs: float,
    ) -> None:
        """run(session) gives seconds of `tokens` tokens, each of which reads `read` bytes and does `macs` products that
        take as long as `float_macs` of floats. Shared machines change within a minute: the limit is probed before and
        after every round, and is the median of that, as a result is."""
        limits: list[dict[str, float]] = []
        runs = {who: partial(run, session) for who, session in {"lmnative": self.ours, **self.peers}.items()}
        seconds = harness.alternate(runs, rounds, partial(self.drop, name), lambda: limits.append(self.context.probe()))
        gb_s, gflop_s = (statistics.median(limit[key] for limit in limits) for key in ("read_gb_s", "fma_gflop_s"))
        floor = min(gb_s * 1e9 / read, gflop_s * 1e9 / 2 / float_macs)  # 2 operations each
        samples = {who: [tokens / s for s in values] for who, values in seconds.items()}
        rate = statistics.median(samples["lmnative"])
        figures = {
            "bytes_per_token": round(read),
            "gb_s": round(read * rate / 1e9, 2),
            "gop_s": round(2 * macs * rate / 1e9, 1),
            "read_gb_s": gb_s,
        }
        self.context.add(name, "tok/s", "higher", samples, floor, self.versions, figures)

    def close_peer(self, peer: str) -> None:
        with contextlib.suppress(Exception):  # it has given its figures, or none
            self.peers.pop(peer).close()

    def close(self) -> None:
        for peer in list(self.peers):
            self.close_peer(peer)
        self.ours.close()


def run(context: harness.Context, suite: str) -> None:
    measure = {"decode": decode, "prefill": prefill, "batch": batch, "long": long}[suite]
    by_model: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for name, label, n, activation_bits in names(context, suite):
        by_model.setdefault((label, activation_bits), []).append((name, n))
    for (label, activation_bits), results in by_model.items():
        try:
            measure(context, label, activation_bits, results)
        except files.CannotMake as reason:
            for name, _ in results:
                context.leave_out(name, str(reason))


def steps_of(session, context: harness.Context, prompt: list[int]) -> int:
    """As many as take a second (with --quick half as long), which warms the caches up, too."""
    rate = 8 / session.decode_seconds(prompt, 8)
    return max(16, min(DECODE_TOKENS, int(rate * (0.4 if context.quick else 1.0))))


def decode(context: harness.Context, label: str, activation_bits: int, results: list[tuple[str, int]]) -> None:
    match = Match(context, "decode", label, PROMPT + DECODE_TOKENS + 32, 1, activation_bits)
    try:
        prompt = prompt_ids(match.ours.llm.tokenizer, PROMPT)
        for name, _ in results:
            match.prepare(prompt, name, methodcaller("prefill_seconds", prompt))
            tokens = steps_of(match.ours, context, prompt)
            run = methodcaller("decode_seconds", prompt, tokens)
            cost = match.cost
            rounds = 3 if context.quick else 7
            match.measure(name, run, rounds, tokens, cost.bytes, cost.macs, cost.float_macs())
    finally:
        match.close()


def prefill(context: harness.Context, label: str, activation_bits: int, results: list[tuple[str, int]]) -> None:
    match = Match(context, "prefill", label, PREFILL + 32, 1, activation_bits)
    try:
        for name, n in results:
            prompt = prompt_ids(match.ours.llm.tokenizer, n)
            run = methodcaller("prefill_seconds", prompt)
            match.prepare(prompt, name, run)
            cost = match.cost
            rounds = 2 if context.quick else 7
            macs, float_macs = cost.macs_without_logits, cost.float_macs(activation_bits, logits=False)
            match.measure(name, run, rounds, n, cost.bytes / n, macs, float_macs)
    finally:
        match.close()


def batch(context: harness.Context, label: str, activation_bits: int, results: list[tuple[str, int]]) -> None:
    """Sequences differ, so that nobody can share work between them; each one's tokens are those it has alone."""
    tokens = 16 if context.quick else 48
    match = Match(context, "batch", label, PROMPT + tokens + 32, max(n for _, n in results), activation_bits)
    try:
        ids = prompt_ids(match.ours.llm.tokenizer, PROMPT + max(BATCHES))
        prompts = [ids[i : i + PROMPT] for i in range(max(BATCHES))]
        for name, n in results:
            for prompt in prompts[:n]:
                match.ours.decode_seconds(prompt, tokens)  # alone: what the batch must repeat
            hold = methodcaller("hold", prompts[:n])
            hold(match.ours)
            match.prepare(prompts[0], name, hold)
            cost = match.cost
            read = cost.bytes / n + cost.kv_bytes * (PROMPT + tokens / 2)
            run, rounds = methodcaller("held_seconds", tokens), 2 if context.quick else 5
            match.measure(name, run, rounds, n * tokens, read, cost.macs, cost.float_macs(activation_bits))
    finally:
        match.close()


def long(context: harness.Context, label: str, activation_bits: int, results: list[tuple[str, int]]) -> None:
    tokens = 32 if context.quick else 64
    match = Match(context, "long", label, max(n for _, n in results), 1, activation_bits)
    try:
        for name, n in results:
            prompt = prompt_ids(match.ours.llm.tokenizer, n - tokens - 1)
            hold = methodcaller("hold", [prompt])
            hold(match.ours)
            match.prepare(prompt, name, hold)
            cost = match.cost
            read = cost.bytes + cost.kv_bytes * (n - tokens / 2)
            run, rounds = methodcaller("held_seconds", tokens), 3 if context.quick else 5
            match.measure(name, run, rounds, tokens, read, cost.macs, cost.float_macs())
    finally:
        match.close()
