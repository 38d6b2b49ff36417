"""async-openai, for Rust: the loops of tests/clients/async_openai, which call tools themselves."""
# SPDX-License-Identifier: Apache-2.0
PROGRAM = "client"
LOOPS = ["chat_loop", "chat_cut_call", "responses_loop"]
