"""LiteLLM, by Anthropic's API."""
# SPDX-License-Identifier: Apache-2.0
from own_program import CUT, FILES, edit, environment, read, words  # noqa: F401

SCRIPT = "litellm_loop.py"
