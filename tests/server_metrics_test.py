"""docs/guides/metrics.md lists the metrics of GET /metrics with their types and meanings, and Grafana's dashboard beside it asks for no
other ones. On the fake model."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
GUIDES = os.path.join(os.environ["WEIR_SOURCE_DIR"], "docs", "guides")


def read(name):
    with open(os.path.join(GUIDES, name), encoding="utf-8") as f:
        return f.read()


def test_metrics():
    need_server(WEIR)
    with tempfile.TemporaryDirectory() as folder, \
            Server(WEIR, "--prefix-key", "key", "--lora", "fake:1", "--kv-events", f"ipc://{folder}/kv", "--kv-events-replay", f"ipc://{folder}/replay",
                   "--record", f"{folder}/records", "--otlp-endpoint", "http://127.0.0.1:9") as server:
        server.post("/v1/completions", {"prompt": "x", "max_tokens": 4, "ignore_eos": True})
        text = server.get("/metrics").body.decode()
    helps, kinds = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.M)), dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    served = {(name, kinds[name], meaning) for name, meaning in helps.items()}
    page = read("metrics.md")
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", page, re.M)
    unknown = set() if os.path.exists("/proc/self/statm") else {row for row in listed if row[0].startswith("process_")}
    unknown |= {row for row in listed if row[0].startswith("weir_pool_")}  # of several models: server/models/models_test.c
    check("there are many metrics", len(served) > 50, len(served))
    check("every metric is in the guide, with its type and meaning", served <= set(listed), *sorted(served - set(listed)))
    check("the guide has no other ones", set(listed) - unknown <= served and len(listed) == len(set(listed)), *sorted(set(listed) - served))
    labels = set(re.findall(r'(?:\{|,)(\w+)="', text)) - {"le"}
    unnamed = {label for label in labels if f"`{label}`" not in page}
    check("it names every label", labels and not unnamed, unnamed)
    values = set(re.findall(r'(?:reason|state|miss)="(\w+)"', text))
    check("and every value of the engine's labels", values and not {v for v in values if f"`{v}`" not in page}, values)

    names = set(helps) | {name + suffix for name, kind in kinds.items() if kind == "histogram" for suffix in ("_bucket", "_sum", "_count")}
    panels = json.loads(read("grafana-dashboard.json"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]] + re.findall(r"`([^`]*\[\w+\][^`]*)`", page)
    wrong = [(query, name) for query in queries for name in re.findall(r"\b(?:weir|process)_\w+", query) if name not in names]
    check("every query of the guide and of the dashboard asks for a metric", len(queries) > 30 and not wrong, len(queries), *wrong)


def test_names_with_other_characters():
    """The format escapes three characters; a name keeps all the others, under weir's names and vLLM's."""
    need_server(WEIR)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "models.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write('[a"b\\c\td]\nmodel = fake:\npinned = on\n')
        with Server(WEIR, "--metrics-vllm", "--models", path, model=None) as server:
            reply = server.post("/v1/completions", {"model": 'a"b\\c\td', "prompt": "x", "max_tokens": 2})
            check("the model is loaded", reply.status == 200, reply.body)
            text = server.get("/metrics").body.decode()
    check("weir's label", '{model="a\\"b\\\\c\td"}' in text, text[:300])
    check("vLLM's label", 'vllm:num_requests_running{model_name="a\\"b\\\\c\td"}' in text, *re.findall("vllm:num_requests_running.*", text))


run_tests(globals())
