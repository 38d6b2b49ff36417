"""What the guides name is there: commands and options of weir, the messages of troubleshooting.md, and a way from the README to each
page. tests/guides_model_test.py runs the examples."""
# SPDX-License-Identifier: Apache-2.0
import functools
import glob
import os
import re
import subprocess
import sys

SOURCE = os.environ["WEIR_SOURCE_DIR"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "scripts")]
from checks import check, environment, run_tests  # noqa: E402
from markdown import links_of  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
GUIDES = sorted(glob.glob(os.path.join(SOURCE, "docs", "guides", "*.md")))
PAGES = [os.path.join(SOURCE, "README.md"), os.path.join(SOURCE, "docs", "README.md"), *GUIDES]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


@functools.lru_cache(None)
def help_of(*words):
    done = subprocess.run([WEIR, "help", *words], capture_output=True, text=True, env=environment())
    return done.stdout if done.returncode == 0 else None


def commands(text):
    """What stands behind `weir` in lines of code and in code within lines, up to the next command."""
    prose, *rest = re.split(r"^```", text, flags=re.M)
    code, prose = rest[0::2], [prose, *rest[1::2]]
    blocks = [block.split("\n", 1)[1] for block in code if re.match(r"(sh)?[ \n]", block)]
    blocks += [block for part in prose for block in re.findall(r"^    (.*)$", part, re.M)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [span for part in prose for span in re.findall(r"`([^`\n]*)`", part)]
    for line in lines:
        line = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", line.split(" #")[0])
        for command in re.split(r"\\?\||&&|;|\(|\)", line):
            found = re.match(r"(?:\s|sudo |set -a|\w+=\S* )*weir ([a-z].*)", command)
            if found:
                yield found.group(1).split()


def wrong_in(words):
    name = words[:2] if words[0] == "bench" else words[:1]
    if words[0] == "help":
        return [] if words[1:] in ([], ["COMMAND"]) or help_of(*words[1:]) else words
    if words[:2] in (["bench"], ["bench", "NAME"]):
        return []
    text = help_of(*name)
    if text is None:
        return words
    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))
    return [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]


def test_commands():
    n, seen = 0, {}
    for page in PAGES:
        for words in commands(read(page)):
            n += 1
            key = " ".join(words)
            if key not in seen:
                seen[key] = wrong_in(words)
    wrong = [(key, bad) for key, bad in seen.items() if bad]
    check(f"the commands and options in the guides exist: {n}", n > 100 and not wrong, *wrong)


def test_messages():
    """The messages in the first column of the tables, without what stands for something else."""
    literals = []
    for folder in ("cli", "server", "src"):
        for path in glob.glob(os.path.join(SOURCE, folder, "**", "*.c*"), recursive=True):
            source = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
            for found in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
                literals.append("".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found)))
    known = "\n".join(literals)
    cells = re.findall(r"^\| (.*?) \| ", read(os.path.join(SOURCE, "docs/guides/troubleshooting.md")), re.M)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell) if message.count(" ") > 1]
    parts = [part.strip(" ;,") for message in messages for part in re.split("…|Address already in use", message)]
    missing = [part for part in parts if part and part.strip(": ") not in known]
    check(f"the messages of troubleshooting.md are in the sources: {len(messages)}", len(messages) > 25 and not missing, *missing)


def test_ways():
    """Each guide is one or two links away from the README."""
    found, pages = set(), [PAGES[0]]
    for _ in range(2):
        links = [(page, link.partition("#")[0]) for page in pages for line in read(page).splitlines() for link in links_of(line)]
        pages = {os.path.normpath(os.path.join(os.path.dirname(page), link)) for page, link in links if link.endswith(".md") and ":" not in link}
        found |= pages
    check("every guide is at most two links away from the README", set(GUIDES) <= found, *sorted(set(GUIDES) - found))


run_tests(globals())
