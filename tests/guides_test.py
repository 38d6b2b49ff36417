"""What the guides name is there: commands and options of weir, the messages of troubleshooting.md, and a way from the README to each
page and to the answers that a newcomer looks for. tests/guides_model_test.py runs the examples."""
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
    done = subprocess.run([WEIR, *words, "--help-all"] if words else [WEIR, "help"], capture_output=True, text=True, env=environment())
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
    """The messages in the first column of the tables, without placeholders."""
    literals = []
    for folder in ("cli", "hub", "server", "src"):
        for path in glob.glob(os.path.join(SOURCE, folder, "**", "*.c*"), recursive=True):
            source = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
            for found in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
                literals.append("".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found)))
    cells = re.findall(r"^\| (.*?) \| ", read(os.path.join(SOURCE, "docs/guides/troubleshooting.md")), re.M)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell) if message.count(" ") > 1]

    def stands(message):
        """Whether one literal has the message's parts, in their order."""
        parts = [part.strip(" ;,:") for part in re.split("…|Address already in use", message)]
        pattern = re.compile(".*".join(re.escape(part) for part in parts if part), re.S)
        return any(pattern.search(literal) for literal in literals)
    missing = [message for message in messages if not stands(message)]
    check(f"the messages of troubleshooting.md are in the sources: {len(messages)}", len(messages) > 25 and not missing, *missing)


# What a newcomer looks for, the page that has it, and words that must be on it.
TASKS = [
    ("offload layers to a GPU", "docs/guides/gpu.md", "`-ngl N`"),
    ("set the context", "docs/guides/server.md", "`-c` is the context of each request"),
    ("use another chat template", "docs/guides/server.md", "`--chat-template-file FILE` replaces it"),
    ("serve several models", "docs/guides/models.md", "weir serve --models FILE"),
    ("require a key", "docs/guides/server.md", "`--api-key-file` has one key per line"),
    ("run it under systemd", "docs/guides/systemd.md", "systemctl enable --now weir"),
    ("get JSON of a schema", "docs/guides/server.md", '"response_format": {"type": "json_schema"'),
    ("call tools", "docs/guides/tools.md", '"tool_choice"'),
    ("answer from documents (RAG)", "docs/guides/rag.md", "/v1/embeddings"),
    ("use a LoRA adapter", "docs/guides/server.md", "--lora sql.gguf"),
    ("speculative decoding with a draft model", "docs/guides/server.md", "`--draft-model` adds a smaller model"),
    ("choose a model for the memory", "docs/guides/choosing-a-model.md", "| free memory |"),
    ("quantize a model", "docs/guides/choosing-a-model.md", "weir quantize --type"),
    ("measure the speed", "docs/guides/choosing-a-model.md", "weir bench engine"),
    ("use it in Elixir", "elixir/README.md", "Weir.Server"),
    ("connect Elixir nodes", "elixir/cluster/README.md", "{Weir.Cluster, name: :llama"),
    ("scrape metrics", "docs/guides/metrics.md", "scrape_configs"),
    ("upgrade", "docs/guides/upgrade.md", "git pull"),
    ("see what it cannot do", "docs/guides/limits.md", "## Not supported"),
    ("connect Open WebUI", "docs/guides/clients.md", "OPENAI_API_BASE_URL"),
    ("understand a message", "docs/guides/troubleshooting.md", "## A request is refused"),
]


def test_ways():
    """Each guide is one or two links away from the README, and each task's answer on one of them."""
    links, pages = {PAGES[0]: 0}, [PAGES[0]]
    for n in (1, 2):
        found = [(page, link.partition("#")[0]) for page in pages for line in read(page).splitlines() for link in links_of(line)]
        found = {os.path.normpath(os.path.join(os.path.dirname(page), link)) for page, link in found if link.endswith(".md") and ":" not in link}
        pages = found - set(links)
        links.update({page: n for page in pages})
    check("every guide is at most two links away from the README", set(GUIDES) <= set(links), *sorted(set(GUIDES) - set(links)))
    for task, page, words in TASKS:
        path = os.path.join(SOURCE, page)
        check(f"{task}: {page}, {links.get(path)} links away", path in links and words in read(path))


run_tests(globals())
