"""pydantic-ai, by its default for models of OpenAI's, Responses."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

TITLE = "pydantic-ai"
SCRIPT = "pydantic_ai_loop.py"
