# mix run bench/latency.exs [N]: from the moment at which the engine ends a request to its consumer's receive, beside
# the wake-up of a C thread that is blocked on a pipe, turn by turn. Passes, and the writer's pauses, take 5 ms.
Code.require_file("support.exs", __DIR__)

defmodule LatencyBench do
  alias Weir.NIF

  @pause_us 5000
  @rounds 5

  def run(n) do
    {:ok, model} = Weir.load_model("fake:tick_us=#{@pause_us}")
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256})
    messages(engine, 20, 0)

    {all, _next} =
      Enum.map_reduce(1..@rounds, ticks(engine, 0), fn _round, from ->
        {times, next} = messages(engine, div(n, @rounds), from)
        {{times, pipes(div(n, @rounds))}, next}
      end)

    times = Enum.flat_map(all, &elem(&1, 0))
    pipes = Enum.flat_map(all, &elem(&1, 1))
    report("engine to receive", times)
    report("pipe to a C thread", pipes)
    ratio = Bench.median(times) / Bench.median(pipes)
    IO.puts("p50 of the first is #{:erlang.float_to_binary(ratio, decimals: 2)} of the second's")
  end

  # One token each, so that its message is the request's end, of which the record has the time.
  defp messages(engine, n, from) do
    Enum.map_reduce(1..n, from, fn _i, from ->
      {:ok, ref} = NIF.engine_submit(engine, %{prompt: "x", max_tokens: 1}, self(), :infinity)

      received =
        receive do
          {^ref, {:chunk, _ids, _text}} ->
            now = NIF.engine_clock()
            receive do: ({^ref, {:done, _reason, _usage}} -> now)

          {^ref, {:done, _reason, _usage}} ->
            NIF.engine_clock()
        end

      {ended, from} = ended(engine, from)
      {received - ended, from}
    end)
  end

  # When the last request ended. A tick is in the record soon after its messages.
  defp ended(engine, from) do
    {next, ticks} = NIF.engine_ticks(engine, from)

    case for(%{ended_ns: ns} when ns > 0 <- ticks, do: ns) do
      [] -> ended(engine, next)
      times -> {List.last(times), next}
    end
  end

  defp ticks(engine, from) do
    case NIF.engine_ticks(engine, from) do
      {_next, []} -> from
      {next, _ticks} -> ticks(engine, next)
    end
  end

  defp pipes(n) do
    {output, 0} = System.cmd(Bench.program("wakeup"), ["#{n}", "#{@pause_us}"])
    output |> String.split() |> Enum.map(&String.to_integer/1)
  end

  defp report(name, ns) do
    parts =
      for q <- [0.5, 0.9, 0.99] do
        us = Bench.quantile(ns, q) / 1000
        "p#{round(q * 100)} #{:erlang.float_to_binary(us, decimals: 1)} us"
      end

    IO.puts(String.pad_trailing(name, 20) <> Enum.join(parts, ", ") <> ", #{length(ns)} times")
  end
end

LatencyBench.run(System.argv() |> List.first("1000") |> String.to_integer())
