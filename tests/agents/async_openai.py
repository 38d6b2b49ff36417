"""async-openai, for Rust: the loops of tests/clients/async_openai, which call tools themselves."""
# SPDX-License-Identifier: Apache-2.0
TITLE = "async-openai (Rust)"
PROGRAM = "client"
LOOPS = ["chat_loop", "chat_cut_call", "responses_loop"]
PROMPTS = ["How is the weather in Ulm?", "And what is in this picture?"]
