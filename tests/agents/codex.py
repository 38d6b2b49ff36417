"""Codex, by OpenAI's Responses."""
# SPDX-License-Identifier: Apache-2.0
import shlex

TITLE = "Codex (`codex exec`)"
PROGRAM = "node_modules/.bin/codex"
FILES = {".codex/config.toml": """model = "local"
model_provider = "weir"
[model_providers.weir]
name = "weir"
base_url = "{url}/v1"
wire_api = "responses"
"""}


def environment(url):
    return {}


def read(path):
    return "exec_command", {"cmd": f"cat {shlex.quote(path)}"}


def edit(path, old, new):
    return "exec_command", {"cmd": f"sed -i s/{old}/{new}/ {shlex.quote(path)}"}


def words(turn, again, prompt, image):
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    goes_on = ["resume", "--last"] if turn or again else []
    return ["exec", *goes_on, *options, *(["-m", "another", "-i", image] if turn else []), "--", prompt]
