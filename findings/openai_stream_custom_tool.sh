#!/usr/bin/env bash
# openai_stream_custom_tool.sh: openai 3.54.0 (Python), chat.completions.stream() with a custom tool.
#
# One would guess that the helper for streams takes the same answers as create(stream=True): both are typed for tools of the
# type "custom", and each event here is one that the package's own types describe. Seen: create(stream=True) yields the call's
# name and input; get_final_completion() of stream() raises AttributeError ('dict' object has no attribute 'name'). So
# custom tools in chats can be used with create(stream=True) alone.
#
# Installs the package into a temporary folder and runs it against events from a local socket. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install --quiet openai==3.54.0
"$folder/bin/python" - <<'PROGRAM'
import http.server
import json
import threading

import openai


def chunk(delta, finish=None):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


EVENTS = [chunk({"role": "assistant", "content": None, "tool_calls": [{"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "edit", "input": ""}}]}),
          chunk({"tool_calls": [{"index": 0, "custom": {"input": "a text"}}]}), chunk({}, "tool_calls")]


class Events(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.HTTPServer(("127.0.0.1", 0), Events)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="any", max_retries=0)
ask = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "custom", "custom": {"name": "edit"}}]}

said = ""
for event in client.chat.completions.create(stream=True, **ask):
    for call in event.choices[0].delta.tool_calls or []:
        custom = getattr(call, "custom", None)
        said += (custom["input"] if isinstance(custom, dict) else custom.input) if custom is not None else ""
print(f"openai {openai.__version__}, create(stream=True): {said!r}")
seen = "no error"
try:
    with client.chat.completions.stream(**ask) as stream:
        for _ in stream:
            pass
        stream.get_final_completion()
except AttributeError as error:
    seen = f"AttributeError: {error}"
print(f"openai {openai.__version__}, stream(): {seen}")
assert said == "a text" and seen == "AttributeError: 'dict' object has no attribute 'name'", "the behaviour has changed"
PROGRAM
