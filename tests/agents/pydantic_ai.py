"""pydantic-ai, by its default for models of OpenAI's, Responses: a short program of ours."""
# SPDX-License-Identifier: Apache-2.0
SCRIPT = "pydantic_ai_loop.py"
CUT = None
FILES = {}


def environment(url):
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any"}


def read(path):
    return "read_file", {"path": path}


def edit(path, old, new):
    return "edit_file", {"path": path, "old": old, "new": new}


def words(turn, prompt, image, home):
    return [prompt] + [image] * turn
