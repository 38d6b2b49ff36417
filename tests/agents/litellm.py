"""LiteLLM, by Anthropic's API."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

LACKS = {"cut call": "the package reads the arguments, and raises an error", "system message": "the package puts it before the conversation"}
TITLE = "LiteLLM, `anthropic/`"
SCRIPT = "litellm_loop.py"
