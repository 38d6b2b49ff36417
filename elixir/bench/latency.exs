# mix run bench/latency.exs [N]: from the moment at which the engine ends a request to its consumer's receive; beside
# it, turn by turn, a bare message from a C thread (bell.c), which is what the VM takes by itself, and the wake-up of a C
# thread that is blocked on a pipe. Passes, and the others' pauses, take 5 ms.
Code.require_file("support.exs", __DIR__)

defmodule Bell do
  def build do
    library = Path.join(System.tmp_dir!(), "weir-bell-#{System.pid()}")
    include = Path.join([:code.root_dir(), "usr", "include"])
    flags = ["-shared", "-fPIC", "-O2", "-isystem", include, "-o", library <> ".so"]
    {_, 0} = System.cmd("cc", flags ++ [Path.join(__DIR__, "bell.c")])
    :ok = :erlang.load_nif(String.to_charlist(library), 0)
    File.rm!(library <> ".so")
  end

  def ring(_pid, _n, _pause_us), do: :erlang.nif_error(:not_loaded)
end

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
        {{times, bells(div(n, @rounds)), pipes(div(n, @rounds))}, next}
      end)

    [times, bells, pipes] = for i <- 0..2, do: Enum.flat_map(all, &elem(&1, i))
    report("engine to receive", times)
    report("bare message to receive", bells)
    report("pipe to a C thread", pipes)
    IO.puts("p50s as parts of the pipe's: #{ratio(times, pipes)} and #{ratio(bells, pipes)}")
  end

  defp ratio(a, b),
    do: :erlang.float_to_binary(Bench.median(a) / Bench.median(b), decimals: 2)

  defp bells(n) do
    Bell.ring(self(), n, @pause_us)
    for _ <- 1..n, do: receive(do: (ns when is_integer(ns) -> NIF.engine_clock() - ns))
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

    IO.puts(String.pad_trailing(name, 25) <> Enum.join(parts, ", ") <> ", #{length(ns)} times")
  end
end

Bell.build()
LatencyBench.run(System.argv() |> List.first("1000") |> String.to_integer())
