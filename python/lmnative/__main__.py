# SPDX-License-Identifier: Apache-2.0
"""python -m lmnative: the same as the command lmnative."""

import sys

from lmnative.cli import main

if __name__ == "__main__":
    sys.exit(main())
