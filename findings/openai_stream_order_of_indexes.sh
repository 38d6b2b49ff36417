#!/usr/bin/env bash
# openai_stream_order_of_indexes.sh: openai 3.57.0 (Python), chat.completions.stream() with several choices or several calls.
#
# A chunk names the choice of its text, and a delta the call of its arguments, by "index"; so one would guess that they may come in
# any order, as choices that are computed at once do, and that a call is read as a whole once its stream has ended. Seen: if choice 1
# begins before choice 0, the helper raises IndexError, since it stores the first choice at place 1 of a list that is shorter. If
# call 1 begins before the arguments of call 0 are complete, it takes call 0 as done, parses what there is of its arguments (the tools are
# strict) and raises JSONDecodeError. With create(stream=True) and the index as a key, each text and each call's arguments are whole.
#
# Installs the package into a temporary folder and runs it against events from a local socket. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install --quiet openai==3.57.0
"$folder/bin/python" - <<'PROGRAM'
import collections
import http.server
import json
import threading

import openai


def chunk(index, delta, finish=None):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def begins(index, name):
    function = {"name": name, "arguments": ""}
    return chunk(0, {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})


def goes_on(index, text):
    return chunk(0, {"tool_calls": [{"index": index, "function": {"arguments": text}}]})


def choices(*order):
    steps = [({"role": "assistant", "content": "A"},), None, ({}, "stop")]
    return [chunk(i, *(step or ({"content": str(i)},))) for step in steps for i in order]


ROLE, CALLS_END = chunk(0, {"role": "assistant", "content": None}), chunk(0, {}, "tool_calls")
STREAMS = {
    "choices 0, 1": choices(0, 1),
    "choices 1, 0": choices(1, 0),
    "call 1 after call 0": [ROLE, begins(0, "f"), goes_on(0, '{"a":'), goes_on(0, "0}"),
                            begins(1, "g"), goes_on(1, '{"a":'), goes_on(1, "1}"), CALLS_END],
    "calls 0 and 1 at once": [ROLE, begins(0, "f"), begins(1, "g"), goes_on(0, '{"a":'), goes_on(1, '{"a":'),
                              goes_on(0, "0}"), goes_on(1, "1}"), CALLS_END],
}
TOOLS = [{"type": "function", "function": {"name": name, "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}}} for name in "fg"]
events = []


class Events(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def by_create():
    texts = collections.defaultdict(str)
    for part in client.chat.completions.create(stream=True, **ask):
        for choice in part.choices:
            texts[f"choice {choice.index}"] += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                texts[f"call {call.index}"] += call.function.arguments
    return {name: text for name, text in sorted(texts.items()) if text}


def by_stream():
    with client.chat.completions.stream(**ask) as stream:
        try:
            done = stream.get_final_completion().choices
        except (IndexError, ValueError) as error:
            return type(error).__name__
    texts = {f"choice {choice.index}": choice.message.content for choice in done}
    texts.update({f"call {i}": call.function.arguments for choice in done for i, call in enumerate(choice.message.tool_calls or [])})
    return {name: text for name, text in sorted(texts.items()) if text}


server = http.server.HTTPServer(("127.0.0.1", 0), Events)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="any", max_retries=0)
ask = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
seen = {}
for name, events[:] in STREAMS.items():
    whole, seen[name] = by_create(), by_stream()
    print(f"openai {openai.__version__}, {name}: create(stream=True): {whole}, stream(): {seen[name]}")
    assert whole == ({"choice 0": "A0", "choice 1": "A1"} if "choices" in name else {"call 0": '{"a":0}', "call 1": '{"a":1}'}), whole
    assert seen[name] in (whole, "IndexError", "JSONDecodeError"), seen[name]
names = [value if isinstance(value, str) else "whole" for value in seen.values()]
assert names == ["whole", "IndexError", "whole", "JSONDecodeError"], "the behaviour has changed"
PROGRAM
