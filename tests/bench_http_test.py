"""weir bench http against a server that is well or badly behaved on purpose (support/sse_server.py), and against an engine."""
# SPDX-License-Identifier: Apache-2.0
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment, eventually, finish  # noqa: E402
from sse_server import Server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
scratch = tempfile.TemporaryDirectory()
server = Server()


NO_PROXY = {"http_proxy": "http://127.0.0.1:1"}  # is not used


def weir(*words):
    return subprocess.run([WEIR, "bench", "http", *words], capture_output=True, text=True, env=environment(**NO_PROXY), timeout=PATIENCE)


def load(mode, *words, code=0):
    """Runs a load; its figures. The exit code is checked on the way."""
    server.reset()
    done = weir(server.url(mode) if ":" not in mode else mode, "--json", "-q", "--timeout", "200", *words)
    if done.returncode != code:
        check(f"{mode} {words}: exit {code}", False, done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)["runs"][0] if done.stdout.startswith("{") else {}


def counts(name, run, errors, **expected):
    found = {k: v["n"] for k, v in run.get("errors", {}).items()}
    check(name, found == errors and all(run.get(k) == v for k, v in expected.items()), run, errors, expected)


if "without libcurl" in weir("http://127.0.0.1:9", "--requests", "1").stderr:
    print("skipped: this weir was built without libcurl")
    sys.exit(77)

# ---- Answers

run = load("ok", "--requests", "40", "--concurrency", "4", "--prompt", "20", "--gen", "5")
counts("everything answered and counted", run, {}, requests=40, answered=40, n_errors=0, prompt_tokens=40 * 30, generated_tokens=200,
       cached_tokens=40 * 7, counted_by_server=True, uncounted_pieces=0, retries=0, left=0)
check("times of each: 40 first tokens, 4 gaps in each answer", run["ttft_ms"]["n"] == 40 and run["itl_ms"]["n"] == 160 and run["tpot_ms"]["n"] == 40 and run["worst_gap_ms"]["n"] == 40 and
      run["end_to_end_ms"]["n"] == 40 and run["total_s"] > 0, run)
bodies = [body for _, _, body in server.seen]
check("what was asked for", all(b["stream"] and b["stream_options"] == {"include_usage": True} and b["max_tokens"] == 5 and b["temperature"] == 0 and
      len(p.split()) == 20 and b["model"] == "default" for b, p in zip(bodies, server.prompts())), bodies[0])
check("as many connections as clients", server.most_open == 4, server.most_open)

run = load("pause", "--requests", "2", "--gen", "4")
check("a gap of 2 s is the worst one", 1000 < run["worst_gap_ms"]["max"] and run["itl_ms"]["p50"] < 1000 and run["itl_ms"]["max"] == run["worst_gap_ms"]["max"], run)
run = load("bytewise", "--requests", "3")
counts("events in single bytes, with all three ends of lines", run, {}, answered=3, generated_tokens=6, ended_by_itself=3, counted_by_server=False)
run = load("uncounted", "--requests", "3", "--gen", "6")
counts("no usage: pieces are counted", run, {}, answered=3, generated_tokens=18, prompt_tokens=0, counted_by_server=False, uncounted_pieces=18)
run = load("ok", "--requests", "2", "--completions", "--gen", "3", "--model", "m", "--api-key", "secret", "--extra", '{"top_k":1,"max_tokens":2}', "--ignore-eos")
path, headers, body = server.seen[0]
check("completions, key, model, extra, ignore_eos", path == "/ok/v1/completions" and headers["authorization"] == "Bearer secret" and "messages" not in body and
      body["model"] == "m" and body["top_k"] == 1 and body["max_tokens"] == 2 and body["ignore_eos"] is True and run["answered"] == 2, path, headers, body, run)
for url in (f"http://127.0.0.1:{server.port}/ok/v1", f"http://127.0.0.1:{server.port}/ok/v1/", f"http://127.0.0.1:{server.port}/ok/v1/chat/completions"):
    load(url, "--requests", "1", "--gen", "1")
    check("address " + url.split("/", 3)[3], server.seen[0][0] == "/ok/v1/chat/completions", server.seen)

# ---- Repeatable

words = ("--requests", "12", "--concurrency", "1", "--prompt", "10-40", "--gen", "2-9", "--shared-prefix", "15")
load("ok", *words, "--seed", "5")
first = [body for _, _, body in server.seen]
load("ok", *words, "--seed", "5")
check("the same seed sends the same requests in the same order", first == [body for _, _, body in server.seen])
prompts = server.prompts()
check("lengths are in their ranges, and differ", all(25 <= len(p.split()) <= 55 for p in prompts) and len({len(p.split()) for p in prompts}) > 3 and
      all(2 <= b["max_tokens"] <= 9 for b in first) and len({b["max_tokens"] for b in first}) > 3, prompts)
check("the prefix is shared, and no more", len({tuple(p.split()[:15]) for p in prompts}) == 1 and len({tuple(p.split()[15:19]) for p in prompts}) == 12, prompts)
load("ok", *words, "--seed", "6")
check("another seed sends others", first != [body for _, _, body in server.seen] and server.prompts()[0].split()[:15] != prompts[0].split()[:15])
load("ok", *words, "--seed", "5", "--concurrency", "6")
check("many clients send the same ones", sorted(json.dumps(b) for b in first) == sorted(json.dumps(b) for _, _, b in server.seen))

# ---- Errors

for mode, kind, message in (("cut", "cut", ""), ("cut_clean", "cut", "before [DONE]"), ("half_event", "cut", ""), ("no_json", "malformed", "not JSON"),
                            ("no_field", "malformed", "not a field"), ("no_utf8", "malformed", "UTF-8"), ("no_finish", "malformed", "finish_reason"),
                            ("after_done", "malformed", "after [DONE]"), ("endless_line", "malformed", "1 MiB"), ("html", "malformed", "text/html"),
                            ("odd_type", "malformed", "\ufffd"), ("odd_error", "refused", "404: \ufffd"),
                            ("error_event", "failed", "the slot is gone"), ("bad", "refused", "400: no such field"), ("broken", "failed", "500: <html>")):
    run = load(mode, "--requests", "3", "--concurrency", "2", "--gen", "5", code=4)
    counts(f"{mode}: {kind}", run, {kind: 3}, answered=0, n_errors=3)
    check(f"{mode}: it says \"{message}\"", message in run["errors"][kind]["first"], run["errors"])
run = load("silent", "--requests", "3", "--timeout", "0.5", code=4)
counts("a server that falls silent", run, {"timeout": 3}, answered=0)
run = load("http://127.0.0.1:9", "--requests", "3", code=4)
counts("nobody listens", run, {"connect": 3}, answered=0, requests=3)

started = time.monotonic()
run = load("busy", "--requests", "4", "--concurrency", "4", "--gen", "3")
counts("busy twice each: tried again", run, {}, answered=4, retries=8, requests=4)
check("not before Retry-After is over", time.monotonic() - started >= 2 and run["ttft_ms"]["min"] >= 1990 and len(server.seen) == 12, run["ttft_ms"])
run = load("busy", "--requests", "4", "--tries", "2", "--gen", "3", code=4)
counts("busy for longer than the tries", run, {"busy": 4}, answered=0, retries=4)

# ---- Clients that leave, late prompts, schemas, arrivals

run = load("steady", "--requests", "30", "--concurrency", "10", "--gen", "12", "--leave", "0.4", "--seed", "3")
check("all connections end", eventually(lambda: server.open == 0))
again = load("steady", "--requests", "30", "--concurrency", "10", "--gen", "12", "--leave", "0.4", "--seed", "3")
counts("some leave, the others are answered", run, {}, requests=30, answered=30 - run["left"])
check("the same ones each time", 4 < run["left"] < 20 and again["left"] == run["left"] and again["generated_tokens"] == run["generated_tokens"], run, again)
check("the server sees them leave", eventually(lambda: server.open == 0) and 0 < server.left <= again["left"], server.left, again["left"])
run = load("steady", "--requests", "5", "--leave", "1", "--gen", "12")
counts("all leave", run, {}, answered=0, left=5, n_errors=0)

run = load("steady", "--requests", "3", "--concurrency", "3", "--gen", "30", "--late-prompt", "500")
lengths = [len(p.split()) for p in server.prompts()]
check("the late prompt comes last, once, while the others run", lengths == [128] * 3 + [500] and run["late"]["ended"] == "answered" and
      run["late"]["prompt_tokens"] == 510 and 0.1 < run["late"]["sent_s"] and run["ttft_ms"]["n"] == 3 and run["requests"] == 4, lengths, run)

schema = os.path.join(scratch.name, "schema.json")
with open(schema, "w", encoding="utf-8") as file:
    file.write('{"type":"object","properties":{"a":{"type":"integer"}}}')
run = load("json_answer", "--requests", "4", "--schema", schema)
form = server.seen[0][2]["response_format"]
check("a schema", form["type"] == "json_schema" and form["json_schema"]["schema"]["type"] == "object", form)
counts("answers that are no JSON are counted", run, {}, answered=4, ended_by_itself=4, not_json=2)

started = time.monotonic()
run = load("ok", "--rate", "50", "--requests", "40", "--gen", "2")
counts("open loop", run, {}, requests=40, answered=40)
again = load("ok", "--rate", "50", "--duration", "1", "--gen", "2")
third = load("ok", "--rate", "50", "--duration", "1", "--gen", "2")
check("arrivals come from the seed", 20 < again["requests"] < 90 and again["requests"] == third["requests"] == again["answered"], again, third)

run = load("crowd", "--requests", "600", "--concurrency", "300", "--gen", "5")
counts("300 connections at a time", run, {}, answered=600)
check("they were open at the same time", server.most_open == 300, server.most_open)

# ---- Output

table = os.path.join(scratch.name, "t.csv")
server.reset()
done = weir(server.url("pause"), "--requests", "3", "--csv", table)
check("the report in words", done.returncode == 0 and all(re.search(w, done.stdout) for w in (r"requests +3\n", r"answered +3\n", "ttft_ms +3 ", "worst_gap_ms +3 ", r"generated_tokens +12\n", r"seed +1\n")),
      done.stdout, done.stderr)
with open(table, encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
check("a line of CSV for each request", len(rows) == 3 and {r["request"] for r in rows} == {"0", "1", "2"} and
      all(r["ended"] == "answered" and r["pieces"] == "4" and float(r["worst_gap_ms"]) > 1000 and float(r["end_to_end_ms"]) >= float(r["ttft_ms"]) for r in rows), rows)
done = weir(server.url("cut"), "--requests", "2")
check("errors in words", done.returncode == 4 and re.search(r"n_errors +2\n", done.stdout) and re.search(r"\ncut\nn +2\n", done.stdout), done.stdout)
done = weir(server.url("ok"), "--requests", "2", "--repeat", "3", "--json", "-q")
check("repetitions have figures of their own", [r["answered"] for r in json.loads(done.stdout)["runs"]] == [2, 2, 2], done.stdout)

server.reset()
process = subprocess.Popen([WEIR, "bench", "http", server.url("steady"), "--requests", "1000", "--gen", "1000", "--json"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**NO_PROXY))
check("eight are under way", eventually(lambda: len(server.seen) == 8 and server.n_pieces > 400), len(server.seen), server.n_pieces)
process.send_signal(signal.SIGINT)
out, err = process.communicate(timeout=PATIENCE)
run = json.loads(out)["runs"][0]
check("Ctrl-C: the figures so far", process.returncode == 130 and run["stopped"] == 8 and run["requests"] == 8 and run["itl_ms"]["n"] > 0 and run["n_errors"] == 0,
      process.returncode, out, err)

# ---- Usage

for words, part in ((("ftp://x",), "not an address"), ((), "one address"),
                    (("http://x", "--prompt", "9-3"), "--prompt is"), (("http://x", "--gen", "x"), "--gen is"), (("http://x", "--leave", "2"), "--leave is 2"),
                    (("http://x", "--rate", "nan"), "--rate is"), (("http://x", "--rate", "1", "--concurrency", "2"), "exclude"),
                    (("http://x", "--requests", "1", "--duration", "2"), "exclude"), (("http://x", "--extra", "[]"), "--extra is not a JSON object"),
                    (("http://x", "--api-key", "a\nb"), "line break"), (("http://x", "--model", b"\xff"), "--model is not UTF-8"), (("http://x", "--timeout", "0"), "--timeout"), (("http://x", "--concurrency", "0"), "--concurrency")):
    done = weir(*words)
    check(f"usage: {part}", done.returncode == 2 and part in done.stderr, done.returncode, done.stderr)

finish()
