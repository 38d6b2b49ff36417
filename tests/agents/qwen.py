"""Qwen Code, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
TITLE = "Qwen Code (`qwen`)"
PROGRAM = "node_modules/.bin/qwen"
LACKS = {"system message": "a later one changes the first"}
FILES = {".qwen/settings.json": '{"model": {"generationConfig": {"modalities": {"image": true}}}}'}


def environment(url):
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": "local"}


def read(path):
    return "read_file", {"file_path": path}


def edit(path, old, new):
    return "edit", {"file_path": path, "old_string": old, "new_string": new}


def words(turn, again, prompt, image):
    return ["--auth-type", "openai", "--approval-mode", "yolo", "--chat-recording"] + ["--continue"] * (turn + again > 0) + ["--append-system-prompt", "From now on be brief."] * turn + [prompt + f" @{image}" * turn]
