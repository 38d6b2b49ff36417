#!/usr/bin/env python3
"""lint.py CACHE BUILD [FILE...]: clang-tidy on the product's C and C++, or on those of the FILEs that are among it, by the commands in
BUILD/compile_commands.json. Prints its findings, and once more at the end in one line each; fails if there are any.
CACHE has an empty file for each text that was clean: the same text, read under the same rules by the same program, is clean again. The
text is the preprocessed one with all macros, so that no header changes unseen. Comments that no check reads, empty lines, line numbers
and the project's own folder are left out of it: a comment in weir.h is no reason to read all files again, nor is another clone.
SPDX-License-Identifier: Apache-2.0"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


# The most states that the analyzer visits in a function: a quarter of its default. It visits code that it has not seen first: of 2,465
# blocks in 40 files it leaves out 33, against 32 with twice as many states and time, and 38 with half as many.
DEPTH = ["--extra-arg=" + word for word in ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=50000")]


def product(name):
    return re.match(r"(src|hub|cli|server|tools|python)/.*(?<!_test)\.(c|cpp)$", name)


def commands(build, wanted):
    """Each file's commands; those that differ in flags of code generation alone, as for what two libraries have, count once."""
    files = {}
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        name = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
        if product(name) and (not wanted or name in wanted):
            words = [w for w in shlex.split(entry["command"]) if not re.match(r"-f|.*\.o$", w)]
            files.setdefault(name, {}).setdefault(tuple(words), entry)
    return {name: list(entries.values()) for name, entries in files.items()}


# A comment, after what could contain its marks; and the comments that checks read: NOLINT, names of arguments, and signs that turn the
# direction of writing.
COMMENT = re.compile(rb'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|/\*.*?\*/|//[^\n]*', re.S)
READ = re.compile(rb"NOLINT|=\s*\*/$|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def tidy_text(text):
    """What of a preprocessed text decides the findings."""
    if re.search(rb'R"[^"\n(]*\(|NOLINT[A-Z]', text):  # a raw string may contain the marks of comments; NOLINTNEXTLINE counts lines
        return text
    text = COMMENT.sub(lambda m: m[0] if m[1] or READ.search(m[0]) else b"", text)
    text = re.sub(rb"^# \d+ ", b"# ", text, flags=re.M)
    return re.sub(rb"[ \t]*\n\s*\n", b"\n", re.sub(rb"[ \t]+\n", b"\n", text))


def text_digest(name, entries, rules, root):
    """A hash of everything that clang-tidy's findings depend on; None where the file cannot be preprocessed."""
    digest = hashlib.sha256(rules)
    for entry in entries:
        words = shlex.split(entry["command"])
        del words[words.index("-o") : words.index("-o") + 2]
        digest.update("\n".join(words).replace(root, "").encode())
        command = ["clang++" if name.endswith(".cpp") else "clang", *words[1:], "-E", "-CC", "-dD", "-w"]
        done = subprocess.run(command, cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            return None
        digest.update(tidy_text(done.stdout.replace(root.encode(), b"")))
    return digest.hexdigest()


def lint(name, entries, rules, root, cache, build):
    """What clang-tidy says of the file; None where it is clean."""
    key = text_digest(name, entries, rules, root)
    if key is not None and (cache / key).exists():
        return None
    done = subprocess.run(["clang-tidy", "-p", str(build), "--quiet", *DEPTH, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        return done.stdout or name + ": error: clang-tidy failed\n"
    if key is not None:
        (cache / key).touch()
    return None


def main(cache, build, *wanted):
    root, files = os.getcwd(), commands(build, wanted)
    build = pathlib.Path(build, "lint")
    for folder in (cache, build):
        folder.mkdir(parents=True, exist_ok=True)
    (build / "compile_commands.json").write_text(json.dumps(sum(files.values(), [])))
    rules = pathlib.Path(".clang-tidy").read_bytes() + repr(DEPTH).encode() + subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    order = sorted(files, key=lambda name: -os.path.getsize(name))  # the largest first, so that none is left alone at the end
    failed, findings = False, set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for n, said in enumerate(pool.map(lambda name: lint(name, files[name], rules, root, cache, build), order), 1):
            print(f"[{n}/{len(order)}] {order[n - 1]}", flush=True)
            if said is not None:
                failed = True
                print(said, end="", flush=True)
                findings.update(line.replace(root + "/", "") for line in said.splitlines() if re.search("(error|warning): ", line))
    print("findings:", *sorted(findings), sep="\n")
    return 1 if failed else 0


sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
