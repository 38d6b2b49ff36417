"""LangChain's package for Anthropic's API."""
# SPDX-License-Identifier: Apache-2.0
from own_program import CUT, FILES, edit, environment, read, words  # noqa: F401

SCRIPT = "langchain_loop.py"
