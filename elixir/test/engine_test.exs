# SPDX-License-Identifier: Apache-2.0
defmodule Weir.EngineTest do
  use ExUnit.Case, async: true
  import Weir.Wait
  alias Weir.{NIF, Terms}

  defp engine(options \\ %{}, model \\ "fake:") do
    {:ok, model} = Weir.load_model(model)
    {:ok, engine} = NIF.engine_create(model.ref, Map.merge(%{n_slots: 4, n_ctx: 512}, options))
    {model, engine}
  end

  # All messages of a stream: texts, ids, the end, and the number of chunks.
  defp collect(ref, text \\ "", ids \\ [], n \\ 0) do
    receive do
      {^ref, {:chunk, more, part}} ->
        assert String.valid?(part)
        collect(ref, text <> part, ids ++ more, n + 1)

      {^ref, {:done, reason, usage}} ->
        %{text: text, ids: ids, reason: reason, usage: usage, n: n}

      {^ref, {:error, reason}} ->
        %{text: text, ids: ids, reason: {:error, reason}, n: n}
    after
      Weir.Wait.patience() -> flunk("no end came")
    end
  end

  test "a request gives generate's text" do
    {model, engine} = engine()
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 20)

    refs =
      for _ <- 1..10 do
        {:ok, ref} =
          NIF.engine_submit(
            engine,
            %{prompt: "hello", temp: 0.0, max_tokens: 20},
            self(),
            :infinity
          )

        ref
      end

    for ref <- refs do
      result = collect(ref)
      assert %{text: ^text, reason: :length} = result
      assert length(result.ids) == 20
      assert %{n_generated: 20, n_prompt: 6} = result.usage
    end

    refute_received _
    assert NIF.engine_stats(engine).n_finished.length == 10
  end

  test "stops, tokens, priorities, deadlines" do
    {_model, engine} = engine(%{}, "fake:tick_us=1000")
    submit = fn request -> elem(NIF.engine_submit(engine, request, self(), :infinity), 1) end
    full = collect(submit.(%{prompt: ~c"hello", temp: 0.0, max_tokens: 40}))
    stop = String.slice(full.text, 10, 3)

    cut = collect(submit.(%{prompt: ~c"hello", temp: 0.0, max_tokens: 40, stop: ["\0", stop], priority: 5}))

    assert cut.reason == :stop_words
    assert cut.text == hd(String.split(full.text, stop))

    assert collect(submit.(%{prompt: "hello", temp: 0.0, deadline_ms: 20, cache_salt: "me"})).reason ==
             :deadline
  end

  test "without demand nothing comes, and nothing is lost" do
    {_model, engine} = engine()
    request = %{prompt: "hello", temp: 0.0, max_tokens: 300}
    {:ok, all} = NIF.engine_submit(engine, request, self(), :infinity)
    all = collect(all)

    {:ok, ref} = NIF.engine_submit(engine, request, self(), 0)
    assert eventually(fn -> at_rest?(engine) end)
    refute_received _
    :ok = NIF.engine_demand(ref, 1)
    assert_receive {^ref, {:chunk, ids, text}}
    refute_received _
    :ok = NIF.engine_demand(ref, :infinity)
    rest = collect(ref)
    assert {ids ++ rest.ids, text <> rest.text, rest.reason} == {all.ids, all.text, :length}
    # far fewer messages than tokens, because waiting chunks merge
    assert rest.n < 100
    refute_received _
  end

  test "demand that adds up to more than a number holds is without an end" do
    {_model, engine} = engine(%{manual: true})
    request = %{prompt: "hello", temp: 0.0, max_tokens: 20}
    most = 0x7FFFFFFFFFFFFFFF

    for {first, more} <- [
          {1, [most, most, 3]},
          {:infinity, [:infinity, 1]},
          {most, [1]},
          {most, [:infinity, most]},
          {0, [most - 1, 2, most]}
        ] do
      {:ok, ref} = NIF.engine_submit(engine, request, self(), first)
      for n <- more, do: :ok = NIF.engine_demand(ref, n)
      for _ <- 1..25, do: {:ok, _} = NIF.engine_step(engine, nil)
      # a chunk per tick; none waited for demand
      assert %{reason: :length, n: n, ids: ids} = collect(ref)
      assert length(ids) == 20 and n > 1
    end

    {:ok, ref} = NIF.engine_submit(engine, request, self(), 0)

    for wrong <- [-1, most + 1, nil, 1.0],
        do: assert_raise(ArgumentError, fn -> NIF.engine_demand(ref, wrong) end)
  end

  test "as many stops as a request may have, and no more" do
    {_model, engine} = engine()
    stops = for i <- 1..64, do: "stop #{i}"

    submit =
      &NIF.engine_submit(
        engine,
        %{prompt: "hello", temp: 0.0, max_tokens: 3, stop: &1},
        self(),
        :infinity
      )

    assert {:ok, ref} = submit.(stops)
    assert %{reason: :length} = collect(ref)

    # the longest allowed list works; one more is refused
    {:ok, full} = submit.([])
    text = collect(full).text
    {:ok, ref} = submit.(Enum.drop(stops, 1) ++ [String.first(text)])
    assert %{reason: :stop_words, text: ""} = collect(ref)

    for n <- [65, 66, 1000, 100_000] do
      assert_raise ArgumentError, fn -> submit.(for i <- 1..n, do: "stop #{i}") end
    end

    assert_raise ArgumentError, fn -> submit.(stops ++ ["a" | "b"]) end
  end

  test "a mailbox holds what was asked for" do
    Terms.sow("demand")
    {_model, engine} = engine()
    request = %{prompt: "hello", temp: 0.0, max_tokens: 300}
    {:ok, all} = NIF.engine_submit(engine, request, self(), :infinity)
    all = collect(all)

    for first <- [0, 1, 3, 10] do
      {:ok, ref} = NIF.engine_submit(engine, request, self(), first)
      assert %{ids: ids, text: text, reason: :length} = nibble(ref, first)
      assert {ids, text} == {all.ids, all.text}
    end
  end

  # Demands a few messages at a time and checks what came. The end counts with the last chunk.
  defp nibble(ref, allowed, ids \\ [], text \\ "") do
    {:message_queue_len, n} = Process.info(self(), :message_queue_len)
    assert n <= allowed + 1

    receive do
      {^ref, {:chunk, more, part}} -> nibble(ref, allowed - 1, ids ++ more, text <> part)
      {^ref, {:done, reason, _usage}} -> %{ids: ids, text: text, reason: reason}
    after
      0 ->
        more = if allowed == 0, do: :rand.uniform(3), else: 0
        :ok = NIF.engine_demand(ref, more)
        nibble(ref, allowed + more, ids, text)
    end
  end

  test "a prompt that was computed before is cached, unless it is not wanted" do
    {_model, engine} = engine()
    prompt = String.duplicate("all the same ", 20)

    cached =
      for cache <- [true, true, false] do
        request = %{prompt: prompt, temp: 0.0, max_tokens: 2, cache_prompt: cache}
        {:ok, ref} = NIF.engine_submit(engine, request, self(), :infinity)
        collect(ref).usage.n_cached
      end

    assert [0, n, 0] = cached
    assert n > 0
  end

  # 500 ticks of 20 ms leave time for actions before the end.
  test "cancel" do
    {_model, engine} = engine(%{}, "fake:tick_us=20000")
    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0}, self(), :infinity)
    assert_receive {^ref, {:chunk, _, _}}
    :ok = NIF.engine_cancel(ref)
    :ok = NIF.engine_cancel(ref)
    assert collect(ref).reason == :cancelled
    assert eventually(fn -> at_rest?(engine) end)
    :ok = NIF.engine_cancel(ref)
    :ok = NIF.engine_demand(ref, 1)
    refute_received _
  end

  test "a full queue" do
    {_model, engine} = engine(%{n_slots: 1, queue_limit: 1, manual: true})
    request = %{prompt: "hello", max_tokens: 5}
    assert {:ok, _} = NIF.engine_submit(engine, request, self(), 1)
    results = for _ <- 1..3, do: NIF.engine_submit(engine, request, self(), 1)
    assert Enum.any?(results, &match?({:error, %{code: :queue_full}}, &1))
  end

  test "bad arguments are refused" do
    {model, engine} = engine()
    assert {:error, %{message: reason}} = NIF.engine_submit(engine, %{prompt: "a", temp: -1}, self(), 1)
    assert reason =~ "temp"
    assert {:error, _} = NIF.engine_submit(engine, %{prompt: ""}, self(), 1) |> refused()

    assert {:error, _} = NIF.engine_submit(engine, %{prompt: "a", grammar: "root ::= ["}, self(), 1)

    assert {:error, _} = NIF.engine_create(model.ref, %{strategy: "nonsense"})
    assert {:error, _} = NIF.engine_create(model.ref, %{n_slots: 0})
    assert {:error, _} = NIF.engine_view(engine)
    assert {:error, _} = NIF.engine_step(engine, nil)

    for bad <- [%{}, %{prompt: nil}, %{prompt: "a", temp: "hot"}, %{prompt: "a", stop: "x"}, []] do
      assert_raise ArgumentError, fn -> NIF.engine_submit(engine, bad, self(), 1) end
    end

    assert_raise ArgumentError, fn -> NIF.engine_submit(engine, %{prompt: "a"}, self(), -1) end
    assert_raise ArgumentError, fn -> NIF.engine_create(model.ref, %{layout: :round}) end
  end

  # With BOS an empty text is a prompt of one token.
  defp refused({:ok, ref}), do: if(collect_some(ref), do: {:error, :none})
  defp refused(error), do: error
  defp collect_some(ref), do: NIF.engine_cancel(ref) == :ok

  test "a manual engine is driven by plans" do
    {model, engine} = engine(%{manual: true, chunk_size: 3})
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 4)

    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 4}, self(), :infinity)

    assert {:ok, %{slots: [%{slot: slot, state: :prefilling, n_prompt_left: 6}], chunk_size: 3}} =
             NIF.engine_view(engine)

    assert {:ok, %{n_prefill: 2, bad_plan: false}} = NIF.engine_step(engine, [{slot, 2}])
    assert {:ok, %{bad_plan: true}} = NIF.engine_step(engine, [{slot, 1000}])

    assert Enum.any?(1..10, fn _ -> match?({:ok, %{idle: true}}, NIF.engine_step(engine, nil)) end)

    assert %{text: ^text, reason: :length} = collect(ref)
    assert NIF.engine_stats(engine).n_bad_plans == 1
  end

  test "a driver that is killed within a tick: nothing is lost" do
    {model, engine} = engine(%{manual: true}, "fake:tick_us=5000")
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 50)

    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 50}, self(), :infinity)

    step = fn -> {:ok, _} = NIF.engine_step(engine, nil) end

    for _ <- 1..8 do
      driver = spawn(fn -> step |> Stream.repeatedly() |> Stream.run() end)
      until_inside(driver, :engine_turn, 2)
      Process.exit(driver, :kill)
    end

    assert eventually(fn -> step.() && at_rest?(engine) end)
    assert %{text: ^text, reason: :length} = collect(ref)
    refute_received _
  end

  test "a stop ends all streams" do
    {_model, engine} = engine(%{}, "fake:tick_us=20000")
    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0}, self(), :infinity)
    :ok = NIF.engine_stop(engine)
    assert {:error, %{code: :stopping}} = NIF.engine_submit(engine, %{prompt: "hello"}, self(), 1)
    assert {:error, _} = collect(ref).reason
    :ok = NIF.engine_stop(engine)
    refute_received _
  end

  test "a stream keeps its engine" do
    me = self()

    # the process gets only the stream's messages, and ends
    spawn(fn ->
      {_model, engine} = engine(%{}, "fake:tick_us=500")

      {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 50}, me, :infinity)

      send(me, {:ref, ref})
    end)

    assert_receive {:ref, ref}
    assert %{reason: :length, ids: ids} = collect(ref)
    assert length(ids) == 50
  end

  test "consumers that are killed at any time free their slots" do
    Terms.sow("killed consumers of an engine")
    {_model, engine} = engine(%{queue_limit: 0}, "fake:tick_us=200")

    consumers =
      for _ <- 1..300 do
        demand = Enum.random([0, 1, :infinity])

        pid =
          spawn(fn ->
            request = %{prompt: "hello", temp: 0.0, keep: Enum.random([true, false])}
            {:ok, ref} = NIF.engine_submit(engine, request, self(), demand)
            collect(ref)
          end)

        if :rand.uniform(3) == 1, do: Process.sleep(1)
        pid
      end

    for pid <- Enum.shuffle(consumers), do: Process.exit(pid, :kill)
    assert eventually(fn -> at_rest?(engine) end)
    # only cached prefixes are left, which no request needs
    assert eventually(fn ->
             stats = NIF.engine_stats(engine)
             stats.n_kv_used == stats.n_kv_cached
           end)

    assert {:ok, ref} =
             NIF.engine_submit(
               engine,
               %{prompt: "hello", temp: 0.0, max_tokens: 3},
               self(),
               :infinity
             )

    assert collect(ref).reason == :length
  end

  # The reader takes the end at once and exits while the engine's thread is about to report it. A sanitizer
  # would find uses of freed memory.
  test "a stream that is kept ends together with its reader" do
    {_model, engine} = engine(%{n_slots: 2})

    for i <- 1..300 do
      {pid, monitor} =
        spawn_monitor(fn ->
          request = %{prompt: "hello", temp: 0.0, max_tokens: 1, keep: rem(i, 4) != 0}
          {:ok, ref} = NIF.engine_submit(engine, request, self(), 0)
          first_token(ref)
          :ok = NIF.engine_demand(ref, :infinity)
        end)

      assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}
    end

    assert eventually(fn -> at_rest?(engine) end)
  end

  defp first_token(ref), do: NIF.engine_usage(ref).n_generated > 0 || first_token(ref)

  test "a consumer that is dead already" do
    {_model, engine} = engine(%{}, "fake:tick_us=20000")
    {pid, monitor} = spawn_monitor(fn -> :ok end)
    assert_receive {:DOWN, ^monitor, :process, ^pid, _}
    assert {:ok, _ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0}, pid, 1)

    assert eventually(fn ->
             NIF.engine_stats(engine).n_finished.cancelled == 1
           end)
  end
end
