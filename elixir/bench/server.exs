# mix run bench/server.exs MODEL.gguf [ROUNDS]: 1 to 16 concurrent requests to Weir.Server, with a strategy in
# C and one in Elixir, and to the C engine under the same load, in turns. Ratios are medians over the rounds.
# SPDX-License-Identifier: Apache-2.0
Code.require_file("support.exs", __DIR__)

defmodule ServerBench do
  @concurrency [1, 2, 4, 8, 16]
  @n_requests 16
  @max_tokens 48
  @n_slots 16
  @n_ctx 8192
  @n_batch 2048

  def run(path, rounds) do
    {:ok, model} = Weir.load_model(path)
    options = [model: model, n_parallel: @n_slots, n_ctx: @n_ctx, n_batch: @n_batch, temp: 0.0]
    {:ok, in_c} = Weir.Server.start_link(options)
    strategy = Weir.Server.Strategy.DecodeMaximal
    {:ok, in_elixir} = Weir.Server.start_link([batch_strategy: strategy] ++ options)

    sides = [
      {:c, c_engine(path)},
      {:elixir, &load(in_c, &1, &2)},
      {:module, &load(in_elixir, &1, &2)}
    ]

    for {_name, side} <- sides, do: side.(4, 4)

    results =
      for round <- 1..rounds, n <- @concurrency do
        # each side is first in turn
        {first, rest} = Enum.split(sides, rem(round, 3))

        rates =
          for {name, side} <- rest ++ first, into: %{} do
            {tokens, ns} = side.(n, @n_requests)
            {name, {tokens, tokens * 1.0e9 / ns}}
          end

        counts = rates |> Map.values() |> Enum.map(&elem(&1, 0)) |> Enum.uniq()
        if length(counts) > 1, do: IO.puts("at once #{n}: tokens differ: #{inspect(counts)}")
        {n, Map.new(rates, fn {name, {_tokens, rate}} -> {name, rate} end)}
      end

    report(results)
  end

  defp load(server, concurrency, n_requests) do
    opts = [max_tokens: @max_tokens, cache_prompt: false, emit: :chunks]
    start = System.monotonic_time()

    tokens =
      0..(n_requests - 1)
      |> Task.async_stream(
        fn i ->
          prompt = "Story number #{i}. Once upon a time, in a land far away, there"

          server
          |> Weir.Server.stream(prompt, opts)
          |> Enum.reduce(0, &(length(&1.ids) + &2))
        end,
        max_concurrency: concurrency,
        ordered: false,
        timeout: :infinity
      )
      |> Enum.reduce(0, fn {:ok, n}, sum -> n + sum end)

    {tokens, System.convert_time_unit(System.monotonic_time() - start, :native, :nanosecond)}
  end

  defp c_engine(path) do
    arguments = [path | Enum.map([@n_slots, @n_ctx, @n_batch, @max_tokens], &to_string/1)]

    port =
      Port.open({:spawn_executable, Bench.program("closed_loop")}, [
        :binary,
        :exit_status,
        line: 100,
        args: arguments
      ])

    fn concurrency, n_requests ->
      Port.command(port, "#{concurrency} #{n_requests}\n")

      receive do
        {^port, {:data, {:eol, line}}} ->
          [tokens, ns] = line |> String.split() |> Enum.map(&String.to_integer/1)
          {tokens, ns}

        {^port, {:exit_status, status}} ->
          raise "closed_loop ended with status #{status}"
      end
    end
  end

  defp report(results) do
    rate = fn n, side -> Bench.median(for {^n, rates} <- results, do: rates[side]) end
    ratio = fn n, side -> Bench.median(for {^n, rates} <- results, do: rates[side] / rates.c) end

    IO.puts("tokens per second, medians of #{div(length(results), 5)} rounds; x: of one request at a time")

    IO.puts("at once    C engine  Weir.Server           x  of C       a module  of C")

    for n <- @concurrency do
      numbers = [
        pad(round(rate.(n, :c)), 12),
        pad(round(rate.(n, :elixir)), 13),
        pad(two(rate.(n, :elixir) / rate.(1, :elixir)), 12),
        pad(three(ratio.(n, :elixir)), 7),
        pad(round(rate.(n, :module)), 14),
        pad(three(ratio.(n, :module)), 7)
      ]

      IO.puts([pad(n, 7) | numbers])
    end
  end

  defp pad(value, width), do: value |> to_string() |> String.pad_leading(width)
  defp two(x), do: :erlang.float_to_binary(x, decimals: 2)
  defp three(x), do: :erlang.float_to_binary(x, decimals: 3)
end

case System.argv() do
  [path] -> ServerBench.run(path, 5)
  [path, rounds] -> ServerBench.run(path, String.to_integer(rounds))
  _other -> IO.puts("usage: mix run bench/server.exs MODEL.gguf [ROUNDS]")
end
