# SPDX-License-Identifier: Apache-2.0
defmodule Weir.TelemetryTest do
  # Defines the part of :telemetry that is used, and removes it again, so nothing may run beside it.
  use ExUnit.Case, async: false
  import Weir.Wait, only: [eventually: 1]
  alias Weir.Server

  defp stand_in do
    {:module, :telemetry, _, _} =
      Module.create(
        :telemetry,
        quote do
          def execute(event, measurements, metadata) do
            case Process.whereis(Weir.TelemetryTest) do
              nil -> :ok
              pid -> send(pid, {:event, event, measurements, metadata})
            end
          end
        end,
        Macro.Env.location(__ENV__)
      )

    Process.register(self(), __MODULE__)

    on_exit(fn ->
      :code.purge(:telemetry)
      :code.delete(:telemetry)
      :code.purge(:telemetry)
    end)
  end

  defp request(event) do
    assert_receive {:event, [:weir, :server, :request, ^event], measurements, metadata}
    {measurements, metadata}
  end

  defp ticks(done \\ []) do
    receive do
      {:event, [:weir, :server, :tick], measurements, metadata} ->
        ticks([{measurements, metadata} | done])
    after
      0 -> Enum.reverse(done)
    end
  end

  test "the load of a server that does not wait for its model" do
    stand_in()
    server = start_supervised!({Server, model_path: "fake:load_us=20000", await: false})
    assert {:ok, _model} = Server.fetch_model(server)
    told = loads(server)
    assert {1.0, :ready} = List.last(told)
    assert {1.0, :load} in told
    assert told == Enum.sort_by(told, &elem(&1, 0))

    # one that waits is ready at once
    server = start_supervised!({Server, model_path: "fake:"}, id: :waits)
    assert loads(server) == [{1.0, :ready}]
  end

  test "embeddings of any target" do
    stand_in()
    {:ok, model} = Weir.load_model("fake:")
    server = start_supervised!({Server, model: model})

    for embed <- [&Weir.embed_batch(model, &1, &2), &Server.embed(server, &1, &2)] do
      assert {:ok, [_, _]} = embed.(["a", "bc"], [])
      assert_receive {:event, [:weir, :embedding], %{texts: 2, tokens: 5, duration_ms: ms}, %{error: nil}}
      assert ms > 0
    end
  end

  test "requests without a server" do
    stand_in()
    {:ok, model} = Weir.load_model("fake:tick_us=1000")
    models = start_supervised!({Weir.Models, models: [[name: "m", model_path: "fake:tick_us=1000"]]})

    for target <- [model, {Weir.Models, {models, "m"}}] do
      assert {:ok, _} = Weir.Target.generate(target, "hello", temp: 0.0, max_tokens: 3)
      assert {%{prompt_tokens: 6, generated_tokens: 3}, %{reason: :length}} = own(:done)
      assert [_] = target |> Weir.Target.stream("hello", temp: 0.0, max_tokens: 3000) |> Enum.take(1)
      assert {%{prompt_tokens: 6}, %{reason: :halted}} = own(:done)
      opts = [temp: 0.0, max_tokens: 4, n: 2]
      assert {:ok, _} = Weir.Target.chat_completion(target, [{:user, "hi"}], opts)
      for _ <- 1..2, do: assert({%{generated_tokens: 4}, %{reason: :length}} = own(:done))
      late = [temp: 0.0, max_tokens: 3000, ignore_eos: true, timeout: 100]
      assert {:error, %{code: :timeout}} = Weir.Target.generate(target, "hello", late)
      assert {_usage, %{kind: :error, reason: %Weir.Error{code: :timeout}}} = own(:exception)
      refute_received {:event, [:weir, :request | _], _, _}
    end
  end

  defp own(event) do
    assert_receive {:event, [:weir, :request, ^event], measurements, metadata}
    {measurements, metadata}
  end

  defp loads(server) do
    receive do
      {:event, [:weir, :server, :load], %{done: done}, %{server: ^server, stage: stage}} ->
        [{done, stage} | loads(server)]
    after
      0 -> []
    end
  end

  test "without it nothing is told, and nothing is missed" do
    refute Server.Telemetry.loaded?()
    server = start_supervised!({Server, model_path: "fake:"})
    refute :sys.get_state(server).telemetry
    assert {:ok, _} = Server.generate(server, "hello", max_tokens: 3)
    refute :sys.get_state(server).polling
  end

  for strategy <- [:decode_maximal, Server.Strategy.DecodeMaximal] do
    test "requests and ticks with #{inspect(strategy)}" do
      stand_in()

      server =
        start_supervised!(
          {Server, model_path: "fake:tick_us=200", strategy: unquote(strategy), n_parallel: 2}
        )

      {:ok, answer} = Server.complete(server, "hello", max_tokens: 10, temp: 0.0, id: :me)
      {start, metadata} = request(:start)
      assert %{system_time: time, prompt_tokens: 6} = start
      assert is_integer(time)
      assert %{server: ^server, seq_id: 1, mode: :generate, id: :me} = metadata
      {done, metadata} = request(:done)
      assert done == answer.usage
      assert %{prompt_tokens: 6, cached_tokens: 0, generated_tokens: 10} = done
      assert done.duration_ms >= done.ttft_ms and done.ttft_ms >= done.queue_ms
      assert_in_delta done.generation_rate, 9000 / (done.duration_ms - done.ttft_ms), 1.0
      assert_in_delta done.prompt_eval_rate, 6000 / (done.ttft_ms - done.queue_ms), 1.0
      assert %{server: ^server, seq_id: 1, mode: :generate, id: :me, reason: :length} = metadata

      assert eventually(fn -> not :sys.get_state(server).polling end)
      ticks = ticks()
      assert Enum.all?(ticks, fn {_, metadata} -> metadata == %{server: server} end)
      sum = fn key -> ticks |> Enum.map(&elem(&1, 0)[key]) |> Enum.sum() end
      assert {sum.(:prefill_tokens), sum.(:decode_tokens)} == {6, 9}
      assert sum.(:batch_size) == 15
      busy = for {%{batch_size: n} = tick, _} <- ticks, n > 0, do: tick
      assert length(busy) == 10
      assert Enum.all?(busy, &(&1.active_slots == 1 and &1.queue_depth == 0))
      assert Enum.all?(busy, &(&1.eval_ms >= 0.2 and &1.tick_ms >= &1.eval_ms))
    end
  end

  test "events have no words of a prompt or an answer, whatever its salt" do
    stand_in()
    server = start_supervised!({Server, model_path: "fake:", temp: 0.0})

    for salt <- [nil, "0f3b"], text <- ["The password is swordfish", "The password is what?"] do
      opts = [max_tokens: 8, cache_salt: salt]
      {:ok, answer} = Server.complete(server, text, opts)
      assert String.length(answer.text) > 1
      {:ok, _} = Server.chat_completion(server, [{:user, text}], opts)
      server |> Server.stream(text, opts) |> Stream.run()
      {:error, _} = Server.complete(server, text, [grammar: "root ::= \"swordfish\" x"] ++ opts)
      ids = answer.ids |> Enum.take(3) |> inspect(charlists: :as_lists)

      for told <- all_events(server), word <- ["swordfish", "what?", answer.text, String.trim(ids, "]")] do
        refute told =~ word
      end
    end
  end

  defp all_events(server) do
    assert eventually(fn -> not :sys.get_state(server).polling end)
    told = drain()
    assert length(told) > 10
    told
  end

  defp drain do
    receive do
      {:event, _, _, _} = event ->
        shown = [limit: :infinity, printable_limit: :infinity]
        [inspect(event, shown), inspect(event, [charlists: :as_lists] ++ shown) | drain()]
    after
      0 -> []
    end
  end

  test "ticks tell of drafts, too: what is told adds up to what was computed" do
    stand_in()
    # its drafts are always right, and a pass costs much more than a token
    {:ok, model} = Weir.load_model("fake:tick_us=2000,token_us=10")
    server = start_supervised!({Server, model: model, draft_model: "fake:", prompt_lookup: false})
    {:ok, answer} = Server.complete(server, "hello", max_tokens: 200, temp: 0.0)
    assert eventually(fn -> not :sys.get_state(server).polling end)
    ticks = Enum.map(ticks(), &elem(&1, 0))
    sum = fn key -> ticks |> Enum.map(& &1[key]) |> Enum.sum() end
    stats = Server.get_stats(server)

    assert sum.(:drafted_tokens) > 0
    assert sum.(:drafted_tokens) == stats.n_drafted
    assert sum.(:accepted_tokens) == stats.n_accepted
    assert answer.usage.drafted_tokens == stats.n_drafted
    # each token of the answer except the last was decoded or accepted
    assert sum.(:decode_tokens) + sum.(:accepted_tokens) == 199
    assert sum.(:batch_size) == 6 + sum.(:decode_tokens) + sum.(:drafted_tokens)
    assert sum.(:passes) == Enum.count(ticks, &(&1.batch_size > 0))
  end

  test "a shared answer: each request starts with its prompt's tokens, and ends" do
    stand_in()
    server = start_supervised!({Server, model_path: "fake:tick_us=1000", temp: 0.0})
    for _ <- 1..2, do: Server.submit(server, "hello", share: true, max_tokens: 50, id: :both)

    starts = for _ <- 1..2, do: request(:start)
    assert Enum.all?(starts, &match?({%{prompt_tokens: 6}, %{id: :both}}, &1))
    assert Enum.sort(for {_, %{seq_id: n}} <- starts, do: n) == [1, 2]

    for _ <- 1..2, do: assert({%{generated_tokens: 50}, %{id: :both, reason: :length}} = request(:done))
  end

  test "how streams end, and what fails" do
    stand_in()
    # 3,000 tokens take 15 s, so such an answer does not end before it was observed
    server = start_supervised!({Server, model_path: "fake:tick_us=5000", n_parallel: 1, temp: 0.0})

    server |> Server.stream("hello", max_tokens: 3) |> Stream.run()
    assert {%{generated_tokens: 3}, %{mode: :stream, reason: :length}} = request(:done)

    server |> Server.stream("hello", max_tokens: 3000) |> Enum.take(2)
    assert {%{generated_tokens: n, prompt_tokens: 6}, %{reason: :halted}} = request(:done)
    assert n >= 2

    {:ok, _} = Server.generate(server, "hello", deadline: 20, max_tokens: 3000)
    assert {_, %{reason: :deadline}} = request(:done)

    pid = spawn(fn -> Server.generate(server, "hello", max_tokens: 3000) end)
    assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
    task = Task.async(fn -> Server.generate(server, "hello", timeout: 1) end)
    assert {:error, %{code: :timeout}} = Task.await(task, Weir.Wait.patience())

    assert {%{generated_tokens: 0}, %{kind: :error, reason: %Weir.Error{code: :timeout}}} =
             request(:exception)

    Process.exit(pid, :kill)
    assert {%{prompt_tokens: 6}, %{kind: :exit, reason: :killed}} = request(:exception)

    assert {:error, _} = Server.generate(server, "hello", top_p: 7)

    assert {%{prompt_tokens: 0, duration_ms: none}, %{kind: :error, reason: reason}} = request(:exception)
    assert none == 0

    assert reason.field == "top_p"

    assert_raise ArgumentError, fn -> Server.generate(server, "a", json_schema: %{a: self()}) end
    assert {_, %{kind: :error}} = request(:exception)

    # each request that began has ended once
    assert eventually(fn -> Server.get_stats(server).requests == 0 end)
    {starts, ends} = counts({0, 0})
    assert {starts, ends} == {7, 0}
  end

  # Starts that were not checked; all ends were.
  defp counts({starts, ends}) do
    receive do
      {:event, [:weir, :server, :request, :start], _, _} -> counts({starts + 1, ends})
      {:event, [:weir, :server, :request, _], _, _} -> counts({starts, ends + 1})
      {:event, [:weir, :server, :tick], _, _} -> counts({starts, ends})
    after
      0 -> {starts, ends}
    end
  end

  @tag :capture_log
  test "a strategy that fails" do
    stand_in()
    defmodule Fails, do: def(build_batch(_, _, _, _), do: raise("never"))
    server = start_supervised!({Server, model_path: "fake:", strategy: Fails})
    {:ok, _} = Server.generate(server, "hello", max_tokens: 3)
    assert_received {:event, [:weir, :server, :strategy, :exception], %{count: 1}, metadata}
    assert %{server: ^server, strategy: Fails, kind: :error, reason: %RuntimeError{}} = metadata
    assert [_ | _] = metadata.stacktrace
  end

  defp of_models(event) do
    assert_receive {:event, [:weir, :models, ^event], measurements, metadata}
    {measurements, metadata}
  end

  test "several models: loads, failures, sleep and counts" do
    stand_in()
    size = 100 * 1_048_576

    list =
      for {name, i} <- [{"a", 1}, {"b", 2}] do
        [name: name, model_path: "fake:seed=#{i},n_bytes=#{size}", n_ctx: 256, n_parallel: 1] ++
          [cache_bytes: 0, lookup_bytes: 0]
      end

    lists = list ++ [[name: "none", model_path: "fake:fail_load=1"]]
    models = start_supervised!({Weir.Models, models: lists, memory: 2 * size - 1})
    assert {:ok, _} = Weir.Models.generate(models, "a", "hello", max_tokens: 2)

    assert {%{loads: 1, load_ms: ms, bytes: bytes}, %{name: "a", models: ^models}} = of_models(:load)
    assert ms >= 0 and bytes >= size
    assert {%{n_models: 3}, %{models: ^models}} = of_models(:stats)

    assert {:ok, _} = Weir.Models.generate(models, "b", "hello", max_tokens: 2)
    assert {%{loads: 1}, %{name: "b"}} = of_models(:load)
    assert {%{bytes: bytes}, %{name: "a", state: :sleeping}} = of_models(:sleep)
    assert bytes >= size

    assert {:error, %{message: reason}} = Weir.Models.generate(models, "none", "hello")
    assert {%{failures: 1}, %{name: "none", reason: why}} = of_models(:failure)
    assert reason =~ why

    assert :ok = Weir.Models.set_memory(models, 1)
    assert {%{}, %{name: "b", state: :sleeping}} = of_models(:sleep)
    refute_received {:event, [:weir, :models, :load], _, _}

    assert :ok = Weir.Models.set_memory(models, 10 * size)
    assert {:ok, _} = Weir.Models.generate(models, "a", "hello", max_tokens: 2)
    assert {%{loads: 1}, %{name: "a"}} = of_models(:load)
    assert :ok = Weir.Models.set(models, tl(list))
    assert {%{bytes: bytes}, %{name: "a", state: :removed}} = of_models(:sleep)
    assert bytes >= size
  end

  test "several models without it: nothing is looked at" do
    models = start_supervised!({Weir.Models, models: []})
    assert :sys.get_state(models).telemetry == nil
  end
end
