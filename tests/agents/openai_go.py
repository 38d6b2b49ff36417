"""The openai package for Go: the loops of tests/clients/openai_go, which call tools themselves."""
# SPDX-License-Identifier: Apache-2.0
PROGRAM = "client"
LOOPS = ["chat_loop", "chat_cut_call", "responses_loop"]
