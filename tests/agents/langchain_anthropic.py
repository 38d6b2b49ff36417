"""LangChain's package for Anthropic's API."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

LACKS = {"system message": "the package raises an error"}
TITLE = "langchain-anthropic"
SCRIPT = "langchain_loop.py"
