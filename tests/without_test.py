"""A build without the parts that may be left out (scripts/check.sh without): what belongs to them is refused by name."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import WEIR, expect, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

RPC = ("--rpc", "WEIR_WITH_RPC=ON scripts/build.sh")
ROUTER = "WEIR_WITH_ROUTER=ON scripts/build.sh"
TRACE = "WEIR_WITH_TRACE=ON scripts/build.sh"


def test_rpc():
    expect("weir rpc", weir("rpc", "--listen", "127.0.0.1:50052"), 1, "weir rpc", *RPC)
    expect("--rpc of weir run", weir("run", "-m", "fake:", "--rpc", "127.0.0.1:50052", "-p", "x"), 3, *RPC)
    expect("--rpc of weir serve", weir("serve", "-m", "fake:", "--port", "0", "--rpc", "127.0.0.1:50052"), 2, *RPC)


def test_options_of_routers():
    for words in (["--kv-events", "tcp://127.0.0.1:5557"], ["--kv-events-replay", "tcp://127.0.0.1:5557"],
                  ["--kv-events-endpoint", "a:1"], ["--router-headers"], ["--objective", "a=1"], ["--prefix-key", "k"],
                  ["--prefix-peer", "a:1"], ["--prefix-timeout", "3"], ["--max-prefix", "1M"]):
        expect(f"weir serve {words[0]}", weir("serve", "-m", "fake:", "--port", "0", *words), 1, words[0], ROUTER)


def test_options_of_spans():
    for words in (["--otlp-endpoint", "http://127.0.0.1:1"], ["--otlp-service-name", "a"], ["--otlp-sample", "1"]):
        expect(f"weir serve {words[0]}", weir("serve", "-m", "fake:", "--port", "0", *words), 1, words[0], TRACE)


def test_a_server_without_these_parts():
    with Server(WEIR, env=environment(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")) as server:
        check("variables of the environment have no effect", "weir_trace_spans_queued" not in server.metrics())
        for reply in (server.post("/v1/prefixes", {"tokens": [1]}), server.get("/v1/prefixes/1")):
            check("prefixes are refused by name", reply.status == 501 and "/v1/prefixes" in reply.error["message"] and
                  ROUTER in reply.error["message"], reply.status, reply.body)
        body = {"prompt": "a b", "max_tokens": 2}
        reply = server.post("/v1/completions", body, headers=("X-Weir-Prefix-From: http://127.0.0.1:1", "X-Llm-D-Slo-Tpot-Ms: 5"))
        check("headers of routers have no effect", reply.status == 200, reply.status, reply.body)
        check("and metrics are there", server.get("/metrics").status == 200)


need_server(WEIR)
run_tests(globals())
