# How long the native functions hold a normal scheduler, with the largest inputs that do not move them to a
# dirty one. On the fake model and, if WEIR_TEST_MODEL names one, on a real model. An idle engine runs beside
# them.
#
# MIX_ENV=prod mix run bench/schedulers.exs [CALLS]
#
# Each call has its own timeslice. "over 1 ms" counts the VM's reports (long_schedule) of a process that held
# a scheduler for that long for any reason, also because the machine gave the core to another program. So
# compare with the line "nothing". The last line counts these reports for all processes while a server on the
# fake model had eight streams. SPDX-License-Identifier: Apache-2.0
alias Weir.NIF

calls =
  case System.argv() do
    [n | _] -> String.to_integer(n)
    [] -> 2000
  end

# Counts the VM's reports about one process.
counter =
  spawn(fn ->
    loop = fn loop, counts ->
      receive do
        {:monitor, pid, :long_schedule, _info} ->
          loop.(loop, Map.update(counts, pid, 1, &(&1 + 1)))

        {:count, pid, from} ->
          send(from, {:count, Map.get(counts, pid, 0)}) && loop.(loop, counts)

        {:sum, from} ->
          send(from, {:sum, Enum.sum(Map.values(counts))}) && loop.(loop, counts)

        _port ->
          loop.(loop, counts)
      end
    end

    loop.(loop, %{})
  end)

:erlang.system_monitor(counter, [{:long_schedule, 1}])

# A setup costs a forward pass.
measure = fn model_name, {name, setup, fun} ->
  me = self()
  calls = if setup == nil, do: calls, else: max(div(calls, 20), 10)
  setup = setup || fn -> nil end

  pid =
    spawn(fn ->
      Process.flag(:priority, :high)
      for _ <- 1..5, do: fun.(setup.())

      times =
        for _ <- 1..calls do
          input = setup.()
          :erlang.yield()
          start = System.monotonic_time(:nanosecond)
          fun.(input)
          System.monotonic_time(:nanosecond) - start
        end

      send(me, {self(), Enum.sort(times)})
      receive do: (:end -> :ok)
    end)

  receive do
    {^pid, times} ->
      # a report comes when the process is scheduled out
      Process.sleep(5)
      send(counter, {:count, pid, self()})
      over = receive do: ({:count, n} -> n)
      send(pid, :end)
      us = fn i -> Float.round(Enum.at(times, i) / 1000, 1) end

      :io.format("~-6s ~-34s ~10.1f ~10.1f ~10.1f ~10w~n", [
        model_name,
        name,
        us.(div(calls, 2)),
        us.(div(calls * 99, 100)),
        us.(calls - 1),
        over
      ])
  end
end

bench = fn label, path ->
  {:ok, %{ref: model}} = Weir.load_model(path)
  {:ok, context} = NIF.context_create(model, 65_536, 512, 512, 2, 2, false, -1, 1)
  {:ok, embedder} = NIF.context_create(model, 512, 512, 512, 2, 2, true, 1, 1)
  {:ok, sampler} = NIF.sampler_init(model, 7, 0.8, 40, 0.95, 0.05, 1.1, 0.0, 0.0, nil, nil)
  {:ok, wide} = NIF.sampler_create(model, %{seed: 7, top_k: 1024, penalty_repeat: 1.1})
  {:ok, engine} = NIF.engine_create(model, %{n_slots: 8, n_ctx: 512})

  {:ok, manual} = NIF.engine_create(model, %{n_slots: 2, n_ctx: 4096, queue_limit: 0, manual: true})

  text = "Why is the sky blue? " |> String.duplicate(100) |> binary_part(0, 1024)
  {:ok, tokens} = NIF.tokenize(model, text, false, true)
  tokens = tokens |> Stream.cycle() |> Enum.take(512)
  few = Enum.take(tokens, 200)
  :ok = NIF.decode(context, tokens)
  :ok = NIF.embed_decode(embedder, few, 0)

  cancelled = fn {:ok, ref} -> NIF.engine_cancel(ref) end
  request = %{prompt: text, max_tokens: 1, stop: ["a", "b"]}
  said = String.duplicate("word ", 12_000)
  messages = Weir.JSON.encode!([%{role: "user", content: said}])
  {:ok, chat} = NIF.chat_create(model, %{messages: messages})
  short = %{prompt: "a", max_tokens: 1}

  [
    {"nothing", nil, fn _ -> :ok end},
    {"tokenize, 1,024 bytes", nil, fn _ -> {:ok, _} = NIF.tokenize(model, text, true, true) end},
    {"detokenize, 512 tokens", nil, fn _ -> {:ok, _} = NIF.detokenize(model, tokens) end},
    {"token_to_piece", nil, fn _ -> NIF.token_to_piece(model, 99) end},
    {"model_desc", nil, fn _ -> NIF.model_desc(model) end},
    {"model_chat_template", nil, fn _ -> NIF.model_chat_template(model) end},
    {"sampler_init", nil,
     fn _ -> NIF.sampler_init(model, 7, 0.8, 40, 0.95, 0.05, 1.1, 0.0, 0.0, nil, nil) end},
    {"sampler_create", nil, fn _ -> {:ok, _} = NIF.sampler_create(model, %{mirostat: 2, typical_p: 0.5}) end},
    {"sampler_accept", nil, fn _ -> NIF.sampler_accept(sampler, 99) end},
    {"sampler_reset", nil, fn _ -> NIF.sampler_reset(sampler) end},
    {"sampler_sample", nil, fn _ -> true = is_integer(NIF.sampler_sample(sampler, context)) end},
    {"sampler_sample, top_k 1,024", nil, fn _ -> true = is_integer(NIF.sampler_sample(wide, context)) end},
    {"memory_seq_pos_max", nil, fn _ -> NIF.memory_seq_pos_max(context, 0) end},
    {"get_embeddings", nil, fn _ -> {:ok, _} = NIF.get_embeddings(embedder, 0, 2) end},
    {"engine_stats", nil, fn _ -> NIF.engine_stats(engine) end},
    {"engine_submit, 1,024 bytes", nil,
     fn _ -> NIF.engine_submit(manual, request, self(), 1) |> cancelled.() end},
    {"engine_submit_n, 8 answers", nil,
     fn _ ->
       {:ok, refs} = NIF.engine_submit_n(manual, short, 8, self(), 1)
       Enum.each(refs, &NIF.engine_cancel/1)
     end},
    {"chat_prompt, 60,000 bytes", nil, fn _ -> NIF.chat_prompt(chat) end},
    {"engine_demand",
     fn ->
       {:ok, ref} = NIF.engine_submit(manual, %{prompt: "a", max_tokens: 1}, self(), 0)
       {:ok, _} = NIF.engine_step(manual, nil)
       ref
     end, fn ref -> :ok = NIF.engine_demand(ref, :infinity) end},
    {"memory_clear, 65,536 cells", nil, fn _ -> :ok = NIF.memory_clear(context) end}
  ]
  |> Enum.each(&measure.(label, &1))
end

:io.format("~-6s ~-34s ~10s ~10s ~10s ~10s~n", [
  "model",
  "function",
  "p50 us",
  "p99 us",
  "max us",
  "over 1 ms"
])

bench.("fake", "fake:")

case System.get_env("WEIR_TEST_MODEL", "") do
  "" -> :ok
  path -> if NIF.backend_version() != "none", do: bench.("real", path)
end

total = fn ->
  send(counter, {:sum, self()})
  receive do: ({:sum, n} -> n)
end

before = total.()
{:ok, server} = Weir.Server.start_link(model_path: "fake:tick_us=1000", n_parallel: 8, temp: 0.0)

1..8
|> Task.async_stream(
  fn _ -> server |> Weir.Server.stream("hello", max_tokens: 900) |> Stream.run() end,
  max_concurrency: 8,
  timeout: :infinity
)
|> Stream.run()

ticks = Weir.Server.get_stats(server).n_ticks
IO.puts("a server with 8 streams: #{total.() - before} times over 1 ms in #{ticks} ticks")
