# From the engine's thread, as it sends a request's last message, to the process that waits for it; beside it, in turns,
# the wake-up of a C thread that is blocked on a pipe (bench/wake.c).
#
#     MIX_ENV=prod mix run bench/wake.exs ../build/release/bench/wake [N]
#
# SPDX-License-Identifier: Apache-2.0
alias Weir.NIF

{pipe, n} =
  case System.argv() do
    [pipe] -> {Path.expand(pipe), 2000}
    [pipe, n] -> {Path.expand(pipe), String.to_integer(n)}
  end

{:ok, model} = Weir.load_model("fake:tick_us=1000")
{:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256})

# Without tokens, the end is the only message.
wake = fn ->
  {:ok, ref} = NIF.engine_submit(engine, %{prompt: "a", max_tokens: 0}, self(), :infinity)

  receive do
    {^ref, {:done, :length, usage}} -> :os.perf_counter(:nanosecond) - usage.sent_ns
  end
end

median = fn times -> times |> Enum.sort() |> Enum.at(div(length(times), 2)) end

rounds =
  for _ <- 1..5 do
    {out, 0} = System.cmd(pipe, ["#{n}"])
    [p50, _p99] = out |> String.split() |> Enum.map(&String.to_integer/1)
    times = for _ <- 1..n, do: wake.()
    IO.puts("pipe p50 #{p50} ns, message p50 #{median.(times)} ns")
    {p50, median.(times)}
  end

{pipes, messages} = Enum.unzip(rounds)
ratio = Float.round(median.(messages) / median.(pipes), 2)
IO.puts("message over pipe: #{ratio} (medians of #{length(rounds)} rounds of #{n})")
