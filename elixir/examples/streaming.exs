# mix run examples/streaming.exs [MODEL.gguf]: answers as they are generated.
# SPDX-License-Identifier: Apache-2.0
path = List.first(System.argv()) || "fake:"
{:ok, model} = Weir.load_model(path)

model
|> Weir.stream("Once upon a time", max_tokens: 60)
|> Enum.each(&IO.write/1)

IO.puts("")

# Streams are lazy: taking a part computes only that part.
start = model |> Weir.stream("Once upon a time") |> Enum.take(5) |> Enum.join()
IO.puts("five pieces: #{inspect(start)}")

# With token ids and the finish reason.
chunks = model |> Weir.stream("Once upon a time", max_tokens: 8, emit: :chunks) |> Enum.to_list()
ids = Enum.flat_map(chunks, & &1.ids)
IO.puts("#{length(ids)} tokens, ended by #{List.last(chunks).reason}")
