#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the C programs that stand in the documentation into a folder, so that the build compiles and runs them.

usage: doc_examples.py FOLDER PAGE.md ...

A program is a fenced block whose first line is ```c NAME. Prints the path of each file. A file whose text has not changed
keeps its time, so that nothing is built again for it."""
import pathlib
import re
import sys


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = set()
    for page in sys.argv[2:]:
        text = pathlib.Path(page).read_text(encoding="utf-8")
        for name, source in re.findall(r"^```c (\w+)\n(.*?)^```$", text, re.S | re.M):
            if name in names:
                sys.exit(f"{page}: two examples are called {name}")
            names.add(name)
            path = folder / f"{name}.c"
            if not path.exists() or path.read_text(encoding="utf-8") != source:
                path.write_text(source, encoding="utf-8")
            print(path)
    if not names:
        sys.exit("no example found")


if __name__ == "__main__":
    main()
