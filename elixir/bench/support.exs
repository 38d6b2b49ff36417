# Shared by the benchmarks.
# SPDX-License-Identifier: Apache-2.0
defmodule Bench do
  @doc "The q-quantile."
  def quantile(values, q) do
    sorted = Enum.sort(values)
    Enum.at(sorted, round(q * (length(sorted) - 1)))
  end

  def median(values), do: quantile(values, 0.5)

  @doc """
  Runs named functions in turn, as Benchee does: `warmup` and `time` in seconds for each. Prints what each
  took, the fastest first, and returns it in ms.
  """
  def run(jobs, opts \\ []) do
    {warmup, time} = {Keyword.get(opts, :warmup, 1), Keyword.get(opts, :time, 5)}

    results =
      for {name, fun} <- jobs do
        repeat(fun, warmup)
        {name, repeat(fun, time)}
      end

    IO.puts("\nname                              ips      average      median         p99")

    for {name, times} <-
          Enum.sort_by(results, fn {_, times} -> Enum.sum(times) / length(times) end) do
      average = Enum.sum(times) / length(times)
      columns = [1000 / average, average, median(times), quantile(times, 0.99)]
      IO.puts(String.pad_trailing(name, 26) <> Enum.map_join(columns, &pad/1))
    end

    results
  end

  defp repeat(fun, seconds) do
    until = System.monotonic_time(:millisecond) + round(seconds * 1000)

    Stream.repeatedly(fn -> elem(:timer.tc(fun), 0) / 1000 end)
    |> Enum.reduce_while([], fn ms, done ->
      if System.monotonic_time(:millisecond) < until,
        do: {:cont, [ms | done]},
        else: {:halt, [ms | done]}
    end)
  end

  def pad(number), do: number |> text() |> String.pad_leading(12)
  defp text(number) when is_float(number), do: :erlang.float_to_binary(number, decimals: 3)
  defp text(other), do: to_string(other)

  @doc "A program of bench/*.c."
  def program(name) do
    folder = System.get_env("WEIR_BENCH_DIR") || Path.expand("../../build/release/bench", __DIR__)
    path = Path.join(folder, name)
    if not File.regular?(path), do: raise("no #{path}: scripts/build.sh release makes it")
    path
  end
end
