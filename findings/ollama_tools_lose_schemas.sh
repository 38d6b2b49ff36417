#!/usr/bin/env bash
# ollama_tools_lose_schemas.sh: ollama 0.6.3 (Python), chat() with tools.
#
# A tool may be given as a dict with the JSON Schema of its arguments, and one would guess that the package sends that schema. Seen: of
# a property it sends "type", "items", "description" and "enum", and leaves the rest out without a word: an object loses its
# "properties" and "required", anyOf and $ref become {}, which allows everything, and "minimum" is gone; "additionalProperties" of
# the whole is gone too. The schema that a model sees, and that a server could enforce, is another one. The same schema as "format"
# arrives as it is. With a function as a tool, Literal is a string without its values, and an argument with a default is required,
# unless None is allowed.
#
# Installs the package into a temporary folder and has it send requests to a local socket. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install --quiet ollama==0.6.3
"$folder/bin/python" - <<'PROGRAM'
import http.server
import json
import threading
import typing

import ollama

SCHEMA = {
    "type": "object",
    "$defs": {"id": {"type": "integer"}},
    "properties": {
        "where": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "who": {"$ref": "#/$defs/id"},
        "rooms": {"type": "integer", "minimum": 1},
        "kinds": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["where"],
    "additionalProperties": False,
}


def book(rooms: int, kind: typing.Literal["a", "b"] = "a", late: typing.Optional[bool] = None):
    """Books a room.

    Args:
        rooms: how many
        kind: which
        late: after ten
    """


class Answers(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({"model": "m", "message": {"role": "assistant", "content": "x"}, "done": True}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


bodies = []
server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = ollama.Client(host=f"http://127.0.0.1:{server.server_port}")
messages = [{"role": "user", "content": "x"}]
client.chat("m", messages, tools=[{"type": "function", "function": {"name": "book", "parameters": SCHEMA}}], format=SCHEMA)
client.chat("m", messages, tools=[book])
sent, of_function = (body["tools"][0]["function"]["parameters"] for body in bodies)
print("ollama 0.6.3, a dict as a tool:", json.dumps(sent))
print("ollama 0.6.3, a function as a tool:", json.dumps(of_function))
assert bodies[0]["format"] == SCHEMA, bodies[0]["format"]
properties = {"where": {"type": "object"}, "when": {}, "who": {}, "rooms": {"type": "integer"}, "kinds": SCHEMA["properties"]["kinds"]}
assert sent == {"type": "object", "$defs": SCHEMA["$defs"], "properties": properties, "required": ["where"]}, "the behaviour has changed"
assert of_function["properties"]["kind"] == {"type": "string", "description": "which"}, "the behaviour has changed"
assert of_function["required"] == ["rooms", "kind"], "the behaviour has changed"
PROGRAM
