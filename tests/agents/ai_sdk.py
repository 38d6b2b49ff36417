"""Vercel's AI SDK, by its default provider for OpenAI, Responses."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

TITLE = "Vercel's AI SDK (`ai`, `@ai-sdk/openai`)"
SCRIPT = "ai_sdk_loop.mjs"
