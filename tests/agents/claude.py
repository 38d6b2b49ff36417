"""Claude Code, by Anthropic's Messages."""
# SPDX-License-Identifier: Apache-2.0
PROGRAM = "node_modules/.bin/claude"
CUT = 1
FILES = {}


def environment(url):
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "any"}


def read(path):
    return "Read", {"file_path": path}


look = read


def edit(path, old, new):
    return "Edit", {"file_path": path, "old_string": old, "new_string": new}


def words(turn, prompt, image, home):
    return ["-p", prompt, "--allowedTools", "Read,Edit"] + ["--continue"] * (turn > 0)
