"""Each row of docs/guides/errors.md is provoked through the command line and the server's dialects, and gives what the page says.

WEIR_UPDATE=1 in the environment writes the page anew, if this build has all rows."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "guides" / "errors.md"
need_server(WEIR)
ASKED = [{"role": "user", "content": "x"}]
STOP = "a" * 20000
LONG = [{"role": "user", "content": "word " * 60000}]
DIALECTS = ("/v1/chat/completions", "/v1/messages", "/api/chat")
BEGIN = """# Errors

What a user sees of an error of the library: the sentence that an OpenAI client reads, what the server's three
APIs answer, and the exit status of `weir run`. [weir.h](../../include/weir/weir.h) has the codes and kinds.
"–": this surface has no such field. `tests/errors_test.py` provokes each row, and with `WEIR_UPDATE=1` it
makes this page.

| code, kind | the sentence | OpenAI | Anthropic | Ollama | exit status |
|---|---|---|---|---|---|
"""
# Words of `weir run`, and fields of a request in each dialect (None: it has no such field).
NUMBER = {"max_tokens": 4, "min_tokens": 9}
ROWS = (
    (("-n", "4", "--min-tokens", "9"), NUMBER, NUMBER, None),
    (("--stop", STOP), {"stop": [STOP]}, {"stop_sequences": [STOP]}, {"options": {"stop": [STOP]}}),
    (("--json-schema", "{"), None, None, None),
    (("--samplers", "nope"), {"samplers": ["nope"]}, {"samplers": ["nope"]}, None),
    (("--grammar", "root ::= x"), {"grammar": "root ::= x"}, {"grammar": "root ::= x"}, None),
    (("-p", "word " * 9000, "-c", "64"), {"messages": LONG}, {"messages": LONG}, {"messages": LONG}),
)


def of_command(words):
    """The code, kind and sentence of weir run's error, and its exit status."""
    prompt = [] if "-p" in words else ["-p", "x"]
    done = subprocess.run([WEIR, "run", "-m", "fake:", "--json", *prompt, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    errors = [value["error"] for value in map(json.loads, done.stdout.splitlines()) if "error" in value]
    sentence = done.stderr.strip().splitlines()[-1].removeprefix("weir: ") if done.stderr.strip() else ""
    check(f"{words[0]}: one error in JSON", len(errors) == 1, done.stdout, done.stderr)
    error = errors[0] if errors else {"code": "?", "kind": "?"}
    return error["code"].removeprefix("WEIR_"), error["kind"].removeprefix("WEIR_ERROR_"), sentence, done.returncode


def of_server(server, path, fields):
    """A cell of the table, and the sentence."""
    if fields is None:
        return "–", ""
    reply = server.post(path, {"model": "default", "messages": ASKED, "max_tokens": 4, **fields})
    error = reply.json.get("error", "")
    sentence, rest = (error, reply.json) if isinstance(error, str) else (error.get("message", ""), error)
    kind = "" if isinstance(error, str) else f" {error.get('type')}"
    check(f"{path} {list(fields)}: no mark of a name is left", "`" not in sentence, sentence)
    return f"{reply.status}{kind} `{rest.get('code')}`", sentence


def rows():
    with Server(WEIR) as server:
        for words, *fields in ROWS:
            code, kind, said, status = of_command(words)
            if "this build has no llama.cpp" in said:
                continue
            check(f"{words[0]}: no mark of a name is left", "`" not in said, said)
            cells, sentences = zip(*(of_server(server, path, of) for path, of in zip(DIALECTS, fields)))
            sentence = next((one for one in sentences if one), said)
            yield f"| {code}, {kind} | {sentence} | {' | '.join(cells)} | {status} |"


found = list(rows())
page = BEGIN + "\n".join(found) + "\n"
if os.environ.get("WEIR_UPDATE") == "1" and len(found) == len(ROWS):
    PAGE.write_text(page)
kept = PAGE.read_text() if PAGE.exists() else ""
for line in page.splitlines():
    if line.startswith("| "):
        check(line[:60], line in kept, line)
check("the page has a row for each", kept.count("\n") == BEGIN.count("\n") + len(ROWS), kept)
finish()
