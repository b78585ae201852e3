# SPDX-License-Identifier: Apache-2.0
"""llama-server: the HTTP server of llama.cpp, out of the wheel xllamacpp, which holds it as native code (for AVX2).
Python starts it and then sleeps. Run as a program, `llama_server.py MODEL THREADS PORT SLOTS`, this is the server."""

from __future__ import annotations

import subprocess
import sys
import time

NAME = "llama-server"
INSTALL = "pip install xllamacpp"
SUITES = ("server",)
LABELS = None
SLOT_TOKENS = 1024  # context of each of the requests that run at once


def version() -> str:
    import xllamacpp

    return xllamacpp.__version__


def start(model: str, threads: int, port: int, slots: int) -> subprocess.Popen:
    """The server as a process; it answers once its model is loaded."""
    command = [sys.executable, __file__, model, str(threads), str(port), str(slots)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def serve(model: str, threads: int, port: int, slots: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_parallel = slots
    params.n_ctx = slots * SLOT_TOKENS
    params.cont_batching = True
    params.ui = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:5]))
