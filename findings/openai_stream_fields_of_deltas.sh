#!/usr/bin/env bash
# openai_stream_fields_of_deltas.sh: openai 3.57.0 (Python) and openai 7.57.0 (Node.js), chat.completions.stream() of both.
#
# Many servers repeat "role" in each delta, and send a model's reasoning in pieces as "reasoning_content". One would guess that the
# two helpers of one vendor make the same message of one stream: a role once, and the pieces joined, as those of "content" are. Seen:
# each is wrong where the other is right. Python joins every string, so its role is "assistantassistantassistant", which the API
# doesn't have, and the message can't go back in the next request as it is. Node.js joins only the fields that it knows and overwrites
# the others, so of the reasoning its message has the last piece alone.
#
# Installs the packages into a temporary folder and runs them against events from a local socket. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install --quiet openai==3.57.0
cd "$folder"
npm install --silent --no-audit --no-fund --prefix "$folder" openai@7.57.0
cat >"$folder/client.mjs" <<'PROGRAM'
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "any", maxRetries: 0 });
const stream = client.chat.completions.stream({ model: "m", messages: [{ role: "user", content: "x" }] });
console.log(JSON.stringify((await stream.finalChatCompletion()).choices[0].message));
PROGRAM
"$folder/venv/bin/python" - <<'PROGRAM'
import http.server
import json
import subprocess
import threading

import openai

DELTAS = [{"role": "assistant", "reasoning_content": "because "}, {"role": "assistant", "reasoning_content": "of this"},
          {"role": "assistant", "content": "an answer"}, {}]
EVENTS = [{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
           "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]} for delta in DELTAS]


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
url = f"http://127.0.0.1:{server.server_port}/v1"
client = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "x"}]) as stream:
    python = stream.get_final_completion().choices[0].message.model_dump()
node = json.loads(subprocess.run(["node", "client.mjs", url], check=True, capture_output=True, text=True).stdout)
FIELDS = ("role", "reasoning_content", "content")
seen = {"Python": [python[name] for name in FIELDS], "Node.js": [node[name] for name in FIELDS]}
for name, values in seen.items():
    print(f"openai for {name}: {dict(zip(FIELDS, values))}")
assert seen == {"Python": ["assistant" * 3, "because of this", "an answer"],
                "Node.js": ["assistant", "of this", "an answer"]}, "the behaviour has changed"
PROGRAM
