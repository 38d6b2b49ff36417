"""Cline's command line, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
import json

PROGRAM = "node_modules/.bin/cline"
CUT = 1
CONTINUES = False  # it goes on with a conversation on a terminal alone
# What `cline auth openai-compatible -k any -m local -b URL/v1` writes.
FILES = {".cline/data/settings/providers.json": json.dumps({"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": {"openai-compatible": {
    "settings": {"provider": "openai-compatible", "apiKey": "any", "model": "local", "baseUrl": "{url}/v1"}, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}})}


def environment(url):
    return {}


def read(path):
    return "read_files", {"files": [{"path": path}]}


def edit(path, old, new):
    return "editor", {"path": path, "old_text": old, "new_text": new}


def others(picture):
    return [read(picture)]


def words(turn, prompt, image, home):
    return [prompt]
