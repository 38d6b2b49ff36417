"""Packages that a short program of ours makes an agent: programs/SCRIPT, with two tools and OpenAI's variables."""
# SPDX-License-Identifier: Apache-2.0
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
