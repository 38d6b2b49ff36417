"""Cline's command line, by chat completions. It goes on with a conversation on a terminal, or with an editor by ACP, as here."""
# SPDX-License-Identifier: Apache-2.0
import json

TITLE = "Cline (`cline --acp`)"
PROGRAM = "node_modules/.bin/cline"
ACP = True
LACKS = {"system message": "the command takes none"}
# What `cline auth openai-compatible -k any -m local -b URL/v1` writes.
FILES = {".cline/data/settings/providers.json": json.dumps({"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": {"openai-compatible": {
    "settings": {"provider": "openai-compatible", "apiKey": "any", "model": "local", "baseUrl": "{url}/v1"}, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}})}


def environment(url):
    return {"CLINE_API_KEY": "any", "CLINE_PROVIDER": "openai-compatible", "CLINE_MODEL": "local"}


def read(path):
    return "read_files", {"files": [{"path": path}]}


def others(picture):
    return [read(picture)]


def edit(path, old, new):
    return "editor", {"path": path, "old_text": old, "new_text": new}
