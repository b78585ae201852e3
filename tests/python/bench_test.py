# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' machinery: made model files, their writers, the table and the plot. Nothing is timed here."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lmnative
import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))

import contenders  # noqa: E402
import harness  # noqa: E402
import run as bench_run  # noqa: E402
from models import files, k_quants, mixes, requantize, synthetic  # noqa: E402
from models.catalogue import Catalogue  # noqa: E402
from peers import llama_cpp  # noqa: E402
from suites import cuda, graph, language_model, load  # noqa: E402

TINY = synthetic.Shape("tiny", "qwen2", 3, 288, 512, 9, 3, 32, 49280, 1024, 1e4, 1e-5, qkv_bias=True)


def rows(seed: int, shape: tuple[int, int], offset: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape, np.float32) * rng.uniform(0.01, 3, (shape[0], 1)).astype(np.float32) + offset
    x[0, :32] = 0
    x[1] = 0
    return x.astype(np.float32)


@pytest.mark.parametrize(
    "kind, quantize, bound",
    # Half a step of the range of 32 values in 15 steps, or of 16 in 31, and what rounding scales to 6 or 8 bits adds.
    [("Q4_K", k_quants.quantize_q4_k, 0.75 / 15), ("Q6_K", k_quants.quantize_q6_k, 0.85 / 32)],
)
@pytest.mark.parametrize("offset", [0.0, 0.7, -0.7])
def test_k_quants_are_what_gguf_reads(kind, quantize, bound, offset):
    x = rows(7, (24, 512), offset)
    stored = quantize(x)
    back = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[kind])
    blocks = x.reshape(-1, 256)
    span = np.maximum(blocks.max(1), 0) - np.minimum(blocks.min(1), 0)
    error = np.abs(back.reshape(blocks.shape) - blocks).max(1)
    assert (error <= bound * span + 1e-7).all()
    assert (error[span == 0] == 0).all()
    assert np.array_equal(stored, quantize(x))


def test_fields_of_a_q4_k_block_lie_where_the_format_has_them():
    scales = np.array([[1, 2, 3, 62, 17, 33, 48, 63]], np.uint8)
    mins = np.array([[63, 40, 21, 5, 32, 16, 8, 1]], np.uint8)
    quants = (np.arange(256, dtype=np.uint8) * 7 % 16).reshape(1, 8, 32)
    half = np.array([0.5], np.float16)
    block = k_quants.pack_q4_k(half, half, scales, mins, quants)
    expected = 0.5 * scales[0, :, None] * quants[0].astype(np.float32) - 0.5 * mins[0, :, None]
    read = gguf.quants.dequantize(block, gguf.GGMLQuantizationType.Q4_K)
    assert np.array_equal(read.reshape(8, 32), expected.astype(np.float32))


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_0", "Q6_K", "Q8_0"])
def test_random_blocks_have_the_spread_that_was_asked_for(kind):
    kind = gguf.GGMLQuantizationType[kind]
    drawn = synthetic.blocks(np.random.Generator(np.random.PCG64(1)), kind, 2000, 0.02)
    values = gguf.quants.dequantize(drawn, kind)
    assert np.isfinite(values).all()
    assert abs(float(values.std()) / 0.02 - 1) < 0.05
    assert abs(float(values.mean())) < 0.001


@pytest.mark.parametrize(
    "mix, name, columns, kind",
    [
        ("q4_k_m", "blk.0.attn_v.weight", 2048, "Q6_K"),
        ("q4_k_m", "blk.3.attn_v.weight", 2048, "Q4_K"),
        ("q4_k_m", "blk.5.ffn_down.weight", 2048, "Q6_K"),
        ("q4_k_m", "blk.29.ffn_down.weight", 2048, "Q6_K"),
        ("q4_k_m", "blk.0.ffn_down.weight", 576, "Q8_0"),  # 576 is not a multiple of 256
        ("q4_k_m", "blk.4.attn_q.weight", 576, "Q5_0"),
        ("q4_k_m", "token_embd.weight", 2048, "Q6_K"),
        ("q4_0", "token_embd.weight", 576, "Q8_0"),
        ("q4_0", "blk.0.attn_v.weight", 2048, "Q4_0"),
        ("q8_0", "token_embd.weight", 2048, "Q8_0"),
        ("f16", "token_embd.weight", 576, "F16"),
    ],
)
def test_mixes_are_those_of_llama_cpp(mix, name, columns, kind):
    assert mixes.tensor_type(mix, name, 30, columns).name == kind


@pytest.mark.parametrize("mix", ["q8_0", "q4_k_m"])
def test_synthetic_files_are_deterministic_and_answer(model_path, tmp_path, monkeypatch, mix):
    monkeypatch.setitem(synthetic.SHAPES, "tiny", TINY)
    paths = [tmp_path / name for name in ("a.gguf", "b.gguf")]
    for path in paths:
        synthetic.write(Path(model_path), "tiny", mix, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size < synthetic.expected_bytes(Path(model_path), "tiny", mix)
    with lmnative.LLM(str(paths[0]), threads=2, context_tokens=64) as llm:
        assert llm.info.vocab_size == TINY.vocab
        assert llm.tokenizer.decode(llm.tokenizer.encode("Hello, world")) == "Hello, world"
        logits = llm.score([1, 2, 3, 4]).numpy()
    assert np.isfinite(logits).all()
    assert 0.5 < float(logits.std()) < 8


def test_requantized_file_answers_as_the_original(model_path, tmp_path, monkeypatch):
    """With most of the writers in it: rows of 512 become Q4_K and Q6_K, those of 288 become Q5_0 and Q8_0."""
    monkeypatch.setitem(synthetic.SHAPES, "tiny", TINY)
    source, path = tmp_path / "source.gguf", tmp_path / "model.gguf"
    synthetic.write(Path(model_path), "tiny", "q8_0", source)
    requantize.write(source, "q4_k_m", path)
    made, original = lmnative.Model(path), lmnative.Model(source)
    assert {t.type for t in made.tensors} == {"f32", "q4_k", "q6_k", "q5_0", "q8_0"}
    assert dict(made.metadata) == {**original.metadata, "general.file_type": 15}
    assert path.stat().st_size <= requantize.expected_bytes(source, "q4_k_m") + 32
    logits = []
    for file in (source, path):
        with lmnative.LLM(str(file), threads=2, context_tokens=64) as llm:
            logits.append(llm.score([1, 2, 3, 4, 5, 6]).numpy()[-1])
    assert np.corrcoef(*logits)[0, 1] > 0.97


def test_files_are_kept_checked_and_renamed_into_place(tmp_path):
    written = []

    def write(path: Path) -> None:
        written.append(path)
        path.write_bytes(b"weights")

    path = tmp_path / "folder" / "model.gguf"
    for _ in range(2):
        assert files.ensure(path, "recipe", lambda: 7, write) == path
    assert len(written) == 1
    assert written[0] != path
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (path.parent / f".model.gguf.{killed.pid}").write_bytes(b"half")
    files.ensure(path, "another recipe", lambda: 7, write)
    assert len(written) == 2
    path.write_bytes(b"weighty")  # of the same size
    files.ensure(path, "another recipe", lambda: 7, write)
    assert path.read_bytes() == b"weights"
    assert {p.name for p in path.parent.iterdir()} == {"model.gguf", "model.gguf.json"}

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.ensure(path, "a third recipe", lambda: 7, fail)
    assert {p.name for p in path.parent.iterdir()} == {"model.gguf", "model.gguf.json"}
    with pytest.raises(files.CannotMake, match="--models-dir"):
        files.ensure(tmp_path / "large.gguf", "recipe", lambda: 1 << 60, write)


def test_cache_folder_follows_the_environment(model_path, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Catalogue(model_path, None).folder == tmp_path / "lmnative" / "bench"
    assert Catalogue(model_path, "elsewhere").folder == Path("elsewhere")
    assert Catalogue(model_path, None).path("q4_1") == model_path


@pytest.fixture
def context() -> harness.Context:
    """Of a run whose machine was not probed."""
    made = object.__new__(harness.Context)
    made.args = SimpleNamespace(only=None, peers=False)
    made.quick, made.threads, made.model_given = True, 2, True
    made.results, made.absent, made.left_out = [], {}, {}
    made.machine = {"cpu": "cpu", "isa": "avx2", "threads": 2, "read_gb_s": 30.0, "fma_gflop_s": 200.0}
    probed = itertools.cycle([40.0, 30.0, 20.0, 30.0])  # the median counts
    made._probe = lambda: {"read_gb_s": next(probed), "fma_gflop_s": 200.0}
    return made


def test_every_suite_reports_what_its_names_say(context, model_path, tmp_path, monkeypatch):
    monkeypatch.setitem(synthetic.SHAPES, "tiny", TINY)
    monkeypatch.setattr(language_model, "BATCHES", (2, 3))
    monkeypatch.setattr(language_model, "CONTEXTS", (256, 500))
    path = tmp_path / "tiny.gguf"
    synthetic.write(Path(model_path), "tiny", "q4_k_m", path)
    context.model = str(path)
    for suite in ("decode", "prefill", "batch", "long"):
        language_model.run(context, suite)
    names = ["decode.b1.q4_k_m", "prefill.512.q4_k_m", "prefill.512.q4_k_m.a16", "decode.b2.q4_k_m"]
    names += ["decode.b3.q4_k_m", "decode.b3.q4_k_m.a16", "decode.ctx256.q4_k_m", "decode.ctx500.q4_k_m"]
    weights = sum(t.bytes for t in synthetic.tensors(TINY, "q4_k_m") if t.rows)
    macs = sum(t.rows * t.columns for t in synthetic.tensors(TINY, "q4_k_m"))
    by_name = {r["name"]: r for r in context.results}
    single = by_name["decode.b1.q4_k_m"]
    assert single["bytes_per_token"] == weights
    assert single["floor"] == pytest.approx(30e9 / weights)
    assert single["gop_s"] == pytest.approx(2 * macs * single["value"] / 1e9, abs=0.06)
    blocks = [t for t in synthetic.tensors(TINY, "q4_k_m") if t.rows and t.name.startswith("blk.")]
    qkv = sum(t.rows * t.columns for t in blocks if t.name.split(".")[2] in ("attn_q", "attn_k", "attn_v"))
    last = f"blk.{TINY.layers - 1}."  # computed for the sampled token alone, but for q, k and v
    others = (
        sum(t.rows * t.columns for t in blocks if not t.name.startswith(last)) - qkv * (TINY.layers - 1) // TINY.layers
    )
    for name, rate in (("prefill.512.q4_k_m", 4), ("prefill.512.q4_k_m.a16", 2)):
        assert by_name[name]["floor"] == pytest.approx(100e9 / (others / rate + qkv / 2))
    kv = TINY.layers * TINY.kv_heads * TINY.head_dim * 2 * 2  # keys and values, two bytes each
    assert by_name["decode.b2.q4_k_m"]["bytes_per_token"] == weights / 2 + kv * (32 + 8)
    assert by_name["decode.ctx500.q4_k_m"]["bytes_per_token"] == weights + kv * (500 - 16)


def test_the_suite_of_a_device(context, model_path, tmp_path, monkeypatch):
    # On the CPU: what it measures, and that a batch repeats what each has alone.
    untied = replace(TINY, tied=False)
    monkeypatch.setitem(synthetic.SHAPES, "tiny", untied)
    for name, value in (("DEVICE", "cpu"), ("probe", lambda context: 50.0), ("BATCHES", (1, 3)), ("PREFILLS", (70,))):
        monkeypatch.setattr(cuda, name, value)
    for name, value in (("PRODUCT_ROWS", 24), ("PRODUCT_COLUMNS", 32), ("PRODUCT_COUNT", 3)):
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr(cuda, "profile", lambda context, session, prompt, label: None)
    path = tmp_path / "tiny.gguf"
    synthetic.write(Path(model_path), "tiny", "bf16", path)
    context.model = str(path)
    cuda.run(context, "cuda")
    by_name = {r["name"]: r for r in context.results}
    assert list(by_name) == [
        "cuda.decode.b1.bf16",
        "cuda.decode.b3.bf16",
        "cuda.prefill.70.bf16",
        "cuda.product.f16",
    ]
    assert by_name["cuda.product.f16"]["value"] > 0 == len(by_name["cuda.product.f16"]["peers"])
    assert "cuda.product.f16 by cublas_lt" in context.left_out
    weights = sum(t.bytes for t in synthetic.tensors(untied, "bf16") if t.rows and t.name != "token_embd.weight")
    kv = TINY.layers * TINY.kv_heads * TINY.head_dim * 2 * 2
    single = by_name["cuda.decode.b1.bf16"]
    assert single["bytes_per_token"] == weights + kv * (32 + 16)
    assert single["floor"] == pytest.approx(50e9 / single["bytes_per_token"])


def test_without_a_device_the_suite_says_why(context, model_path, monkeypatch):
    context.model = model_path
    monkeypatch.setattr(cuda, "DEVICE", "cuda:9999")
    cuda.run(context, "cuda")
    assert context.results == []
    assert "cuda:9999" in context.left_out["cuda"]


def of_model(monkeypatch, context, kinds: dict[str, str]) -> contenders.Cost:
    """The cost of a model of 32 x 64 matrices, by name, which `context` measures."""
    made = [SimpleNamespace(name=f"{n}.weight", type=t, shape=(32, 64), bytes=2048) for n, t in kinds.items()]
    info = SimpleNamespace(layer_count=2, head_count_kv=1, head_dim=1)
    model = SimpleNamespace(tensors=made, metadata={}, info=info)
    monkeypatch.setattr(lmnative, "Model", lambda path: model)
    context.model = "made.gguf"
    return contenders.Cost(model)


def test_integer_products_are_counted_at_their_rate(monkeypatch, context):
    one = 32 * 64
    kinds = {"token_embd": "q8_0", "blk.0.attn_q": "q4_1", "blk.0.ffn_up": "f16", "blk.0.ffn_down": "q4_1"}
    cost = of_model(monkeypatch, context, kinds | {"blk.1.attn_k": "q4_0", "blk.1.ffn_down": "q4_1"})
    assert (cost.macs, cost.macs_without_logits) == (6 * one, 4 * one)
    assert cost.float_macs(16) == 5 * one / 2 + one
    # q, k, v, the last layer and the output layer keep 16 bits.
    assert cost.float_macs() == cost.float_macs(8) == one / 4 + 4 * one / 2 + one
    assert cost.float_macs(16, logits=False) == 3 * one / 2 + one
    assert cost.float_macs(8, logits=False) == one / 4 + 2 * one / 2 + one


@pytest.mark.parametrize("kind, is_float", [("q4_1", False), ("f16", True), ("bf16", True), ("f32", True)])
def test_inputs_of_16_bits_are_measured_with_quantised_weights(monkeypatch, context, kind, is_float):
    of_model(monkeypatch, context, {"blk.0.attn_q": kind})
    names = [name for name, _, _, _ in language_model.names(context, "prefill")]
    assert names == [f"prefill.512.{kind}"] + ([] if is_float else [f"prefill.512.{kind}.a16"])


class Peer:
    """A peer whose answers are ours and whose call of `fails_in` raises, at the time number `after` + 1."""

    NAME, INSTALL, SUITES, LABELS, TOLERANCE = "other", "", ("decode", "prefill", "batch", "long"), None, 0.25
    fails_in, after = "", 0

    class Session:
        def __init__(self, *model: object):
            self.ours = contenders.Session(*model, keep_prompts=True)
            self.calls, self.prompt, self.open = 0, [], True

        def _call(self, name: str) -> None:
            assert self.open
            if name == Peer.fails_in:
                self.calls += 1
                if self.calls > Peer.after:
                    raise MemoryError

        def hold(self, prompts) -> None:
            self._call("hold")
            self.prompt = prompts[0]

        def prefill_seconds(self, ids) -> float:
            self._call("prefill_seconds")
            self.prompt = ids
            return 1.0

        def decode_seconds(self, prompt, tokens: int) -> float:
            self._call("decode_seconds")
            return 1.0

        def held_seconds(self, tokens: int) -> float:
            self._call("held_seconds")
            return 1.0

        def logits(self) -> np.ndarray:
            self._call("logits")
            return self.ours.logits(self.prompt)

        def close(self) -> None:
            self.open = False
            self.ours.close()
            raise OSError("closing fails, too")

    @staticmethod
    def version() -> str:
        return "1"


@pytest.mark.parametrize(
    "argv, left_out, results, status, said",
    [
        (["decode"], {"decode.b1.q8_0": "no disk"}, 0, 1, "no results: all was left out: decode.b1.q8_0"),
        (["decode", "--only", "*.q8_0"], {"decode.b1.q8_0": "no disk"}, 0, 1, "all was left out: decode.b1.q8_0"),
        (["decode", "--only", "*.q9", "--only", "x"], {}, 0, 1, "no results: none is named *.q9 or x"),
        (["decode"], {}, 0, 1, "no results: none is of decode"),
        (["decode"], {"decode.b1.q8_0": "no disk"}, 1, 0, ""),
    ],
)
def test_a_run_without_results_fails_and_says_why(context, monkeypatch, capsys, argv, left_out, results, status, said):
    def run_suite(context, suite):
        for name, reason in left_out.items():
            context.leave_out(name, reason)
        for _ in range(results):
            context.add("decode.b1.q4_1", "tok/s", "higher", {"lmnative": [1.0]})

    monkeypatch.setattr(harness, "Context", lambda args: context)
    monkeypatch.setattr(language_model, "run", run_suite)
    assert bench_run.main(argv) == status
    assert said in capsys.readouterr().err


@pytest.fixture
def tiny(context, model_path, tmp_path, monkeypatch) -> harness.Context:
    """Of a run on a small file, with a peer."""
    monkeypatch.setitem(synthetic.SHAPES, "tiny", TINY)
    monkeypatch.setattr(language_model, "BATCHES", (2, 3))
    context.model = str(tmp_path / "tiny.gguf")
    synthetic.write(Path(model_path), "tiny", "q8_0", Path(context.model))
    context.args.peers = True
    context.peers = lambda wanted: [Peer]
    return context


@pytest.mark.parametrize(
    "suite, call, after, measured",  # how many of its results have the peer in them
    [
        ("decode", "prefill_seconds", 0, 0),
        ("decode", "logits", 0, 0),
        ("decode", "decode_seconds", 0, 0),
        ("decode", "decode_seconds", 2, 0),  # between rounds
        ("prefill", "prefill_seconds", 2, 0),
        ("batch", "hold", 0, 0),
        ("batch", "hold", 1, 1),  # of the second result
        ("batch", "held_seconds", 0, 0),
    ],
)
def test_peers_that_fail_cost_their_own_figures_only(tiny, monkeypatch, suite, call, after, measured):
    monkeypatch.setattr(Peer, "fails_in", call)
    monkeypatch.setattr(Peer, "after", after)
    tiny.args.only = ["prefill.*", "decode.b?.q8_0"]  # a batch with 8 bits has a peer of its own
    language_model.run(tiny, suite)
    assert len(tiny.results) == (1 if suite == "decode" else 2)
    assert ["other" in result["peers"] for result in tiny.results] == [i < measured for i in range(len(tiny.results))]
    assert tiny.left_out == {f"{r['name']} by other": "MemoryError" for r in tiny.results[measured:]}


def test_our_failures_and_wrong_answers_end_the_run(tiny, monkeypatch):
    monkeypatch.setattr(Peer.Session, "logits", lambda self: np.arange(TINY.vocab, dtype=np.float32))
    with pytest.raises(harness.CheckFailed, match="top-20 logits"):
        language_model.run(tiny, "decode")
    calls = {"lmnative": lambda: 1 / 0, "other": lambda: 1.0}
    with pytest.raises(ZeroDivisionError):
        harness.alternate(calls, 1, lambda *_: None)
    with pytest.raises(ZeroDivisionError):  # of a suite without peers that may fail
        harness.alternate({"other": lambda: 1 / 0}, 1)


def test_load_leaves_out_a_peer_that_fails(context, model_path, tmp_path, monkeypatch):
    """And counts no memory of the warm-up."""
    program = tmp_path / "fails"
    program.write_text("#!/bin/sh\necho no such instruction >&2\nexit 3\n")
    program.chmod(0o755)
    other = SimpleNamespace(NAME="other", version=lambda: "1", build_first_token=lambda folder: program)
    context.peers = lambda wanted: [other]
    context.model = model_path
    load.run(context, "load")
    assert context.left_out == {"load of other": "no such instruction"}
    assert [(r["name"], r["n"], r["peers"]) for r in context.results] == [
        ("load.first_token", 5, {}),
        ("load.peak_rss", 5, {}),
    ]
    monkeypatch.setattr(harness, "build_client", lambda name, folder: program)
    with pytest.raises(harness.CheckFailed, match="load: no such instruction"):
        load.run(context, "load")


def test_only_picks_results_and_reaches_unusual_ones(context):
    context.model_given = False
    every = [name for name, _, _, _ in language_model.names(context, "decode")]
    assert "decode.b1.q4_1" in every
    assert "decode.b1.llama1b.q8_0" in every
    assert "decode.b1.llama3b.q8_0" in context.left_out  # --quick
    context.args.only = ["*.llama3b.*", "decode.ctx8192.f16"]
    assert [label for _, label, _, _ in language_model.names(context, "decode")] == ["llama3b.q4_k_m", "llama3b.q8_0"]
    long = [name for name, _, _, _ in language_model.names(context, "long")]
    assert long == [
        "decode.ctx8192.f16",
        *(f"decode.ctx{n}.llama3b.{t}" for t in ("q4_k_m", "q8_0") for n in (4096, 8192)),
    ]


def test_wrong_answers_are_no_results():
    ours = np.arange(100, dtype=np.float32)
    near = SimpleNamespace(logits=lambda: ours + 5 + 0.1 * np.cos(np.arange(100)))  # an offset changes no token
    contenders.check_against(near, ours, "near")
    far = SimpleNamespace(logits=lambda: ours + np.cos(np.arange(100)))
    with pytest.raises(harness.CheckFailed, match="far"):
        contenders.check_against(far, ours, "far")
    contenders.check_against(SimpleNamespace(first_token=lambda: 99), ours, "token")
    with pytest.raises(harness.CheckFailed, match="first token is 3"):
        contenders.check_against(SimpleNamespace(first_token=lambda: 3), ours, "token")


@pytest.mark.parametrize("model, reason, freed", [(0, "does not read", []), (7, "no context of 512 tokens", [7])])
def test_llama_cpp_without_a_model_or_a_context_says_so(monkeypatch, model, reason, freed):
    models_freed = []
    api = SimpleNamespace(
        llama_log_callback=lambda function: function,
        llama_log_set=lambda *_: None,
        llama_backend_init=lambda: None,
        llama_model_default_params=lambda: None,
        llama_model_load_from_file=lambda *_: model,
        llama_context_default_params=SimpleNamespace,
        llama_init_from_model=lambda *_: None,
        llama_model_free=models_freed.append,
    )
    monkeypatch.setitem(sys.modules, "llama_cpp", api)
    with pytest.raises(RuntimeError, match=reason):
        llama_cpp.Session("a.gguf", 1, 300)
    assert models_freed == freed


@pytest.fixture
def report(context) -> dict:
    """As of a run with two peers, one of them in one result only."""
    context.absent, context.left_out = {"other": "pip install other"}, {"decode.big": "no disk"}
    figures = {"bytes_per_token": 100_000_000, "gb_s": 20.0, "gop_s": 50.0}
    samples = {"lmnative": [190.0, 200.0, 210.0], "peer": [100.0], "third": [400.0]}
    context.add("decode.b1.q4_1", "tok/s", "higher", samples, 300.0, {"peer": "1.2"}, figures)
    context.add("load.first_token", "ms", "lower", {"lmnative": [50.0], "peer": [100.0]}, 25.0, {"peer": "1.2"})
    return context.report()


def test_report_and_table(report):
    result, load = report["results"]
    assert (result["value"], result["n"], result["bytes_per_token"]) == (200.0, 3, 100_000_000)
    assert result["peers"]["peer"]["ratio"] == 2.0
    assert load["peers"]["peer"]["ratio"] == 2.0  # ahead, where lower is better
    table = harness.markdown(report)
    assert "| decode.b1.q4_1 | 200 | tok/s | 67 % | 100 MB a token, 20.0 GB/s, 50.0 GOP/s | 100 (x2.00) |" in table
    assert "| load.first_token | 50 | ms | 50 % |  | 100 (x2.00) |  |" in table
    assert "`pip install other`" in table
    assert "decode.big was left out: no disk" in table
    json.dumps(report)


def test_plot(report, tmp_path):
    pytest.importorskip("matplotlib")
    harness.plot(report, str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_sessions_are_measured_and_checked(context, monkeypatch, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed (pip install onnx)")
    context.catalogue = SimpleNamespace(folder=tmp_path)
    context.args.only = ["graph.tiny.*", "graph.mlp.b1"]
    monkeypatch.setattr(graph, "repeated", lambda run, seconds: lambda: (run(), 1e-6)[1])
    graph.run(context, "graph")
    names = ["graph.tiny.c_bound", "graph.tiny.py_bound", "graph.tiny.py_numpy", "graph.mlp.b1"]
    assert [r["name"] for r in context.results] == names
    assert context.results[-1]["floor"] == pytest.approx(2e3 * (784 * 512 + 512 * 512 + 512 * 10) / 200e9, abs=1e-4)


def test_wrong_outputs_are_no_results():
    right = [np.array([1.0, -4.0], np.float32)]
    graph.check("right", [right[0] + np.float32(3e-4)], right, graph.TOLERANCE)
    for wrong in (right[0] + np.float32(1e-3), right[0][:1], np.array([1, np.nan], np.float32)):
        with pytest.raises(harness.CheckFailed, match="wrong: output 0"):
            graph.check("wrong", [wrong], right, graph.TOLERANCE)
    with pytest.raises(harness.CheckFailed, match="0 outputs"):
        graph.check("none", [], right, graph.TOLERANCE)
