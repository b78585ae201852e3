# SPDX-License-Identifier: Apache-2.0
"""lmnative::Server: a C++ program that serves, with callbacks of its own, built against the installed package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import lmnative
import pytest
from serving import ask

PROGRAM = r"""
#include <lmnative/lmnative.hpp>

#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>

std::string chat(const lmn_model*, std::string_view request) {
  if (request.find("refuse") != std::string_view::npos)
    throw lmnative::Error(LMN_INVALID_ARGUMENT, "the template refuses");
  if (request.find("break") != std::string_view::npos) throw std::runtime_error("the template broke");
  return "abc";
}

int main() {
  lmnative::Server server({.max_body_bytes = 1000, .api_keys = {"key"}, .chat = chat});
  server.add(lmnative::Engine(lmnative::Model("null:vocab=300")), "null");
  lmnative::Graph graph;
  const auto ids = graph.input("input_ids", "i64", {"batch", "tokens"});
  graph.input("attention_mask", "i64", {"batch", "tokens"});
  lmnative::Tensor table(kDLFloat, 32, {300, 2});
  for (size_t i = 0; i < 600; ++i) table.values<float>()[i] = i % 2 == 0 ? static_cast<float>(i / 2) : 1.0f;
  graph.output("y", graph.op("Gather", {graph.constant(lmnative::SessionValue(std::move(table))), ids}));
  server.add(graph.session({.threads = 1}), "lengths",
             {.tokenize = [](std::string_view text) { return std::vector<int32_t>{static_cast<int32_t>(text.size())}; },
              .normalize = false});
  lmnative::Server moved(std::move(server));
  server = std::move(moved);
  std::printf("%u\n", server.info().port);
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  server.remove("lengths");
  std::printf("%d %u\n", server.stop(std::chrono::seconds(10)) ? 1 : 0, server.info().models);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("cpp")
    (folder / "program.cc").write_text(PROGRAM)
    library = Path(lmnative.get_library())
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{lmnative.get_include()}"]
    link = [str(library), f"-Wl,-rpath,{library.parent}"]
    done = subprocess.run(
        ["c++", *flags, "program.cc", "-o", "program", *link], cwd=folder, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return folder / "program"


def test_a_program_that_serves(program):
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        server = SimpleNamespace(port=int(process.stdout.readline()))
        key = {"Authorization": "Bearer key"}
        assert ask(server, "GET", "/v1/models").status == 401

        def chat(text: str):
            tool = {"type": "function", "function": {"name": "f"}}  # not for the library's renderers
            messages = [{"role": "user", "content": text}]
            body = {"model": "null", "messages": messages, "tools": [tool], "max_tokens": 2, "temperature": 0}
            return ask(server, "POST", "/v1/chat/completions", body, **key)

        answer = chat("Hi").json()
        assert (answer["usage"]["prompt_tokens"], answer["choices"][0]["message"]["content"]) == (3, "aa")
        answer = chat("refuse")
        assert answer.status == 400 and "the template refuses" in answer.error()["message"]
        answer = chat("break")
        assert answer.status == 500 and "the template broke" in answer.error()["message"]
        answer = ask(server, "POST", "/v1/embeddings", {"model": "lengths", "input": ["four", "seven.."]}, **key).json()
        assert [item["embedding"] for item in answer["data"]] == [[4, 1], [7, 1]]
        assert ask(server, "POST", "/tokenize", b"x" * 1001, **key).status == 413
        rest, _ = process.communicate("\n", timeout=20)
    assert (process.returncode, rest) == (0, "1 1\n")
