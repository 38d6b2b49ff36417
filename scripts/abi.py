#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs that were compiled against the headers rely on: sizes, offsets and values, compared with a kept list.

usage: abi.py [--write]

Without --write: prints the differences from tests/abi.txt; 1 if there are any. A difference needs another version in weir.h, and then
--write. While CHANGELOG.md calls the version unreleased, nobody was promised anything, and --write alone will do."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = [ROOT / "include" / "weir" / name for name in ("weir.h", "more.h", "hub.h")]
KEPT = ROOT / "tests" / "abi.txt"


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def members(body):
    """Names of a struct's members, in order."""
    for declaration in (part.strip() for part in body.split(";")):
        if not declaration:
            continue
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        if pointer:
            yield pointer.group(1)
            continue
        for part in declaration.split(","):
            yield re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", part).group(1)


def read(header):
    """Structs with their members, and constants."""
    text = without_comments(header)
    structs = {name: list(members(body)) for name, body, again in
               re.findall(r"typedef struct (\w+)\s*\{(.*?)\n\}\s*(\w+)\s*;", text, re.S) if name == again}
    constants = []
    for name, body in re.findall(r"typedef enum (\w+)\s*\{(.*?)\n\}", text, re.S):
        if name != "weir_status":
            constants += re.findall(r"\b(WEIR_\w+)\b\s*(?:=|,|$)", body)
    status = re.search(r"#define WEIR_STATUS_MAP\(X\)(.*?)\n\n", text, re.S).group(1)
    constants += ["WEIR_" + name for name in re.findall(r"X\((\w+),", status)]
    return structs, constants


def measure(structs, constants):
    lines = ['#include <stdio.h>', '#include <weir/hub.h>', '#include <weir/more.h>', "int main(void) {"]
    for struct, names in structs.items():
        lines.append(f'    printf("{struct} %zu\\n", sizeof({struct}));')
        for name in names:
            lines.append(f'    printf("{struct}.{name} %zu %zu\\n", offsetof({struct}, {name}), sizeof((({struct} *)0)->{name}));')
    for name in constants:
        lines.append(f'    printf("{name} %d\\n", (int){name});')
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "abi.c")
        source.write_text("\n".join(lines + ["}", ""]))
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", f"-I{ROOT / 'include'}", source, "-o", source.with_suffix("")], check=True)
        return subprocess.run([source.with_suffix("")], capture_output=True, text=True, check=True).stdout.splitlines()


def unreleased(version):
    return re.search(rf"^## {re.escape(version)} \(unreleased\)$", (ROOT / "CHANGELOG.md").read_text(), re.M) is not None


def main():
    if sys.maxsize < 2**32:
        print("the kept list is one for 64 bits")
        return 0
    header = "\n".join(path.read_text() for path in HEADERS)
    version = re.search(r'#define WEIR_VERSION\s+"([^"]+)"', header).group(1)
    now = [f"version {version}"] + measure(*read(header))
    kept = KEPT.read_text().splitlines() if KEPT.exists() else ["version none"]
    changed = [line for line in kept[1:] if line not in set(now)]
    added = [line for line in now[1:] if line not in set(kept)]
    same_version = kept[0] == now[0]
    if "--write" in sys.argv[1:]:
        if same_version and (changed or added) and not unreleased(version):
            print(f"a header differs from what {version} promised; give it another version first (weir.h, CMakeLists.txt, CHANGELOG.md)")
            return 1
        KEPT.write_text("\n".join(now) + "\n")
        return 0
    if now == kept:
        return 0
    for line in changed:
        print("gone or changed: " + line)
    for line in added:
        print("new or changed:  " + line)
    if same_version and not unreleased(version):
        print(f"this is not {version} any more: give it another version (weir.h, CMakeLists.txt, CHANGELOG.md), then scripts/abi.py --write")
    else:
        print("what was compiled against the headers before has to be compiled again; if that is meant: scripts/abi.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
