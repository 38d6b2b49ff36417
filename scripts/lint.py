#!/usr/bin/env python3
"""lint.py CACHE BUILD FILE: clang-tidy on a source file, by the commands in BUILD/compile_commands.json; its status and findings.
CACHE holds an empty file for each text that was clean: the same text, read under the same rules by the same program, is clean
again. The text is the preprocessed one with its comments (NOLINT) and all macros, so that no header changes unseen.
SPDX-License-Identifier: Apache-2.0"""
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys


def text_digest(build, name):
    """Of all that decides what clang-tidy finds; None where the file cannot be preprocessed."""
    path = os.path.realpath(name)
    entries = json.loads((build / "compile_commands.json").read_text())
    digest = hashlib.sha256(pathlib.Path(".clang-tidy").read_bytes())
    digest.update(subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout)
    for entry in entries:
        if os.path.realpath(os.path.join(entry["directory"], entry["file"])) != path:
            continue
        words = shlex.split(entry["command"])
        del words[words.index("-o") : words.index("-o") + 2]
        digest.update("\n".join(words).encode())
        command = ["clang++" if path.endswith(".cpp") else "clang", *words[1:], "-E", "-CC", "-dD", "-w"]
        done = subprocess.run(command, cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            return None
        digest.update(done.stdout)
    return digest.hexdigest()


cache, build, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
key = text_digest(build, name)
if key is None or not (cache / key).exists():
    done = subprocess.run(["clang-tidy", "-p", str(build), "--quiet", name], stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(1)
    if key is not None:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / key).touch()
