# SPDX-License-Identifier: Apache-2.0
"""Reads the declarations of include/lmnative/*.h: enough C for headers that keep to the rules of DESIGN section 8.

Used by check_symbols.py, check_header.py and tests/abi/make_layout_test.py.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"


@dataclass
class Function:
    name: str
    returns: str
    parameters: list[tuple[str, str]]  # (type, name)
    comment: str  # the comment that ends right above it, or ""
    where: str


@dataclass
class Struct:
    name: str
    fields: list[tuple[str, str, str]]  # (type, name, "[4]" or "")
    where: str


def headers(include=INCLUDE):
    return sorted((include / "lmnative").glob("*.h"))


def _split(declarator):
    """'const char *path' -> ('const char *', 'path')"""
    match = re.match(r"^(.*?)(\w+)$", declarator.strip(), re.DOTALL)
    return " ".join(match.group(1).split()), match.group(2)


def functions(include=INCLUDE):
    found = []
    for header in headers(include):
        text = header.read_text(encoding="utf-8")
        for match in re.finditer(r"^LMN_API\s+([^;]*?)\b(lmn_\w+)\s*\(([^;]*)\)\s*;", text, re.MULTILINE):
            returns, name, inside = match.groups()
            before = text[: match.start()].rstrip(" ")
            comment = ""
            if before.endswith("*/\n"):
                comment = before[before.rindex("/*") :].strip()
            inside = " ".join(inside.split())
            parameters = [] if inside in ("", "void") else [_split(p) for p in inside.split(",")]
            line = text.count("\n", 0, match.start()) + 1
            found.append(Function(name, returns.strip(), parameters, comment, f"{header.name}:{line}"))
    return found


def structs(include=INCLUDE):
    """The structs that have fields, dlpack.h's left out: those are another project's."""
    found = []
    for header in headers(include):
        if header.name == "dlpack.h":
            continue
        text = header.read_text(encoding="utf-8")
        for match in re.finditer(r"^typedef struct (\w+) \{(.*?)^\} (\w+);", text, re.MULTILINE | re.DOTALL):
            body = re.sub(r"/\*.*?\*/", " ", match.group(2), flags=re.DOTALL)
            fields = []
            for declaration in filter(None, (d.strip() for d in body.split(";"))):
                plain = re.match(r"^(.*?)(\[\w+\])?$", declaration, re.DOTALL)
                kind, name = _split(plain.group(1))
                fields.append((kind, name, plain.group(2) or ""))
            line = text.count("\n", 0, match.start()) + 1
            found.append(Struct(match.group(3), fields, f"{header.name}:{line}"))
    return found


def opaque_types(include=INCLUDE):
    """Handles: declared and never defined."""
    text = "".join(h.read_text(encoding="utf-8") for h in headers(include))
    return sorted(set(re.findall(r"^typedef struct (\w+) \1;", text, re.MULTILINE)))
