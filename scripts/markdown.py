#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the project's Markdown: relative links lead to files and headings, prose has at most 110 columns, and
docs/README.md lists each decision under its title. Prints what is wrong, and ends with 1 if anything is.

usage: markdown.py

Lines of tables, code and links may be longer; so may bench/results/, which scripts write."""
import os
import pathlib
import re
import sys


def lines_of(path):
    """The lines outside code, with their numbers."""
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            yield number, line


def anchors_of(path):
    """The names that GitHub gives to the headings."""
    titles = (m.group(1) for _, line in lines_of(path) if (m := re.match(r"#+ (.*)", line)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links_of(line):
    line = re.sub(r"`[^`]*`", "", line)
    return re.findall(r"\]\(([^)\s]+)\)", line) + re.findall(r"^\[[^\]]+\]: (\S+)", line)


def broken(path, link):
    """Whether a relative link leads nowhere."""
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors_of(target)


def broken_links(path):
    """(line, link) of each relative link that leads nowhere."""
    for number, line in lines_of(path):
        for link in links_of(line):
            if not re.match(r"\w+:", link) and broken(path, link):
                yield number, link


def faults_of(path):
    for number, line in lines_of(path):
        table = line.lstrip().startswith("|")
        if len(line) > 110 and not table and not links_of(line) and "bench/results" not in path.as_posix():
            yield number, "%d columns; at most 110" % len(line)
    for number, link in broken_links(path):
        yield number, "no %s" % link


def unlisted():
    """Decisions whose title differs from the index."""
    index = pathlib.Path("docs/README.md")
    listed = dict(re.findall(r"^\| \[(\d{4})\] \| (.*?) \|", index.read_text(), re.M))
    for path in sorted(pathlib.Path("docs/adr").glob("*.md")):
        number, title = re.match(r"# (\d{4}): (.*)", path.read_text()).groups()
        if listed.get(number) != title:
            yield "%s: %s lists %s as %r" % (path, index, number, listed.get(number))


def main():
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    paths = [path for folder in (".", "elixir", "elixir/cluster", "python") for path in pathlib.Path(folder).glob("*.md")]
    for folder in ("docs", "bench", "elixir/guides", "examples"):
        paths += sorted(pathlib.Path(folder).rglob("*.md"))
    wrong = ["%s:%d: %s" % (path, *fault) for path in paths for fault in faults_of(path)] + list(unlisted())
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
