"""LangChain's package for OpenAI's API, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

TITLE = "langchain-openai"
SCRIPT = "langchain_loop.py"
