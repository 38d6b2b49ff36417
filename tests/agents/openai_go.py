"""The openai package for Go: the loops of tests/clients/openai_go, which call tools themselves."""
# SPDX-License-Identifier: Apache-2.0
TITLE = "openai for Go"
PROGRAM = "client"
LOOPS = ["chat_loop", "chat_cut_call", "responses_loop"]
PROMPTS = ["How is the weather in Ulm?", "And what is in this picture?"]
