# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HandlesTest do
  # What is no longer referenced is freed: handles, threads, memory, scheduler threads. The tests count all of
  # the VM, so nothing may run beside them.
  use ExUnit.Case, async: false
  import Weir.Wait
  alias Weir.{NIF, Server, Terms}

  # Another thread frees what earlier tests have left, after it was collected.
  defp settled do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
    {live, n} = {NIF.live_handles(), threads()}
    Process.sleep(200)
    if {live, n} == {NIF.live_handles(), threads()}, do: {live, n}, else: settled()
  end

  defp threads, do: "/proc/self/task" |> File.ls!() |> length()

  test "resources without references are freed, with their threads" do
    {before, before_threads} = settled()

    {pid, monitor} =
      spawn_monitor(fn ->
        kept =
          for _ <- 1..20 do
            {:ok, model} = Weir.load_model("fake:")
            {:ok, context} = Weir.Context.create(model)
            {:ok, sampler} = Weir.Sampler.create(model)
            {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 2})
            {:ok, ref} = NIF.engine_submit(engine, %{prompt: "a", temp: 0.0}, self(), 1)
            messages = ~S([{"role": "user", "content": "a"}])
            {:ok, chat} = NIF.chat_create(model.ref, %{messages: messages})
            {:ok, parser} = NIF.chat_parser(chat)
            {:ok, adapter} = Weir.Adapter.load(model, "fake:1")
            {:ok, media} = NIF.media_create(model.ref, Weir.Sound.wav())
            {:ok, pool} = NIF.pool_create(%{memory_bytes: 0, cache_dir: ""})
            :ok = NIF.pool_set(pool, [%{name: "a", path: "fake:"}])
            {:ok, lease} = NIF.lease_create(pool, "a", -1, self(), make_ref())
            made = {model, context, sampler, engine, ref, chat, parser, adapter, media}
            {made, pool, lease}
          end

        live = NIF.live_handles()
        for kind <- Map.keys(live), do: ^kind = if(live[kind] >= 20, do: kind)
        exit({:kept, length(kept)})
      end)

    assert_receive {:DOWN, ^monitor, :process, ^pid, {:kept, 20}}
    assert eventually(fn -> freed?(before) and threads() <= before_threads end)
  end

  # A process that submits and reads until it is killed. It has two monitors: the engine monitors it after the
  # first and before the second. When both have fired, the engine's has fired, too.
  defp consumer(engine, demand) do
    me = self()

    {pid, first} =
      spawn_monitor(fn ->
        request = %{prompt: "hello", temp: 0.0, keep: Enum.random([true, false])}
        {:ok, ref} = NIF.engine_submit(engine, request, self(), demand)
        send(me, {:submitted, self()})
        read(ref)
      end)

    assert_receive {:submitted, ^pid}
    {pid, [first, Process.monitor(pid)]}
  end

  defp read(ref) do
    receive do
      {^ref, {:chunk, _ids, _text}} -> NIF.engine_demand(ref, Enum.random([0, 1, 2]))
      {^ref, {:done, _reason, _usage}} -> Process.sleep(:infinity)
    end

    read(ref)
  end

  defp kill(consumers) do
    for {pid, _} <- consumers, do: Process.exit(pid, :kill)

    for {_, monitors} <- consumers, monitor <- monitors do
      assert_receive {:DOWN, ^monitor, :process, _, :killed}
    end
  end

  defp demand, do: Enum.random([0, 1, 5, :infinity])

  test "1,000 consumers that are killed at random: each has left its slot after one tick" do
    Terms.sow("killed consumers, ticks")
    {:ok, model} = Weir.load_model("fake:")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 8, n_ctx: 1024, queue_limit: 0, manual: true})

    consumers = for _ <- 1..1000, do: consumer(engine, demand())
    kill_and_step(engine, Enum.shuffle(consumers), 0)
    stats = NIF.engine_stats(engine)
    assert stats.n_slots_generating + stats.n_slots_prefilling + stats.queue_depth == 0
    # only cached prefixes are left, which no request needs
    assert stats.n_kv_used == stats.n_kv_cached
    assert {:messages, []} = Process.info(self(), :messages)
  end

  defp kill_and_step(_engine, [], _n_killed), do: :ok

  defp kill_and_step(engine, consumers, n_killed) do
    {doomed, rest} = Enum.split(consumers, :rand.uniform(100) - 1)
    kill(doomed)
    n_killed = n_killed + length(doomed)
    assert {:ok, _} = NIF.engine_step(engine, nil)
    assert NIF.engine_stats(engine).n_finished.cancelled == n_killed
    kill_and_step(engine, rest, n_killed)
  end

  @tag :memory
  test "1,000 consumers that are killed at random leave no handle, no message and no memory behind" do
    Terms.sow("killed consumers, memory")
    {:ok, model} = Weir.load_model("fake:tick_us=100")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 8, n_ctx: 512, queue_limit: 0})
    {before, _} = settled()

    round = fn ->
      1..1000
      |> Enum.map(fn i ->
        if rem(i, 8) == 0, do: Process.sleep(Enum.random(0..1))
        demand = demand()
        request = %{prompt: "hello", temp: 0.0, keep: Enum.random([true, false])}

        pid = spawn(fn -> read(elem(NIF.engine_submit(engine, request, self(), demand), 1)) end)

        if :rand.uniform(3) == 1, do: Process.exit(pid, :kill)
        pid
      end)
      |> Enum.shuffle()
      |> Enum.each(&Process.exit(&1, :kill))

      assert eventually(fn -> at_rest?(engine) and freed?(before) end)
      memory()
    end

    rounds = for _ <- 1..40, do: round.()
    {first, later} = {Enum.take(rounds, 10), Enum.take(rounds, -10)}
    # a leak of 500 bytes per stream is 10 MB; the VM's own memory grows at first and varies by some megabytes
    assert Enum.min(later) - Enum.max(first) < 8_000_000, inspect(rounds)
    assert {:messages, []} = Process.info(self(), :messages)
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 10)

    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 10}, self(), :infinity)

    assert join(ref) == text
  end

  # Resident bytes of the process, or the VM's own count.
  defp memory do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)

    case File.read("/proc/self/statm") do
      {:ok, text} -> String.to_integer(Enum.at(String.split(text), 1)) * 4096
      _ -> :erlang.memory(:total)
    end
  end

  # 20 forks per round, each of another source with a history of 0.4 MB: a fork that kept it would show.
  @tag :memory
  test "forks release their source, refused or not" do
    {:ok, model} = Weir.load_model("fake:")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 100_000, cache_sequences: 0})

    prompt = String.duplicate("x", 90_000)
    {before, _} = settled()

    fork = fn ->
      request = %{prompt: prompt, temp: 0.0, max_tokens: 2, keep: true}
      {:ok, source} = NIF.engine_submit(engine, request, self(), :infinity)
      assert_receive {^source, {:done, :length, _}}
      assert {:error, _} = NIF.engine_submit(engine, %{source: source, priority: 1000}, self(), 1)

      assert_raise ArgumentError, fn ->
        NIF.engine_submit(engine, %{source: source, stop: :no}, self(), 1)
      end

      {:ok, ref} = NIF.engine_submit(engine, %{source: source, max_tokens: 1}, self(), :infinity)
      assert_receive {^ref, {:done, _, _}}
    end

    round = fn ->
      for _ <- 1..20, do: Task.await(Task.async(fork), Weir.Wait.patience())
      assert eventually(fn -> at_rest?(engine) and settled() && freed?(before) end)
      memory()
    end

    [_, first | rounds] = for _ <- 1..5, do: round.()
    # all histories would be 24 MB
    assert Enum.max(rounds) - first < 12_000_000, inspect([first | rounds])
  end

  test "answers for one caller free their engine at their end" do
    # so that the end of any linked process shows in the mailbox
    Process.flag(:trap_exit, true)
    {:ok, model} = Weir.load_model("fake:")
    {before, before_threads} = settled()
    messages = [{:user, "hello"}]
    opts = [temp: 0.0, max_tokens: 3]

    ways = [
      fn -> {:ok, _} = Weir.generate(model, "hello", opts) end,
      fn -> model |> Weir.stream("hello", opts) |> Stream.run() end,
      fn -> model |> Weir.stream("hello", opts) |> Enum.take(1) end,
      fn -> {:ok, _} = Weir.chat_completion(model, messages, [n: 3] ++ opts) end,
      fn -> model |> Weir.stream_chat_completion(messages, opts) |> Stream.run() end,
      fn -> {:error, _} = Weir.generate(model, "hello", [top_p: 2.0] ++ opts) end
    ]

    # without a garbage collection of this process
    for way <- ways, _ <- 1..10 do
      way.()
      assert eventually(fn -> NIF.live_handles().weir_engine <= before.weir_engine end)
    end

    assert eventually(fn -> threads() <= before_threads end)
    assert mailbox() == []
  end

  test "streams that were refused are freed" do
    {:ok, model} = Weir.load_model("fake:")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256, manual: true, queue_limit: 3})

    {:ok, stopped} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256})
    :ok = NIF.engine_stop(stopped)
    # two of four places are taken
    {:ok, [_, _] = queued} = NIF.engine_submit_n(engine, %{prompt: "a"}, 2, self(), 1)
    {before, _} = settled()

    refused = fn ->
      assert {:error, _} = NIF.engine_submit(engine, %{prompt: "a", top_p: 2.0}, self(), 1)

      assert {:error, _} = NIF.engine_submit_n(engine, %{prompt: "a", priority: 101}, 100, self(), 1)

      assert {:error, %{code: :queue_full}} = NIF.engine_submit_n(engine, %{prompt: "a"}, 3, self(), 1)

      assert {:error, _} = NIF.engine_submit(engine, %{prompt: String.duplicate("a", 300)}, self(), 1)

      assert {:error, _} = NIF.engine_submit(engine, %{grammar: "root ::= [", prompt: "a"}, self(), 1)

      assert {:error, _} = NIF.engine_submit(stopped, %{prompt: "a"}, self(), 1)

      for wrong <- [
            %{},
            %{prompt: :a},
            %{prompt: "a", stop: "b"},
            %{prompt: "a", temp: "b"},
            %{source: "a"}
          ],
          do: assert_raise(ArgumentError, fn -> NIF.engine_submit(engine, wrong, self(), 1) end)
    end

    Task.await(Task.async(fn -> for(_ <- 1..20, do: refused.()) end))
    assert eventually(fn -> freed?(before) end)
    assert NIF.engine_stats(engine).queue_depth == length(queued)
  end

  test "a server's end frees engine and model, although a process still refers to what it got from it" do
    Process.flag(:trap_exit, true)
    {before, before_threads} = settled()
    {:ok, supervisor} = Supervisor.start_link([], strategy: :one_for_one)
    child = {Server, model_path: "fake:", temp: 0.0, max_tokens: 4}
    {:ok, server} = Supervisor.start_child(supervisor, child)
    asked = %{mode: :generate, id: nil, n: 1, tag: nil, fork: nil}
    {:ok, session} = GenServer.call(server, {:begin, asked})
    {:ok, model} = Server.Broker.model(server, :infinity)
    {:ok, embedder} = GenServer.call(server, :embedder)
    {:ok, _vector} = Server.embed(server, "hello")
    {:ok, [_, _]} = Server.embed(server, ["hello", "you"])
    {:ok, _text} = Server.generate(server, "hello")
    {:ok, _text} = Server.chat(server, [{:user, "hello"}])
    # it has ended when the engine does, and its end was not read
    {:ok, unread} = NIF.engine_submit(session.engine, %{prompt: "a", max_tokens: 9}, self(), 0)
    stream = Server.stream(server, "hello", emit: :chunks, logprobs: true)
    {:suspended, _chunk, more} = Enumerable.reduce(stream, {:cont, nil}, fn c, _ -> {:suspend, c} end)

    :ok = Supervisor.stop(supervisor)
    assert NIF.live_handles().weir_engine <= before.weir_engine
    NIF.lease_release(model.ref)
    {:halted, _} = more.({:halt, nil})

    assert eventually(fn ->
             live = NIF.live_handles()
             live.weir_model <= before.weir_model and live.weir_context <= before.weir_context
           end)

    assert eventually(fn -> NIF.live_handles().weir_claim <= before.weir_claim end)
    assert eventually(fn -> threads() <= before_threads end)

    for later <- [
          fn -> NIF.engine_submit(session.engine, %{prompt: "a"}, self(), 1) end,
          fn -> NIF.engine_submit_n(session.engine, %{prompt: "a"}, 2, self(), 1) end,
          fn -> NIF.engine_stats(session.engine) end,
          fn -> NIF.engine_ticks(session.engine, 0) end,
          fn -> NIF.engine_slots(session.engine) end,
          fn -> NIF.engine_view(session.engine) end,
          fn -> NIF.engine_turn(session.engine, nil) end,
          fn -> NIF.engine_stop(session.engine) end
        ],
        do: assert({:error, %{code: :stopping}} = later.())

    assert NIF.engine_destroy(session.engine) == :ok
    assert_raise ArgumentError, fn -> NIF.tokenize(model.ref, "a", true, true) end
    refute Process.alive?(embedder)
    NIF.engine_close(unread)
  end

  test "an engine is destroyed beside any calls" do
    Terms.sow("engines destroyed")
    {:ok, model} = Weir.load_model("fake:tick_us=500")

    for manual <- [false, true], _ <- 1..20 do
      {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 2, manual: manual, n_ctx: 512})

      calls = [
        fn ->
          NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0}, self(), Enum.random([0, 1, :infinity]))
        end,
        fn -> NIF.engine_stats(engine) end,
        fn -> NIF.engine_ticks(engine, 0) end,
        fn -> NIF.engine_slots(engine) end,
        fn -> NIF.engine_turn(engine, nil) end,
        fn -> NIF.engine_destroy(engine) end
      ]

      callers =
        for call <- calls do
          Task.async(fn ->
            if call == List.last(calls), do: Process.sleep(:rand.uniform(5))
            Enum.find(Stream.repeatedly(call), &(&1 == :ok or match?({:error, %{code: :stopping}}, &1)))
          end)
        end

      Task.await_many(callers, Weir.Wait.patience())
      assert {:error, %{code: :stopping}} = NIF.engine_stats(engine)
    end
  end

  test "a server that was killed leaves no engine, whoever drives it" do
    Process.flag(:trap_exit, true)
    {before, _} = settled()

    for strategy <- [:balanced, Server.Strategy.Balanced] do
      {:ok, server} =
        Server.start_link(
          model_path: "fake:tick_us=2000",
          temp: 0.0,
          batch_strategy: strategy
        )

      consumer =
        spawn(fn ->
          {:ok, session} =
            GenServer.call(server, {:begin, %{mode: :generate, id: nil, n: 1, tag: nil, fork: nil}})

          request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
          {:ok, ref} = NIF.engine_submit(session.engine, request, self(), 0)
          Server.Driver.work(session.driver)
          GenServer.cast(server, {:running, hd(session.keys), ref})
          Process.sleep(:infinity)
        end)

      assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
      Process.exit(server, :kill)
      assert_receive {:EXIT, ^server, :killed}
      # the running tick ends, and no other follows
      Process.sleep(100)
      Process.exit(consumer, :kill)

      assert eventually(fn ->
               Enum.each(Process.list(), &:erlang.garbage_collect/1)
               freed?(before)
             end)
    end
  end
end
