#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_case_table.inc: the code points whose lower or upper case is one other code point.

Runs of code points that lie 1 or 2 apart and move by the same distance are one line. What maps to several code points
(the German sharp s) stays as it is. The mapping is that of the Unicode version of the Python that runs this.

Usage: unicode_case_table.py > unicode_case_table.inc
"""

import sys
import unicodedata


def runs(change):
    found = []  # [first, last, stride, delta]
    for code in range(sys.maxunicode + 1):
        mapped = change(chr(code))
        if len(mapped) != 1 or ord(mapped) == code:
            continue
        delta = ord(mapped) - code
        if found:
            first, last, stride, before = run = found[-1]
            step = code - last
            if delta == before and step in (1, 2) and (first == last or step == stride):
                run[1:3] = code, step
                continue
        found.append([code, code, 1, delta])
    return found


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("//")
    print(f"// Written by unicode_case_table.py from Unicode {unicodedata.unidata_version}: do not edit. First and")
    print("// last code point, their distance, and what is added to each.")
    for macro, change in (("LMN_TO_LOWER", str.lower), ("LMN_TO_UPPER", str.upper)):
        print(f"#ifdef {macro}")
        for first, last, stride, delta in runs(change):
            print(f"{macro}({first:#x}, {last:#x}, {stride}, {delta})")
        print("#endif")


if __name__ == "__main__":
    main()
