"""LangChain's package for OpenAI's API, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
from own_program import CUT, FILES, edit, environment, read, words  # noqa: F401

SCRIPT = "langchain_loop.py"
