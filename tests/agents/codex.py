"""Codex, by OpenAI's Responses."""
# SPDX-License-Identifier: Apache-2.0
import shlex

PROGRAM = "node_modules/.bin/codex"
CUT = 1
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


def words(turn, prompt, image, home):
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", "resume", "--last", *options, "-i", image, "--", prompt] if turn else ["exec", *options, prompt]
