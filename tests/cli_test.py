"""The command line, from outside: cli_test.py [WEIR [MODEL]].

WEIR is the program ($WEIR_BIN), MODEL a file or "fake:", the default: a model without weights that answers at
once, or as slowly as it is told. Prints each check and then "N passed, N failed"."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, results  # noqa: E402
from terminal import Terminal  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
MODEL = sys.argv[2] if len(sys.argv) > 2 else "fake:"
FAKE = MODEL.startswith("fake:")
# On the fake model a tick takes this long, so that there is time to interrupt something.
SLOW = "fake:tick_us=20000,n_ctx_train=100000" if FAKE else MODEL
STUCK = "fake:tick_us=3000000"  # one tick is longer than a person waits
PATIENCE = 20 if FAKE else 90  # seconds; the machine may be busy and the program built with sanitizers

COMMANDS = ["run", "chat", "stream", "serve", "replay", "info", "tokenize", "embed", "optimize", "quantize", "pull", "list", "rm", "bench engine", "bench kernels", "bench http", "bench schedule", "config", "completion", "version"]
scratch = tempfile.TemporaryDirectory()


def weir(*words, stdin="", env=None, timeout=None):
    """Runs to the end; texts are decoded strictly: what is printed is UTF-8."""
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([WEIR, *words], input=data, capture_output=True, env=env or environment(),
                          timeout=timeout or PATIENCE * 2)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def run(*words, **more):
    return weir("run", "-m", MODEL, *words, **more)


def expect(name, done, code, *parts, out=None):
    """The exit code, and what stderr must contain."""
    missing = [p for p in parts if p not in done.stderr]
    check(name, done.returncode == code and not missing and (out is None or out in done.stdout),
          f"exit {done.returncode}, expected {code}; missing {missing}", done.stdout[-500:], done.stderr)


def path_of(name, content):
    path = os.path.join(scratch.name, name)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def wait_gone(process, seconds):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


# ---- Help and words ----

def test_help():
    done = weir()
    check("weir alone shows the commands and is a usage error", done.returncode == 2 and
          all("weir " + c in done.stdout for c in COMMANDS), done.stdout)
    done = weir("help")
    check("weir help lists commands and exit codes", done.returncode == 0 and
          all("weir " + c in done.stdout for c in COMMANDS) and
          all(re.search(rf"^  {code} ", done.stdout, re.M) for code in (0, 1, 2, 3, 4, 130, 143)), done.stdout)
    for command in COMMANDS:
        page = weir("help", *command.split())
        same = weir(*command.split(), "--help")
        check(f"help of {command}: an example, and --help gives the same", page.returncode == 0 and
              same.returncode == 0 and page.stdout == same.stdout and "Example" in page.stdout and
              f"weir {command}" in page.stdout and page.stderr == "", page.stdout, page.stderr)
        widest = max(len(line) for line in page.stdout.splitlines() if "weir run -p" not in line)
        check(f"help of {command} fits into 100 columns", widest <= 100, widest)
    check("weir run -h --nonsense still shows help", weir("run", "--nonsense", "-h").returncode == 0)
    expect("help of nothing we have", weir("help", "nothing"), 2, "there is no command nothing")
    expect("weir bench alone asks what", weir("bench"), 2, "weir bench engine", "weir bench kernels")
    page = weir("help", "run").stdout
    for option in ("--temp --top-k --top-p --min-p --typical --top-nsigma --xtc-probability --xtc-threshold --dynatemp-range "
                   "--dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n "
                   "--dry-sequence-breaker --mirostat --mirostat-lr --mirostat-ent --repeat-penalty --repeat-last-n "
                   "--frequency-penalty --presence-penalty --logit-bias --seed --samplers --grammar --grammar-file "
                   "--json-schema --json-schema-file --ignore-eos --stop --max-tokens --threads --threads-batch --ctx --kv "
                   "--slots --batch-size --ubatch-size --chunk --cache-type-k --cache-type-v --layout --strategy --itl-target "
                   "--interval --deadline-ms --priority --ageing --logprobs --json").split():
        if not re.search(rf"{option}( |$)", page, re.M):
            check(f"help of run has {option}", False)
            break
    else:
        check("help of run has each option", True)


def test_version():
    done = weir("version")
    check("weir version", done.returncode == 0 and re.fullmatch(r"weir \d+\.\d+\.\d+, llama.cpp .+\n", done.stdout),
          done.stdout)
    check("weir --version is the same", weir("--version").stdout == done.stdout)
    parsed = json.loads(weir("version", "--json").stdout)
    check("weir version --json", parsed["weir"] in done.stdout and parsed["backend"] in done.stdout, parsed)
    expect("weir version takes nothing", weir("version", "please"), 2, "please")


def test_words():
    expect("unknown option, a name that resembles it", run("--tmep", "1"), 2, "--tmep", "did you mean --temp?")
    expect("unknown option with a value in it", run("--topk=3"), 2, "did you mean --top-k?")
    expect("unknown option that resembles nothing", run("--xyzzy-plugh"), 2, "no option --xyzzy-plugh", "weir help run")
    expect("an option of another command", weir("info", "--grammar", "x"), 2, "weir run has it")
    expect("unknown command", weir("rnu"), 2, "did you mean weir run?")
    expect("a value is missing", run("-p", "x", "--temp"), 2, "--temp needs a value")
    expect("an option where a value belongs", run("-p", "--temp", "1"), 2, "-p needs a value", "--name=value")
    expect("a value that looks like an option", run("--prompt=--temp", "-n", "2", "--raw"), 0)
    expect("no number", run("-p", "x", "--top-k", "many"), 2, '--top-k is "many"')
    expect("half a number", run("-p", "x", "--top-k", "4x"), 2, '--top-k is "4x"')
    expect("a number beyond 31 bits", run("-p", "x", "--top-k", "3000000000"), 2, "--top-k")
    expect("an empty number", run("-p", "x", "--temp", ""), 2, "--temp")
    expect("a strategy that is none", run("-p", "x", "--strategy", "fair"), 2, "balanced, latency-target")
    expect("a choice that is none", run("-p", "x", "--layout", "diagonal"), 2, "unified, per_slot")
    expect("a seed out of range", run("-p", "x", "--seed", "4294967296"), 2, "--seed")
    expect("a logit bias without a bias", run("-p", "x", "--logit-bias", "15"), 2, "15043+1")
    for bad in ("-1", "101", "nan", "inf", "-inf", "1e30"):
        expect(f"--temp {bad} names the option and its range", run("-p", "x", "--temp", bad), 2, "--temp", "0", "100")
    expect("0 slots", run("-p", "x", "-np", "0"), 2, "--slots", "1", "256")
    expect("257 slots", run("-p", "x", "-np", "257"), 2, "--slots", "1", "256")
    expect("a negative context", run("-p", "x", "-c", "-5"), 2, "--ctx")
    expect("a token that the vocabulary has not", run("-p", "x", "--logit-bias", "99999999+1"), 2, "--logit-bias")
    expect("a wrong variable", run("-p", "x", env=environment(WEIR_TEMP="warm")), 2, "WEIR_TEMP", "warm")
    done = run("-p", "x", "--raw", "--json", "--ignore-eos", env=environment(WEIR_MAX_TOKENS="3"))
    check("a variable gives the default", done.returncode == 0 and
          json.loads(done.stdout)["usage"]["generated_tokens"] == 3, done.stdout, done.stderr)
    done = run("-p", "x", "--raw", "--json", "--ignore-eos", "-n", "5", env=environment(WEIR_MAX_TOKENS="3"))
    check("the command line overrides it", json.loads(done.stdout)["usage"]["generated_tokens"] == 5, done.stdout)
    done = weir("run", "-p", "x", "-n", "2", "--raw", env=environment(WEIR_MODEL=MODEL))
    expect("WEIR_MODEL gives the model", done, 0)


# ---- weir run ----

def test_run():
    done = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos")
    check("an answer on stdout, figures on stderr", done.returncode == 0 and len(done.stdout.strip()) > 0 and
          re.search(r"^prompt \d+ tokens?, [\d.]+ tok/s · answer 12 tokens, [\d.]+ tok/s · first token after [\d.]+ m?s", done.stderr),
          done.stdout, done.stderr)
    check("one line of figures and nothing else", done.stderr.count("\n") == 1, done.stderr)
    check("no escape sequences off a terminal", "\x1b" not in done.stdout + done.stderr)
    again = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos")
    check("the same greedy answer again", again.stdout == done.stdout, done.stdout, again.stdout)
    expect("a word is a prompt too", run("Name a river.", "-n", "12", "--temp", "0", "--ignore-eos"), 0, out=done.stdout)
    for how, words in (("-p -", ["-p", "-"]), ("-", ["-"]), ("a pipe", [])):
        piped = run(*words, "-n", "12", "--temp", "0", "--ignore-eos", stdin="Name a river.\n")
        check(f"the prompt from stdin by {how}", piped.returncode == 0 and piped.stdout == done.stdout, piped.stdout, piped.stderr)
    filed = run("-f", path_of("prompt.txt", "Name a river.\n"), "-n", "12", "--temp", "0", "--ignore-eos")
    check("the prompt from a file", filed.stdout == done.stdout, filed.stdout, filed.stderr)
    quiet = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos", "-q")
    check("--quiet leaves stderr alone", quiet.stdout == done.stdout and quiet.stderr == "", quiet.stderr)
    raw = run("-p", "Name a river.", "--raw", "-n", "12", "--temp", "0", "--ignore-eos")
    check("--raw gives another answer than the template", raw.returncode == 0 and raw.stdout != done.stdout, raw.stdout)
    system = json.loads(run("-p", "Hi", "--system", "Be brief.", "-n", "2", "--json").stdout)
    plain = json.loads(run("-p", "Hi", "-n", "2", "--json").stdout)
    check("--system makes the prompt longer", system["usage"]["prompt_tokens"] != plain["usage"]["prompt_tokens"], system)
    one = run("-p", "Go", "--raw", "-n", "20", "--seed", "7", "--temp", "1", "--top-k", "0", "--min-p", "0", "--ignore-eos").stdout
    two = run("-p", "Go", "--raw", "-n", "20", "--seed", "7", "--temp", "1", "--top-k", "0", "--min-p", "0", "--ignore-eos").stdout
    other = run("-p", "Go", "--raw", "-n", "20", "--seed", "8", "--temp", "1", "--top-k", "0", "--min-p", "0", "--ignore-eos").stdout
    check("a seed repeats its answer, another one does not", one == two and one != other, one, two, other)


def test_run_json():
    done = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos", "--json")
    answer = json.loads(done.stdout)
    check("--json prints one object", done.returncode == 0 and done.stdout.count("\n") == 1, done.stdout)
    check("it has text, tokens, reason, usage, timings", set(answer) == {"text", "tokens", "reason", "usage", "timings"} and
          len(answer["tokens"]) == 12 and answer["reason"] == "length" and answer["usage"]["generated_tokens"] == 12 and
          answer["timings"]["ttft_ms"] > 0 and answer["timings"]["total_ms"] >= answer["timings"]["ttft_ms"], answer)
    text = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos").stdout
    check("its text is what is printed without it", text in (answer["text"], answer["text"] + "\n"), text, answer["text"])
    done = run("-p", "x", "--json", "--temp", "-3")
    check("--json and a refusal: an error object", done.returncode == 2 and
          json.loads(done.stdout)["error"]["code"] == "WEIR_INVALID", done.stdout)


def test_run_limits():
    whole = json.loads(run("-p", "Count.", "--raw", "-n", "40", "--temp", "0", "--ignore-eos", "--json").stdout)["text"]
    middle = whole[len(whole) // 2:len(whole) // 2 + 3]
    done = run("-p", "Count.", "--raw", "-n", "40", "--temp", "0", "--ignore-eos", "--stop", "never in it", "--stop", middle, "--json")
    stopped = json.loads(done.stdout)
    check("--stop ends before its text", stopped["reason"] == "stop_words" and
          stopped["text"] == whole[:whole.index(middle)], repr(middle), repr(whole), stopped)
    expect("an empty stop text is refused by name", run("-p", "x", "--stop", ""), 2, "--stop")
    done = run("-p", "x", "--raw", "-n", "0", "--json")
    check("-n 0 only reads the prompt", done.returncode == 0 and json.loads(done.stdout)["tokens"] == [], done.stdout, done.stderr)
    done = weir("run", "-m", SLOW, "-p", "x", "--raw", "--ignore-eos", "--deadline-ms", "300", "--json")
    answer = json.loads(done.stdout)
    check("--deadline-ms ends with what there is", done.returncode == 0 and answer["reason"] == "deadline" and
          answer["timings"]["total_ms"] < 10000, answer)
    expect("a priority out of range", run("-p", "x", "--priority", "101"), 2, "--priority", "-100 to 100")
    expect("an ageing out of range", run("-p", "x", "--ageing", "-1"), 2, "--ageing")
    expect("a prompt longer than the context", run("-p", "word " * 3000, "-c", "64"), 4, "-c, --kv")
    expect("no prompt", run("-p", ""), 2, "the prompt is empty")
    expect("no prompt in a pipe", run(stdin=""), 2, "the prompt is empty")
    expect("two prompts", run("-p", "a", "b"), 2, "more than one prompt")
    expect("--raw with --system", run("-p", "a", "--raw", "--system", "b"), 2, "--system")
    expect("a NUL byte in a message", run(stdin=b"a\0b"), 2, "NUL", "--raw")
    expect("a NUL byte in a raw prompt", run("--raw", "-n", "2", stdin=b"a\0b"), 0)
    expect("a raw prompt that is no UTF-8", run("--raw", "-n", "2", stdin=b"\xff\xfe caf\xe9"), 0)
    done = run("-n", "2", stdin=b"\xff\xfe caf\xe9")
    check("a message that is no UTF-8 is answered or refused", done.returncode in (0, 2, 4), done.returncode, done.stderr)


def test_grammar():
    done = run("-p", "x", "--grammar", 'root ::= "abc" | "abd"', "--temp", "0")
    check("--grammar constrains the answer", done.returncode == 0 and done.stdout in ("abc\n", "abd\n"), done.stdout, done.stderr)
    done = run("-p", "x", "--grammar-file", path_of("g.gbnf", 'root ::= "abc" | "abd"\n'), "--temp", "0")
    check("--grammar-file too", done.returncode == 0 and done.stdout in ("abc\n", "abd\n"), done.stdout, done.stderr)
    expect("a broken grammar names its line", run("-p", "x", "--grammar", 'root ::= ("abc"'), 2, "--grammar", "line 1")
    expect("a grammar file that is missing", run("-p", "x", "--grammar-file", "/nonexistent/g"), 1, "/nonexistent/g")
    expect("a grammar file that is a folder", run("-p", "x", "--grammar-file", scratch.name), 1, scratch.name)
    done = run("-p", "x", "--grammar", 'root ::= "a"', "-j", "{}")
    check("a grammar and a schema", done.returncode in (2, 4) and ("schema" in done.stderr or "grammar" in done.stderr), done.returncode, done.stderr)
    if not FAKE:
        for raw in ((), ("--raw",)):
            expect("a schema that is no JSON", run("-p", "x", "-j", "{nonsense", *raw), 2, "--json-schema")
            expect("a schema that is none, far inside", run("-p", "x", "-j", '{"properties":{"a.b":{"type":"none"}}}', *raw), 2, "--json-schema", "a.b")
        schema = '{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer"}},' \
                 '"required":["name","age"],"additionalProperties":false}'
        for words in (["-j", schema], ["-jf", path_of("schema.json", schema)], ["-j", schema, "--raw"]):
            done = run("-p", "Invent a person.", *words, "-n", "200", "--temp", "0.2", "--seed", "1")
            try:
                person = json.loads(done.stdout)
            except ValueError:
                person = {}
            check(f"JSON of the given form by {words[0]} {'--raw' if '--raw' in words else ''}",
                  set(person) == {"name", "age"} and isinstance(person["age"], int), done.stdout, done.stderr)


def test_models():
    expect("a model that is missing", weir("run", "-m", "/nonexistent/model.gguf", "-p", "x"), 3, "/nonexistent/model.gguf")
    expect("a model that is empty", weir("run", "-m", path_of("empty.gguf", b""), "-p", "x"), 3, "empty.gguf")
    expect("a model that is noise", weir("run", "-m", path_of("noise.gguf", random.Random(1).randbytes(5000)), "-p", "x"), 3, "noise.gguf")
    expect("a model that is a folder", weir("info", "-m", scratch.name), 3, scratch.name)
    expect("a fake model with a wrong parameter", weir("info", "-m", "fake:n_vocab=-4"), 3, "n_vocab")
    nowhere = environment(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent")
    for command in (["run", "-p", "x"], ["info"], ["bench", "engine"]):
        expect(f"no model at all: {command[0]}", weir(*command, env=nowhere), 3, "-m FILE", "WEIR_MODEL", "make run")
    if not FAKE:
        with open(MODEL, "rb") as file:
            head = file.read(1 << 20)
        expect("a model that was cut", weir("run", "-m", path_of("cut.gguf", head), "-p", "x"), 3, "cut.gguf")
        cache = os.path.join(scratch.name, "cache", "weir", "models")
        os.makedirs(cache)
        os.symlink(os.path.abspath(MODEL), os.path.join(cache, "SmolLM2-135M-Instruct.Q4_1.gguf"))
        done = weir("run", "-p", "x", "-n", "2", env=environment(XDG_CACHE_HOME=os.path.join(scratch.name, "cache")))
        expect("the model from the cache", done, 0)


def test_info():
    done = weir("info", "-m", MODEL)
    check("weir info", done.returncode == 0 and all(word in done.stdout for word in
          ("model", "vocabulary", "chat template", "KV memory", "devices", "build")), done.stdout, done.stderr)
    info = json.loads(weir("info", "-m", MODEL, "-np", "4", "-c", "512", "--json").stdout)
    check("weir info --json: the engine as asked for", info["engine"]["n_slots"] == 4 and info["engine"]["n_ctx"] == 512 and
          info["engine"]["n_kv"] >= 2048 and info["engine"]["kv_bytes"] > 0 and info["model"]["n_vocab"] > 0 and
          info["devices"] and "weir" in info["build"], info)
    weights = info["model"]["weights"]
    check("weir info --json: who multiplies which weights", (weights == []) == FAKE and
          sum(w["n_bytes"] for w in weights if w["kernels"]) == info["model"]["n_bytes_kernels"] and
          all(w["n_tensors"] > 0 and (w["reason"] == "") == w["kernels"] for w in weights), info)
    half = json.loads(weir("info", "-m", MODEL, "-np", "2", "-c", "512", "--json").stdout)
    check("half the slots, half the memory", half["engine"]["kv_bytes"] * 2 == info["engine"]["kv_bytes"], half, info)
    small = json.loads(weir("info", "-m", MODEL, "-np", "4", "-c", "512", "--kv", "1024", "--json").stdout)
    check("--kv limits the cells", small["engine"]["n_kv"] < info["engine"]["n_kv"], small)
    odd = os.path.join(scratch.name.encode(), b"caf\xe9.gguf")
    os.symlink(os.path.abspath(MODEL) if not FAKE else "/nonexistent", odd)
    done = subprocess.run([WEIR, "info", "-m", odd, "--json"], capture_output=True, env=environment(), timeout=PATIENCE)
    check("a path that is no UTF-8 is shown as UTF-8", done.returncode == (3 if FAKE else 0) and "caf\ufffd.gguf" in
          (done.stderr if FAKE else done.stdout).decode() and json.loads(done.stdout), done.returncode, done.stdout, done.stderr)
    expect("two models", weir("info", "-m", MODEL, "other.gguf"), 2, "one model")


def test_optimize():
    if FAKE:
        expect("nothing to optimize", weir("optimize", "-m", MODEL), 1, "no weights")
        expect("two models to optimize", weir("optimize", MODEL, "other.gguf"), 2, "one model")
        return
    model, other = os.path.join(scratch.name, "o.gguf"), os.path.join(scratch.name, "other.weir")
    os.symlink(os.path.abspath(MODEL), model)
    before = json.loads(weir("info", model, "--json").stdout)["model"]
    done = weir("optimize", "-m", model)
    if before["n_bytes_kernels"] == 0:
        expect("without kernels nothing is written", done, 1, "kernels")
        check("and nothing lies there", not os.path.exists(model + ".weir"))
        return
    expect("weir optimize", done, 0, out=model + ".weir")
    after = json.loads(weir("info", model, "--json").stdout)["model"]
    check("the weights are mapped", before["n_bytes_mapped"] == 0 and
          after["n_bytes_mapped"] == after["n_bytes_kernels"] == before["n_bytes_kernels"], before, after)
    expect("weir info says so", weir("info", model), 0, out="mapped from an optimized file")
    words = ("-p", "Name three rivers.", "-n", "8", "--temp", "0")
    packed = weir("run", "-m", model, "--optimized", "", *words)
    mapped = weir("run", "-m", model, *words)
    check("and answer the same", packed.returncode == mapped.returncode == 0 and packed.stdout == mapped.stdout,
          packed.stdout, mapped.stdout)
    done = weir("optimize", model, "-o", other, "--json")
    check("-o, --json", done.returncode == 0 and json.loads(done.stdout)["n_bytes"] == os.path.getsize(other), done.stdout)
    with open(other, "rb") as a, open(model + ".weir", "rb") as b:
        check("twice the same bytes", a.read() == b.read())
    expect("--check", weir("optimize", model, "--check", "-o", other), 0, out="whole")
    with open(other, "r+b") as file:
        file.seek(-1000000, os.SEEK_END)
        file.write(b"damage")
    expect("--check of damaged weights", weir("optimize", model, "--check", "-o", other), 1, "damaged")
    with open(other, "r+b") as file:
        file.seek(100)
        file.write(b"damage")
    expect("a damaged file is not used", weir("run", "-m", model, "--optimized", other, *words), 0, "damaged", "packed anew",
           out=mapped.stdout)
    expect("--check without a file", weir("optimize", MODEL, "--check", "-o", "/nonexistent"), 1, "/nonexistent")
    expect("a folder that is missing", weir("optimize", MODEL, "-o", "/nonexistent/m.weir"), 1, "/nonexistent")
    expect("the model itself", weir("optimize", model, "-o", model), 2, "the model itself")
    precious = os.path.join(scratch.name, "precious")
    with open(precious, "w") as file:
        file.write("somebody's")
    expect("what is no optimized file stays", weir("optimize", model, "-o", precious), 2, "not replaced")
    check("and is what it was", open(precious).read() == "somebody's")
    expect("no model to optimize", weir("optimize", "/nonexistent.gguf"), 3, "nonexistent.gguf")
    expect("without kernels", weir("optimize", model, env=environment(WEIR_KERNELS="off")), 1, "kernels")
    os.unlink(model + ".weir")
    os.unlink(other)


# ---- Signals ----

def wait_full(pipe):
    """Until a pipe that nobody reads holds all it can."""
    size, end = -1, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        before, size = size, struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
        if size > 4096 and size == before:
            return
        time.sleep(0.3)


def start(*words, stdin=subprocess.DEVNULL):
    return subprocess.Popen([WEIR, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                            bufsize=0)  # what was not asked for stays in the pipe


def test_signals():
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        process = start("run", "-m", SLOW, "-p", "Tell me a long story.", "--ignore-eos")
        first = process.stdout.read(1)
        sent = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        took = time.monotonic() - sent
        text = (first + out).decode()
        check(f"{number.name} while generating: exit {code}, what came, figures", process.returncode == code and
              len(text) > 0 and text.endswith("\n") and "cancelled" in err.decode(), process.returncode, text, err.decode())
        check(f"{number.name} takes effect at once", took < PATIENCE / 4, took)
    process = start("run", "-m", SLOW, "-p", "Tell me a long story.", "--ignore-eos", "--json")
    time.sleep(0.5 if FAKE else 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    check("SIGINT with --json: the object, cancelled", process.returncode == 130 and out and
          json.loads(out).get("reason", "") == "cancelled", process.returncode, out, err)
    if FAKE:
        # 3000 tokens at 10 ms each, in chunks of 100: the prompt takes 30 s.
        process = start("run", "-m", "fake:token_us=10000", "--raw", "-p", "x" * 3000, "--chunk", "100")
    else:
        process = start("run", "-m", MODEL, "--raw", "-p", "word " * 3500, "--chunk", "128", "-c", "4096")
    time.sleep(0.7 if FAKE else 3)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    check("SIGTERM while the prompt is read", process.returncode == 143 and b"answer 0 tokens" in err, process.returncode, out, err)
    for second in (False, True):
        process = start("run", "-m", "fake:n_ctx_train=200000", "-c", "200000", "-p", "x", "--ignore-eos")
        wait_full(process.stdout)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        check("with a reader that is stuck, one SIGINT tries on", process.poll() is None, process.poll())
        if second:
            process.send_signal(signal.SIGINT)
        check("a second SIGINT leaves at once" if second else "and gives up",
              wait_gone(process, 1.4 if second else 8) == 130, process.returncode)
    process = start("run", "-m", MODEL, stdin=subprocess.PIPE)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    check("SIGINT while the prompt is awaited", wait_gone(process, 5) == 130, process.returncode)
    ignoring = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$0" "$@"', WEIR, "run", "-m", SLOW, "-p", "x", "-n", "40", "-q", "--ignore-eos"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), bufsize=0)
    ignoring.stdout.read(1)
    ignoring.send_signal(signal.SIGINT)
    ignoring.communicate(timeout=PATIENCE)
    check("SIGINT that was ignored stays ignored", ignoring.returncode == 0, ignoring.returncode)


def test_random_moments():
    dice = random.Random(20261121)
    commands = [["info"], ["run", "-p", "Hello", "--ignore-eos", "-n", "20"], ["stream", batch_file()]]
    bad, codes = [], set()
    for command in commands:
        began = time.monotonic()
        weir(command[0], "-m", SLOW, *command[1:])
        whole = time.monotonic() - began
        for _ in range(20 if FAKE else 5):
            number = dice.choice([signal.SIGINT, signal.SIGTERM])
            process = start(command[0], "-m", SLOW, *command[1:])
            time.sleep(dice.uniform(0, whole))
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE)
            codes.add(process.returncode)
            # Before the handlers stand the signal does what it always does; when all is done it stops nothing.
            if process.returncode not in (128 + number, 0, -number) or b"runtime error" in err or b"Sanitizer" in err:
                bad.append((command[0], number.name, process.returncode, err.decode()[-1500:]))
    check("SIGINT and SIGTERM at random moments end each command in order", not bad and codes & {130, 143}, bad[:3], codes)


def batch_file():
    return path_of("moments.json", json.dumps({"requests": [{"prompt": f"Number {i}", "max_tokens": 20} for i in range(5)]}))


def test_pipes():
    process = start("run", "-m", SLOW, "-p", "Tell me a long story.", "--ignore-eos")
    process.stdout.read(1)
    process.stdout.close()
    code = wait_gone(process, PATIENCE)
    check("a reader that leaves ends it quietly", code == 0 and process.stderr.read() == b"", code)
    reader, writer = os.pipe()
    slow = "fake:token_us=10000" if FAKE else MODEL
    process = subprocess.Popen([WEIR, "run", "-m", slow, "--raw", "-p", "word " * 700, "--chunk", "100"], stdout=writer,
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
    os.close(writer)
    time.sleep(0.5)
    os.close(reader)
    code = wait_gone(process, PATIENCE / 2)
    check("also while nothing is written yet", code == 0, code, process.stderr.read())
    with open("/dev/full", "wb") as full:
        done = subprocess.run([WEIR, "run", "-m", MODEL, "-p", "x", "-n", "3"], stdout=full, stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE)
    check("a full disk is told", done.returncode == 1 and b"No space left" in done.stderr, done.returncode, done.stderr)
    done = subprocess.run(["sh", "-c", '"$0" run -m "$1" -p x -n 3 -q >&- 2>&-', WEIR, MODEL], env=environment(), timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)
    check("closed stdout and stderr harm nothing", done.returncode == 0, done.returncode)
    process = start("run", "-m", SLOW, "-p", "x", "--ignore-eos", "-n", "3000")
    select.select([process.stdout], [], [], PATIENCE)
    time.sleep(1)  # unread
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    check("a slow reader, then SIGTERM", process.returncode == 143 and len(out.decode()) > 0, process.returncode)


# ---- weir stream ----

def test_bad_files():
    table = [
        ("not JSON", "{", 2, ["bad.json:1:"]),
        ("a comma too many", '{"requests": [\n  {"prompt": "x"},\n]}', 2, ["bad.json:3:"]),
        ("an array at the top", "[]", 2, ["this is an array"]),
        ("a number at the top", "7", 2, ["a whole number"]),
        ("no requests", "{}", 2, ['no "requests"']),
        ("requests of a wrong kind", '{"requests": {}}', 2, ["bad.json:1:14: requests: this is an object"]),
        ("no request", '{"requests": []}', 2, ["no request"]),
        ("a request of a wrong kind", '{"requests": [\n 5]}', 2, ["bad.json:2:2: requests[0]: this is a whole number"]),
        ("neither prompt nor messages", '{"requests": [{"temp": 1}]}', 2, ["requests[0]", '"prompt"', '"messages"']),
        ("both", '{"requests": [{"prompt": "x", "messages": []}]}', 2, ["not both"]),
        ("an empty prompt", '{"requests": [{"prompt": ""}]}', 2, ["requests[0].prompt: the prompt is empty"]),
        ("a prompt of a wrong kind", '{"requests": [{"prompt": 5}]}', 2, ["bad.json:1:26: requests[0].prompt"]),
        ("an unknown field", '{"requests": [{"prompt": "x"},\n {"prompt": "y",\n  "temprature": 1}]}', 2,
         ["bad.json:3:3: requests[1].temprature", 'did you mean "temperature"?|did you mean "temp"?']),
        ("an unknown field at the top", '{"request": [{"prompt": "x"}]}', 2, ['did you mean "requests"?']),
        ("a field of a wrong kind", '{"requests": [{"prompt": "x", "temp": "hot"}]}', 2,
         ["bad.json:1:39: requests[0].temp: this is a string; expected: a number"]),
        ("half a token", '{"requests": [{"prompt": "x", "max_tokens": 1.5}]}', 2, ["requests[0].max_tokens", "whole number"]),
        ("a number beyond 31 bits", '{"requests": [{"prompt": "x", "top_k": 3000000000}]}', 2, ["requests[0].top_k", "out of range"]),
        ("a value out of range", '{"requests": [{"prompt": "x"}, {"prompt": "y",\n"top_p": 1.5}]}', 2, ["bad.json:2:10: requests[1].top_p", "1"]),
        ("a default out of range", '{"top_p": -2, "requests": [{"prompt": "x"}]}', 2, ["bad.json:1:11: top_p"]),
        ("the same twice", '{"requests": [{"prompt": "x", "temp": 1, "temperature": 0}]}', 2, ["twice"]),
        ("the same key twice", '{"requests": [{"prompt": "x", "temp": 1, "temp": 0}]}', 2, ["bad.json:1:", "temp"]),
        ("an empty stop text", '{"requests": [{"prompt": "x", "stop": ["a", ""]}]}', 2, ["requests[0].stop"]),
        ("a stop text of a wrong kind", '{"requests": [{"prompt": "x", "stop": ["a", 5]}]}', 2, ["requests[0].stop[1]"]),
        ("a bias of a wrong kind", '{"requests": [{"prompt": "x", "logit_bias": {"12": "much"}}]}', 2, ["requests[0].logit_bias.12"]),
        ("messages of a wrong kind", '{"requests": [{"messages": "Hi"}]}', 2, ["requests[0].messages", "array"]),
        ("a message without a role", '{"requests": [{"messages": [{"content": "Hi"}]}]}', 2, ["requests[0].messages[0]", '"role"']),
        ("a broken grammar", '{"requests": [{"prompt": "x",\n "grammar": "root ::= ("}]}', 2, ["bad.json:2:13: requests[0].grammar", "line 1"]),
        ("a key with an escape", '{"requests": [{"prompt": "x", "a\\u0062c": 1}]}', 2, ["bad.json:1:31: requests[0].abc"]),
        ("text after the end", '{"requests": [{"prompt": "x"}]} x', 2, ["bad.json:1:"]),
        ("an empty file", "", 2, ["bad.json:1:"]),
        ("bytes that are no UTF-8", b'{"requests": [{"prompt": "\xff"}]}', 2, ["bad.json:1:"]),
        ("a deep nest", "[" * 100000, 2, ["bad.json:"]),
        ("a prompt that cannot fit", '{"requests": [{"prompt": "%s"}]}' % ("word " * 5000), 4, ["requests[0]", "-c, --kv"]),
    ]
    for name, content, code, parts in table:
        done = weir("stream", "-m", MODEL, path_of("bad.json", content))
        missing = [p for p in parts if not any(one in done.stderr for one in p.split("|"))]
        check(f"request file: {name}", done.returncode == code and not missing and done.stdout == "",
              f"exit {done.returncode}, missing {missing}", done.stderr, done.stdout[:300])
    expect("a file that is missing", weir("stream", "/nonexistent.json"), 1, "/nonexistent.json")
    expect("no file", weir("stream"), 2, "FILE.json")
    expect("two files", weir("stream", "a", "b"), 2, "one file")


def lines_of(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_stream_lines():
    requests = [{"name": "first", "prompt": "One", "temp": 0, "max_tokens": 9},
                {"messages": [{"role": "user", "content": "Two"}], "temperature": 0, "max_tokens": 14},
                {"prompt": "Three", "temp": 0, "max_tokens": 8, "interval": 4},
                {"prompt": "Four", "temp": 0.9, "seed": 3, "top_k": 50, "repeat_penalty": 1.1, "max_tokens": 6, "logit_bias": {"5": -3, "6": False}},
                {"prompt": "Five", "max_tokens": 0}]
    path = path_of("batch.json", json.dumps({"model": MODEL, "ignore_eos": True, "requests": requests}))
    done = weir("stream", path)
    lines = lines_of(done)
    check("each line is JSON, exit 0", done.returncode == 0 and lines, done.stderr)
    check("a sum on stderr", re.search(r"^5 requests, \d+ prompt and \d+ answer tokens in ", done.stderr), done.stderr)
    texts = {}
    for i, request in enumerate(requests):
        mine = [line for line in lines if line["request"] == i]
        chunks, usage = [x for x in mine if "text" in x], [x for x in mine if "usage" in x]
        n = request["max_tokens"]
        good = (len(usage) == 1 and mine[-1] is usage[0] and sum(c["finished"] for c in chunks) == 1 and chunks[-1]["finished"] and
                sum(len(c["tokens"]) for c in chunks) == n and usage[0]["usage"]["generated_tokens"] == n and
                all(c["text"] for c in chunks[:-1]) and chunks[-1]["reason"] == "length" and
                all(c["reason"] == "not_finished" for c in chunks[:-1]) and
                all(x["name"] == request.get("name", str(i + 1)) for x in mine))
        check(f"request {i}: chunks, one end, then usage", good, mine)
        texts[i] = "".join(c["text"] for c in chunks)
    counts = [len(c["tokens"]) for c in lines if c["request"] == 2 and "text" in c]
    check("the interval is kept", counts[0] >= 1 and len(counts) <= 4, counts)
    alone = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json").stdout)
    check("a prompt's text is that of weir run --raw", texts[0] == alone["text"], texts[0], alone)
    chat = json.loads(run("-p", "Two", "--temp", "0", "-n", "14", "--ignore-eos", "--json").stdout)
    check("a message's text is that of weir run", texts[1].strip() == chat["text"].strip(), texts[1], chat)
    told = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json", "--logprobs", "3").stdout)
    items = told["logprobs"]
    check("logprobs of each token, the likeliest first", told["tokens"] == alone["tokens"] and [x["token"] for x in items] == told["tokens"] and
          all(len(x["top"]) == 3 and x["top"][0] == {"token": x["token"], "logprob": x["logprob"]} and
              0 >= x["top"][0]["logprob"] >= x["top"][1]["logprob"] >= x["top"][2]["logprob"] for x in items), items)
    check("no logprobs unless asked for", "logprobs" not in alone, alone)
    both = lines_of(weir("stream", "-", "-q", stdin=json.dumps({"model": MODEL, "temp": 0, "ignore_eos": True, "requests": [
        {"prompt": "One", "max_tokens": 9, "logprobs": 3}, {"prompt": "One", "max_tokens": 9}]})))
    streamed = [x for line in both if line["request"] == 0 for x in line.get("logprobs", [])]
    check("a stream has the same logprobs", streamed == items, streamed)
    check("and only where they were asked for", not any("logprobs" in line for line in both if line["request"] == 1), both)
    for n in ("21", "-1"):
        expect(f"{n} logprobs", run("-p", "One", "--logprobs", n), 2, "--logprobs", "0 to 20")
    scored = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json", "--prompt-logprobs", "2").stdout)
    items = scored["prompt_logprobs"]
    check("logprobs of the prompt's tokens, but of the first", len(items) == scored["usage"]["prompt_tokens"] and items[0]["logprob"] is None and "top" not in items[0] and
          all(x["logprob"] <= x["top"][0]["logprob"] <= 0 and len(x["top"]) == 2 for x in items[1:]) and scored["tokens"] == alone["tokens"], scored)
    check("and none unless asked for", "prompt_logprobs" not in alone, alone)
    for n in ("21", "-1"):
        expect(f"{n} of the prompt's", run("-p", "One", "--prompt-logprobs", n), 2, "--prompt-logprobs", "0 to 20")
    hot = ["-p", "One", "--raw", "--temp", "1.5", "-n", "9", "--ignore-eos", "--json", "--logprobs", "0"]
    mean = lambda told: sum(x["logprob"] for x in told["logprobs"]) / len(told["logprobs"])  # noqa: E731
    each = [json.loads(run(*hot, "--seed", str(seed)).stdout) for seed in (5, 6, 7, 8)]
    best = json.loads(run(*hot, "--seed", "5", "--best-of", "4", "--prompt-logprobs", "0").stdout)
    check("the best of several answers", best["tokens"] == max(each, key=mean)["tokens"] and len(best["prompt_logprobs"]) == best["usage"]["prompt_tokens"], best, each)
    expect("best of none", run("-p", "One", "--best-of", "0"), 2, "--best-of", "1 to 128")
    with open(path) as file:
        piped = weir("stream", "-", "-q", stdin=file.read())
    check("the file from stdin", piped.returncode == 0 and piped.stderr == "" and
          "".join(x["text"] for x in lines_of(piped) if x["request"] == 0 and "text" in x) == texts[0], piped.stderr)
    expect("-m is stronger than the file's model", weir("stream", "-m", "/nonexistent.gguf", path), 3, "/nonexistent.gguf")
    done = weir("stream", path, "--slots", "2")
    check("fewer slots than requests", done.returncode == 0 and sum("usage" in x for x in lines_of(done)) == 5, done.stderr)
    same = {"model": MODEL, "temp": 0, "max_tokens": 3, "requests": [{"prompt": "All alike, and long enough to be shared"},
            {"prompt": "All alike, and long enough to be shared"}, {"prompt": "All alike, and long enough to be shared", "cache_prompt": False},
            {"prompt": "All alike, and long enough to be shared", "cache_salt": "mine"}]}
    path = path_of("same.json", json.dumps(same))

    def cached(*options):
        lines = lines_of(weir("stream", path, "--slots", "1", *options))
        return [next(x["usage"]["cached_tokens"] for x in lines if x["request"] == i and "usage" in x) for i in range(4)]

    n = cached()
    check("a prompt is computed once, but for who does without", n[0] == n[2] == n[3] == 0 and n[1] > 5, n)
    check("the cache can be turned off", cached("--cache-sequences", "0") == [0, 0, 0, 0] and cached("--no-cache-prompt")[0:2] == [0, 0])
    check("a salt for all", cached("--cache-salt", "x", "--cache-memory", "10M")[1] > 5)
    expect("no size", weir("stream", path, "--cache-memory", "10X"), 2, "--cache-memory")
    expect("too many sequences", weir("stream", path, "--cache-sequences", "256"), 2, "--cache-sequences")
    expect("a key that says the opposite", weir("stream", path_of("no.json", json.dumps({"model": MODEL, "no_cache_prompt": True, "requests": [{"prompt": "a"}]}))), 2, "no_cache_prompt")
    ranked = {"model": MODEL, "ignore_eos": True, "max_tokens": 4,
              "requests": [{"prompt": f"Rank {i}", "priority": i} for i in range(4)]}
    done = weir("stream", "-m", SLOW, path_of("ranked.json", json.dumps(ranked)), "--slots", "1", "--ageing", "0")
    ends = [line["request"] for line in lines_of(done) if line.get("finished")]
    check("the highest priority goes first", done.returncode == 0 and ends == [3, 2, 1, 0], ends, done.stderr)
    ranked["requests"][2]["priority"] = 101
    expect("a priority out of range in a file", weir("stream", path_of("ranked.json", json.dumps(ranked))), 2,
           "requests[2].priority", "-100 to 100")
    many = {"model": MODEL, "requests": [{"prompt": f"Request {i}", "max_tokens": 3} for i in range(400 if FAKE else 40)]}
    done = weir("stream", path_of("many.json", json.dumps(many)), "-c", "128")
    check("many requests", done.returncode == 0 and sum("usage" in x for x in lines_of(done)) == len(many["requests"]), done.stderr)


def test_ring():
    """On the fake model only: what is recorded of a schedule does not depend on who computes."""
    dice = random.Random(20261121)
    path, ring = path_of("ring.json", ""), os.path.join(scratch.name, "ring.jsonl")
    for i, slots in enumerate(["1", "3", "16"]):
        requests = [{"prompt": "x" * dice.randint(1, 400), "max_tokens": dice.randint(0, 40), "temp": 0} for _ in range(16)]
        requests[5]["deadline_ms"] = 30
        path_of("ring.json", json.dumps({"requests": requests}))
        options = ["-m", "fake:tick_us=300,token_us=10,eos_every=30", "--slots", slots, "--chunk", "64", "-b", "100"]
        done = weir("stream", *options, path, "--ring", ring, "-q", "--cache-sequences", "0")  # a replay shares no prefixes
        played = weir("replay", ring, "--json")
        check(f"{slots} slots: a ring is written and replayed", done.returncode == 0 and played.returncode == 0, done.stderr, played.stderr)
        figures = json.loads(played.stdout)
        check(f"{slots} slots: the replay has the same plans and times", figures["reproduced"] and figures["difference"] == "" and
              figures["requests"] == 16 and figures["same_ticks"] == figures["recorded"]["ticks"] and
              figures["recorded"] == figures["replayed"], played.stdout)
        with open(ring) as file:
            lines = file.read().splitlines()
        ticks = [json.loads(line) for line in lines if line.startswith('{"tick"')]
        answers = sum(len(x["tokens"]) for x in lines_of(done) if "tokens" in x)
        ended = [p for t in ticks for p in t["slots"] if "reason" in p]
        check(f"{slots} slots: the ring has the run's tokens", sum(sum(p.get("n_tokens", 0) for p in t["slots"]) == t["n_prefill"] + t["n_decode"] +
              t.get("n_drafted", 0) for t in ticks) == len(ticks) and answers <= sum(p.get("n_generated", 0) for p in ended) <= answers + 16, answers)
        middle = path_of("middle.jsonl", "\n".join([lines[0]] + [x for x in lines[1:] if x not in lines[17:17 + len(ticks) // 2]]))
        figures = json.loads(weir("replay", middle, "--json").stdout)
        check(f"{slots} slots: one that begins in the middle, too", figures["reproduced"] and (slots == "1" or figures["begun_before"] > 0), figures)
        other = path_of("other.jsonl", "\n".join(lines).replace('"strategy":"decode-maximal"', '"strategy":"x"'))
        figures = json.loads(weir("replay", other, "--json", "--strategy", "decode-maximal").stdout)
        check(f"{slots} slots: another strategy computes the same tokens", "reproduced" not in figures and figures["replayed"]["ticks"] > 0, figures)
    changed = [json.loads(line) for line in lines]
    tick = next(x for x in changed if "tick" in x and x["n_prefill"] > 8)
    part = next(p for p in tick["slots"] if p["state"] == "prefilling")
    part["n_tokens"] -= 1
    done = weir("replay", path_of("changed.jsonl", "\n".join(json.dumps(x) for x in changed)))
    check("a plan that differs is named", done.returncode == 0 and f"then tick {tick['tick']}: request {part['request']} had" in done.stdout, done.stdout, done.stderr)
    expect("replay: no file", weir("replay"), 2, "which record")
    expect("replay: a file that is missing", weir("replay", "/nonexistent"), 1, "/nonexistent")
    expect("replay: no record", weir("replay", path), 2, "line 1")
    expect("replay: no tick", weir("replay", path_of("head.jsonl", lines[0])), 2, "no tick")
    expect("replay: a damaged line", weir("replay", path_of("damaged.jsonl", "\n".join(lines).replace('"tick_ns":', '"tick_ns":-', 1))), 2, "tick_ns")
    expect("replay: a strategy that is none", weir("replay", ring, "--strategy", "x"), 2, "decode-maximal")
    expect("replay: whose strategy is not known", weir("replay", other), 2, "--strategy")
    done = weir("stream", *options, path, "--ring", os.path.join(scratch.name, "no", "ring.jsonl"), "-q")
    check("a ring that cannot be written is told", done.returncode == 1 and "ring.jsonl" in done.stderr, done.stderr)
    left = [name for name in os.listdir(scratch.name) if name.endswith(".part")]
    check("and leaves nothing behind", not left, left)


def test_drafts():
    """On the fake model only: as a draft model for itself, but faster, it is always right, with another seed never."""
    right, wrong = "fake:tick_us=300,token_us=10", "fake:seed=5"
    ring = os.path.join(scratch.name, "drafts.jsonl")
    requests = path_of("drafts.json", json.dumps({"requests": [{"prompt": "x" * n, "max_tokens": 30 + n, "temp": n % 2, "seed": n}
                                                               for n in range(1, 13)]}))
    for slots in ["1", "4"]:
        options = ["stream", requests, "-m", right, "--slots", slots, "--json", "-q", "--cache-sequences", "0", "--ring", ring]
        texts = {}
        for name, more in [("none", ["--draft-max", "0"]), ("right", ["-md", "fake:"]), ("wrong", ["--draft-model", wrong, "--no-prompt-lookup"])]:
            done = weir(*options, *more)
            tokens = {}
            for line in lines_of(done):
                tokens.setdefault(line.get("request"), []).extend(line.get("tokens", []))
            texts[name] = tokens
            with open(ring) as file:
                ticks = [line for line in map(json.loads, file) if "tick" in line]
            n_accepted = sum(t.get("n_accepted", 0) for t in ticks)
            check(f"{slots} slots, {name}: drafts are recorded", done.returncode == 0 and
                  (n_accepted > 0 or name != "right") and
                  all(t.get("n_accepted", 0) <= t.get("n_drafted", 0) for t in ticks), n_accepted, done.stderr)
            figures = json.loads(weir("replay", ring, "--json").stdout)
            check(f"{slots} slots, {name}: and replayed", figures["reproduced"] and figures["recorded"] == figures["replayed"], figures)
        check(f"{slots} slots: all answers are the same", texts["right"] == texts["none"] == texts["wrong"] and len(texts["none"]) >= 12, texts)
    expect("drafts that are too long", run("-p", "x", "--draft-max", "33"), 2, "--draft-max", "0 to 32")
    expect("another vocabulary", run("-p", "x", "-md", "fake:n_vocab=1000"), 2, "--draft-model", "vocabulary")
    expect("no draft model", run("-p", "x", "-md", "/nonexistent.gguf"), 3, "/nonexistent.gguf")


def test_ring_suspensions():
    """In a pool that is too small, with priorities, under each strategy: what is suspended is suspended again."""
    dice = random.Random(20261122)
    ring, n_suspended = os.path.join(scratch.name, "tight.jsonl"), 0
    for strategy in ["prefill-priority", "balanced", "decode-maximal", "latency-target"]:
        requests = [{"prompt": "x" * dice.randint(1, 80), "max_tokens": dice.randint(60, 90), "temp": 0, "ignore_eos": True,
                     "priority": dice.choice([0, 0, 3, -2])} for _ in range(24)]
        requests[7]["deadline_ms"] = 40
        done = weir("stream", "-m", "fake:tick_us=700,token_us=40", "--slots", "4", "--chunk", "32", "-b", "64", "-ub", "24", "-c", "192",
                    "--kv", "220", "--layout", "unified", "--ageing", "20", "--strategy", strategy, "--itl-target", "2",
                    path_of("tight.json", json.dumps({"requests": requests})), "--ring", ring, "-q", "--cache-sequences", "0")
        played = weir("replay", ring, "--json")
        figures = json.loads(played.stdout)
        n_suspended += figures["recorded"]["suspensions"]
        check(f"{strategy}: a tight pool's replay is the same, tick for tick", done.returncode == 0 and figures["reproduced"] and
              figures["recorded"] == figures["replayed"] and figures["same_ticks"] == figures["recorded"]["ticks"], done.stderr, played.stdout)
    with open(ring) as file:
        lines = [json.loads(line) for line in file]
    check("a record tells the engine and the priorities", lines[0]["strategy"] == "latency-target" and lines[0]["itl_target_ms"] == 2 and
          lines[0]["ageing_ms"] == 20 and lines[0]["n_ubatch"] == 24 and
          [x.get("priority", 0) for x in lines if "arrival" in x] == [x["priority"] for x in requests], lines[0])
    moves = [(x["tick"], p) for x in lines if "tick" in x for p in x["slots"] if "suspended" in p or "resumed" in p]
    check("requests were suspended, and resumed", n_suspended > 0 and len(moves) > 1, n_suspended)
    check("passes are those of the batches", all(x["n_passes"] == -(-(x["n_prefill"] + x["n_decode"] + x.get("n_drafted", 0)) // 24) for x in lines if "tick" in x))
    tick, part = next((t, p) for t, p in moves if "resumed" in p and p.get("n_past", 0) > 0)
    part["n_past"] = 0
    done = weir("replay", path_of("lost.jsonl", "\n".join(json.dumps(x) for x in lines)))
    check("what was lost is lost again", f"then tick {tick}: request {part['request']} had" in done.stdout and "suspensions: " in done.stdout, done.stdout)
    tick, part = next((t, p) for t, p in moves if "suspended" in p)
    next(x for x in lines if x.get("tick") == tick)["slots"].remove(part)
    done = weir("replay", path_of("kept.jsonl", "\n".join(json.dumps(x) for x in lines)))
    check("a suspension that differs is named", f"then tick {tick}: request {part['request']} was suspended, but only in the replay" in done.stdout, done.stdout)


def test_stream_signals():
    path = path_of("long.json", json.dumps({"ignore_eos": True, "requests": [{"prompt": f"Story {i}"} for i in range(6)]}))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start("stream", "-m", SLOW, path, "--slots", "3")
        process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        lines = [json.loads(line) for line in out.decode().splitlines()]
        ends = [x["request"] for x in lines if x.get("finished")]
        check(f"{number.name}: each request gets its end", process.returncode == code and sorted(ends) == list(range(6)) and
              all(x["reason"] == "cancelled" for x in lines if x.get("finished")), process.returncode, ends, err)
    process = start("stream", "-m", SLOW, path)
    process.stdout.readline()
    process.stdout.close()
    check("a reader that leaves ends the batch quietly", wait_gone(process, PATIENCE) == 0 and process.stderr.read() == b"", process.returncode)


# ---- On a terminal ----

def panes(n=3, model=None, columns=80, rows=24, env=None, words=(), **fields):
    request = {"ignore_eos": True, "requests": [dict({"name": f"pane{i}", "prompt": f"Story {i}"}, **fields) for i in range(n)]}
    path = path_of(f"panes{n}.json", json.dumps(request))
    return Terminal([WEIR, "stream", "-m", model or SLOW, path, *words], columns, rows, dict(environment(), **(env or {})))


def focus(screen):
    marked = [line for line in screen.lines() if line.startswith("▶")]
    return marked[0].split()[1] if len(marked) == 1 else None


def in_order(terminal):
    screen = terminal.screen
    return (not screen.alternate and screen.cursor_shown and not screen.styled and terminal.settings_kept() and
            not screen.unknown)


def test_panes():
    terminal = panes()
    shown = terminal.wait_for(lambda s: s.alternate and s.text().count("generating") == 3, PATIENCE)
    check("a pane for each request", shown and all(f"pane{i}" in terminal.screen.text() for i in range(3)), terminal.screen.text())
    check("title and keys", "weir stream" in terminal.screen.lines()[0] and "running" in terminal.screen.lines()[0] and
          "s skip" in terminal.screen.lines()[-1], terminal.screen.text())
    check("the cursor is hidden and keys are not echoed", not terminal.screen.cursor_shown and not terminal.settings_kept())
    check("panes show tokens, rate and text", terminal.wait_for(
        lambda s: all(re.search(r"\d+ tokens +[\d.]+ tok/s", line) for line in s.lines() if "generating" in line) and
        len([l for l in s.lines()[1:-1] if l.strip() and "pane" not in l]) >= 3, PATIENCE), terminal.screen.text())
    moves = []
    for key in ("\t", "j", "\x1b[B", "k", "\x1b[A", "\x1b[Z", "\x1bOB", "g", "G"):
        terminal.keys(key)
        before = focus(terminal.screen)
        terminal.wait_for(lambda s: focus(s) not in (None, before), 1)
        moves.append(focus(terminal.screen))
    # down, down, (end of the list: stays), up, up, around to the last, stays, first, last
    check("Tab, arrows, j, k, g and G move the focus", moves == ["2", "3", "3", "2", "1", "3", "3", "1", "3"], moves)
    terminal.keys("s")
    check("s cancels the pane in focus only", terminal.wait_for(lambda s: s.text().count("cancelled") == 1 and
          any("pane2" in l and "cancelled" in l for l in s.lines()), PATIENCE), terminal.screen.text())
    check("the others go on", terminal.wait_for(lambda s: s.text().count("generating") == 2, PATIENCE), terminal.screen.text())
    terminal.keys("q")
    code = terminal.finish(PATIENCE)
    check("q cancels all and exits with 130", code == 130, code)
    check("the terminal is as before", in_order(terminal), terminal.screen.unknown, terminal.screen.styled)
    text = terminal.output[terminal.output.rindex("\x1b[?1049l"):]
    check("then the whole texts are printed", all(f"pane{i}" in text for i in range(3)) and text.count("cancelled") == 3 and
          "3 requests" in text, text)
    check("no row was longer than the screen", terminal.screen.overflows == 0 or not terminal.screen.alternate)
    terminal.close()


def test_panes_end():
    terminal = panes(4, max_tokens=12)
    code = terminal.finish(PATIENCE)
    check("a batch that ends by itself", code == 0 and in_order(terminal) and "\x1b[?1049h" in terminal.output, code, terminal.output[-800:])
    terminal.close()
    terminal = panes(2)
    terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
    terminal.keys("\x03")
    check("Ctrl-C", terminal.finish(PATIENCE) == 130 and in_order(terminal), terminal.output[-500:])
    terminal.close()
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGSEGV, -signal.SIGSEGV)):
        terminal = panes(2)
        terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
        terminal.process.send_signal(number)
        got = terminal.finish(PATIENCE)
        sanitized = number == signal.SIGSEGV and got is not None and got != 0
        check(f"{number.name} puts the terminal in order", (got == code or sanitized) and in_order(terminal), got, terminal.output[-300:])
        terminal.close()


def test_panes_size():
    terminal = panes(30, words=("--slots", "4"))
    terminal.wait_for(lambda s: s.text().count("generating") >= 4 and "queued" in s.text(), PATIENCE)
    check("some wait", "26 queued" in terminal.screen.lines()[0] and "19 below" in terminal.screen.text(), terminal.screen.text())
    seen = []
    for i in range(29):
        terminal.keys("j")
        terminal.wait_for(lambda s: focus(s) == str(i + 2), 2)
        seen.append(focus(terminal.screen))
    check("panes scroll with the focus", seen == [str(i + 2) for i in range(29)], seen)
    check("what is above and below is told", "19 above" in terminal.screen.text(), terminal.screen.text())
    for columns, rows in ((50, 10), (120, 40), (20, 4), (10, 1), (80, 24)):
        terminal.screen.overflows = 0
        terminal.resize(columns, rows)
        drawn = terminal.wait_for(lambda s: focus(s) == "30" and s.text().count("weir stream") == 1 or rows < 4, 3)
        terminal.read(0.2)
        lines = terminal.screen.lines()
        check(f"a window of {columns} × {rows}", drawn and terminal.process.poll() is None and
              (columns < 40 or terminal.screen.overflows == 0) and (rows < 10 or "s skip" in lines[-1]),
              terminal.screen.overflows, terminal.screen.text())
    terminal.keys("q")
    check("q ends it", terminal.finish(PATIENCE) == 130 and in_order(terminal))
    terminal.close()


def test_panes_keys():
    terminal = panes(3, model=STUCK)
    terminal.wait_for(lambda s: s.alternate and focus(s) == "1", PATIENCE)
    started = time.monotonic()
    terminal.keys("\t")
    moved = terminal.wait_for(lambda s: focus(s) == "2", 2)
    check("keys are read while nothing arrives", moved and time.monotonic() - started < 1, terminal.screen.text())
    terminal.keys("s")
    check("a skip is shown at once", terminal.wait_for(lambda s: "cancelling" in s.text() or "cancelled" in s.text(), 1), terminal.screen.text())
    terminal.keys("\x1b[")  # an arrow in two pieces
    terminal.read(0.3)
    terminal.keys("B")
    check("an arrow in two pieces", terminal.wait_for(lambda s: focus(s) == "3", 2), terminal.screen.text())
    terminal.process.send_signal(signal.SIGINT)
    check("SIGINT ends a tick of three seconds", terminal.finish(2) == 130 and in_order(terminal), terminal.output[-300:])
    terminal.close()


def test_panes_suspend():
    def state():
        with open(f"/proc/{terminal.process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    if not os.path.exists("/proc/self/stat"):
        return
    terminal = panes(2)
    terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
    terminal.keys("\x1a")
    end = time.monotonic() + 5
    while state() != "T" and time.monotonic() < end:
        terminal.read(0.05)
    terminal.read(0.1)
    check("Ctrl-Z stops it with the terminal in order", state() == "T" and in_order(terminal), state(), terminal.output[-200:])
    terminal.process.send_signal(signal.SIGCONT)
    check("and it goes on where it was", terminal.wait_for(lambda s: s.alternate and "generating" in s.text() and s.entered == 2, PATIENCE),
          terminal.screen.text())
    terminal.keys("q")
    check("and ends in order", terminal.finish(PATIENCE) == 130 and in_order(terminal))
    terminal.close()


def test_panes_stdin():
    path = path_of("piped.json", json.dumps({"ignore_eos": True, "requests": [{"prompt": "a"}, {"prompt": "b"}]}))
    terminal = Terminal(["sh", "-c", 'cat "$2" | "$0" stream -m "$1" -', WEIR, SLOW, path], env=environment())
    terminal.wait_for(lambda s: s.text().count("generating") == 2, PATIENCE)
    terminal.keys("j")
    check("requests from a pipe, keys from the terminal", terminal.wait_for(lambda s: focus(s) == "2", 2), terminal.screen.text())
    terminal.keys("q")
    check("and q", terminal.finish(PATIENCE) == 130 and in_order(terminal))
    terminal.close()


def test_terminal_run():
    def on_terminal(*words, env=None, model=MODEL):
        return Terminal([WEIR, "run", "-m", model, *words], env=dict(environment(), **(env or {})))

    terminal = on_terminal("-p", "Name a river.", "-n", "10", "--temp", "0", "--ignore-eos")
    code = terminal.finish(PATIENCE)
    check("run on a terminal: answer and figures", code == 0 and "answer 10 tokens" in terminal.screen.text() and in_order(terminal), terminal.output)
    check("the progress line is gone", "loading" not in terminal.screen.text(), terminal.screen.text())
    check("loading was shown", "loading" in terminal.output, terminal.output)
    check("figures are dimmed", terminal.screen.styles > 0)
    terminal.close()
    terminal = on_terminal("-p", "Name a river.", "-n", "10", "--temp", "0", env={"NO_COLOR": "1"})
    terminal.finish(PATIENCE)
    check("NO_COLOR: no styles", terminal.screen.styles == 0 and "answer" in terminal.screen.text(), repr(terminal.output))
    terminal.close()
    terminal = on_terminal("-p", "Name a river.", "-n", "10", "--temp", "0", env={"TERM": "dumb"})
    terminal.finish(PATIENCE)
    check("TERM=dumb: no escape sequences", "\x1b" not in terminal.output, repr(terminal.output))
    terminal.close()
    terminal = on_terminal()
    code = terminal.finish(PATIENCE)
    check("no prompt on a terminal", code == 2 and "there is no prompt" in terminal.screen.text(), code, terminal.output)
    terminal.close()
    terminal = on_terminal("-p", "Tell me a long story.", "--ignore-eos", model=SLOW)
    terminal.wait_for(lambda s: len(s.text().strip()) > 10 and not re.search("loading|preparing|reading", s.text()), PATIENCE)
    terminal.keys("\x03")
    code = terminal.finish(PATIENCE)
    check("Ctrl-C while it answers", code == 130 and "cancelled" in terminal.screen.text() and in_order(terminal), code, terminal.output[-300:])
    terminal.close()
    if FAKE:
        terminal = on_terminal("--raw", "-p", "x" * 3000, "--chunk", "100", model="fake:token_us=1000")
        check("a long prompt: how far it is read", terminal.wait_for(lambda s: re.search(r"reading the prompt: \d+00 of 30\d\d tokens", s.text()), PATIENCE),
              terminal.screen.text())
        terminal.keys("\x03")
        check("Ctrl-C while it reads", terminal.finish(PATIENCE) == 130 and "reading" not in terminal.screen.text(), terminal.screen.text())
        terminal.close()
        terminal = on_terminal("-p", "x", "-n", "300", "--ignore-eos", "--special", model="fake:any=1")
        terminal.finish(PATIENCE)
        check("control characters do not reach the terminal", terminal.screen.unknown == [], terminal.screen.unknown[:5])
        terminal.close()


def test_reasoning():
    if FAKE:  # it has no parser of its own
        return
    template = path_of("think.jinja", """{%- for m in messages %}{%- if m.role == 'assistant' and m.reasoning_content -%}
<think>{{ m.reasoning_content }}</think>{%- endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}""")
    words = ["--chat-template-file", template, "-p", "x", "--grammar", 'root ::= "Let me see.\\n</think>\\n\\nYes."', "-q"]
    answer = json.loads(run(*words, "--json").stdout)
    check("thoughts are told apart", answer["text"] == "Yes." and answer.get("reasoning", "").strip() == "Let me see.", answer)
    check("off a terminal only the answer is printed", run(*words).stdout == "Yes.\n")
    terminal = Terminal([WEIR, "run", "-m", MODEL, *words], env=environment())
    code = terminal.finish(PATIENCE)
    check("on a terminal thoughts are dimmed", code == 0 and "\x1b[2mLet me see." in terminal.output.replace("\r\n", "\n") and
          terminal.screen.lines()[:3] == ["Let me see.", "", "Yes."] and in_order(terminal), repr(terminal.output[-300:]), terminal.screen.text())
    terminal.close()


def test_no_colour_panes():
    terminal = panes(2, env={"NO_COLOR": "1"})
    terminal.wait_for(lambda s: "generating" in s.text(), PATIENCE)
    check("NO_COLOR: panes without styles, the focus is still seen", focus(terminal.screen) == "1" and terminal.screen.styles == 0, terminal.screen.text())
    terminal.keys("q")
    terminal.finish(PATIENCE)
    terminal.close()


# ---- weir bench engine ----

def test_bench():
    path = os.path.join(scratch.name, "bench.csv")
    done = weir("bench", "engine", "-m", MODEL, "--streams", "1,2", "--prompt", "16", "--gen", "4", "--repeat", "2", "--csv", path)
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +[12] +16 +4 ", line)]
    check("bench engine: a row for each shape", done.returncode == 0 and len(rows) == 2, done.stdout, done.stderr)
    with open(path) as file:
        table = [line.split(",") for line in file.read().splitlines()]
    sides = {row[0] for row in table[1:]}
    check("CSV: a row for each repetition of each side", len({len(row) for row in table}) == 1 and
          len(table) == 1 + 2 * 2 * len(sides) and sides == ({"weir"} if FAKE else {"weir", "plain"}), table)
    done = weir("bench", "engine", "-m", MODEL, "--streams", "2", "--prompt", "16", "--gen", "6", "--repeat", "1", "--json")
    parsed = json.loads(done.stdout)
    row = parsed["rows"][0]
    check("bench engine --json", len(parsed["rows"]) == 1 and row["weir"]["decode_per_second"] > 0 and
          row["weir"]["prefill_per_second"] > 0 and row["streams"] == 2, parsed)
    if not FAKE:
        check("it compares with the plain loop", row["ratio"]["decode"] > 0 and row["plain"]["decode_per_second"] > 0 and
              0 <= row["same_text"] <= 2, row)
    expect("bench engine: too many streams", weir("bench", "engine", "-m", MODEL, "--streams", "1,500"), 2, "--streams")
    expect("bench engine: no number", weir("bench", "engine", "-m", MODEL, "--streams", "1,,2"), 2, "--streams")
    expect("bench engine: a CSV that cannot be written", weir("bench", "engine", "-m", MODEL, "--csv", "/nonexistent/x.csv"), 1, "/nonexistent/x.csv")
    process = start("bench", "engine", "-m", SLOW, "--streams", "4", "--prompt", "64", "--gen", "2000", "--repeat", "9")
    time.sleep(1 if FAKE else 4)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    check("bench engine: SIGINT", process.returncode == 130, process.returncode)
    if FAKE:
        parsed = json.loads(weir("bench", "engine", "--emit", "--repeat", "1", "--json").stdout)
        check("bench engine --emit", 0 < parsed["us_per_token"] < 1000 and parsed["slots"] == 8, parsed)
        parsed = json.loads(weir("bench", "schedule", "--slots", "4", "--cache-nodes", "50", "--ticks", "20", "--json").stdout)
        check("bench schedule", parsed["ticks"] == 20 and 0 < parsed["decide_us"]["p50"] <= parsed["decide_us"]["max"], parsed)
        expect("bench schedule: a range", weir("bench", "schedule", "--slots", "257"), 2, "--slots is 257; allowed: 1 to 256")


# ---- weir bench kernels ----

def test_bench_kernels():
    path = os.path.join(scratch.name, "kernels.csv")
    done = weir("bench", "kernels", "--quick", "--rows", "1", "--csv", path)
    if done.returncode == 1 and "without llama.cpp" in done.stderr:
        return
    names = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "q4_K", "q5_K", "q6_K", "bf16", "f16", "attention"]
    lines = [line.split()[0] for line in done.stdout.splitlines() if line]
    check("bench kernels: each once, and the limits", done.returncode == 0 and all(lines.count(name) == 1 for name in names) and
          "GB/s from memory" in done.stdout, done.stdout, done.stderr)
    with open(path) as file:
        table = [line.split(",") for line in file.read().splitlines()]
    check("bench kernels: CSV", len({len(row) for row in table}) == 1 and {row[1] for row in table[1:]} >= set(names), table)
    parsed = json.loads(weir("bench", "kernels", "--quick", "--json", "--repeat", "2").stdout)
    check("bench kernels --json", parsed["repetitions"] == 2 and parsed["limits"][0]["gb_per_second"] > 0 and
          all(row["ggml"]["gmac_per_second"] > 0 for row in parsed["rows"]), parsed)
    ours = [row for row in parsed["rows"] if row["weir"] is not None]
    check("bench kernels: both sides compute the same", len(ours) == (len(parsed["rows"]) if parsed["kernels"] else 0) and
          all(row["ratio"] > 0 and row["difference"] is not None and row["difference"] < 0.01 for row in ours), parsed)
    off = json.loads(weir("bench", "kernels", "--quick", "--json", env=environment(WEIR_KERNELS="off")).stdout)
    check("bench kernels: without weir's", off["kernels"] == "" and all(row["weir"] is None for row in off["rows"]), off)
    done = weir("bench", "kernels", "--quick", "--kernel", "Q4_k", "--shape", "512x32", "--shape", "64x32", "--rows", "3")
    lines = [line for line in done.stdout.splitlines() if line.startswith("q4_K")]
    check("bench kernels: blocks that do not fit are left out", done.returncode == 0 and len(lines) == 1 and "512x32" in lines[0],
          done.stdout, done.stderr)
    expect("bench kernels: an unknown one", weir("bench", "kernels", "--kernel", "q9"), 2, "--kernel", "q9", "mxfp4")
    for shape in ("", "512", "512x", "x512", "512x17", "33x16", "512x512x", "32x999999999999"):
        expect(f"bench kernels --shape '{shape}'", weir("bench", "kernels", f"--shape={shape}"), 2, "--shape")
    expect("bench kernels: too many rows", weir("bench", "kernels", "--rows", "1,5000"), 2, "--rows")
    expect("bench kernels: too many threads", weir("bench", "kernels", "--threads", "1000000"), 2, "--threads")
    expect("bench kernels: too much memory", weir("bench", "kernels", "--memory", "2000000000"), 2, "--memory")
    expect("bench kernels: never", weir("bench", "kernels", "--repeat", "0"), 2, "--repeat")
    expect("bench kernels: a word", weir("bench", "kernels", "fast"), 2, "fast")
    expect("bench kernels: a CSV that cannot be written", weir("bench", "kernels", "--quick", "--csv", "/nonexistent/x.csv"), 1,
           "/nonexistent/x.csv")
    process = start("bench", "kernels", "--threads", "1", "--memory", "16", "--repeat", "1000")
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    check("bench kernels: SIGINT", process.returncode == 130, process.returncode)


# ---- README ----

def test_example():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(here, "README.md"), encoding="utf-8") as file:
        example = re.search(r"```c hello\n(.*?)```", file.read(), re.S)
    with open(os.path.join(here, "examples", "hello.c"), encoding="utf-8") as file:
        program = file.read().split("*/\n", 1)[1]
    check("examples/hello.c is the example of README.md", example is not None and example.group(1) == program)


# What says something about a model, and what is the same on every model: on a real one that would only take time.
WITH_MODEL = [test_run, test_run_json, test_run_limits, test_grammar, test_models, test_info, test_optimize, test_signals, test_random_moments,
              test_pipes, test_stream_lines, test_stream_signals, test_panes, test_panes_end, test_terminal_run, test_reasoning, test_bench]
WITHOUT = [test_help, test_version, test_ring, test_ring_suspensions, test_drafts, test_words, test_bad_files, test_panes_size, test_panes_keys, test_panes_suspend,
           test_panes_stdin, test_no_colour_panes, test_bench_kernels, test_example]


def main():
    only = os.environ.get("CLI_TEST_ONLY", "").split()
    for test in (WITHOUT if FAKE else []) + WITH_MODEL:
        if only and test.__name__ not in only:
            continue
        try:
            test()
        except Exception as error:  # pylint: disable=broad-except
            check(f"{test.__name__} ran to its end", False, f"{type(error).__name__}: {error}")
    print(f"{results['passed']} passed, {results['failed']} failed")
    sys.exit(results["failed"] > 0)


main()
