"""opencode, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
TITLE = "opencode (`opencode run`)"
PROGRAM = "node_modules/.bin/opencode"
LACKS = {"system message": "the command takes none"}
FILES = {".config/opencode/opencode.json": """{"model": "weir/local", "provider": {"weir": {"npm": "@ai-sdk/openai-compatible", "name": "weir",
    "options": {"baseURL": "{url}/v1", "apiKey": "any"},
    "models": {"local": {"name": "local", "attachment": true, "modalities": {"input": ["text", "image"], "output": ["text"]}}}}}}
"""}


def environment(url):
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def read(path):
    return "read", {"filePath": path}


def edit(path, old, new):
    return "edit", {"filePath": path, "oldString": old, "newString": new}


def words(turn, again, prompt, image):
    return ["run", prompt] + ["--continue"] * (turn + again > 0) + ["--file", image] * turn
