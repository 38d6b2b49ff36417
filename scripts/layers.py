#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that layers point down: a folder includes headers of its own and of the folders below it only.

usage: layers.py [ROOT]

Nor does a file name an opaque type of weir.h whose folder it may not include. Tests may do both. Prints each
line that points up, and ends with 1 if there is one."""
import pathlib
import re
import sys

# Each folder, and the ones that it may include, beside weir/ and itself.
BELOW = {
    "base": [],
    "params": ["base"],
    "media": ["base", "params"],
    "gguf": ["base"],
    "grammar": ["base"],
    "backend": ["base", "params", "gguf", "grammar"],
    "model": ["base", "params", "gguf", "grammar", "backend"],
    "transfer": ["base"],
    "hub": ["base", "transfer"],
    "schedule": [],
    "cache": ["base", "params", "backend"],
    "speculate": ["base", "params", "backend", "model", "cache"],
    "engine": ["base", "params", "backend", "grammar", "model", "schedule", "cache", "speculate"],
    "server": ["base"],
    "cli": ["base", "transfer", "server"],
}

# The opaque types of weir.h: the folder that defines each.
OWNER = {name: "model" for name in ("weir_model", "weir_adapter", "weir_sampler", "weir_context", "weir_chat")}
OWNER["weir_media"] = "media"
OWNER.update({name: "engine" for name in ("weir_engine", "weir_stream", "weir_flight")})


def folder_of(path):
    """src/cache/cache.c: cache. cli/run.c: cli."""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    files = [p for top in ("src", "cli", "server") for p in sorted((root / top).rglob("*")) if p.suffix in (".c", ".h", ".cpp")]
    wrong = []
    for path in (p.relative_to(root) for p in files):
        if re.search(r"_test\.|testing\.", path.name):
            continue
        folder = folder_of(path)
        if folder not in BELOW:
            wrong.append(f"{path}: the folder {folder} has no line in scripts/layers.py")
            continue
        text = (root / path).read_text(encoding="utf-8")
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for name, owner in OWNER.items() if path.parts[0] == "src" else ():
            if owner not in (folder, *BELOW[folder]) and re.search(rf"\b{name}\b", code):
                wrong.append(f"{path}: {folder} must not name {name}, which is of {owner}")
        for include in re.findall(r'^#include "([^"]+)"', text, re.M):
            parts = [part for part in include.split("/") if part != ".."]
            if len(parts) > 1 and parts[0] != folder and parts[0] != "weir" and parts[0] not in BELOW[folder]:
                wrong.append(f"{path}: {folder} must not include {include}")
    print("\n".join(wrong) or f"{len(files)} files, no include points up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
