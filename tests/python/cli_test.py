# SPDX-License-Identifier: Apache-2.0
"""The command lmnative as a Unix tool: output, exit codes, errors, pipes, signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import lmnative
import pytest

COMMAND = [sys.executable, "-m", "lmnative"]
STATS = re.compile(
    r"^load \d+ ms · prompt \d+ tokens, prefill [\d.]+ tok/s · generated (\d+) tokens, decode [\d.]+ tok/s · "
    r"peak RSS \d+ MiB$"
)


def call(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=120,
    )


def failed(done: subprocess.CompletedProcess, code: int, message: str) -> None:
    """Checks for one line on standard error, nothing on standard output, and the exit code."""
    assert done.returncode == code
    assert done.stdout == ""
    assert re.fullmatch(r"lmnative: error: [^\n]+\n", done.stderr), done.stderr
    assert message in done.stderr


def test_run_answers(model_path, llm):
    done = call("run", model_path, "What is the capital of France?", "-n", "24", "-t", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == llm.chat("What is the capital of France?", max_tokens=24).text


def test_run_ends_with_one_line_of_figures(model_path):
    done = call("run", model_path, "Hi", "-n", "5", "--ignore-eos", "--stats")
    assert done.returncode == 0
    assert STATS.match(done.stderr.rstrip("\n"))[1] == "5"


def test_run_raw_and_from_standard_input(model_path, llm):
    done = call("run", model_path, "-", "--raw", "-n", "6", text="The capital of France is")
    assert done.stdout == llm.generate("The capital of France is", max_tokens=6).text + "\n"


def test_run_with_a_system_message(model_path, llm):
    done = call("run", model_path, "Hi", "--system", "You are a pirate.", "-n", "8")
    messages = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hi"}]
    assert done.stdout == llm.chat(messages, max_tokens=8).text.rstrip("\n") + "\n"


def test_run_takes_sampling_options(model_path, llm):
    options = {"temperature": 1.2, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "seed": 9, "repetition_penalty": 1.1}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = call("run", model_path, "Tell me a story.", "-n", "12", "--stop", "never", *words)
    assert done.stdout == llm.chat("Tell me a story.", max_tokens=12, **options).text.rstrip("\n") + "\n"


def test_run_streams(model_path):
    with subprocess.Popen(
        [*COMMAND, "run", model_path, "Once", "--raw", "-n", "120", "--ignore-eos"], stdout=subprocess.PIPE
    ) as process:
        first = os.read(process.stdout.fileno(), 65536)
        assert process.poll() is None, "the first piece comes before the last"
        rest = process.stdout.read()
    assert process.returncode == 0
    assert first and rest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "MODEL, PROMPT"),
        (["run", "m", "p", "--frobnicate"], "--frobnicate"),
        (["run", "m", "p", "-n", "many"], "many"),
        (["frobnicate"], "frobnicate"),
        ([], "which command"),
        (["inspect"], "FILE"),
        (["run", "m", "p", "--read-mode", "x"], "read-mode"),
        (["run", "m", "p", "--kv-type", "q4"], "kv-type"),
        (["trace", "m", "p"], "--chrome"),
        (["run", "m", "x", "--raw", "--system", "y"], "--raw"),
        (["run", "null:", "x", "--system", "y"], "--system"),
        (["run", "null:", "x", "--temperature", "-1"], "--temperature is -1"),
        (["run", "null:", "x", "--temperature", "nan"], "--temperature"),
        (["run", "null:", "x", "--top-p", "2"], "--top-p is 2"),
        (["run", "null:", "x", "--penalty-last-n", "0"], "--penalty-last-n"),
        (["run", "null:", "x", "--deadline", "0"], "--deadline"),
        (["run", "null:", "x", "-n", "0"], "--max-tokens is 0"),
        (["run", "null:", "x", "-t", "0"], "--threads is 0"),
        (["run", "null:", "x", "--device", "gpu"], '--device is "gpu"'),
        (["run", "null:", "x", "--device", ""], '--device is ""'),
        (["bench", "null:", "--runs", "0"], "--runs"),
        (["bench", "null:", "--concurrency", "0"], "--concurrency"),
    ],
)
def test_usage_errors(arguments, message):
    failed(call(*arguments), 2, message)


def test_a_usage_error_of_every_turn_ends_a_chat(model_path):
    failed(call("chat", model_path, "--top-p", "2", text="Hi\nHi\n"), 2, "--top-p is 2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "absent.gguf", "x"], "absent.gguf"),
        (["chat", "absent.gguf"], "absent.gguf"),
        (["inspect", "/"], "directory"),
        (["inspect", os.devnull], os.devnull),
        (["bench", "absent.gguf"], "absent.gguf"),
        (["run", "MODEL", "", "--raw"], "prompt"),
        (["run", "MODEL", "word " * 100, "-c", "64"], "64"),
        (["trace", "--chrome", "/absent/trace.json", "null:", "x"], "/absent/trace.json"),
    ],
)
def test_runtime_errors(model_path, arguments, message):
    failed(call(*[model_path if word == "MODEL" else word for word in arguments]), 1, message)


def test_help_has_examples():
    done = call("--help")
    assert done.returncode == 0 and "examples:" in done.stdout and done.stderr == ""
    for command in ("run", "chat", "inspect", "bench", "trace"):
        done = call(command, "--help")
        assert done.returncode == 0
        assert f"  lmnative {command} " in done.stdout


def test_version():
    assert call("--version").stdout == f"lmnative {lmnative.__version__}\n"
    info = json.loads(call("version", "--json").stdout)
    assert info["version"] == lmnative.__version__
    assert info["cpu_target"] in info["cpu_targets"]
    assert "cpu" in info["backends"]
    table = call("version").stdout
    for value in (lmnative.__version__, info["cpu_target"], info["compiler"]):
        assert str(value) in table


def test_version_with_an_unknown_cpu_target():
    failed(call("version", LMN_CPU_TARGET="abacus"), 1, "abacus")


def test_inspect(model_path):
    table = call("inspect", model_path).stdout
    for text in ("llama", "q4_1", "q8_0", "210 tensors", "llama.context_length", "8192", "49,152 in all"):
        assert text in table
    assert "token_embd.weight" not in table
    assert re.search(
        r"token_embd\.weight +q8_0 +49152 × 576 +30,081,024 bytes", call("inspect", model_path, "--tensors").stdout
    )


def test_inspect_graph():
    model = str(Path(__file__).resolve().parent.parent / "onnx" / "relu_linear.onnx")
    plain = call("inspect", "--graph", model).stdout
    assert "input A : f32[rows, 4]" in plain and "MatMul(A, B)" in plain and "output C" in plain
    optimised = call("inspect", "--graph", model, "--optimised").stdout
    assert "output C" in optimised and len(optimised.splitlines()) < len(plain.splitlines())
    assert optimised == call("inspect", "--optimized", model, "--graph").stdout
    for wrong in (["--graph", "--json"], ["--optimised"]):
        failed(call("inspect", model, *wrong), 2, "--graph goes with")
    failed(call("inspect", "--graph", "smollm2-135m"), 1, "described by: lmnative inspect smollm2-135m")
    failed(call("inspect", "--graph", "absent.onnx"), 1, "absent.onnx: no such file: check the path")


def test_inspect_json(model_path):
    data = json.loads(call("inspect", model_path, "--json").stdout)
    assert (data["architecture"], data["tensor_count"]) == ("llama", 272)
    assert data["tensors"][0] == lmnative.Model(model_path).tensors[0].as_dict() | {"shape": [49152, 576]}
    assert data["metadata"]["llama.block_count"] == 30
    assert data["metadata"]["tokenizer.ggml.tokens"]["count"] == 49152
    full = json.loads(call("inspect", model_path, "--json", "--full").stdout)
    assert len(full["metadata"]["tokenizer.ggml.tokens"]) == 49152


def test_inspect_does_not_let_a_file_steer_the_terminal(tmp_path):
    def text(value: bytes) -> bytes:
        return len(value).to_bytes(8, "little") + value

    string = (8).to_bytes(4, "little")
    pairs = [(b"general.architecture", b"llama"), (b"general.name", b"\x1b[2Jwiped\n\x07")]
    path = tmp_path / "escape.gguf"
    path.write_bytes(
        b"GGUF"
        + (3).to_bytes(4, "little")
        + (0).to_bytes(8, "little")
        + len(pairs).to_bytes(8, "little")
        + b"".join(text(key) + string + text(value) for key, value in pairs)
    )
    done = call("inspect", str(path))
    if done.returncode == 0:
        assert "\x1b" not in done.stdout and "\x07" not in done.stdout
        assert "wiped" in done.stdout
    else:
        assert "\x1b" not in done.stderr


def test_bench(model_path):
    options = ["--prompt-tokens", "24", "--generate-tokens", "4", "--runs", "2", "-t", "2"]
    report = json.loads(call("bench", model_path, "--json", *options).stdout)
    assert (report["runs"], report["threads"], report["prompt_tokens"]) == (2, 2, 24)
    for name in ("load_ms", "prefill_tokens_per_second", "decode_tokens_per_second"):
        assert 0 < report[name]["min"] <= report[name]["median"] <= report[name]["max"]
    table = call("bench", model_path, *options).stdout
    assert "prefill 24, tok/s" in table and "decode 4, tok/s" in table


def test_bench_of_several_answers():
    options = ["--prompt-tokens", "40", "--generate-tokens", "10", "--runs", "2", "--concurrency", "6"]
    report = json.loads(call("bench", "null:step_ns=1000000", "--json", *options).stdout)
    assert report["concurrency"] == 6
    # A step takes a millisecond at least, and gives each of the six a token.
    one, all_ = (report[f"{name}_tokens_per_second"]["median"] for name in ("decode", "total"))
    assert one < all_ < 6000 and one < 1000
    assert "6 answers, tok/s" in call("bench", "null:", *options).stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt-tokens", "5000"], ["--prompt-tokens", "5064", "4096"]),
        (["--prompt-tokens", "40", "-c", "32"], ["--prompt-tokens", "104", "--context-tokens is 32"]),
        (["--concurrency", "2000"], ["--concurrency is 2000"]),
    ],
)
def test_bench_names_the_options_that_were_given(options, words):
    done = call("bench", "null:", "--runs", "1", *options)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


def test_bench_profile(model_path):
    options = ["--profile", "--prompt-tokens", "40", "--generate-tokens", "6", "--runs", "2", "-t", "2"]
    report = json.loads(call("bench", model_path, "--json", *options).stdout)
    assert (report["decode"]["steps"], report["prefill"]["steps"]) == (10, 2), "the first run warms up"
    assert report["read_gb_s"] > 0.1
    for kind in ("decode", "prefill"):
        rows, total = report[kind]["rows"], report[kind]["total"]
        names = [row["name"] for row in rows]
        assert {"linear ffn_down", "linear output", "paged_attention", "team start", "engine sample"} <= set(names)
        assert len(set(names)) == len(names)
        assert [row["us"] for row in rows] == sorted((row["us"] for row in rows), reverse=True)
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        for field in ("us", "wait_us", "bytes", "operations"):
            assert sum(row[field] for row in rows) == pytest.approx(total[field], rel=1e-3)
        output = rows[names.index("linear output")]
        assert output["operations"] == 2 * 576 * 49152
        assert output["gb_s"] == pytest.approx(output["bytes"] / output["us"] / 1e3)
        assert output["of_read_limit"] == pytest.approx(output["gb_s"] / report["read_gb_s"])
    table = call("bench", model_path, *options).stdout
    for text in ("decode: ", "prefill: ", "linear attn_q+k+v", "GB/s", "GOP/s", "memory gives"):
        assert text in table
    report = json.loads(call("bench", "null:step_ns=50000", "--profile", "--json", "--runs", "1").stdout)
    run = next(row for row in report["decode"]["rows"] if row["name"] == "engine run")
    assert run["us"] >= 50


def test_the_null_model():
    assert call("run", "null:", "hi", "-n", "7").stdout == "a" * 7 + "\n"
    assert "null.vocab_size" in call("inspect", "null:vocab=300").stdout
    failed(call("run", "null:vocab=10", "hi"), 1, "null:vocab=10,context=4096,step_ns=0,token_ns=0 has no tokenizer")


def test_a_closed_pipe_ends_it_silently(model_path):
    with subprocess.Popen(
        [*COMMAND, "run", model_path, "Once", "--raw", "-n", "3000", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_ctrl_c_ends_a_run(model_path):
    with subprocess.Popen(
        [*COMMAND, "run", model_path, "Once", "--raw", "-n", "3000", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_a_terminal_without_utf8_gets_question_marks(model_path):
    done = call(
        "run", model_path, "-", "--raw", "-n", "8", "--ignore-eos", text="日本語の文章: ", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_the_console_script_is_the_same(model_path):
    script = Path(sys.executable).parent / "lmnative"
    if not script.exists():
        pytest.skip("the package was not installed with its console script")
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.stdout == f"lmnative {lmnative.__version__}\n"


def test_chat_through_a_pipe(model_path, llm):
    done = call("chat", model_path, "-n", "16", text="My name is Ada.\n\nWhat is my name?\n")
    assert (done.returncode, done.stderr) == (0, "")
    history = [{"role": "user", "content": "My name is Ada."}]
    history.append({"role": "assistant", "content": llm.chat(history, max_tokens=16).text})
    history.append({"role": "user", "content": "What is my name?"})
    assert done.stdout == history[1]["content"] + "\n" + llm.chat(history, max_tokens=16).text + "\n"


def test_chat_commands(model_path, llm):
    first = llm.chat("Hi", max_tokens=8).text
    done = call("chat", model_path, "-n", "8", text="Hi\n/reset\nHi\n/frobnicate\n/help\n/exit\nnever read\n")
    assert done.stdout == f"{first}\n{first}\n"
    assert "unknown command /frobnicate" in done.stderr
    assert "/system TEXT" in done.stderr
    done = call("chat", model_path, "-n", "8", text="/system You are a pirate.\nHi\n")
    messages = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hi"}]
    assert done.stdout == llm.chat(messages, max_tokens=8).text + "\n"


def test_chat_lines_can_go_on(model_path, llm):
    done = call("chat", model_path, "-n", "8", text="Two\\\nlines")
    assert done.stdout == llm.chat("Two\nlines", max_tokens=8).text + "\n"


def test_chat_past_the_context_fails_that_turn_only(model_path):
    done = call("chat", model_path, "-c", "64", "-n", "4", text="word " * 100 + "\nHi\n")
    assert done.returncode == 1
    assert re.fullmatch(r"lmnative: error: [^\n]*64[^\n]*\n", done.stderr)
    assert done.stdout.strip()


def test_commands_do_not_import_what_they_do_not_need(model_path):
    code = "import sys; from lmnative.cli import main; main(['version']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for module in ("numpy", "jinja2", "tqdm", "asyncio", "readline"):
        assert f"'{module}'" not in done.stderr


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell")
def test_two_commands_in_a_pipe(model_path):
    command = " ".join(COMMAND)
    done = subprocess.run(
        ["sh", "-c", f'{command} run "$1" Once --raw -n 12 | {command} run "$1" - --raw -n 4', "sh", model_path],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_standard_streams(closed):
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m lmnative version {closed}'], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
