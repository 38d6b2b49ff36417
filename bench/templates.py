#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans per second of a conversation of 50 messages and 20 tools, over the pin's chat templates, beside those of another build.

usage: templates.py ROUNDS [SECONDS [TOOL_CHOICE]]

A plan (POST /v1/plan) reads the body, renders the template, makes tokens and, unless TOOL_CHOICE (auto) is none, the grammar of
the calls, and looks what the cache has; no pass runs. One connection on WEIR_MODEL, or with none, as no grammar of optional calls
is needed then, on the fake model. For each template the builds take turns, for SECONDS (0.5) each time. Prints a table in Markdown
of the templates whose rates differ most, and the median. Needs WEIR_BIN, WEIR_MODEL and WEIR_LLAMA_SOURCE in the environment, and
WEIR_BEFORE, the other build's program; scripts/bench.sh sets the first two."""
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from serve import Server  # noqa: E402

SHOWN = 5


def conversation():
    """Messages alternate, every fifth pair is a call and its result; a third of the text is not English."""
    messages = []
    for i in range(10):
        call = {"id": f"call{i:05}", "type": "function", "function": {"name": f"tool_{i}", "arguments": '{"x": 0.1, "city": "Zürich", "n": [1, 2.5, 1e-07]}'}}
        messages += [{"role": "user", "content": f"Frage {i}: " + "What is the weather in Zürich and in Tokyo, 東京? " * 4},
                     {"role": "assistant", "content": "", "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": call["id"], "name": f"tool_{i}", "content": '{"degrees": 21.5, "wind": 3.25}'},
                     {"role": "assistant", "content": "It is 21.5 degrees, and the wind is weak. " * 6},
                     {"role": "user", "content": "Danke! " * 10}]
    return messages


def tool(i):
    properties = {name: {"type": "number", "description": f"the {name} of it", "minimum": 0.1, "maximum": 3.14159265358979} for name in ("x", "y", "width", "height")}
    properties["city"] = {"type": "string", "enum": ["Zürich", "東京", "Ulm"], "description": "where it is"}
    return {"type": "function", "function": {"name": f"tool_{i}", "description": "Does what is wanted of it. " * 3,
                                             "parameters": {"type": "object", "properties": properties, "required": ["x", "city"]}}}


def rate(server, body, seconds):
    """Plans per second of the server's processor time, which other programs do not lengthen, and tokens; None: the template refuses."""
    reply = server.post("/v1/plan", body)  # the first one may analyse the template
    if reply.status != 200:
        return None, 0
    n, before, until = 0, server_cpu(server), time.monotonic() + seconds
    while time.monotonic() < until or n < 2:
        server.post("/v1/plan", body)
        n += 1
    return n / (server_cpu(server) - before), reply.json["prompt_tokens"]


def server_cpu(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    tool_choice = sys.argv[3] if len(sys.argv) > 3 else "auto"
    programs = {"before": os.environ["WEIR_BEFORE"], "now": os.environ["WEIR_BIN"]}
    body = {"messages": conversation(), "tools": [tool(i) for i in range(20)], "max_tokens": 1, "tool_choice": tool_choice}
    real = tool_choice != "none"
    words = ("-np", "1", "-c", "32768" if real else "200000", "--no-log")
    model = os.environ["WEIR_MODEL"] if real else "fake:"
    rows, refused = [], []
    for path in sorted(pathlib.Path(os.environ["WEIR_LLAMA_SOURCE"], "models/templates").glob("*.jinja")):
        servers = {name: Server(program, *words, "--chat-template-file", str(path), model=model, patience=300) for name, program in programs.items()}
        rates, tokens = {name: [] for name in programs}, {}
        for i in range(rounds):
            for name in sorted(programs, reverse=i % 2 == 1):
                got, tokens[name] = rate(servers[name], body, seconds)
                rates[name].append(got)
        for server in servers.values():
            server.stop()
        by = [name for name in programs if None in rates[name]]
        if by:
            refused.append(f"{path.stem} ({', '.join(by)})")
            continue
        row = (path.stem, *(statistics.median(rates[name]) for name in programs), *(tokens[name] for name in programs))
        rows.append(row)
        print(f"{row[0]}: {row[1]:.1f} -> {row[2]:.1f} plans/s, {row[3]} -> {row[4]} tokens", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: row[2] / row[1])
    print("| template | before, plans/s | now | now / before | tokens before | now |\n|---|---|---|---|---|---|")
    for row in rows[:SHOWN] + rows[-SHOWN:]:
        print(f"| {row[0]} | {row[1]:.1f} | {row[2]:.1f} | {row[2] / row[1]:.2f} | {row[3]} | {row[4]} |")
    print(f"\n{len(rows)} templates; median of before {statistics.median(row[1] for row in rows):.1f}, of now {statistics.median(row[2] for row in rows):.1f}"
          f" plans/s; of the quotients {statistics.median(row[2] / row[1] for row in rows):.2f}. Refused by a template or a limit, and of which build: {', '.join(refused) or 'none'}.")


if __name__ == "__main__":
    main()
