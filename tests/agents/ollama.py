"""Ollama's package, by its API."""
# SPDX-License-Identifier: Apache-2.0
from own_program import CUT, FILES, edit, environment, read, words  # noqa: F401

SCRIPT = "ollama_loop.py"
