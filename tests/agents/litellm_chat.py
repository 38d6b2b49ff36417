"""LiteLLM, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
import own_program
from own_program import FILES, edit, read, words  # noqa: F401

TITLE = "LiteLLM, `openai/`"
SCRIPT = "litellm_loop.py"


def environment(url):
    return dict(own_program.environment(url), LITELLM_MODEL="openai/local")
