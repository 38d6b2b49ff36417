"""weir serve on the fake model with drafts that are always right, so that most pieces of a stream have several tokens: what streams, the
end of an answer, /metrics and /events say of tokens. The oracle is the list of logprobs, which has an entry per token."""
# SPDX-License-Identifier: Apache-2.0
import csv
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from resumed import Reader  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 90, "temperature": 0, "ignore_eos": True}
ASK = {"prompt": "hello", "max_tokens": 90, "temperature": 0, "ignore_eos": True}
COUNTED = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
# A pass takes far longer than a draft, so that the engine drafts unless the machine is very busy: it measures both.
MODEL = "fake:tick_us=2000,n_ctx_train=100000"
DRAFTS = ("-md", "fake:", "--no-prompt-lookup", "--draft-max", "6")


def start(*words, model=MODEL, **more):
    return Server(WEIR, *DRAFTS, *words, model=model, **more)


def body_of(server, path, body):
    """All of a streamed answer."""
    connection = server.connect()
    connection.request("POST", path, dict(body, stream=True))
    status, _ = connection.head()
    data = b"".join(connection.chunks()).decode()
    connection.close()
    assert status == 200, data
    return data


def native_events(server, body):
    return [json.loads(e.removeprefix("data: ")) for e in body_of(server, NATIVE, body).split("\n\n") if e.startswith("data: ")]


def n_scored(choice):
    """Tokens of a piece, as its logprobs show them."""
    scores = choice["logprobs"] or {}
    return len(scores.get("content") or scores.get("tokens") or [])


def sums(events, index=0):
    """Tokens of a choice up to each event, by the logprobs; and the counts that the events have."""
    total, shown, told = 0, [], []
    for event in events:
        for choice in event["choices"]:
            if choice["index"] == index:
                total += n_scored(choice)
                shown.append(total)
                told.append(event["usage"]["completion_tokens"])
    return shown, told


def n_accepted(server):
    return server.metrics()["weir_accepted_tokens_total"]


def fewer(n_pieces, accepted):
    """True if 90 tokens came in as few pieces as the accepted tokens of drafts allow, each of which saves one; how many are accepted depends
    on measured times. A stream has at most three more events."""
    return n_pieces <= 90 - accepted + 3


@part
def usage_in_every_event():
    server = start("-np", "4")
    for name, path, body in (("chat", CHAT, dict(HELLO, logprobs=True)), ("completions", TEXT, dict(ASK, logprobs=0))):
        before = n_accepted(server)
        events = server.stream(path, dict(body, **COUNTED))
        accepted = n_accepted(server) - before
        last = events.pop()
        shown, told = sums(events)
        steps = [b - a for a, b in zip(shown, shown[1:])]
        check(f"{name}: pieces have several tokens", (max(steps) > 1 or accepted == 0) and shown[-1] == 90, shown, accepted)
        check(f"{name}: each event counts the tokens up to its piece", told == shown, told, shown)
        check(f"{name}: the last event has the sum", last["choices"] == [] and last["usage"]["completion_tokens"] == told[-1] == 90, last, told)
        check(f"{name}: each with the prompt and the total", all(e["usage"]["prompt_tokens"] == last["usage"]["prompt_tokens"] > 0 and
              e["usage"]["total_tokens"] == e["usage"]["prompt_tokens"] + e["usage"]["completion_tokens"] for e in events), events[:2])
        check(f"{name}: drafts made fewer pieces than tokens", fewer(len(events), accepted), len(events), accepted)
        whole = server.post(path, body).json["usage"]
        check(f"{name}: as without a stream", whole["completion_tokens"] == 90 and whole["prompt_tokens"] == last["usage"]["prompt_tokens"], whole, last)
        alone = server.stream(path, dict(body, stream_options={"continuous_usage_stats": True}))
        shown, told = sums(alone)
        check(f"{name}: without include_usage there is no event for it alone", shown == told and told[-1] == 90 and all(e["choices"] for e in alone), alone[-1:])
        plain = server.stream(path, dict(body, stream_options={"include_usage": True, "continuous_usage_stats": False}))
        check(f"{name}: false is as left out", all(e["usage"] is None for e in plain[:-1]) and plain[-1]["usage"]["completion_tokens"] == 90, plain[:1])
    end(server)


@part
def choices_are_counted_apart():
    server = start("-np", "4")
    events = server.stream(TEXT, dict(ASK, prompt=["one", "two three"], n=2, temperature=1, seed=5, logprobs=0, **COUNTED))
    last = events.pop()
    found = [sums(events, i) for i in range(4)]
    check("each choice has its own count", all(shown == told and told[-1] == 90 for shown, told in found), found)
    check("all together at the end", last["usage"]["completion_tokens"] == 360, last)
    ends = {c["index"]: e["usage"]["prompt_tokens"] for e in events for c in e["choices"]}
    check("each with its own prompt", ends[0] == ends[1] and ends[2] == ends[3] == ends[0] + len("two three") - len("one") and
          last["usage"]["prompt_tokens"] == ends[0] + ends[2], ends, last)
    end(server)


def check_timings(name, timings, shown):
    """shown: tokens so far at each of these."""
    check(f"{name}: predicted_n counts tokens", [t["predicted_n"] for t in timings] == shown, [t["predicted_n"] for t in timings], shown)
    check(f"{name}: times only grow", all(a["predicted_ms"] <= b["predicted_ms"] and a["prompt_ms"] == b["prompt_ms"] for a, b in zip(timings, timings[1:])), timings)
    check(f"{name}: with speeds", all(abs(t["predicted_per_second"] - t["predicted_n"] * 1e3 / t["predicted_ms"]) <= 1e-3 * t["predicted_per_second"] + 1e-2
                                      for t in timings if t["predicted_ms"] > 1), timings)
    check(f"{name}: and the prompt", all(t["prompt_n"] + t["cache_n"] > 0 for t in timings), timings[:1])


@part
def timings_in_every_event():
    server = start("-np", "4")
    # the first answer of a server: what a draft takes is not measured yet, so that it has one
    events = native_events(server, dict(ASK, timings_per_token=True))
    drafted = events[-1]["timings"]
    check_timings("/completion", [e["timings"] for e in events], [e["tokens_predicted"] for e in events])
    check("/completion: drafts made fewer pieces than tokens", fewer(len(events), drafted["draft_n_accepted"]) and events[-1]["tokens_predicted"] == 90, len(events), drafted)
    check("/completion: drafts at the end", 0 < drafted["draft_n_accepted"] <= drafted["draft_n"], drafted)
    for name, path, body in (("chat", CHAT, dict(HELLO, logprobs=True)), ("completions", TEXT, dict(ASK, logprobs=0))):
        events = server.stream(path, dict(body, timings_per_token=True, **COUNTED))
        last = events.pop()
        shown, _ = sums(events)
        begun = [(e["timings"], n) for e, n in zip(events, shown) if n > 0]
        check_timings(name, [t for t, _ in begun], [n for _, n in begun])
        check(f"{name}: before the first token there is no time", all(e["timings"]["predicted_ms"] == 0 for e, n in zip(events, shown) if n == 0), events[:1])
        check(f"{name}: not in the event of all choices", "timings" not in last and last["usage"]["completion_tokens"] == 90, last)
        plain = server.stream(path, dict(body, timings_per_token=False))
        check(f"{name}: false is as left out", all("timings" not in e and "usage" not in e for e in plain), plain[:1])
    end(server)


@part
def refusals():
    server = start("-np", "2")
    for path, body in ((CHAT, HELLO), (TEXT, ASK)):
        for name, more, param, word in (
                ("no stream, usage", {"stream_options": {"continuous_usage_stats": True}}, "stream_options", "without stream"),
                ("no stream, timings", {"timings_per_token": True}, "timings_per_token", "without stream"),
                ("no flag", {"stream": True, "stream_options": {"continuous_usage_stats": 1}}, "stream_options.continuous_usage_stats", "true or false"),
                ("no flag either", {"stream": True, "timings_per_token": 1}, "timings_per_token", "true or false"),
                ("unknown", {"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "not supported")):
            reply = server.post(path, dict(body, **more), headers=STRICT)
            check(f"{path}, {name}: refused by its name", reply.status == 400 and reply.error["param"] == param and word in reply.error["message"], reply.body)
    reply = server.post(NATIVE, dict(ASK, stream=True, **COUNTED))
    check("/completion counts in its own members", reply.status == 400 and reply.error["param"] == "stream_options" and "tokens_predicted" in reply.error["message"], reply.body)
    for path, body in (("/v1/messages", dict(HELLO, stream=True)), ("/v1/responses", {"input": "x"}), ("/api/chat", {"messages": HELLO["messages"]})):
        reply = server.post(path, dict(body, timings_per_token=True), headers=STRICT)
        check(f"{path}: no place for it", reply.status == 400 and "timings_per_token" in reply.body.decode(), reply.body)
    end(server)


@part
def stopped_answers():
    server = start("-np", "2", model="fake:tick_us=5000,n_ctx_train=100000")
    body = dict(HELLO, max_tokens=50000, resume=True, logprobs=True, **COUNTED)
    with Reader(server, CHAT, body) as reader:
        reader.take(12)
        server.post(f"/v1/streams/{reader.id}/cancel", {})
        reader.rest()
        events = [json.loads(data) for _, data in reader.got if data != "[DONE]"]
    last = events.pop()
    shown, told = sums(events)
    check("stopped: counts are those of the pieces", told[:-1] == shown[:-1] and told == sorted(told) and shown[-1] > len(events), told, shown)
    generated = server.wait_for(lambda m: m["weir_slots_generating"] == 0)["weir_generated_tokens_total"]
    check("stopped: the end has the tokens so far, not the pieces", shown[-1] <= last["usage"]["completion_tokens"] <= generated and
          events[-1]["choices"][0]["finish_detail"] == "cancelled" and last["usage"]["completion_tokens"] == told[-1], last, told)
    end(server)


@part
def a_shared_generation():
    """Who joins late counts the pieces that it gets, not those that were generated meanwhile."""
    server = start("-np", "2", model="fake:tick_us=10000,n_ctx_train=100000")
    body = dict(ASK, max_tokens=1000, share=True, logprobs=0, **COUNTED)
    with Reader(server, TEXT, body) as first:
        first.take(10)
        late = server.stream(TEXT, body)
        first.rest()
        events = [json.loads(data) for _, data in first.got if data != "[DONE]"]
    check("one generation", server.metrics()["weir_shared_total"] == 1)
    for name, got in (("first", events), ("late", late)):
        last = got.pop()
        shown, told = sums(got)
        check(f"the {name} one", shown == told and told[-1] == last["usage"]["completion_tokens"] == 1000, shown, told, last)
    end(server)


@part
def other_dialects():
    """Their places for counts are at the end only."""
    server = start("-np", "2")
    n = dict(max_tokens=90, temperature=0)
    hello = [{"role": "user", "content": "hello"}]
    for path, body, name, read in (("/v1/messages", dict(n, messages=hello), "message_delta", lambda d: d["usage"]["output_tokens"]),
                                   ("/v1/responses", dict(temperature=0, max_output_tokens=90, input="hello"), "response.incomplete",
                                    lambda d: d["response"]["usage"]["output_tokens"])):
        before = n_accepted(server)
        events = server.named_events(path, body)
        accepted = n_accepted(server) - before
        pieces = sum(kind.endswith("delta") for kind, _ in events)
        told = [read(d) for kind, d in events if kind == name]
        check(f"{path}: tokens, though pieces are fewer", told == [90] and fewer(pieces, accepted), told, pieces, accepted)
    before = n_accepted(server)
    lines = [json.loads(line) for line in body_of(server, "/api/chat", {"messages": hello, "options": {"num_predict": 90, "temperature": 0}}).splitlines()]
    check("Ollama: likewise", lines[-1]["eval_count"] == 90 and fewer(len(lines), n_accepted(server) - before), lines[-1], len(lines))
    end(server)


@part
def metrics_and_events():
    server = start("-np", "2")
    events = server.stream(CHAT, dict(HELLO, logprobs=True, **COUNTED))
    _, told = sums(events[:-1])
    first = next(n for n in told if n > 0)
    found = server.metrics()
    # The first event may have several chunks, where the server was late.
    check("time per output token counts tokens, that between chunks pieces",
          90 - first <= found["weir_tpot_seconds_count"] <= 89 and found["weir_tpot_seconds_count"] > found["weir_itl_seconds_count"] > 5, found)
    check("of the same time", abs(found["weir_tpot_seconds_sum"] - found["weir_itl_seconds_sum"]) < 1e-6 and found["weir_itl_seconds_sum"] > 0, found)
    text = server.get("/metrics").body.decode()
    check("the help says what each counts", "# HELP weir_itl_seconds time between two chunks of a stream, which may have several tokens\n" in text and
          "# HELP weir_tpot_seconds time per generated token of a stream" in text, [line for line in text.splitlines() if "_seconds" in line and "HELP" in line])
    connection = server.connect()
    connection.request("GET", "/events")
    connection.head()
    event = json.loads(next(e for e in connection.events() if not e.startswith(":")))
    connection.close()
    check("events have both", set(event["tpot_ms"]) == set(event["itl_ms"]) == {"p50", "p99", "lately"}, event)
    # An answer without a stream is one piece for the engine, but not one token.
    server.post(TEXT, dict(ASK, max_tokens=50, **{"speculative.n_max": 0}))
    after = server.metrics()
    check("an answer that nobody streams", after["weir_itl_seconds_count"] == found["weir_itl_seconds_count"] + 1 and
          after["weir_tpot_seconds_count"] == found["weir_tpot_seconds_count"] + 49, found, after)
    end(server)


@part
def a_load_whose_clients_leave():
    """weir bench http: tokens of answers that are never seen to their end. One draft in all of them is enough."""
    server = start("-np", "2")
    words = [WEIR, "bench", "http", server.url, "--json", "-q", "--requests", "8", "--concurrency", "2", "--gen", "200", "--ignore-eos", "--leave", "1", "--seed", "1", "--csv"]
    with tempfile.TemporaryDirectory() as folder:
        for name, more in (("at the end", []), ("in each event", ["--extra", json.dumps(COUNTED)])):
            path = os.path.join(folder, "requests.csv")
            done = subprocess.run([*words, path, *more], capture_output=True, text=True, env=environment())
            if "without libcurl" in done.stderr:
                break
            run = json.loads(done.stdout)["runs"][0]
            with open(path) as file:
                rows = list(csv.DictReader(file))
            pieces = sum(int(row["pieces"]) for row in rows)
            uncounted = sum(int(row["pieces"]) for row in rows if int(row["generated_tokens"]) < 0)
            check(f"counts {name}: clients left", run["left"] > 0 and len(rows) == 8, run, done.stderr)
            check(f"counts {name}: the report says how many pieces stand for tokens", run["uncounted_pieces"] == uncounted and
                  run["counted_by_server"] == (uncounted == 0) and (uncounted > 0) == (not more), run, rows)
            check(f"counts {name}: more tokens than pieces where they are counted", run["generated_tokens"] > pieces or not more, run, pieces)
    end(server)


need_server(WEIR)
run_parts(4)
