# mix run examples/server.exs [MODEL.gguf]: many callers, one model.
# SPDX-License-Identifier: Apache-2.0
path = List.first(System.argv()) || "fake:"

children = [{Weir.Server, name: MyApp.LLM, model_path: path, n_parallel: 4, max_queue: 100}]
{:ok, supervisor} = Supervisor.start_link(children, strategy: :one_for_one)

# Eight requests at once: four run together, the others wait for a free slot.
answers =
  1..8
  |> Task.async_stream(
    fn i -> Weir.Server.complete(MyApp.LLM, "A story about the number #{i}:", max_tokens: 24) end,
    max_concurrency: 8,
    timeout: :infinity
  )
  |> Enum.map(fn {:ok, {:ok, answer}} -> answer end)

for answer <- answers do
  IO.puts("#{answer.reason} after #{answer.usage.generated_tokens} tokens: #{inspect(answer.text)}")
end

# A request may have an id, by which any process can cancel it.
task =
  Task.async(fn ->
    Weir.Server.generate(MyApp.LLM, "Count to a million:", id: :counting, max_tokens: 500)
  end)

Process.sleep(50)
IO.inspect(Weir.Server.cancel(MyApp.LLM, :counting), label: "cancel")
IO.inspect(Task.await(task, :infinity), label: "its caller")

stats = Weir.Server.get_stats(MyApp.LLM)
IO.puts("#{stats.n_generated_tokens} tokens in #{stats.n_ticks} ticks")
Supervisor.stop(supervisor)
