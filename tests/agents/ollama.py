"""Ollama's package, by its API."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

LACKS = {"cut call": "the API has only whole calls"}
TITLE = "ollama (Python)"
SCRIPT = "ollama_loop.py"
