"""The program `weir` of this package."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "weir"
    if not program.exists():
        sys.exit("weir: this build of the package has no program weir")
    os.execv(program, ["weir", *sys.argv[1:]])


if __name__ == "__main__":
    main()
