# mix run examples/generation.exs [MODEL.gguf]: whole answers.
# SPDX-License-Identifier: Apache-2.0
path = List.first(System.argv()) || "fake:"
{:ok, model} = Weir.load_model(path)

{:ok, text} = Weir.generate(model, "Once upon a time", max_tokens: 40, seed: 1)
IO.puts("Once upon a time" <> text)

# The most probable token each time, so the answer is always the same.
{:ok, text} = Weir.generate(model, "The capital of France is", max_tokens: 10, temp: 0.0)
IO.puts("The capital of France is" <> text)
