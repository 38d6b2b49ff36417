# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ServerTest do
  # Requests, embeddings and conversations of a server.
  use Weir.ServerCase, async: true
  alias Weir.{Chunk, Server, Terms}

  doctest Weir.Server
  doctest Weir.Target

  describe "requests" do
    test "give generate's texts, however many there are at once", %{model: model} do
      Terms.sow("requests of a server")

      for strategy <- [:decode_maximal, Server.Strategy.Balanced] do
        server = server(model: model, n_parallel: 3, batch_strategy: strategy, n_batch: 40)

        prompts =
          for _ <- 1..30,
              do: String.duplicate("hello ", :rand.uniform(20)) <> "#{:rand.uniform(9)}"

        texts =
          prompts
          |> Enum.with_index()
          |> Task.async_stream(
            fn {prompt, i} ->
              opts = @greedy

              case rem(i, 3) do
                0 -> elem(Server.generate(server, prompt, opts), 1)
                1 -> server |> Server.stream(prompt, opts) |> Enum.join()
                2 -> server |> Server.stream(prompt, [emit: :chunks] ++ opts) |> joined()
              end
            end,
            max_concurrency: 30,
            timeout: Weir.Wait.patience()
          )
          |> Enum.map(&elem(&1, 1))

        assert texts == Enum.map(prompts, &elem(Weir.generate(model, &1, @greedy), 1))
        assert eventually(fn -> idle?(server) end)
        assert Server.get_stats(server).n_finished.length == 30
      end
    end

    defp joined(chunks) do
      chunks = Enum.to_list(chunks)
      assert %Chunk{reason: :length, text: ""} = List.last(chunks)
      assert Enum.count(chunks, & &1.reason) == 1
      Enum.map_join(chunks, & &1.text)
    end

    test "have their own adapters, or the server's", %{model: model} do
      {:ok, adapter} = Weir.Adapter.load(model, "fake:2")
      server = server(model: model, n_parallel: 4, lora: "fake:1")
      loras = [["fake:1"], [], adapter, {adapter, 0.5}, [adapter, {"fake:1", 2}]]

      alone = for lora <- loras, do: elem(Weir.generate(model, "hello", [lora: lora] ++ @greedy), 1)

      assert length(Enum.uniq(alone)) == 5

      together =
        [[] | Enum.map(loras, &[lora: &1])]
        |> Task.async_stream(&elem(Server.generate(server, "hello", &1 ++ @greedy), 1),
          timeout: Weir.Wait.patience()
        )
        |> Enum.map(&elem(&1, 1))

      assert together == [hd(alone) | alone]
      assert {:error, %{message: reason}} = Server.generate(server, "hello", lora: "/nowhere")
      assert reason =~ "adapter"
      assert_raise ArgumentError, fn -> Server.generate(server, "hello", lora: 1) end
    end

    test "have token ids, a reason and usage", %{model: model} do
      server = server(model: model)
      {:ok, text} = Weir.generate(model, "hello", @greedy)
      assert {:ok, answer} = Server.complete(server, "hello", @greedy)
      assert %{text: ^text, reason: :length} = answer
      assert Weir.Tokenizer.decode(model, answer.ids) == {:ok, text}
      assert %{prompt_tokens: 6, generated_tokens: 40, cached_tokens: 0} = answer.usage
      assert answer.usage.duration_ms >= answer.usage.ttft_ms and answer.usage.ttft_ms > 0
      {:ok, tokens} = Weir.Tokenizer.encode(model, "hello")
      assert {:ok, ^text} = Server.generate(server, tokens, @greedy)
      assert {:ok, ^text} = Server.generate_tokens(server, tokens, @greedy)
      assert server |> Server.stream_tokens(tokens, @greedy) |> Enum.join() == text
      # the common prefix of two prompts is computed once
      {:ok, again} = Server.complete(server, "hello" <> text, @greedy)
      assert again.usage.cached_tokens > 6
      {:ok, apart} = Server.complete(server, "hello" <> text, [cache_salt: "me"] ++ @greedy)
      assert apart.usage.cached_tokens == 0
      {:ok, off} = Server.complete(server, "hello" <> text, [cache_prompt: false] ++ @greedy)
      assert off.usage.cached_tokens == 0
      assert mailbox() == []
    end

    test "have options, of their own and the server's", %{model: model} do
      server = server(model: model, temp: 0.0, max_tokens: 30)
      {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 30)
      assert {:ok, ^text} = Server.generate(server, "hello")
      {:ok, short} = Server.generate(server, "hello", max_tokens: 5)
      assert String.starts_with?(text, short) and short != text
      stop = String.slice(text, 8, 3)
      assert {:ok, cut} = Server.complete(server, "hello", stop: [stop])
      assert {cut.text, cut.reason} == {hd(String.split(text, stop)), :stop_words}
      assert server |> Server.stream("hello", stop: [stop]) |> Enum.join() == cut.text
      grammar = "root ::= \"yes\" | \"no\""
      assert {:ok, answer} = Server.generate(server, "well?", grammar: grammar)
      assert answer in ["yes", "no"]
      seeded = [temp: 1.0, seed: 42]

      assert {:ok, ^text} = Server.generate(server, "hello", temp: 0.0)
      assert Server.generate(server, "a", seeded) == Server.generate(server, "a", seeded)
    end

    test "are checked before anything runs", %{model: model} do
      server = server(model: model)

      for {opts, message} <- [
            {[tmep: 1.0], ~r/unknown option :tmep/},
            {[max_tokens: "many"], ~r/:max_tokens must be/},
            {[priority: 101], ~r/:priority must be/},
            {[timeout: -1], ~r/:timeout must be/},
            {[timeout: 5_000_000_000], ~r/:timeout must be/},
            {[stop: "x"], ~r/:stop must be/},
            {[stop: List.duplicate("x", 65)], ~r/:stop must be a list of at most 64/},
            {[stop: ["x" | "y"]], ~r/:stop must be/},
            {[temp: Integer.pow(2, 64)], ~r/:temp must be/},
            {[logit_bias: [{1, Integer.pow(2, 64)}]], ~r/:logit_bias must be/},
            {[order: "top_k\0"], ~r/:order must be a string without NUL/},
            {[lora: {[], 1}], ~r/:lora must be/},
            {[lora: List.duplicate("fake:1", 9)], ~r/:lora must be .* at most 8/},
            {[grammar: "root ::= \"a\"", json_schema: %{}], ~r/either :grammar or/}
          ] do
        assert_raise ArgumentError, message, fn -> Server.generate(server, "a", opts) end

        assert_raise ArgumentError, message, fn ->
          server |> Server.stream("a", opts) |> Enum.to_list()
        end
      end

      assert_raise ArgumentError, ~r/emit/, fn -> Server.stream(server, "a", emit: :words) end

      for prompt <- [:hello, [1 | 2], [1.0], [0x80000000]], share <- [false, true] do
        assert_raise ArgumentError, ~r/a prompt is/, fn ->
          Server.generate(server, prompt, share: share, temp: 0.0)
        end
      end

      assert_raise ArgumentError, fn ->
        Server.generate(server, "a", json_schema: %{a: self()})
      end

      assert {:error, %{message: reason}} = Server.generate(server, "a", top_p: 1.5)
      assert reason =~ "top_p"

      error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream(server, "a", top_p: 2)) end

      assert error.message =~ "top_p"
      assert {:error, _too_long} = Server.generate(server, String.duplicate("x", 9000))
      assert eventually(fn -> idle?(server) end)
      assert mailbox() == []
    end

    test "wait in a queue with an end", %{long: long} do
      server = server(model: long, n_parallel: 1, max_queue: 1)
      me = self()

      for i <- 1..2 do
        opts = [max_tokens: 4000, id: i]
        spawn_link(fn -> send(me, {i, Server.generate(server, "hello", opts)}) end)
        assert eventually(fn -> Server.get_stats(server).requests == i end)
        if i == 1, do: assert(eventually(fn -> Server.get_stats(server).active_slots == 1 end))
      end

      assert eventually(fn -> Server.get_stats(server).queue_depth == 1 end)
      assert {:error, %{code: :queue_full}} = Server.generate(server, "hello")
      error = assert_raise Weir.Error, fn -> Enum.take(Server.stream(server, "hello"), 1) end
      assert error.code == :queue_full
      for i <- 1..2, do: assert(:ok = Server.cancel(server, i))
      for i <- 1..2, do: assert_receive({^i, {:error, %{code: :cancelled}}})
      assert mailbox() == []
    end

    # 50 ticks of 20 ms are long enough to be seen, on a busy machine, too
    test "go by priority, and end at their deadline", %{long: long} do
      server = server(model: long, n_parallel: 1)
      me = self()

      ask = fn name, opts ->
        spawn_link(fn -> send(me, {name, Server.generate(server, "hello", opts)}) end)
        assert eventually(fn -> name in ids(server) end)
      end

      ask.(:first, id: :first, max_tokens: 50, priority: 50)
      ask.(:low, id: :low, max_tokens: 2000, priority: -1)
      ask.(:high, id: :high, max_tokens: 2, priority: 5)
      assert_receive {:high, {:ok, _}}
      refute_received {:low, _}
      assert :ok = Server.cancel(server, :low)
      assert_receive {:low, {:error, %{code: :cancelled}}}
      assert_receive {:first, {:ok, _}}

      assert {:ok, answer} = Server.complete(server, "hello", deadline: 20, max_tokens: 4000)
      assert answer.reason == :deadline
      chunks = server |> Server.stream("a", deadline: 20, emit: :chunks, max_tokens: 4000)
      assert %Chunk{reason: :deadline} = List.last(Enum.to_list(chunks))
    end

    test "that take too long are given up", %{slow: slow} do
      server = server(model: slow, n_parallel: 1)
      assert {:error, %{code: :timeout}} = Server.generate(server, "hello", max_tokens: 4000, timeout: 30)
      assert mailbox() == []
      assert eventually(fn -> idle?(server) end)
      {:ok, stuck} = Weir.load_model("fake:tick_us=300000")
      server = server(model: stuck)

      error =
        assert_raise Weir.Error, fn ->
          Enum.to_list(Server.stream(server, "hello", timeout: 10))
        end

      assert error.code == :timeout
      Process.sleep(400)
      assert mailbox() == []
    end
  end

  test "options that are no keyword list", %{model: model} do
    server = server(model: model)
    messages = [{:user, "hello"}]

    for wrong <- [%{max_tokens: 1}, %URI{}, [1], [{"max_tokens", 1}], nil],
        fun <- [
          &Server.generate(server, "hello", &1),
          &Server.complete(server, "hello", &1),
          &Server.stream(server, "hello", &1),
          &Server.chat(server, messages, &1),
          &Server.stream_chat(server, messages, &1),
          &Server.chat_completion(server, messages, &1),
          &Server.stream_chat_completion(server, messages, &1),
          &Server.embed(server, "hello", &1),
          &Server.configure(server, &1),
          &Server.start_link/1,
          &Weir.generate(model, "hello", &1),
          &Weir.chat(model, messages, &1),
          &Weir.stream_chat(model, messages, &1),
          &Weir.chat_completion(model, messages, &1)
        ],
        do: assert_raise(ArgumentError, ~r/options must be a keyword list/, fn -> fun.(wrong) end)
  end

  test "messages that nobody sends end nothing", %{model: model} do
    for strategy <- [:balanced, Server.Strategy.Balanced] do
      server = server(model: model, batch_strategy: strategy)
      {:ok, _} = Server.embed(server, "hello")
      state = :sys.get_state(server)

      log =
        ExUnit.CaptureLog.capture_log(fn ->
          for stray <- [:hello, {}, {:begin}, {:ended, 1}, {:join, 1}, "text", %{a: 1}] do
            GenServer.cast(server, stray)
            send(server, stray)
            assert {:error, %{code: :unknown_call}} = GenServer.call(server, stray)
          end
        end)

      assert log =~ "a call that no server knows: :hello"
      assert log =~ "a cast that no server knows: :hello"

      for driver <- [state.engines[1].driver], driver != nil do
        GenServer.cast(driver, :hello)
        send(driver, :hello)
        assert {:error, %{code: :unknown_call}} = GenServer.call(driver, :hello)
      end

      assert {:ok, _} = Server.generate(server, "hello", max_tokens: 3)
      assert eventually(fn -> Process.info(server, :messages) == {:messages, []} end)
    end
  end

  test "get_stats", %{long: long} do
    server = server(model: long, n_parallel: 2, n_ctx: 1024)
    stats = Server.get_stats(server)

    assert %{active_slots: 0, idle_slots: 2, prefilling_slots: 0, queue_depth: 0} = stats
    assert %{n_parallel: 2, n_batch: 1024, requests: 0, slots: []} = stats
    opts = [max_tokens: 4000, temp: 0.0]
    {:ok, _} = Server.generate(server, "hello there", max_tokens: 2)
    pids = for _ <- 1..3, do: spawn(fn -> Server.generate(server, "hello there", opts) end)

    assert eventually(fn ->
             stats = Server.get_stats(server)

             match?(%{active_slots: 2, idle_slots: 0, queue_depth: 1, requests: 3}, stats) and
               stats.generating_slots == 2 and
               match?([%{state: :generating}, %{state: :generating}], stats.slots)
           end)

    assert [%{slot: _, n_cached: n}, _] = Server.get_stats(server).slots
    assert n > 0
    for pid <- pids, do: Process.exit(pid, :kill)
    assert eventually(fn -> idle?(server) end)
  end

  test "embeddings beside generation", %{model: model} do
    server = server(model: model)
    task = Task.async(fn -> Server.generate(server, "hello", max_tokens: 2000) end)
    {:ok, vectors} = Weir.embed_batch(model, ["one", "other"])
    assert {:ok, ^vectors} = Server.embed(server, ["one", "other"])
    assert {:ok, hd(vectors)} == Server.embed(server, "one")
    assert {:ok, []} = Server.embed(server, [])
    raw = [normalize: -1, pooling_type: :mean]
    assert Server.embed(server, "one", raw) == Weir.embed(model, "one", raw)
    long = String.duplicate("x", 3000)
    assert Server.embed(server, long) == Weir.embed(model, long)

    tasks = for i <- 1..10, do: Task.async(fn -> {i, Server.embed(server, "text #{i}")} end)

    for {i, vector} <- Task.await_many(tasks, Weir.Wait.patience()),
        do: assert(vector == Weir.embed(model, "text #{i}"))

    for bad <- [:hello, nil, [nil]] do
      assert_raise ArgumentError, ~r/a text or a list/, fn -> Server.embed(server, bad) end
    end

    assert_raise ArgumentError, ~r/:timeout/, fn -> Server.embed(server, "a", timeout: -1) end
    assert_raise ArgumentError, fn -> Server.embed(server, "hello", normalize: 7) end
    assert {:ok, _} = Task.await(task, Weir.Wait.patience())
    # its end does not end the server
    %{embedder: embedder} = :sys.get_state(server)
    Process.exit(embedder, :kill)
    assert eventually(fn -> match?({:ok, _}, Server.embed(server, "one")) end)
  end

  test "embeddings end with their server", %{model: model} do
    {:ok, server} = Server.start_link(model: model)
    {:ok, _} = Server.embed(server, "one")
    monitor = Process.monitor(:sys.get_state(server).embedder)
    :ok = GenServer.stop(server)
    assert_receive {:DOWN, ^monitor, :process, _pid, :shutdown}
  end

  test "conversations", %{model: model} do
    server = server(model: model, temp: 0.0, max_tokens: 20)
    assert Server.model(server) == model
    assert Server.get_model(server) == model
    assert Server.fetch_model(server) == {:ok, model}
    messages = [{:user, "hello"}]
    {:ok, text} = Weir.chat(model, messages, temp: 0.0, max_tokens: 20)
    assert {:ok, ^text} = Server.chat(server, messages)
    assert server |> Server.stream_chat(messages) |> Enum.join() == text
    chunks = server |> Server.stream_chat(messages, emit: :chunks) |> Enum.to_list()
    assert %Chunk{reason: :length} = List.last(chunks)
    assert {:ok, answer} = Server.chat_completion(server, messages)
    assert [%{message: %{content: ^text}, finish_reason: "length"}] = answer.choices
    assert %{completion_tokens: 20, total_tokens: total, prompt_tokens: prompt} = answer.usage
    assert total == prompt + 20
    deltas = server |> Server.stream_chat_completion(messages) |> Enum.map(&hd(&1.choices))
    assert hd(deltas).delta == %{role: "assistant"}
    assert %{finish_reason: "length", delta: %{}} = List.last(deltas)
    assert Enum.map_join(deltas, &(&1.delta[:content] || "")) == text
    assert_raise ArgumentError, fn -> Server.chat(server, [:hello]) end

    for wrong <- [nil, "hello", %{role: "user", content: "hello"}, [{:user, "hello"} | :end]] do
      assert_raise ArgumentError, ~r/messages must be a list/, fn ->
        Server.chat(server, wrong)
      end

      assert_raise ArgumentError, ~r/messages must be a list/, fn -> Weir.chat(model, wrong) end
    end

    assert mailbox() == []
  end
end

defmodule Weir.RealServerTest do
  use ExUnit.Case, async: false
  @moduletag :model
  alias Weir.Server

  test "a real model, alone and in company, with strategies in C and in Elixir" do
    {:ok, model} = Weir.load_model(System.fetch_env!("WEIR_TEST_MODEL"))
    countries = ["France", "Italy", "Spain", "Japan", "Egypt", "Peru"]
    ask = &Server.generate(&1, "The capital of #{&2} is", max_tokens: 12, temp: 0.0)

    for strategy <- [:latency_target, Server.Strategy.DecodeMaximal] do
      server = start_supervised!({Server, model: model, batch_strategy: strategy}, id: make_ref())
      alone = Enum.map(countries, &ask.(server, &1))
      assert [{:ok, paris} | _] = alone
      assert paris =~ "Paris"

      together =
        countries |> Task.async_stream(&ask.(server, &1), max_concurrency: 6, timeout: Weir.Wait.patience())

      assert Enum.map(together, &elem(&1, 1)) == alone
      {:ok, prompt} = Weir.Chat.apply_template(model, [{:user, "Is water wet?"}])
      schema = %{enum: ["yes", "no"]}
      {:ok, answer} = Server.generate(server, prompt, json_schema: schema, max_tokens: 9)
      assert answer in [~S("yes"), ~S("no")]
    end
  end
end
