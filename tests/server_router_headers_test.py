"""The headers of a router that say how to treat a request (--router-headers), on the fake model."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from program import WEIR, expect, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

SLOW = "fake:tick_us=20000,n_ctx_train=100000"
LONG = "hello " * 1200  # tokens that a tenant has had are forgotten by half in 10 s: some must be left on a slow machine
PLAIN = ("-np", "1", "-c", "16384")
WORDS = (*PLAIN, "--objective", "chat=10", "--objective", "a=b=-20", "--objective", "boss=100")
TENANT, OBJECTIVE = "X-Llm-D-Inference-Fairness-Id: ", "x-llm-d-inference-objective: "
ENDPOINT = "x-gateway-destination-endpoint"


def ask(server, n=4, headers=(), key=None, **more):
    return server.post("/v1/completions", dict({"prompt": "hello", "max_tokens": n, "ignore_eos": True}, **more), headers=headers, key=key)


def order(server, requests):
    """The names of requests in the order in which the server's log has their ends, behind one that holds the only slot. Threads
    that wait for answers may wake in any order."""
    threads = []
    for name, more in [("first", {"n": 60, "priority": 100, "headers": [TENANT + "first"], "prompt": LONG}), *requests]:
        more = dict(more, headers=[*more.get("headers", ()), f"X-Request-Id: {name}"])
        threads.append(threading.Thread(target=ask, args=(server,), kwargs=more))
        threads[-1].start()
        n = len(threads) - 1
        server.wait_for(lambda m: m["weir_requests_running"] == 1 and m["weir_queue_depth"] == n)
    for thread in threads:
        thread.join()
    server.log(lambda line: len(ended(server)) == len(threads))
    return ended(server)[1:]


def ended(server):
    return [line["request_id"] for line in server.lines if line.get("event") == "request" and "choices" in line]


def test_objective():
    need_server(WEIR)
    requests = [("none", {}), ("unknown", {"headers": [OBJECTIVE + "x"]}), ("low", {"headers": [OBJECTIVE + "a=b"]}), ("chat", {"headers": [OBJECTIVE + "chat"]}),
                ("body", {"headers": [OBJECTIVE + "a=b"], "priority": 50})]
    with Server(WEIR, *WORDS, "--router-headers", model=SLOW) as server:
        got = order(server, requests)
        check("an objective is a priority, one of the body goes before it", got == ["body", "chat", "none", "unknown", "low"], got)
    with Server(WEIR, *PLAIN, model=SLOW) as server:
        got = order(server, requests)
        check("without --router-headers it is nothing", got == ["body", "none", "unknown", "low", "chat"], got)
    with Server(WEIR, *WORDS, "--router-headers", "--api-key", "k", "--max-priority", "5", model=SLOW) as server:
        check("a key's limit holds", ask(server, key="k", headers=[OBJECTIVE + "boss"]).status == 200)


def test_tenant():
    for words, expected in (((*WORDS, "--router-headers"), ["new", "same"]), (PLAIN, ["same", "new"])):
        with Server(WEIR, *words, model=SLOW) as server:
            got = order(server, [("same", {"headers": [TENANT + "first"]}), ("new", {"headers": [TENANT + "second"]})])
            check(f"whose tenant had the slot goes last: {words[-1]}", got == expected, got)


def test_endpoint():
    with Server(WEIR, "--router-headers") as server:
        for value, back in (("10.0.0.1:8000", "10.0.0.1:8000"), ("[fd00::1]:80", "[fd00::1]:80"), ("a b", None), ("x" * 64, None), ("é", None)):
            reply = server.get("/health", headers=[f"{ENDPOINT}: {value}"])
            check(f"the endpoint comes back: {value[:20]}", reply.headers.get(ENDPOINT + "-served") == back, reply.headers)
        for value in ("40", "0.5", "-1", "nan", "inf", "1e99", "x", "", "60000"):
            check(f"a time per token: {value}", ask(server, headers=[f"x-llm-d-slo-tpot-ms: {value}"]).status == 200)
    with Server(WEIR) as server:
        check("without --router-headers it does not", ENDPOINT + "-served" not in server.get("/health", headers=[f"{ENDPOINT}: 10.0.0.1:80"]).headers)


def test_refused():
    for text in ("", "chat", "=5", "chat=", "chat=x", "chat=101", "chat=-101", "chat=5x"):
        expect(f"no objective: {text}", weir("serve", "-m", "fake:", "--port", "0", "--objective", text), 2, "NAME=")


run_tests(globals())
