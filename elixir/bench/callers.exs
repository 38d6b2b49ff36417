# mix run bench/callers.exs MODEL.gguf: many callers at once of a server with its defaults, and how many get an answer.
# SPDX-License-Identifier: Apache-2.0
[path] = System.argv()
{:ok, server} = Weir.Server.start_link(model_path: path, temp: 0.0)

ask = fn i ->
  messages = [%{role: "user", content: "Name #{i} rivers and say where each one ends."}]
  :timer.tc(fn -> Weir.Server.chat(server, messages, max_tokens: 64) end)
end

answers =
  1..64
  |> Task.async_stream(ask, max_concurrency: 64, timeout: :infinity)
  |> Enum.map(fn {:ok, {us, answer}} -> {us, match?({:ok, "" <> _}, answer)} end)

lost = Enum.count(answers, fn {_us, answered?} -> not answered? end)
longest = answers |> Enum.map(&elem(&1, 0)) |> Enum.max()
IO.puts("#{length(answers)} callers: #{lost} lost; the longest waited #{Float.round(longest / 1.0e6, 1)} s")
