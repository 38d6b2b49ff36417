#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that layers point down: a folder includes headers of its own and of the folders below it only.

usage: layers.py [ROOT]

The rooms of server/ are such folders, and their functions count as well, not the includes alone.
Nor does a file name an opaque type of the headers whose folder it may not include. Within a folder no source files
call each other in a circle, nor do they include each other in one, where X.h and X.c count as one. Tests may do
all of it. Prints each line that points up and each circle, and ends with 1 if there is one."""
import graphlib
import os
import pathlib
import re
import sys

# Folders of the product in C, whose folders have a line each in BELOW.
TOPS = ("src", "hub", "server", "cli", "tools")

# Each folder, and the ones that it may include, beside weir/ and itself.
BELOW = {
    "base": [],
    "params": ["base"],
    "media": ["base", "params"],
    "gguf": ["base"],
    "grammar": ["base"],
    "backend": ["base", "params"],
    "fake": ["base", "grammar", "backend"],
    "kernels": ["base"],
    "hook": ["base", "kernels"],
    "llama": ["base", "gguf", "grammar", "backend", "kernels", "hook"],
    "model": ["base", "params", "media", "gguf", "backend", "fake"],
    "chat": ["base", "params", "grammar", "backend", "model"],
    "schedule": [],
    "cache": ["base", "params", "backend"],
    "speculate": ["base", "params", "backend", "model", "cache"],
    "engine": ["base", "params", "media", "backend", "grammar", "model", "chat", "schedule", "cache", "speculate"],
    "pool": ["base", "params", "model", "engine"],
    "hub/transfer": ["base"],
    "hub": ["base", "hub/transfer"],
    "cli/lib": ["base", "hub/transfer", "server", "server/settings", "server/system", "server/recording"],
    "cli": ["base", "hub/transfer", "server", "server/settings", "server/system", "server/recording", "cli/lib"],
    "tools/plain": ["base"],
    "tools": ["base", "params", "backend", "kernels", "hook", "model", "engine", "hub/transfer", "cli/lib", "cli", "tools/plain"],
}

# The rooms of server/ (ADR 0121), and the rooms that each may include, beside base and hub/transfer.
SETTINGS = ["server/system", "server/settings"]
LOW = [*SETTINGS, "server/access", "server/trace", "server/request"]
MODELS = [*LOW, "server/models"]
RECORDING = "server/recording"
API = [*MODELS, RECORDING, "server/api/common"]
DIALECTS = [f"server/api/{name}" for name in ("anthropic", "openai", "ollama", "native")]
ROOMS = {
    "server/system": [],
    "server/settings": [],
    "server/access": SETTINGS,
    "server/trace": SETTINGS,
    "server/request": LOW[:-1],
    "server/models": MODELS[:-1],
    RECORDING: ["server/system"],
    "server/api/common": [*MODELS, RECORDING],
    "server/routers": API,
    "server/api/anthropic": API,
    "server/api/openai": [*API, "server/api/anthropic"],
    "server/api/ollama": [*API, "server/api/openai"],
    "server/api/native": [*API, "server/api/openai"],
    "server/page": LOW,
    "server/operate": [*API, "server/routers", "server/api/openai"],
    "server/http": [*API, "server/routers", *DIALECTS, "server/page", "server/operate"],
    "server": [*API, "server/routers", "server/operate", "server/http"],
}
BELOW.update({room: ["base", "hub/transfer", *below] for room, below in ROOMS.items()})

# The opaque types of weir.h and more.h: the folder that defines each.
OWNER = {name: "model" for name in ("weir_model", "weir_adapter", "weir_sampler", "weir_context")}
OWNER["weir_chat"] = "chat"
OWNER["weir_media"] = "media"
OWNER.update({name: "engine" for name in ("weir_engine", "weir_stream", "weir_flight", "weir_snapshot")})
OWNER.update({name: "pool" for name in ("weir_pool", "weir_lease")})

# A schema has schemas within: what reads one kind of it calls what reads any.
RECURSIVE = {f"src/grammar/schema{name}.c" for name in ("", "_array", "_condition", "_merge", "_object", "_one_of", "_type", "_value")}

# Files that include each other in a circle: a header that others use, such as cache.h, and private headers of the files behind
# it. These include the former for its types, and its source includes these. A set may shrink; what else forms a circle is refused.
TOGETHER = [
    {"src/fake/fake", "src/fake/internal"},
    {f"src/cache/{name}" for name in "cache cache_entry".split()},
]

# A function that other files may call, in clang-format's layout.
FUNCTION = re.compile(r"^(?!static|typedef|extern)[A-Za-z_][\w *]*?\b([a-z]+_\w+)\([^;{}]*\)\s*\{", re.M)


def folder_of(path):
    """src/cache/cache.c: cache. cli/run.c: cli. server/api/common/ask.c: server/api/common."""
    return str(path.parent).removeprefix("src/")


def included_folder(include, folder):
    """cache/cache.h: cache. server/api/common/ask.h: server/api/common. ask.h: the folder itself."""
    if include.startswith("../"):
        return folder_of(pathlib.Path(os.path.normpath(f"{folder}/{include}")))
    return include.rpartition("/")[0] or folder


def code_of(path):
    """Without comments and texts."""
    return re.sub(r'/\*.*?\*/|//.*?$|"(\\.|[^"\\\n])*"', "", path.read_text(encoding="utf-8"), flags=re.S | re.M)


def first_circle(edges):
    """The nodes of a circle, the first one again at the end; empty if there is none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def includes_in(root, folder):
    """Each file of a folder, without its ending, and those of the same folder that it includes."""
    edges = {}
    for path in sorted(p for p in (root / folder).iterdir() if p.suffix in (".c", ".h", ".cpp")):
        if re.search(r"_test\.", path.name):
            continue
        name = str((folder / path.name).with_suffix(""))
        own = edges.setdefault(name, set())
        for include in re.findall(r'^#include "([^"]+)\.h"', path.read_text(encoding="utf-8"), re.M):
            other = pathlib.Path(include if include.split("/")[0] in TOPS else f"src/{include}") if "/" in include else folder / include
            if other.parent == folder and str(other) != name:
                own.add(str(other))
    for together in TOGETHER:
        for name in together & edges.keys():
            edges[name] -= together
    return edges


def calls_in(root, folder):
    """Source files of a folder, and those with functions that each of them names."""
    sources = [p for p in sorted((root / folder).iterdir()) if p.suffix in (".c", ".cpp") and "_test." not in p.name]
    code = {str(p.relative_to(root)): code_of(p) for p in sources}
    # Names of C++ that are not weir__ are a namespace's.
    owner = {name: path for path, text in code.items() for name in FUNCTION.findall(text) if path.endswith(".c") or name.startswith("weir__")}
    names = {path: owner.keys() & set(re.findall(r"\w+", text)) for path, text in code.items()}
    calls = {path: {owner[name] for name in names[path]} - {path} for path in code}
    for path in RECURSIVE & calls.keys():
        calls[path] -= RECURSIVE
    return calls


def calls_up(root):
    """Lines about the rooms of server/: a header below may not name what is defined above."""
    sources = [p for p in sorted((root / "server").rglob("*.c")) if not p.name.endswith("_test.c")]
    code = {p.relative_to(root): code_of(p) for p in sources}
    owner = {name: path for path, text in code.items() for name in FUNCTION.findall(text)}
    for path, text in code.items():
        for name in sorted(owner.keys() & set(re.findall(r"\w+", text))):
            room, other = folder_of(path), folder_of(owner[name])
            if other != room and other not in BELOW[room]:
                yield f"{path}: {room} must not name {name}, which is of {other}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    files = [p for top in TOPS for p in sorted((root / top).rglob("*")) if p.suffix in (".c", ".h", ".cpp")]
    wrong = []
    for path in (p.relative_to(root) for p in files):
        if re.search(r"_test\.", path.name):
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
            if included_folder(include, folder) not in (folder, "weir", *BELOW[folder]):
                wrong.append(f"{path}: {folder} must not include {include}")
    wrong += calls_up(root)
    folders = {p.parent.relative_to(root) for top in (*TOPS, "bench", "elixir") for p in (root / top).rglob("*.c")}
    for folder in sorted(folders):
        for how, edges in (("call", calls_in(root, folder)), ("include", includes_in(root, folder))):
            if circle := first_circle(edges):
                wrong.append(f"these files {how} each other: " + ", ".join(circle[:-1]))
    print("\n".join(wrong) or f"{len(files)} files, no include points up, no circle")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
