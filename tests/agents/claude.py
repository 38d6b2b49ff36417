"""Claude Code, by Anthropic's Messages."""
# SPDX-License-Identifier: Apache-2.0
TITLE = "Claude Code (`claude -p`)"
PROGRAM = "node_modules/.bin/claude"
FILES = {}


def environment(url):
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "any"}


def read(path):
    return "Read", {"file_path": path}


def edit(path, old, new):
    return "Edit", {"file_path": path, "old_string": old, "new_string": new}


def others(picture):
    """Finding a tool brings blocks of their own type; a search is a request of its own, with a tool of Anthropic's servers."""
    return [("ToolSearch", {"query": "select:WebSearch", "max_results": 5}), ("WebSearch", {"query": "spelling"}), read(picture)]


def words(turn, again, prompt, image):
    return ["-p", prompt, "--allowedTools", "Read,Edit,WebSearch"] + ["--continue"] * (turn + again > 0)
