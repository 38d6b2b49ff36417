#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GET /metrics against prometheus_client's parsers, under load.

Expected, before the first run: the text parser reads every exposition whole, whatever the models are called. Each family has a type and
a help text and stands there once; no sample comes twice; values are numbers; counters and buckets do not fall from one scrape to the
next, buckets rise with their bounds, the last one is _count; names of models come back as they are, with quotes, backslashes and other characters.
The OpenMetrics parser is for a form that weir does not announce: its reading of names and labels is compared after the names of the
counters' families and the end mark are made its own. Scrapes: WEIR_ORACLE_SCRAPES, 50."""
import concurrent.futures
import math
import os

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

import lib
from serve import Server

REASONS = {}
NAMES = ["plain", 'quo"te', "back\\slash", "tab\there", "new model", "Grüße 日本", "{brace}=1,", "trailing\\", '\\"', "#hash", "control\x01\x7f"]
SCRAPES = int(os.environ.get("WEIR_ORACLE_SCRAPES", 50))


def samples(families):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def check_exposition(table, text, before, n):
    families = list(parse(text))
    got, lines = samples(families), [line for line in text.splitlines() if line and not line.startswith("#")]
    table.same("every line is a sample, once", len(got) == len(lines), f"scrape {n}", None, f"{len(got)} of {len(lines)}")
    table.same("types and helps", all(f.type != "unknown" and f.documentation for f in families) and len({f.name for f in families}) == len(families) and
               text.count("# TYPE ") == text.count("# HELP ") == len(families), f"scrape {n}", None, str([f.name for f in families if f.type == "unknown" or not f.documentation]))
    table.same("values", all(math.isfinite(value) for value in got.values()), f"scrape {n}", None, str([k for k, v in got.items() if not math.isfinite(v)][:3]))
    fallen = [key for key, value in got.items() if before.get(key, 0) > value and (key[0].endswith(("_total", "_bucket", "_count", "_sum")))]
    table.same("nothing falls", not fallen, f"scrape {n}", None, str(fallen[:3]))
    wrong = []
    for family in families:
        if family.type != "histogram":
            continue
        series = {}
        for s in family.samples:
            labels = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
            series.setdefault(labels, {}).setdefault(s.name[len(family.name):], []).append((float(s.labels.get("le", "nan").replace("+Inf", "inf")), s.value))
        for labels, parts in series.items():
            bounds, counts = zip(*parts["_bucket"])
            if list(bounds) != sorted(bounds) or list(counts) != sorted(counts) or bounds[-1] != math.inf or counts[-1] != parts["_count"][0][1]:
                wrong.append((family.name, labels))
    table.same("histograms", not wrong, f"scrape {n}", None, str(wrong[:3]))
    # In OpenMetrics the family of a counter has no "_total", and gauges may not end so; the labels are read by other code.
    body = "\n".join(line.replace(name := line.split()[2], name[:-6], 1) if line.startswith(("# TYPE", "# HELP")) and line.split()[2].endswith("_total") else line
                     for line in text.splitlines())
    try:
        other = samples(openmetrics(body + "\n# EOF\n"))
        table.same("OpenMetrics' parser", other == got, f"scrape {n}", None, str(set(got).symmetric_difference(other))[:300])
    except ValueError as error:
        table.same("OpenMetrics' parser", False, f"scrape {n}", None, str(error))
    return got


def load(server, stop):
    i = 0
    while not stop:
        name = NAMES[i % len(NAMES)]
        server.post("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": f"x {i}"}], "max_tokens": 1 + i % 40})
        server.post("/v1/completions", {"model": name, "prompt": 7 if i % 3 else "y", "max_tokens": 3})
        server.get("/nothing")
        i += 1
    return i


def main():
    table, stop = lib.Table("metrics: prometheus_client", REASONS), []
    models = os.path.join(lib.scratch.name, "models.conf")
    with open(models, "w", encoding="utf-8") as out:
        for i, name in enumerate(NAMES):
            out.write(f"[{name}]\nmodel = fake:seed={i}\npinned = on\n")
    with Server(lib.WEIR, "--metrics-vllm", "--models", models, model=None) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        known = {model["id"] for model in server.get("/v1/models").json["data"]}
        table.same("names of models", set(NAMES) <= known, "in /v1/models", None, str(set(NAMES) - known))
        for name in NAMES: # each is loaded, and stays
            reply = server.post("/v1/completions", {"model": name, "prompt": "x", "max_tokens": 2})
            table.same("models load", reply.status == 200, repr(name), None, str(reply.body))
        running = [pool.submit(load, server, stop) for _ in range(4)]
        before, seen = {}, set()
        try:
            for n in range(SCRAPES):
                before = check_exposition(table, server.get("/metrics").body.decode(), before, n)
                seen |= {labels for _, labels in before}
        finally:
            stop.append(True)
        print(f"# {sum(future.result() for future in running)} rounds of requests during {SCRAPES} scrapes")
        before = check_exposition(table, server.get("/metrics").body.decode(), before, SCRAPES)
    for label in ("model", "model_name"):
        values = {value for _, labels in before for key, value in labels if key == label}
        for name in NAMES:
            table.same(f"label {label}", name in values, repr(name), None, str(sorted(values)))
    table.close()


if __name__ == "__main__":
    main()
