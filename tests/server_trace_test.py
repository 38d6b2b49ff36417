"""Spans of requests, beside a collector that checks them: ids, parents, the order of times, names and counts; the headers of traces; a
collector that is dead, slow to come or refuses; the environment of OpenTelemetry."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from collector import QUICK, Collector  # noqa: E402
from program import WEIR, expect, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

SECRET = "whatnobodymaysee"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CHAT = {"messages": [{"role": "user", "content": SECRET + " a b c"}], "max_tokens": 6}
COMPLETION = {"prompt": SECRET + " a b c", "max_tokens": 6}


def value_of(value):
    (kind, inner), = value.items()
    if kind == "arrayValue":
        return [value_of(v) for v in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def attributes(of):
    pairs = [(a["key"], value_of(a["value"])) for a in of["attributes"]]
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def check_spans(name, collector):
    """What holds for all spans."""
    spans, bodies = collector.spans(), collector.bodies
    ids = [s["spanId"] for s in spans]
    check(f"{name}: ids", all(len(s["traceId"]) == 32 and len(s["spanId"]) == 16 and int(s["traceId"], 16) and int(s["spanId"], 16) for s in spans), spans)
    check(f"{name}: each id is there once", len(set(ids)) == len(ids), ids)
    by_id = {s["spanId"]: s for s in spans}
    for s in spans:
        begin, end = int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"])
        check(f"{name}: {s['name']}: it begins before it ends, and not at another time than now", begin <= end and abs(end / 1e9 - time.time()) < 3600, s)
        check(f"{name}: {s['name']}: events lie within", all(begin <= int(e["timeUnixNano"]) <= end for e in s.get("events", [])), s)
        parent = by_id.get(s.get("parentSpanId"))
        if s["kind"] == 2:
            continue
        check(f"{name}: {s['name']}: its parent is there and of the same trace", parent is not None and parent["traceId"] == s["traceId"], s)
        check(f"{name}: {s['name']}: it lies within its parent", parent is not None and int(parent["startTimeUnixNano"]) <= begin and end <= int(parent["endTimeUnixNano"]), s, parent)
    check(f"{name}: no text leaves", SECRET not in json.dumps(bodies))


def children(spans, of):
    return [s for s in spans if s.get("parentSpanId") == of["spanId"]]


def named(spans, name):
    return [s for s in spans if s["name"] == name]


def test_a_request():
    collector = Collector()
    with Server(WEIR, "--otlp-endpoint", collector.url + "/", "--otlp-service-name", "my name", env=environment(
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=a%20b,service.name=x,broken", OTEL_EXPORTER_OTLP_HEADERS="x-key=a%3Db", **QUICK)) as server:
        state = "a=b,c=d"
        reply = server.post("/v1/chat/completions", CHAT, headers=(f"traceparent: 00-{TRACE}-{PARENT}-01", f"tracestate: {state}", "User-Agent: it resp_" + "1a2b3c4d" * 4))
        usage = reply.json["usage"]
        spans = collector.requests(1)
        check("a chat", reply.status == 200 and len(spans) == 5, reply.body, spans)
        path, head = collector.heads[0]
        check("where it goes", path == "/v1/traces" and head["Content-Type"] == "application/json" and head["x-key"] == "a=b", path, head)
        resource = attributes(collector.bodies[0]["resourceSpans"][0]["resource"])
        check("the resource", resource == {"deployment.environment.name": "a b", "service.name": "my name", "service.version": resource["service.version"]}, resource)
        own, = [s for s in spans if s["kind"] == 2]
        check("the request", own["name"] == "POST /v1/chat/completions" and own["traceId"] == TRACE and own["parentSpanId"] == PARENT and own["traceState"] == state
              and own["flags"] == 0x301, own)
        a = attributes(own)
        check("its attributes", a["http.request.method"] == "POST" and a["http.route"] == a["url.path"] == "/v1/chat/completions" and a["http.response.status_code"] == 200
              and a["url.scheme"] == "http" and a["user_agent.original"] == "it resp_1a2b3c4d*" and "error.type" not in a, a)
        chat, = children(spans, own)
        a = attributes(chat)
        check("the generation", chat["name"] == "chat " + a["gen_ai.response.model"] and chat["kind"] == 1 and a["gen_ai.operation.name"] == "chat"
              and a["gen_ai.provider.name"] == "weir" and a["gen_ai.request.stream"] is False, chat)
        check("its counts are the answer's", a["gen_ai.usage.input_tokens"] == usage["prompt_tokens"] and a["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
              and a["gen_ai.usage.cache_read.input_tokens"] == 0 and a["gen_ai.response.finish_reasons"] == [reply.json["choices"][0]["finish_reason"]], a, usage)
        queue, prefill, decode = sorted(children(spans, chat), key=lambda s: int(s["startTimeUnixNano"]))
        check("its parts", [queue["name"], prefill["name"], decode["name"]] == ["queue", "prefill", "decode"], spans)
        check("they follow each other", queue["endTimeUnixNano"] == prefill["startTimeUnixNano"] and prefill["endTimeUnixNano"] == decode["startTimeUnixNano"], spans)
        check("the first token", [(e["name"], e["timeUnixNano"]) for e in chat["events"]] == [("first token", decode["startTimeUnixNano"])], chat)
        first = (int(decode["startTimeUnixNano"]) - int(chat["startTimeUnixNano"])) / 1e9
        check("and its time", abs(a["gen_ai.response.time_to_first_chunk"] - first) < 1e-6, a, first)
        line = server.log(lambda e: e.get("event") == "request")
        check("the log names the trace", line["trace"] == TRACE, line)

        before = len(spans)
        server.post("/v1/chat/completions", CHAT)
        again = collector.requests(2)[before:]
        own, = [s for s in again if s["kind"] == 2]
        check("without a header a trace begins here", "parentSpanId" not in own and own["traceId"] != TRACE and "traceState" not in own and own["flags"] == 0x101, own)
        check("what was cached", attributes(children(again, own)[0])["gen_ai.usage.cache_read.input_tokens"] > 0, again)

        server.post("/v1/completions", dict(COMPLETION, n=2, prompt="x y"))
        several = collector.requests(3)[len(spans) + len(again):]
        check("two answers", len(named(several, "queue")) == 2 and len([s for s in several if s["name"].startswith("text_completion ")]) == 2, several)
        server.stream("/v1/chat/completions", CHAT)
        server.post("/v1/chat/completions", {"messages": 5})
        for path in ("/health", "/metrics", "/v1/none"):
            server.get(path)
        spans = collector.requests(5)
        check("probes and what is not there have no spans", sum(s["kind"] == 2 for s in spans) == 5, spans)
        check("a stream", sum(attributes(s).get("gen_ai.request.stream") is True for s in spans) == 1, spans)
        refused, = [s for s in spans if attributes(s).get("http.response.status_code") == 400]
        check("a refusal has no generation, and is no error of the server", children(spans, refused) == [] and "status" not in refused, refused)
        got = server.wait_for(lambda m: m["weir_trace_spans_exported_total"] == len(spans))
        check("metrics", got["weir_trace_spans_exported_total"] == len(spans) and got["weir_trace_spans_dropped_total"] == got["weir_trace_failures_total"] == 0
              and got["weir_trace_spans_queued"] == 0, got)
    check_spans("a request", collector)
    collector.close()


def test_headers_of_traces():
    """Who is sampled, and which headers count as not sent."""
    good = f"00-{TRACE}-{PARENT}-01"
    cases = [(good, True), (good.replace("-01", "-03"), True), (good.replace("00-", "01-", 1) + "-more", True), (good.upper(), False), (good + "-more", False),
             (good.replace("00-", "ff-", 1), False), (f"00-{'0' * 32}-{PARENT}-01", False), (f"00-{TRACE}-{'0' * 16}-01", False), (good[:-1], False), ("", False), ("x" * 5000, False)]
    collector = Collector()
    with Server(WEIR, "--otlp-endpoint", collector.url, env=environment(**QUICK)) as server:
        for i, (header, taken) in enumerate(cases):
            before = len(collector.spans())
            server.post("/v1/completions", COMPLETION, headers=(f"traceparent: {header}",))
            own, = [s for s in collector.requests(i + 1)[before:] if s["kind"] == 2]
            check(f"traceparent {header[:60]}", (own["traceId"] == TRACE and own.get("parentSpanId") == PARENT) if taken else (own["traceId"] != TRACE and "parentSpanId" not in own), own)
        n = len(cases)
        for state, kept in (("a=" + "b" * 510, True), ("a=" + "b" * 511, False), (",".join(f"k{i}=v" for i in range(32)), True), (",".join(f"k{i}=v" for i in range(33)), False), ("none", False)):
            before = len(collector.spans())
            server.post("/v1/completions", COMPLETION, headers=(f"traceparent: {good}", f"tracestate: {state}"))
            n += 1
            own, = [s for s in collector.requests(n)[before:] if s["kind"] == 2]
            check(f"tracestate {state[:40]}", own.get("traceState") == (state if kept else None), own)
        server.post("/v1/completions", COMPLETION, headers=(f"traceparent: {good[:-2]}00",))
        server.post("/v1/completions", COMPLETION, headers=(f"traceparent: {good}", f"traceparent: {good}"))
        spans = collector.requests(n + 1)
        check("a trace that is not sampled has no spans, and of two headers none counts", sum(s["kind"] == 2 for s in spans) == n + 1 and
              [s for s in spans if s["kind"] == 2][-1]["traceId"] != TRACE, spans[-6:])
    check_spans("headers", collector)
    collector.close()


def test_samples():
    """The environment's sampler, and the parameter that replaces its share."""
    head = (f"traceparent: 00-{TRACE}-{PARENT}-01",)
    for words, env, own, others in (((), {"OTEL_TRACES_SAMPLER": "always_off"}, 0, 0), ((), {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, 0, 1),
                                    ((), {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1"}, 1, 1), ((), {"OTEL_TRACES_SAMPLER": "nonsense"}, 1, 1),
                                    (("--otlp-sample", "0"), {"OTEL_TRACES_SAMPLER": "always_on"}, 0, 0), (("--otlp-sample", "0"), {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, 0, 1), (("--otlp-sample", "1"), {"OTEL_TRACES_SAMPLER": "always_off"}, 1, 1)):
        collector = Collector()
        with Server(WEIR, *words, env=environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **QUICK, **env)) as server:
            server.post("/v1/completions", COMPLETION)
            server.post("/v1/completions", COMPLETION, headers=head)
            collector.requests(own + others)
        spans = [s for s in collector.spans() if s["kind"] == 2]
        check(f"{words} {env}", (sum(s["traceId"] != TRACE for s in spans), sum(s["traceId"] == TRACE for s in spans)) == (own, others), spans)
        collector.close()


def test_collectors_that_fail():
    gone = Collector()
    gone.close()
    with Server(WEIR, "--otlp-endpoint", gone.url, env=environment(OTEL_BSP_MAX_QUEUE_SIZE="8", **QUICK)) as server:
        replies = [server.post("/v1/completions", COMPLETION).status for _ in range(20)]
        got = server.wait_for(lambda m: m["weir_trace_spans_dropped_total"] > 0)
        check("a dead collector costs spans and nothing else", replies == [200] * 20 and got["weir_trace_spans_dropped_total"] > 0 and got["weir_trace_spans_queued"] <= 8
              and got["weir_trace_spans_exported_total"] == 0, replies, got)
        line = server.log(lambda e: e.get("event") == "trace")
        check("the log says so, once", "the collector takes no spans" in line["message"] and sum(e.get("event") == "trace" for e in server.lines) == 1, server.lines[-5:])
    again = Collector(statuses=(503, 200))
    with Server(WEIR, "--otlp-endpoint", again.url, env=environment(**QUICK)) as server:
        server.post("/v1/completions", COMPLETION)
        spans = again.requests(1)
        check("spans that a busy collector refused come again, once", sum(s["kind"] == 2 for s in spans) == 1 and len(again.heads) == 2, spans, again.heads)
        got = server.wait_for(lambda m: m["weir_trace_spans_exported_total"] == len(spans))
        check("and are counted", got["weir_trace_failures_total"] == 1 and got["weir_trace_spans_dropped_total"] == 0, got)
    again.close()
    for answer, status, dropped in ((b'{"partialSuccess":{"rejectedSpans":"2"}}', 200, 2), (b"no", 400, 5), (b'{"partialSuccess":{"rejectedSpans":99}}', 200, 5), (b"[" * 9000, 200, 0)):
        some = Collector(statuses=(status,), answer=answer)
        with Server(WEIR, "--otlp-endpoint", some.url, env=environment(**QUICK)) as server:
            server.post("/v1/completions", COMPLETION)
            got = server.wait_for(lambda m: m["weir_trace_spans_dropped_total"] + m["weir_trace_spans_exported_total"] >= 5)
            check(f"{status} {answer[:40]}", got["weir_trace_spans_dropped_total"] == dropped and got["weir_trace_spans_exported_total"] == 5 - dropped, got)
            check("it was asked once", len(some.heads) == 1, some.heads)
        some.close()


def test_a_small_queue():
    """Spans are sent before the next request would find no room, however long they may wait."""
    collector = Collector()
    with Server(WEIR, "--otlp-endpoint", collector.url, env=environment(**dict(QUICK, OTEL_BSP_SCHEDULE_DELAY="600000", OTEL_BSP_MAX_QUEUE_SIZE="8"))) as server:
        for i in range(3):
            server.post("/v1/completions", COMPLETION)
            check(f"request {i}", sum(s["kind"] == 2 for s in collector.requests(i + 1)) == i + 1, collector.spans())
    collector.close()


def test_answers_without_a_connection():
    """The trace of a request goes on with its answer where that outlives its connection."""
    collector = Collector()
    with Server(WEIR, "--otlp-endpoint", collector.url, env=environment(**QUICK)) as server:
        server.stream("/v1/chat/completions", dict(CHAT, resume=True), headers=(f"traceparent: 00-{TRACE}-{PARENT}-01",))
        spans = collector.requests(1)
        own, = [s for s in spans if s["kind"] == 2]
        check("a stream that can be resumed", own["traceId"] == TRACE and [s["name"].split()[0] for s in children(spans, own)] == ["chat"], spans)
        server.post("/v1/responses", {"input": SECRET, "max_output_tokens": 6, "background": True})
        spans = collector.requests(2)
        own, = [s for s in spans if s["name"] == "POST /v1/responses"]
        check("an answer in the background", [s["name"].split()[0] for s in children(spans, own)] == ["chat"], spans)
    check_spans("resumed", collector)
    collector.close()


def test_recorded():
    """Answers that `weir record run` computes again have no spans."""
    collector = Collector()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recording")
        with Server(WEIR, "--record", path) as server:
            server.post("/v1/completions", COMPLETION)
        done = weir("record", "run", path, env=environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **QUICK))
    check("it computes the answer", done.returncode == 0 and "1 of 1 records agree" in done.stdout, done.stdout, done.stderr)
    check("and sends nothing", collector.heads == [], collector.heads)
    collector.close()


def test_another_server():
    """The other server's span is a child of the one in which it is asked."""
    collector = Collector()
    prompt = "".join(chr(ord("a") + i * i % 26) for i in range(900))
    words = ("-np", "2", "-c", "2048", "--prefix-key", "k", "--otlp-endpoint", collector.url)
    body = {"prompt": prompt, "max_tokens": 4, "ignore_eos": True}
    with Server(WEIR, *words, "--otlp-service-name", "other", env=environment(**QUICK)) as other:
        other.post("/v1/completions", body)
        collector.requests(1)
        with Server(WEIR, *words, "--prefix-peer", other.url, env=environment(**QUICK)) as server:
            reply = server.post("/v1/completions", body, headers=(f"X-Weir-Prefix-From: {other.url}", f"traceparent: 00-{TRACE}-{PARENT}-01", "tracestate: a=b"))
            spans = [s for s in collector.requests(3) if s["traceId"] == TRACE]
    own, = [s for s in spans if s["kind"] == 2 and s["parentSpanId"] == PARENT]
    asked, = named(children(spans, own), "POST /v1/prefixes")
    given, = children(spans, asked)
    check("it gives the prefix", reply.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 100, reply.body)
    check("it is asked", asked["kind"] == 3 and attributes(asked)["http.response.status_code"] == 200 and attributes(asked)["server.address"] == "127.0.0.1"
          and attributes(asked)["server.port"] == other.port and "status" not in asked, asked)
    words = ("-np", "2", "-c", "2048", "--prefix-key", "k", "--otlp-endpoint", collector.url, "--prefix-peer", other.url)
    with Server(WEIR, *words, env=environment(**QUICK)) as server:
        n = sum(s["kind"] == 2 for s in collector.spans())
        server.post("/v1/completions", body, headers=(f"X-Weir-Prefix-From: {other.url}",))
        failed = named(collector.requests(n + 1), "POST /v1/prefixes")[-1]
    check("a server that is gone is a failure", failed["kind"] == 3 and failed["status"] == {"code": 2} and attributes(failed)["error.type"] == "_OTHER", failed)
    check("and says so in the same trace", given["kind"] == 2 and given["name"] == "POST /v1/prefixes" and given["traceState"] == "a=b", given)
    collector.close()


def test_settings():
    bad = ("localhost:4318", "ftp://localhost:4318", "http://user:secret@localhost:4318", "http://", "http://localhost:4318/?a=b")
    for url in bad:
        done = weir("serve", "-m", "fake:", "--port", "0", "--otlp-endpoint", url)
        expect(f"--otlp-endpoint {url}", done, 2, "--otlp-endpoint", "http://HOST:PORT")
        check(f"--otlp-endpoint {url}: no password is shown", "secret" not in done.stdout + done.stderr, done.stderr)
    for share in ("-0.5", "1.5", "nan"):
        expect(f"--otlp-sample {share}", weir("serve", "-m", "fake:", "--port", "0", "--otlp-sample", share), 2, "--otlp-sample")
    for env, why in (({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
                     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
                     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}, None),
                     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, None), ({}, None)):
        with Server(WEIR, env=environment(**env)) as server:
            check(f"{env}: the server runs, and traces nothing", server.post("/v1/completions", COMPLETION).status == 200 and "weir_trace_spans_queued" not in server.metrics())
            lines = [e for e in server.lines if e.get("event") == "trace"]
            check(f"{env}: a warning", [why in e["message"] for e in lines] == ([True] if why else []), lines)
    collector = Collector()
    with Server(WEIR, env=environment(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector.url + "/own?x=1", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_SERVICE_NAME="s", **QUICK)) as server:
        server.post("/v1/completions", COMPLETION)
        collector.requests(1)
    check("the variable for traces is the whole URL", collector.heads[0][0] == "/own?x=1", collector.heads)
    again = Collector()
    with Server(WEIR, "--otlp-endpoint", again.url + "/v1/traces/", env=environment(
            OTEL_EXPORTER_OTLP_HEADERS="x-long=" + "k" * 3000 + ",x-longer=" + "secret" * 2000 + ",x-last=1", **QUICK)) as server:
        server.post("/v1/completions", COMPLETION)
        again.requests(1)
        line = server.log(lambda e: e.get("event") == "trace")
    check("a path that is there already is not added", again.heads[0][0] == "/v1/traces", again.heads)
    check("a long header", again.heads[0][1]["x-long"] == "k" * 3000 and again.heads[0][1]["x-last"] == "1", again.heads)
    check("one that is too long is named, without its value", '"x-longer"' in line["message"] and "secret" not in line["message"], line)
    again.close()
    check("the name of the environment", attributes(collector.bodies[0]["resourceSpans"][0]["resource"])["service.name"] == "s", collector.bodies[0])
    collector.close()


need_server(WEIR)
run_tests(globals())
