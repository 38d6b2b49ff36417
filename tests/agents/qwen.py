"""Qwen Code, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
PROGRAM = "node_modules/.bin/qwen"
CUT = None  # it asks for no answer again that broke off
FILES = {".qwen/settings.json": '{"model": {"generationConfig": {"modalities": {"image": true}}}}'}


def environment(url):
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": "local"}


def read(path):
    return "read_file", {"file_path": path}


def edit(path, old, new):
    return "edit", {"file_path": path, "old_string": old, "new_string": new}


def words(turn, prompt, image, home):
    return ["--auth-type", "openai", "--approval-mode", "yolo", "--chat-recording"] + ["--continue"] * (turn > 0) + [prompt + f" @{image}" * turn]
