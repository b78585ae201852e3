# SPDX-License-Identifier: Apache-2.0
"""The installed package: files, versions, a light import, and that C programs can be built against it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import lmnative
import pytest

PACKAGE = Path(lmnative.__file__).parent
ROOT = Path(__file__).resolve().parent.parent.parent

CLIENT = """\
#include <lmnative/lmnative.h>
#include <stdio.h>
int main(void) {
  printf("%s %u\\n", lmn_version(), (unsigned)lmn_abi_version());
  return 0;
}
"""


def best_ms(code: str, runs: int = 7) -> float:
    """The shortest of several runs of a new interpreter: whatever else the machine does only adds to it."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def modules_loaded_by(statement: str) -> set[str]:
    """Beyond those that the interpreter has loaded when a program begins."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_brings_nothing_heavy(note):
    loaded = modules_loaded_by("import lmnative")
    ours = {name for name in loaded if name.split(".")[0] == "lmnative"}
    assert ours >= {"lmnative", "lmnative._lmnative", "lmnative.session"}
    assert not ours & {"lmnative.chat_template", "lmnative.onnx_backend", "lmnative.session_values", "lmnative.stream"}
    assert loaded - ours <= modules_loaded_by("import __future__, collections.abc, operator, os, time")
    note(f"import lmnative adds {best_ms('import lmnative') - best_ms('pass'):.1f} ms to the start of an interpreter")


def test_versions_agree():
    version = (ROOT / "VERSION").read_text().strip()
    info = lmnative.build_info()
    assert lmnative.__version__ == version == info["version"] == importlib.metadata.version("lmnative")
    header = (Path(lmnative.get_include()) / "lmnative" / "version.h").read_text()
    assert f"#define LMN_ABI_VERSION {info['abi_version']}\n" in header


def test_tests_run_against_the_installed_package():
    assert ROOT / "python" not in PACKAGE.parents


def test_files():
    assert Path(lmnative.get_library()).is_file()
    headers = {path.name for path in (Path(lmnative.get_include()) / "lmnative").iterdir()}
    assert headers == {path.name for path in (ROOT / "include" / "lmnative").iterdir()}
    assert (Path(lmnative.get_cmake_dir()) / "lmnative-config.cmake").is_file()
    assert (PACKAGE / "lib" / "pkgconfig" / "lmnative.pc").is_file()
    assert (PACKAGE / "py.typed").is_file()
    assert list(PACKAGE.glob("_lmnative.*.so"))


def test_the_package_is_small(note):
    size = sum(path.stat().st_size for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    note(f"the installed package has {size / 1e6:.1f} MB")
    cuda = 5e6 if "cuda" in lmnative.build_info()["backends"] else 0  # the runtime 1 MB, each architecture 0.7 MB
    assert size < 13e6 + cuda  # kernels 7 MB, the server 1 MB


def test_the_library_needs_libc_only():
    if shutil.which("readelf") is None:
        pytest.skip("no readelf (Debian: binutils)")
    out = subprocess.run(["readelf", "-d", lmnative.get_library()], capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in out.splitlines() if "(NEEDED)" in line]
    allowed = ("libc.so", "libm.so", "libpthread.so", "ld-linux", "libgcc_s.so", "libdl.so", "librt.so")
    assert all(name.startswith(allowed) for name in needed), needed


def test_ctypes_loads_the_same_library():
    library = ctypes.CDLL(lmnative.get_library())
    library.lmn_version.restype = ctypes.c_char_p
    assert library.lmn_version().decode() == lmnative.__version__


@pytest.fixture
def client(tmp_path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "client.c").write_text(CLIENT)
    return tmp_path


def output_of(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def expected() -> str:
    return f"{lmnative.__version__} {lmnative.build_info()['abi_version']}\n"


def test_a_c_program_with_get_include_and_get_library(client):
    library = Path(lmnative.get_library())
    flags = [f"-I{lmnative.get_include()}", str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run(["cc", "client.c", "-o", "client", *flags], cwd=client, check=True)
    assert output_of(client / "client") == expected()


def test_a_c_program_with_pkg_config(client):
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PACKAGE / "lib" / "pkgconfig")}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "lmnative"], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    subprocess.run(["cc", "client.c", "-o", "client", *flags, f"-Wl,-rpath,{PACKAGE / 'lib'}"], cwd=client, check=True)
    assert output_of(client / "client") == expected()


def test_a_c_program_with_cmake(client):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    (client / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(client C)\nfind_package(lmnative REQUIRED)\n"
        "add_executable(client client.c)\ntarget_link_libraries(client PRIVATE lmnative::lmnative)\n"
    )
    configure = ["cmake", "-S", ".", "-B", "build", f"-Dlmnative_DIR={lmnative.get_cmake_dir()}"]
    for command in (configure, ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=client, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert output_of(client / "build" / "client") == expected()


def test_everything_public_is_documented():
    for name in lmnative.__all__:
        item = getattr(lmnative, name)
        assert item.__doc__, name
        for attribute, member in vars(item).items() if isinstance(item, type) else ():
            shown = attribute == "__init__" or not attribute.startswith("_")
            if callable(member) and shown and item.__module__.startswith("lmnative"):
                assert member.__doc__, f"{name}.{attribute}"


def test_every_keyword_is_documented():
    from lmnative import sampling

    names = sampling.request_options.__kwdefaults__
    assert names.keys() >= {"max_tokens", "temperature", "logit_bias"}
    for name in names:
        assert f"{name}:" in lmnative.LLM.generate.__doc__ or f"{name}, " in lmnative.LLM.generate.__doc__, name
    for name in lmnative.Engine.__init__.__kwdefaults__:
        assert name in lmnative.Engine.__doc__
    assert "Every keyword of Engine" in lmnative.LLM.__doc__
