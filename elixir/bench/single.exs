# mix run bench/single.exs [MODEL.gguf]: the cost of each way to get one answer.
# SPDX-License-Identifier: Apache-2.0
Code.require_file("support.exs", __DIR__)

path = List.first(System.argv()) || "fake:"
{:ok, model} = Weir.load_model(path)
{:ok, server} = Weir.Server.start_link(model: model, n_parallel: 1, n_ctx: 2048)
prompt = "Once upon a time, in a land far away,"
opts = [temp: 0.0, max_tokens: 32]
text = String.duplicate("The quick brown fox jumps over the lazy dog. ", 20)

Bench.run(
  [
    {"Weir.generate/3", fn -> {:ok, _} = Weir.generate(model, prompt, opts) end},
    {"Weir.stream/3", fn -> model |> Weir.stream(prompt, opts) |> Stream.run() end},
    {"Server.generate/3", fn -> {:ok, _} = Weir.Server.generate(server, prompt, opts) end},
    {"Server.stream/3", fn -> server |> Weir.Server.stream(prompt, opts) |> Stream.run() end},
    {"Tokenizer.encode/2, 900 B", fn -> {:ok, _} = Weir.Tokenizer.encode(model, text) end}
  ],
  time: 4
)
