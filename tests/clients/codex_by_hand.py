"""Codex's loop that reads and edits a file, with the fake model: codex_by_hand.py CODEX, the program of the npm package @openai/codex.

Not a part of make check: the package has 400 MB. A model of 320 tokens edits no files, so a proxy between the two makes each
answer the next line of a script: it narrows the schema of the tool to one call, which weir enforces. `unshare -n` keeps Codex
from every network but loopback.
"""
# SPDX-License-Identifier: Apache-2.0
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checks import check, finish  # noqa: E402
from serve import Server  # noqa: E402

SCRIPT = ["cat notes.txt", "sed -i 's/colour/color/' notes.txt && cat notes.txt"]
DONE = "spelling corrected"
CONFIG = """model = "local"
model_provider = "weir"
web_search = "disabled"
[model_providers.weir]
name = "weir"
base_url = "{}/v1"
wire_api = "responses"
"""
outputs = []  # of the tool, as the last request has them


def only(value):
    return {"const": value}


def follow_script(body):
    global outputs
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    if len(outputs) == len(SCRIPT):
        body["tool_choice"] = "none"
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": only(DONE)}}
        return
    body["tool_choice"] = {"type": "function", "name": "exec_command"}
    for tool in body["tools"]:
        if tool.get("name") == "exec_command":
            tool["parameters"] = {"type": "object", "properties": {"cmd": only(SCRIPT[len(outputs)])}, "required": ["cmd"], "additionalProperties": False}


class Proxy(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.pass_on(None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/responses"):
            follow_script(body)
        self.pass_on(json.dumps(body).encode())

    def pass_on(self, body):
        try:
            reply = urllib.request.urlopen(urllib.request.Request(self.server.weir + self.path, body, {"Content-Type": "application/json"}))
        except urllib.error.HTTPError as error:
            reply = error
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.headers["Content-Type"])
        self.end_headers()
        while data := reply.read1(65536):
            self.wfile.write(data)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work, \
            Server(os.environ["WEIR_BIN"], "--alias", "local", "-c", "300000", "-np", "1", model="fake:n_ctx_train=300000") as server:
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        proxy.weir = server.url
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        with open(f"{home}/config.toml", "w") as file:
            file.write(CONFIG.format(f"http://127.0.0.1:{proxy.server_port}"))
        with open(f"{work}/notes.txt", "w") as file:
            file.write("The colour is blue.\n")
        done = subprocess.run([os.path.abspath(sys.argv[1]), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Correct the spelling in notes.txt"],
                              cwd=work, env=dict(os.environ, HOME=home, CODEX_HOME=home), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        check("Codex ends in order", done.returncode == 0, done.stdout, done.stderr)
        check("it read the file, changed it and read it again", ["colour" in o for o in outputs] == [True, False] and "color" in outputs[-1], outputs)
        with open(f"{work}/notes.txt") as file:
            check("the file is changed", file.read() == "The color is blue.\n")
        check("the last answer is shown", DONE in done.stdout, done.stdout)
        proxy.shutdown()
    finish()


main()
