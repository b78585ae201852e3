# SPDX-License-Identifier: Apache-2.0
"""lmnative version: what this is and what it runs on."""

from __future__ import annotations

import argparse
import json
import platform
import sys

from lmnative import _lmnative


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    info = {**_lmnative.build_info(), "python": platform.python_version()}
    if options.json:
        for name in ("backends", "cpu_targets"):
            info[name] = info[name].split(",")
        json.dump(info, sys.stdout, indent=1)
        print()
        return 0
    print(f"lmnative {info['version']} (ABI {info['abi_version']})")
    print(f"backends     {info['backends']}")
    print(f"CPU target   {info['cpu_target']} of {info['cpu_targets']}")
    print(f"CPU threads  {info['cpu_threads']}")
    print(f"built by     {info['compiler']}, {info['build_type']}")
    print(f"Python       {info['python']}")
    return 0


def print_short(options: argparse.Namespace) -> int:
    """lmnative --version."""
    print(f"lmnative {_lmnative.version()}")
    return 0
