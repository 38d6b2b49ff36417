#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes the product's C in small ways and tells which changes no test notices.

usage: mutants.py run [options] [FILE[:LINE[-LINE]] | FOLDER ...]   makes mutants, tests them, appends to the results
       mutants.py table [--out RESULTS]                            what came of them, by folder and by operator
       mutants.py survivors [--out RESULTS]                        those that no test noticed, with their change
       mutants.py mark ID WHY [--out RESULTS]                      a survivor that behaves as the original, and why

A mutant is one change by one operator: a boundary moved, a condition negated, a constant one off, a statement removed, two
arguments swapped, and so on (OPERATORS below). It is built in a copy of the tree, build/mutants/, so that no other build sees it, and
edits meanwhile do not matter. Then the tests run that may know it: first those of the same name (cache.c: cache_test,
cache_*_test), then all beside it, then those that NAMED gives to its folder. It is killed by the first test that fails, crashes or
takes too long. What the compiler turns into the same object is equivalent without a run; what does not compile is no mutant, and
another takes its place.

Which mutants are made follows from the seed and the files alone. The results are lines of JSON; a run that was interrupted goes on
where it stopped, and a larger --count adds to what is there. This takes hours for hundreds, so it is no part of the checks.

  --count N      mutants that compile (100)
  --seed N       which ones (1)
  --preset NAME  unit (default): the fake backend, all of src but what needs llama.cpp, cli, server. release: those too
  --sanitize     build with the address and undefined-behaviour sanitizers, as the checks do
  --out FILE     results (build/mutants.jsonl)
  --jobs N       compilers at once (all processors)

After a change to the code or the tests, run with another --out or another seed: what is in the results is not tried again."""
import argparse
import collections
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "mutants"

# Tests that cross modules, for the folders and files that they exercise. Names as ctest has them; * stands for anything.
NAMED = {
    "src/base": ["text_test", "hub_http_test"],
    "src/cache": ["prefix_test", "suspend_test", "fork_test", "cache_dir_test", "random_schedule_test"],
    "src/engine": ["random_schedule_test", "cancel_storm_test", "threads_test", "wake_test"],
    "src/grammar": ["settings_test"],
    "src/model": ["settings_test"],
    "src/schedule": ["batch_test", "step_test", "cancel_test", "engine_test", "speculate_test", "random_schedule_test", "cli_bench_test"],
    "src/speculate": ["drafter_test", "speculate_test", "rotation_test", "random_schedule_test"],
    "src/backend": ["engine_test", "suspend_test"],
    "src/hub": ["hub_http_test", "hub_tls_test"],
    "src/transfer": ["hub_http_test", "hub_tls_test", "bench_http_test", "cli_top_test"],
    "cli": ["cli_*_test", "settings_test", "bench_http_test"],
    "server": ["server_test", "server_api_test", "server_choices_test", "server_fuzz_test", "server_http_test", "server_keys_test", "server_lora_test",
               "server_native_test", "server_proxies_test", "server_words_test", "server_messages_test", "server_responses_test", "server_infill_test",
               "form_test"],
    **{f"server/{name}.c": ["server_resume_test"] for name in ("answer", "choice", "events", "kept", "tape")},  # minutes
    **{f"server/{name}.c": ["server_faults_test"] for name in ("call", "connection", "event_loop", "gate", "listener", "log", "server", "sweep", "tls")},
}
PRODUCT = ["src", "cli", "server"]
# Tests by chance draw the same for each mutant, and less than alone.
ENVIRONMENT = dict(os.environ, WEIR_TEST_SEED="1", WEIR_TEST_SCHEDULES="3000", WEIR_TEST_SECONDS="5", CTEST_PARALLEL_LEVEL="2",
                   WEIR_FAULTS="100", WEIR_FUZZ_SECONDS="3", **{f"WEIR_{name}_SEED": "1" for name in ("FAULTS", "FUZZ", "PROXY", "RESUME")})

# ---- Reading C -----------------------------------------------------------------------------------------------

TOKEN = re.compile(r"""
    (?P<skip>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ \t]*\#(?:\\\n|[^\n])*|\s+)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)[uUlLfF]*)
  | (?P<sign><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|\.\.\.|.)
""", re.X | re.S | re.M)

Token = collections.namedtuple("Token", "kind text at")


def tokens_of(text):
    """Without comments, texts and preprocessor lines, and without what stands in an assert."""
    found = [Token(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(text) if m.lastgroup != "skip"]
    kept, i = [], 0
    while i < len(found):
        if found[i].text in ("assert", "static_assert", "_Static_assert"):
            i = closing(found, i + 1)
        else:
            kept.append(found[i])
        i += 1
    return kept


def closing(tokens, i):
    """Where the bracket at i is closed."""
    depth = 0
    while i < len(tokens):
        depth += (tokens[i].text in "([{") - (tokens[i].text in ")]}")
        if depth == 0:
            return i
        i += 1
    return i - 1


def is_operand(token):
    return token.kind == "number" or token.text in (")", "]") or token.kind == "word" and token.text not in ("return", "case", "sizeof", "else")


# ---- Operators: each yields (begin, end, replacement) --------------------------------------------------------


def signs(table, binary=False):
    def operator(text, tokens):
        for before, token in zip(tokens, tokens[1:]):
            if token.text in table and (not binary or is_operand(before)):
                yield token.at, token.at + len(token.text), table[token.text]
    return operator


def negation(text, tokens):
    """if (x) and while (x) become if (!(x)); !x becomes x."""
    for i, token in enumerate(tokens[:-1]):
        if token.text in ("if", "while") and tokens[i + 1].text == "(":
            begin, end = tokens[i + 1].at + 1, tokens[closing(tokens, i + 1)].at
            if text[begin:end].strip() not in ("true", "1"):
                yield begin, end, "!(" + text[begin:end] + ")"
        elif token.text == "!" and tokens[i + 1].text != "=":
            yield token.at, token.at + 1, ""


def constant(text, tokens):
    """One more; and nothing, for what is neither 0 nor 1."""
    for token in tokens:
        if token.kind == "number" and re.fullmatch(r"\d+[uUlL]*", token.text):
            digits = re.match(r"\d+", token.text).group()
            rest = token.text[len(digits):]
            yield token.at, token.at + len(token.text), str(int(digits) + 1) + rest
            if int(digits) > 1:
                yield token.at, token.at + len(token.text), "0" + rest


def truth(text, tokens):
    table = {"true": "false", "false": "true"}
    for token in tokens:
        if token.text in table:
            yield token.at, token.at + len(token.text), table[token.text]


STATEMENT = re.compile(r"(?:[\w.>\[\]*()&-]+ (?:[-+*/%&|^]|<<|>>)?= [^;{}]*|\*?\w[\w.>\[\]-]*(?:\+\+|--)|(?:\+\+|--)\w[\w.>\[\]-]*|(?!return\b|if\b|for\b|while\b|switch\b|goto\b|assert\b)\w+\([^;{}]*\)|break|continue);")


def removal(text, tokens):
    """A statement that stands on a line of its own."""
    at, ended = 0, True
    for line in text.splitlines(keepends=True):
        bare = re.sub(r"/\*.*?\*/", "", line).strip()
        if line.startswith(" ") and ended and STATEMENT.fullmatch(bare):
            begin = at + line.index(bare)
            yield begin, begin + len(bare), ";"
        if bare:
            ended = bare[-1] in ";{}:" or bare.endswith(("else", ")")) and not bare.endswith(("&&)", "||)"))
        at += len(line)


def swap(text, tokens):
    """Two neighbouring arguments of a call."""
    for i, token in enumerate(tokens[:-1]):
        line = text.rfind("\n", 0, token.at) + 1
        if token.kind != "word" or tokens[i + 1].text != "(" or token.text in ("if", "while", "for", "switch", "sizeof", "return") or text[line] not in " \t":
            continue
        end, depth, begin, parts = closing(tokens, i + 1), 0, tokens[i + 1].at + 1, []
        for t in tokens[i + 2:end + 1]:
            if depth == 0 and (t.text == "," or t is tokens[end]):
                parts.append((begin, t.at))
                begin = t.at + 1
            depth += (t.text in "([{") - (t.text in ")]}")
        for (a, b), (c, d) in zip(parts, parts[1:]):
            first, second = text[a:b].strip(), text[c:d].strip()
            if first and second and first != second:
                yield a, d, f"{second}, {first}"


OPERATORS = {
    "boundary": signs({"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    "equality": signs({"==": "!=", "!=": "=="}),
    "negation": negation,
    "logic": signs({"&&": "||", "||": "&&"}),
    "arithmetic": signs({"+": "-", "-": "+", "%": "/", "/": "*"}, binary=True),
    "assignment": signs({"+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "++": "--", "--": "++"}),
    "bits": signs({"&": "|", "|": "&", "<<": ">>", ">>": "<<", "^": "|"}, binary=True),
    "constant": constant,
    "truth": truth,
    "removal": removal,
    "swap": swap,
}

# ---- Mutants -------------------------------------------------------------------------------------------------

Mutant = collections.namedtuple("Mutant", "id file line operator before after begin end text")


def mutants_of(base, file):
    text = (base / file).read_text()
    tokens, seen = tokens_of(text), collections.Counter()
    for name, operator in OPERATORS.items():
        for begin, end, replacement in operator(text, tokens):
            first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
            before = text[first:last]
            after = text[first:begin] + replacement + text[end:last]
            # By content, not by line, so that edits elsewhere in the file leave the names alone.
            what = f"{file}\0{name}\0{before}\0{after}"
            seen[what] += 1
            yield Mutant(hashlib.sha1(f"{what}\0{seen[what]}".encode()).hexdigest()[:10], file, text.count("\n", 0, begin) + 1, name, before.strip(),
                         after.strip(), begin, end, replacement)


def chosen_files(words, preset):
    """(file, first line, last line) for what the words name; all of the product without any."""
    ranges = []
    for word in words or PRODUCT:
        m = re.fullmatch(r"(.+?)(?::(\d+)(?:-(\d+))?)?", word)
        path, first, last = m.group(1).rstrip("/"), int(m.group(2) or 1), int(m.group(3) or m.group(2) or 1 << 30)
        path = os.path.relpath(path if os.path.exists(path) else ROOT / path, ROOT)
        files = [path] if path.endswith(".c") else sorted(str(p.relative_to(ROOT)) for p in (ROOT / path).rglob("*.c"))
        if not files or not (ROOT / files[0]).exists():
            sys.exit(f"mutants.py: {word} names no C file of {', '.join(PRODUCT)}")
        ranges += [(f, first, last) for f in files if not f.endswith("_test.c") and not (preset == "unit" and needs_llama(f))]
    return ranges


def needs_llama(file):
    return re.search(r"^src/backend/(llama[^/]*|no_hook|statics|kernels/.*)\.c$|_avx(2|512)\.c$", file) is not None


def in_order(base, ranges, seed):
    """One of each operator in turn, so that none crowds the others out; at most one of each line and operator."""
    by_operator, lines = {name: [] for name in OPERATORS}, set()
    for file, first, last in ranges:
        for mutant in mutants_of(base, file):
            if first <= mutant.line <= last:
                by_operator[mutant.operator].append(mutant)
    order = random.Random(seed)
    for group in by_operator.values():
        order.shuffle(group)
    for row in range(max(map(len, by_operator.values()), default=0)):
        for name in OPERATORS:
            if row < len(by_operator[name]):
                mutant = by_operator[name][row]
                if (mutant.file, mutant.line, name) not in lines:
                    lines.add((mutant.file, mutant.line, name))
                    yield mutant


# ---- The copy, and what is built and run there ----------------------------------------------------------------


def run(words, limit, cwd=None):
    """(exit status or None when it took too long, output). It gets a process group, all of which ends with it."""
    process = subprocess.Popen(words, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    try:
        output = process.communicate(timeout=limit)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


class Bench:
    """A copy of the tree and its build."""

    def __init__(self, preset, sanitize, jobs):
        self.preset, self.sanitize, self.jobs = preset, sanitize, jobs
        self.tree = TREE / (preset + ("-sanitized" if sanitize else ""))
        self.build = self.tree / "build" / preset
        self.seconds = {}  # of each test, unchanged
        self.known = set()  # groups of tests that are built and pass

    def copy(self):
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        names = {n for n in listed.stdout.split("\0") if n and (ROOT / n).is_file()}
        for name in names:
            to = self.tree / name
            if not to.exists() or to.read_bytes() != (ROOT / name).read_bytes():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, to)
        for old in self.tree.rglob("*_test.[cp]*"):  # tests that are no longer
            if self.build not in old.parents and str(old.relative_to(self.tree)) not in names:
                old.unlink()

    def prepare(self):
        self.copy()
        # A swap of a pointer and a number is no mutant.
        words = ["cmake", "--preset", self.preset, "-DCMAKE_C_FLAGS=-Werror=incompatible-pointer-types -Werror=int-conversion"]
        words += ["-DWEIR_SANITIZE=" + ("address,undefined" if self.sanitize else "")] + (["-G", "Ninja"] if shutil.which("ninja") else [])
        if shutil.which("ld.lld"):
            words.append("-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld")  # most of the time goes into linking tests
        status, output = run(words, 1800, self.tree)
        if status != 0:
            sys.exit(output + "mutants.py: the copy cannot be configured")
        listed = run(["ctest", "--test-dir", str(self.build), "-N"], 60)[1]
        self.tests = re.findall(r"Test +#\d+: (\S+)", listed)

    def compile(self, targets):
        return run(["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", *targets], 1800)

    def groups(self, file):
        """The tests that may know the file, in the order in which they are asked."""
        folder, stem = os.path.dirname(file), pathlib.Path(file).stem
        beside = {p.stem for p in (self.tree / folder).glob("*_test.c")}
        own = {t for t in beside if t == stem + "_test" or t.startswith(stem + "_")}
        named = set()
        for prefix, patterns in NAMED.items():
            if (file + "/").startswith(prefix + "/"):
                named.update(t for t in self.tests for p in patterns if fnmatch.fnmatch(t, p) and "_model_" not in t)
        return [sorted(g & set(self.tests)) for g in (own, beside - own, named - beside) if g & set(self.tests)]

    def targets(self, tests):
        c = [t for t in tests if self.is_program(t)]
        return c + (["weir_cli"] if len(c) < len(tests) else [])

    def is_program(self, test):
        return not (self.tree / "tests" / (test + ".py")).exists() and not (self.tree / "tests" / (test + ".sh")).exists()

    def test(self, tests):
        """None when all pass, else the first that does not. Those that take long come last."""
        tiers = collections.defaultdict(list)
        for name in tests:
            tiers[sum(self.seconds.get(name, 0) > limit for limit in (2, 10, 30))].append(name)
        for _, some in sorted(tiers.items()):
            limit = 30 + 3 * sum(self.seconds.get(t, 600) for t in some)
            status, output = run(["ctest", "--test-dir", str(self.build), "--stop-on-failure", "-R", "^(" + "|".join(some) + ")$"], limit)
            for name, seconds in re.findall(r"Test +#\d+: (\S+) .*Passed +([\d.]+) sec", output):
                self.seconds.setdefault(name, float(seconds))
            if status != 0:
                failed = re.findall(r"Test +#\d+: (\S+) \.*\**(?:Failed|Exception|Timeout|Subprocess|.*\*\*\*)", output)
                return "time" if status is None else (failed or ["?"])[0]
        return None

    def baseline(self, tests):
        """Builds and runs these tests as they are, once: how long they take, and that they pass."""
        if tuple(tests) in self.known:
            return
        status, output = self.compile(self.targets(tests))
        if status != 0:
            sys.exit(output[-4000:] + "mutants.py: the copy does not build")
        failed = self.test(tests)
        if failed is not None:
            sys.exit(f"mutants.py: {failed} fails without any mutant (seen in {self.build})")
        self.known.add(tuple(tests))

    def object_of(self, file):
        found = list(self.build.glob(f"**/*.dir/{file}.o"))
        return hashlib.sha1(found[0].read_bytes()).hexdigest() if len(found) == 1 else None

    def try_one(self, mutant):
        """(status, who noticed)"""
        path = self.tree / mutant.file
        original = path.read_text()
        groups, before = self.groups(mutant.file), None
        try:
            for group in groups:
                self.baseline(group)
                before = before or self.object_of(mutant.file)
                path.write_text(original[:mutant.begin] + mutant.text + original[mutant.end:])
                status, _ = self.compile(self.targets(group))
                if status != 0:
                    return "invalid", ""
                if before is not None and self.object_of(mutant.file) == before:
                    return "equivalent", "the same object"
                noticed = self.test(group)
                if noticed is not None:
                    return "killed", noticed
                path.write_text(original)
            return ("survived" if groups else "untested"), ""
        finally:
            path.write_text(original)


# ---- Results -------------------------------------------------------------------------------------------------


def results_of(out):
    """id -> record; a later mark changes the status."""
    results = {}
    if out.exists():
        for line in out.read_text().splitlines():
            record = json.loads(line)
            results.setdefault(record["id"], {}).update(record)
    return results


def append(out, record):
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "a") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def command_run(options):
    bench = Bench(options.preset, options.sanitize, options.jobs)
    ranges = chosen_files(options.files, options.preset)
    bench.prepare()
    results, valid = results_of(options.out), 0
    for mutant in in_order(bench.tree, ranges, options.seed):
        if valid >= options.count:
            break
        record = results.get(mutant.id)
        if record is None:
            begun = time.monotonic()
            status, by = bench.try_one(mutant)
            record = {"id": mutant.id, "file": mutant.file, "line": mutant.line, "operator": mutant.operator, "before": mutant.before, "after": mutant.after,
                      "status": status, "by": by, "seconds": round(time.monotonic() - begun, 1)}
            append(options.out, record)
            print(f"{valid + 1}/{options.count} {mutant.id} {mutant.file}:{mutant.line} {mutant.operator}: {status} {by}", flush=True)
        valid += record["status"] not in ("invalid", "untested")
    command_table(options)


def command_table(options):
    results = [r for r in results_of(options.out).values() if r.get("status") != "invalid" and "file" in r]
    if not results:
        sys.exit(f"mutants.py: no results in {options.out}")
    print(f"{'':24}{'killed':>8}{'survived':>10}{'equivalent':>12}{'untested':>10}{'score':>8}")

    def row(name, some):
        n = collections.Counter(r["status"] for r in some)
        told = n["killed"] + n["survived"]
        print(f"{name:24}{n['killed']:8}{n['survived']:10}{n['equivalent']:12}{n['untested']:10}{100 * n['killed'] / told if told else 0:7.0f}%")

    for key in (lambda r: os.path.dirname(r["file"]), lambda r: r["operator"]):
        for name in sorted({key(r) for r in results}):
            row(name, [r for r in results if key(r) == name])
        print()
    row("all", results)


def command_survivors(options):
    for r in sorted((r for r in results_of(options.out).values() if r.get("status") == "survived"), key=lambda r: (r["file"], r["line"])):
        print(f"{r['id']} {r['file']}:{r['line']} {r['operator']}\n  - {r['before']}\n  + {r['after']}")


def command_mark(options):
    if results_of(options.out).get(options.id, {}).get("status") not in ("survived", "equivalent"):
        sys.exit(f"mutants.py: no survivor {options.id} in {options.out}")
    append(options.out, {"id": options.id, "status": "equivalent", "by": options.why})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("command", choices=["run", "table", "survivors", "mark"])
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=100, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--preset", default="unit", help=argparse.SUPPRESS)
    parser.add_argument("--sanitize", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "mutants.jsonl", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every finally
    if options.command == "mark":
        if len(options.files) != 2:
            parser.error("mark takes an id and the reason why it behaves as the original")
        options.id, options.why = options.files
    {"run": command_run, "table": command_table, "survivors": command_survivors, "mark": command_mark}[options.command](options)


if __name__ == "__main__":
    main()
