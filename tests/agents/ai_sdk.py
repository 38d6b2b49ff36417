"""Vercel's AI SDK, by its default provider for OpenAI, Responses: a short program of ours."""
# SPDX-License-Identifier: Apache-2.0
SCRIPT = "ai_sdk_loop.mjs"
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
