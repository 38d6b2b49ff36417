"""weir tokenize, weir embed, weir quantize, weir info: from outside, on a model without weights."""
# SPDX-License-Identifier: Apache-2.0
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment, run_tests  # noqa: E402
from terminal import Terminal  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
scratch = tempfile.TemporaryDirectory()


def weir(*words, stdin=b""):
    done = subprocess.run([WEIR, *words], input=stdin, capture_output=True, env=environment(), timeout=PATIENCE)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def fails(name, done, code, *parts):
    check(name, done.returncode == code and all(p in done.stderr for p in parts), done.returncode, done.stderr)


def path_of(name, content=None):
    path = os.path.join(scratch.name, name)
    if content is not None:
        with open(path, "wb") as file:
            file.write(content)
    return path


# ---- weir tokenize ----

def test_tokenize():
    text = "Weirs, größer\n"
    ids = weir("tokenize", "-m", "fake:", "--ids", text).stdout.split()
    check("a token for each byte, one before them", ids[1:] == [str(b) for b in text.encode()], ids)
    check("without it", weir("tokenize", "-m", "fake:", "--ids", "--no-special", text).stdout.split() == ids[1:])
    for how, words, stdin in (("a file", ["-f", path_of("text", text.encode())], b""), ("a pipe", [], text.encode()), ("-", ["-"], text.encode())):
        check(f"from {how}", weir("tokenize", "-m", "fake:", "--ids", *words, stdin=stdin).stdout.split() == ids)
    lines = weir("tokenize", "-m", "fake:", text).stdout.splitlines()
    check("a line for each token", [line.split("\t")[0] for line in lines] == ids and lines[1] == '87\t"W"' and lines[-1] == '10\t"\\n"', lines)
    whole = json.loads(weir("tokenize", "-m", "fake:", "--json", text).stdout)
    check("as JSON", whole["n"] == len(ids) and [str(t["id"]) for t in whole["tokens"]] == ids and whole["tokens"][1]["text"] == "W", whole)
    check("an empty text", weir("tokenize", "-m", "fake:", "--no-special", "--ids", stdin=b"").stdout == "\n")
    special = weir("tokenize", "-m", "fake:", "--ids", "--no-special", "<s>").stdout.split()
    check("special tokens are one, or text", len(special) == 1 and
          len(weir("tokenize", "-m", "fake:", "--ids", "--no-special", "--no-parse", "<s>").stdout.split()) == 3, special)
    terminal = Terminal([WEIR, "tokenize", "-m", "fake:", "--no-special", "ab\ncd"], env=environment())
    code = terminal.finish(PATIENCE)
    shown = terminal.screen.lines()
    check("on a terminal: coloured pieces, and how many", code == 0 and shown[0] == "ab↵" and shown[1] == "cd" and "5 tokens" in shown[2] and
          terminal.screen.styles >= 5 and not terminal.screen.unknown, shown, terminal.output)
    terminal.close()
    terminal = Terminal([WEIR, "tokenize", "-m", "fake:", "--no-special", "ab"], env=environment(NO_COLOR="1"))
    terminal.finish(PATIENCE)
    check("without colours: lines", terminal.screen.lines()[0].startswith("97") and terminal.screen.styles == 0, terminal.output)
    terminal.close()
    fails("two texts", weir("tokenize", "-m", "fake:", "a", "b"), 2, "one text")
    fails("no such file", weir("tokenize", "-m", "fake:", "-f", "/none"), 1, "/none")


# ---- weir embed ----

def vectors(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_embed():
    words = ["one text", "another, longer text", "three"]
    done = weir("embed", "-m", "fake:", *words)
    rows = vectors(done)
    check("a line of JSON for each", done.returncode == 0 and [r["index"] for r in rows] == [0, 1, 2] and
          [r["tokens"] for r in rows] == [len(w) + 1 for w in words], done.stdout[:300], done.stderr)
    check("of length 1", all(abs(math.hypot(*r["embedding"]) - 1) < 1e-5 for r in rows))
    lines = "\n".join(words).encode() + b"\n\n"
    check("lines of a file", vectors(weir("embed", "-m", "fake:", "-f", path_of("lines", lines))) == rows)
    check("lines of a pipe, with carriage returns", vectors(weir("embed", "-m", "fake:", stdin=lines.replace(b"\n", b"\r\n"))) == rows)
    jsonl = b'"one text"\n{"text": "another, longer text", "id": 3}\n{"input": "three"}\n'
    check("JSON lines", vectors(weir("embed", "-m", "fake:", "--json-lines", stdin=jsonl)) == rows)
    many = vectors(weir("embed", "-m", "fake:", stdin="\n".join(f"text {i}" for i in range(200)).encode()))
    alone = vectors(weir("embed", "-m", "fake:", "text 137"))
    check("many at once are what each is alone", len(many) == 200 and many[137]["embedding"] == alone[0]["embedding"])
    out = path_of("out.npy")
    done = weir("embed", "-m", "fake:", *words, "-o", out)
    data = open(out, "rb").read()
    n = struct.unpack("<H", data[8:10])[0]
    head = data[10:10 + n].decode()
    width = len(rows[0]["embedding"])
    floats = struct.unpack(f"<{3 * width}f", data[10 + n:])
    check("NumPy's format", done.returncode == 0 and data[:8] == b"\x93NUMPY\x01\x00" and (10 + n) % 64 == 0 and
          eval(head) == {"descr": "<f4", "fortran_order": False, "shape": (3, width)}, data[:130])
    check("the same numbers, to the bit", all(struct.pack("<f", a) == struct.pack("<f", b) for a, b in
                                              zip(floats, [x for r in rows for x in r["embedding"]])))
    out = path_of("out.jsonl")
    weir("embed", "-m", "fake:", *words, "-o", out)
    check("JSON lines into a file", [json.loads(line) for line in open(out)] == rows)
    largest = vectors(weir("embed", "-m", "fake:", "--normalize", "max", "one text"))[0]["embedding"]
    plain = vectors(weir("embed", "-m", "fake:", "--normalize", "none", "one text"))[0]["embedding"]
    check("other normalizations", abs(max(map(abs, largest)) - 1) < 1e-6 and
          all(abs(a / math.hypot(*plain) - b) < 1e-5 for a, b in zip(plain, rows[0]["embedding"])))
    last = vectors(weir("embed", "-m", "fake:", "--pooling", "last", "one text"))[0]["embedding"]
    check("another pooling", last != rows[0]["embedding"])
    fails("nothing to embed", weir("embed", "-m", "fake:", stdin=b"\n\n"), 2, "no text")
    fails("no JSON", weir("embed", "-m", "fake:", "--json-lines", stdin=b'"good"\n{bad\n'), 2, "line 2")
    fails("JSON without a text", weir("embed", "-m", "fake:", "--json-lines", stdin=b'{"title": "x"}\n'), 2, "line 1", "text, input or content")
    fails("a text that is too long", weir("embed", "-m", "fake:n_ctx_train=16", "short", "x" * 40), 2, "text 2", "41", "16")
    fails("a folder that is not there", weir("embed", "-m", "fake:", "a", "-o", "/none/out.npy"), 1, "/none/out.npy")
    fails("words and a file", weir("embed", "-m", "fake:", "a", "b", "-f", path_of("lines")), 2, "not both")


# ---- weir quantize, weir info ----

def test_quantize():
    fails("a model without weights", weir("quantize", "-m", "fake:", "-o", path_of("q.gguf")), 1, "no weights")
    fails("no such type", weir("quantize", "-m", "fake:", "--type", "Q4"), 2, "--type", "Q4_K_M")
    fails("no such file", weir("quantize", "-m", "/none.gguf"), 3, "none.gguf")


def test_info():
    found = json.loads(weir("info", "-m", "fake:", "-np", "3", "-c", "500", "--json").stdout)
    memory, engine = found["memory"], found["engine"]
    check("info tells the memory that engines then have", memory["kv_bytes"] == engine["kv_bytes"] and memory["n_kv"] == engine["n_kv"] and
          memory["n_slots"] == 3 and memory["fits"] is True and memory["available_bytes"] > 0, found)
    text = weir("info", "-m", "fake:", "-np", "3", "-c", "500").stdout
    check("in words", "memory  " in text and " KV + " in text, text)


if __name__ == "__main__":
    run_tests(globals())
