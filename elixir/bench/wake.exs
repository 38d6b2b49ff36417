# The latency from the engine's thread, when it sends a request's last message, to the process that waits for
# it. For comparison, in turns of the same run: a bare enif_send from a thread to a waiting process
# (wake_nif.c).
#
# scripts/build.sh release cd elixir && MIX_ENV=prod mix run bench/wake.exs [N]
#
# A scheduler that spins before it sleeps wakes up sooner, but occupies a core: compare with ERL_FLAGS="+sbwt
# none" and ERL_FLAGS="+sbwt very_long".
#
# SPDX-License-Identifier: Apache-2.0
Code.require_file("support.exs", __DIR__)

defmodule Wake do
  @on_load :load
  def load, do: :erlang.load_nif(to_charlist(Bench.program("wake_nif.so") |> Path.rootname()), 0)
  def start(_pid, _n), do: :erlang.nif_error(:not_loaded)

  def run(n, rounds) do
    {:ok, model} = Weir.load_model("fake:tick_us=1000")
    {:ok, engine} = Weir.NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256})

    ways = [
      enif_send: fn -> bare(n) end,
      engine: fn -> for _ <- 1..n, do: message(engine) end
    ]

    IO.puts("p50 us#{Enum.map_join(ways, fn {name, _} -> String.pad_leading("#{name}", 12) end)}")

    results =
      for _ <- 1..rounds do
        medians = Enum.map(ways, fn {name, way} -> {name, Bench.median(way.())} end)
        IO.puts("      #{Enum.map_join(medians, fn {_, ns} -> Bench.pad(ns / 1000) end)}")
        medians
      end

    median = fn name -> Bench.median(for medians <- results, do: medians[name]) end
    ratio = Float.round(median.(:engine) / median.(:enif_send), 2)
    IO.puts("engine's message over a bare enif_send: #{ratio} (medians of #{rounds} rounds of #{n})")
  end

  defp bare(n) do
    :ok = start(self(), n)

    for _ <- 1..n do
      receive do: ({:wake, sent} -> :os.perf_counter(:nanosecond) - sent)
    end
  end

  # Without tokens, the end is the only message.
  defp message(engine) do
    request = %{prompt: "a", max_tokens: 0}
    {:ok, ref} = Weir.NIF.engine_submit(engine, request, self(), :infinity)

    receive do
      {^ref, {:done, :length, usage}} -> :os.perf_counter(:nanosecond) - usage.sent_ns
    end
  end
end

n =
  case System.argv() do
    [] -> 2000
    [n] -> String.to_integer(n)
  end

Wake.run(n, 5)
