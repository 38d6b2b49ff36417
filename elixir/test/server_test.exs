# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ServerTest do
  use ExUnit.Case, async: true
  import Weir.Wait, only: [eventually: 1, mailbox: 0]
  alias Weir.{Chunk, Server, Terms}

  doctest Weir.Server

  @greedy [temp: 0.0, max_tokens: 40]

  setup_all do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, slow} = Weir.load_model("fake:tick_us=1000")
    # what is to be seen while it runs takes seconds: on a busy machine, too
    {:ok, long} = Weir.load_model("fake:tick_us=20000")
    %{model: model, slow: slow, long: long}
  end

  defp server(opts) do
    opts = if opts[:model], do: opts, else: Keyword.put_new(opts, :model_path, "fake:")
    # drawn tokens may be an end; the likeliest ones never are
    start_supervised!({Server, Keyword.put_new(opts, :temp, 0.0)}, id: make_ref())
  end

  defp idle?(server) do
    stats = Server.get_stats(server)
    stats.active_slots + stats.queue_depth + stats.requests == 0
  end

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
            timeout: 60_000
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
          timeout: 60_000
        )
        |> Enum.map(&elem(&1, 1))

      assert together == [hd(alone) | alone]
      assert {:error, reason} = Server.generate(server, "hello", lora: "/nowhere")
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
      # what two prompts have in common is not computed twice
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

      assert {:error, reason} = Server.generate(server, "a", top_p: 1.5)
      assert reason =~ "top_p"

      error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream(server, "a", top_p: 2)) end

      assert error.reason =~ "top_p"
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
      assert {:error, :queue_full} = Server.generate(server, "hello")
      error = assert_raise Weir.Error, fn -> Enum.take(Server.stream(server, "hello"), 1) end
      assert error.reason == :queue_full
      for i <- 1..2, do: assert(:ok = Server.cancel(server, i))
      for i <- 1..2, do: assert_receive({^i, {:error, :cancelled}})
      assert mailbox() == []
    end

    # 50 ticks of 20 ms are seen before they are over, on a busy machine, too
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
      assert_receive {:low, {:error, :cancelled}}
      assert_receive {:first, {:ok, _}}

      assert {:ok, answer} = Server.complete(server, "hello", deadline: 20, max_tokens: 4000)
      assert answer.reason == :deadline
      chunks = server |> Server.stream("a", deadline: 20, emit: :chunks, max_tokens: 4000)
      assert %Chunk{reason: :deadline} = List.last(Enum.to_list(chunks))
    end

    defp ids(server) do
      for {_key, %{id: id, ref: ref}} <- :sys.get_state(server).requests, ref != nil, do: id
    end

    test "that take too long are given up", %{slow: slow} do
      server = server(model: slow, n_parallel: 1)
      assert {:error, :timeout} = Server.generate(server, "hello", max_tokens: 4000, timeout: 30)
      assert mailbox() == []
      assert eventually(fn -> idle?(server) end)
      {:ok, stuck} = Weir.load_model("fake:tick_us=300000")
      server = server(model: stuck)

      error =
        assert_raise Weir.Error, fn ->
          Enum.to_list(Server.stream(server, "hello", timeout: 10))
        end

      assert error.reason == :timeout
      Process.sleep(400)
      assert mailbox() == []
    end
  end

  describe "streams" do
    test "do nothing before they are enumerated, and can be enumerated again", %{model: model} do
      server = server(model: model)
      stream = Server.stream(server, "hello", @greedy)
      assert idle?(server)
      # where the chunks are cut depends on when they are read
      assert Enum.join(stream) == Enum.join(stream)
    end

    test "that end early leave nothing", %{slow: slow, model: model} do
      for model <- [slow, model], strategy <- [:balanced, Server.Strategy.Balanced] do
        server = server(model: model, batch_strategy: strategy)

        for n <- [1, 2, 5, 1, 1, 3, 1, 2, 4, 1] do
          taken = server |> Server.stream("hello", temp: 0.0, max_tokens: 400) |> Enum.take(n)
          assert length(taken) == n
          assert mailbox() == []
        end

        assert_raise RuntimeError, fn ->
          server |> Server.stream("hello") |> Enum.each(fn _ -> raise "enough" end)
        end

        assert eventually(fn -> idle?(server) end)
        Process.sleep(5)
        assert mailbox() == []
      end
    end

    test "of one process do not meet", %{model: model} do
      server = server(model: model)
      one = Server.stream(server, "one", @greedy)
      other = Server.stream(server, "other", @greedy)
      {ones, others} = one |> Enum.zip(other) |> Enum.unzip()
      assert one |> Enum.join() |> String.starts_with?(Enum.join(ones))
      assert other |> Enum.join() |> String.starts_with?(Enum.join(others))
      assert mailbox() == []
    end

    test "have a bounded mailbox, and lose nothing", %{model: model} do
      server = server(model: model)
      opts = [temp: 0.0, max_tokens: 2000]
      {:ok, text} = Server.generate(server, "hello", opts)

      {first, reduce} = read(Server.stream(server, "hello", opts))
      assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
      assert length(mailbox()) <= 17
      assert first <> rest(reduce) == text
      assert mailbox() == []
    end

    # The first element of a stream, and the rest of it.
    defp read(stream) do
      {:suspended, first, reduce} =
        Enumerable.reduce(stream, {:cont, nil}, fn text, _ -> {:suspend, text} end)

      {first, reduce}
    end

    defp rest(reduce) do
      case reduce.({:cont, ""}) do
        {:suspended, text, reduce} -> text <> rest(reduce)
        {_done_or_halted, ""} -> ""
      end
    end
  end

  describe "cancel" do
    test "by id and by process, wherever the request is", %{long: model} do
      for strategy <- [:decode_maximal, Server.Strategy.DecodeMaximal] do
        server = server(model: model, n_parallel: 1, batch_strategy: strategy)
        me = self()
        long = [max_tokens: 4000]

        [running, _queued] =
          for id <- [:running, :queued] do
            pid =
              spawn_link(fn ->
                send(me, {id, Server.generate(server, "hello", [id: {:mine, id}] ++ long)})
              end)

            assert eventually(fn -> {:mine, id} in ids(server) end)
            pid
          end

        assert {:error, :not_found} = Server.cancel(server, :nobody)
        assert {:error, :not_found} = Server.cancel(server, nil)
        assert :ok = Server.cancel(server, {:mine, :queued})
        assert_receive {:queued, {:error, :cancelled}}
        assert :ok = Server.cancel(server, running)
        assert_receive {:running, {:error, :cancelled}}

        spawn_link(fn ->
          chunks = server |> Server.stream("hello", [id: 1, emit: :chunks] ++ long)
          send(me, {:chunks, List.last(Enum.to_list(chunks))})
        end)

        assert eventually(fn -> 1 in ids(server) end)
        assert :ok = Server.cancel(server, 1)
        assert_receive {:chunks, %Chunk{reason: :cancelled}}

        spawn_link(fn ->
          error =
            assert_raise Weir.Error, fn ->
              Enum.to_list(Server.stream(server, "a", [id: 1] ++ long))
            end

          send(me, {:raised, error.reason})
        end)

        assert eventually(fn -> 1 in ids(server) end)
        assert :ok = Server.cancel(server, 1)
        assert_receive {:raised, :cancelled}
        assert eventually(fn -> idle?(server) end)
      end
    end

    test "before the request was submitted" do
      server = server([])
      {:ok, session} = GenServer.call(server, {:begin, :generate, :early, 1, make_ref()})
      assert :ok = Server.cancel(server, :early)
      request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
      {:ok, ref} = Weir.NIF.engine_submit(session.engine, request, self(), 0)
      GenServer.cast(server, {:running, hd(session.keys), ref})
      assert eventually(fn -> Server.get_stats(server).n_finished.cancelled == 1 end)
    end
  end

  describe "what a cancelled stream has" do
    test "is all that was generated, held back or not", %{model: model} do
      {:ok, %{ids: ids}} = Server.complete(server(model: model), "hello", max_tokens: 10)

      [{:ok, shown}, {:ok, all}] = for n <- [8, 10], do: Weir.Tokenizer.decode(model, Enum.take(ids, n))

      held = String.replace_prefix(all, shown, "")
      assert held != "" and held != all

      {:ok, engine} = Weir.NIF.engine_create(model.ref, %{manual: true, n_ctx: 256, n_draft_max: 0})

      # its begin comes, and its end never does
      request = %{prompt: "hello", temp: 0.0, max_tokens: 30, stop: [held <> "\u2603"]}
      {:ok, ref} = Weir.NIF.engine_submit(engine, request, self(), :infinity)
      # one token each
      for _ <- 1..10, do: {:ok, _report} = Weir.NIF.engine_step(engine, nil)
      assert told(ref) == shown
      :ok = Weir.NIF.engine_cancel(ref)
      {:ok, _report} = Weir.NIF.engine_step(engine, nil)
      assert told(ref) == held
      assert_received {^ref, {:done, :cancelled, %{n_generated: 10}}}
      assert mailbox() == []
    end

    # the text of the chunks that have come
    defp told(ref) do
      receive do
        {^ref, {:chunk, _ids, text}} -> text <> told(ref)
      after
        0 -> ""
      end
    end

    test "ends with the reason, whoever cancels and whenever", %{slow: slow} do
      server = server(model: slow)
      {:ok, text} = Server.generate(server, "hello", max_tokens: 400)
      stop = String.slice(text, 200, 3) <> "\u2603"

      for n <- 1..20 do
        opts = [id: n, emit: :chunks, max_tokens: 400, stop: [stop]]

        chunks =
          server
          |> Server.stream("hello", opts)
          |> Stream.with_index()
          |> Enum.map(fn {chunk, i} ->
            if i == n, do: spawn(fn -> Server.cancel(server, n) end)
            chunk
          end)

        assert %Chunk{reason: :cancelled} = List.last(chunks)
        assert Enum.count(chunks, & &1.reason) == 1
        assert {:ok, said} = Weir.Tokenizer.decode(slow, Enum.flat_map(chunks, & &1.ids))
        assert said == Enum.map_join(chunks, & &1.text)
        assert String.starts_with?(text, said)
      end
    end
  end

  describe "consumers" do
    test "that die before the strategy's process has heard of their request", %{slow: slow} do
      server = server(model: slow, batch_strategy: Server.Strategy.Balanced)
      %{engines: %{1 => %{driver: driver}}} = :sys.get_state(server)
      # it waits for work
      waits = &match?({:current_function, {:gen_server, :loop, _}}, Process.info(&1, :current_function))

      assert eventually(fn -> waits.(driver) end)

      spawn(fn ->
        {:ok, session} = GenServer.call(server, {:begin, :generate, nil, 1, make_ref()})
        request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
        {:ok, _ref} = Weir.NIF.engine_submit(session.engine, request, self(), 0)
      end)

      assert eventually(fn -> Server.get_stats(server).n_finished.cancelled == 1 end)
      assert eventually(fn -> idle?(server) end)
    end

    test "that are killed at any time free their slots", %{slow: slow} do
      Terms.sow("killed consumers of a server")

      for strategy <- [:decode_maximal, Server.Strategy.DecodeMaximal] do
        server = server(model: slow, n_parallel: 4, batch_strategy: strategy)

        consumers =
          for _ <- 1..150 do
            pid =
              case :rand.uniform(3) do
                1 -> spawn(fn -> Server.generate(server, "hello", max_tokens: 4000) end)
                2 -> spawn(fn -> Stream.run(Server.stream(server, "hello", max_tokens: 4000)) end)
                3 -> spawn(fn -> Enum.take(Server.stream(server, "hello"), :rand.uniform(5)) end)
              end

            if :rand.uniform(3) == 1, do: Process.sleep(1)
            pid
          end

        for pid <- Enum.shuffle(consumers), do: Process.exit(pid, :kill)
        assert eventually(fn -> idle?(server) end)
        assert {:ok, _} = Server.generate(server, "hello", max_tokens: 3)
        assert eventually(fn -> idle?(server) end)
        stats = Server.get_stats(server)
        assert stats.n_kv_used == stats.n_kv_cached
        # that a slot ended between a view and its plan is not the strategy's mistake
        assert stats.n_bad_plans + stats.strategy_failures == 0
        assert {:messages, []} = Process.info(server, :messages)
      end
    end

    test "learn that their server was killed", %{long: long} do
      Process.flag(:trap_exit, true)

      for strategy <- [:balanced, Server.Strategy.Balanced] do
        opts = [model: long, temp: 0.0, batch_strategy: strategy, drain_timeout: 30_000]
        {:ok, server} = Server.start_link(opts)

        task =
          Task.async(fn ->
            result = Server.generate(server, "hello", max_tokens: 4000)
            {result, mailbox()}
          end)

        assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
        Process.exit(server, :kill)
        assert {{:error, {:server_down, :killed}}, []} = Task.await(task, 20_000)
        assert_receive {:EXIT, ^server, :killed}
      end
    end
  end

  describe "a server that is not there" do
    test "is the same error everywhere", %{model: model} do
      {:ok, dead} = Server.start_link(model: model)
      :ok = GenServer.stop(dead)
      messages = [{:user, "hello"}]

      for server <- [dead, :nobody_of_this_name, {:global, :nobody}] do
        for answer <- [
              Server.generate(server, "hello"),
              Server.generate(server, "hello", share: true, temp: 0.0),
              Server.generate(server, {:fork, :id}),
              Server.complete(server, [1, 2]),
              Server.chat(server, messages),
              Server.chat_completion(server, messages),
              Server.embed(server, "hello"),
              Server.fetch_model(server),
              Server.cancel(server, self()),
              Server.configure(server, max_tokens: 3)
            ],
            do: assert({:error, {:server_down, :noproc}} = answer)

        for fun <- [
              fn -> Server.model(server) end,
              fn -> Server.get_stats(server) end,
              fn -> Enum.to_list(Server.stream(server, "hello")) end,
              fn -> Enum.to_list(Server.stream_chat(server, messages)) end,
              fn -> Enum.to_list(Server.stream_chat_completion(server, messages)) end
            ],
            do: assert(assert_raise(Weir.Error, fun).reason == {:server_down, :noproc})
      end

      assert mailbox() == []
    end

    test "because it is on another node, says which" do
      # of no node that there is
      pid = :erlang.binary_to_term(<<131, 88, 119, 3, "a@b", 1::32, 0::32, 1::32>>)
      messages = [{:user, "hello"}]

      for server <- [pid, {:llm, :a@b}],
          fun <- [
            fn -> Server.generate(server, "hello") end,
            fn -> Server.chat(server, messages) end,
            fn -> Server.chat_completion(server, messages) end,
            fn -> Server.model(server) end,
            fn -> Enum.to_list(Server.stream(server, "hello")) end
          ],
          do: assert_raise(ArgumentError, ~r/is on the node a@b/, fun)
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
            assert {:error, :unknown_call} = GenServer.call(server, stray)
          end
        end)

      assert log =~ "a call that no server knows: :hello"
      assert log =~ "a cast that no server knows: :hello"

      for driver <- [state.engines[1].driver], driver != nil do
        GenServer.cast(driver, :hello)
        send(driver, :hello)
        assert {:error, :unknown_call} = GenServer.call(driver, :hello)
      end

      assert {:ok, _} = Server.generate(server, "hello", max_tokens: 3)
      assert eventually(fn -> Process.info(server, :messages) == {:messages, []} end)
    end
  end

  describe "a supervisor" do
    test "starts servers by name, and again" do
      name = :"server #{System.unique_integer()}"
      children = [{Server, name: name, model_path: "fake:"}, {Server, model_path: "fake:"}]
      supervisor = start_supervised!({Supervisor, [children, [strategy: :one_for_one]]} |> spec())
      assert {:ok, _} = Server.generate(name, "hello", max_tokens: 3)
      pid = Process.whereis(name)
      Process.exit(pid, :kill)
      assert eventually(fn -> Process.whereis(name) not in [nil, pid] end)
      assert {:ok, _} = Server.generate(name, "hello", max_tokens: 3)
      assert %{active: 2} = Supervisor.count_children(supervisor)
    end

    defp spec({Supervisor, args}),
      do: %{id: make_ref(), start: {Supervisor, :start_link, args}, type: :supervisor}

    test "names of every kind" do
      registry = :"registry #{System.unique_integer()}"
      start_supervised!({Registry, keys: :unique, name: registry})

      for name <- [{:global, make_ref()}, {:via, Registry, {registry, "llm"}}] do
        server(name: name)
        assert {:ok, _} = Server.generate(name, "hello", max_tokens: 3)
        assert name |> Server.stream("hello", max_tokens: 3, temp: 0.0) |> Enum.join() != ""
      end
    end

    test "lets running requests end, and refuses others", %{long: long} do
      for strategy <- [:decode_maximal, Server.Strategy.DecodeMaximal] do
        opts = [model: long, temp: 0.0, batch_strategy: strategy, drain_timeout: 30_000]
        {:ok, server} = Server.start_link(opts)

        task = Task.async(fn -> Server.complete(server, "hello", max_tokens: 100, temp: 0.0) end)

        assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
        stop = Task.async(fn -> GenServer.stop(server) end)

        assert eventually(fn ->
                 Server.generate(server, "hello", max_tokens: 1) == {:error, :stopping}
               end)

        assert {:ok, %{reason: :length, ids: ids}} = Task.await(task, 30_000)
        assert length(ids) == 100
        assert :ok = Task.await(stop, 30_000)
      end
    end

    test "does not wait for ever", %{long: long} do
      {:ok, server} = Server.start_link(model: long, temp: 0.0, drain_timeout: 30)
      task = Task.async(fn -> Server.generate(server, "hello", max_tokens: 4000) end)
      assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
      assert :ok = GenServer.stop(server)
      assert {:error, _stopped} = Task.await(task, 20_000)
    end

    test "learns what is wrong" do
      Process.flag(:trap_exit, true)
      assert {:error, reason} = Server.start_link(model_path: "/nowhere/model.gguf")
      assert is_binary(reason)
      assert {:error, _} = Server.start_link(model_path: "fake:", chunk_size: 0)
      assert_raise ArgumentError, ~r/model_path/, fn -> Server.start_link([]) end

      for bad <- [Nonsense, :round_robin, "balanced", {Enum, []}, {Server.Strategy.Balanced, 1}] do
        assert_raise ArgumentError, ~r/:batch_strategy/, fn ->
          Server.start_link(model_path: "fake:", strategy: bad)
        end
      end

      assert_raise ArgumentError, ~r/:n_parallel/, fn ->
        Server.start_link(model_path: "fake:", n_parallel: 0)
      end
    end
  end

  describe "configure" do
    test "changes what requests get", %{model: model} do
      server = server(model: model, temp: 0.0, max_tokens: 5)
      assert :ok = Server.configure(server, max_tokens: 9)
      assert {:ok, %{ids: ids}} = Server.complete(server, "hello")
      assert length(ids) == 9
      assert :ok = Server.configure(server, grammar: "root ::= \"yes\"", max_tokens: 50)
      assert {:ok, "yes"} = Server.generate(server, "hello")
      assert_raise ArgumentError, fn -> Server.configure(server, model_path: "x") end
      assert_raise ArgumentError, fn -> Server.configure(server, strategy: :nonsense) end

      assert_raise ArgumentError, fn ->
        Server.configure(server, grammar: "root ::= \"yes\"", json_schema: %{})
      end

      for opts <- [[draft_model: "a\0b"], [cache_dir: "a\0b"], [lora: "a\0b"]] do
        assert_raise ArgumentError, ~r/must be/, fn -> Server.configure(server, opts) end
      end

      assert {:ok, "yes"} = Server.generate(server, "hello")
    end

    test "loads adapters once, or says what is wrong with them", %{model: model} do
      server = server(model: model)
      {:ok, text} = Weir.generate(model, "hello", @greedy)
      assert {:error, reason} = Server.configure(server, lora: "/nowhere")
      assert reason =~ "adapter"
      assert {:ok, ^text} = Server.generate(server, "hello", @greedy)
      assert :ok = Server.configure(server, lora: {"fake:1", 0.5})
      assert [{%Weir.Adapter{}, 0.5}] = :sys.get_state(server).options.lora
      {:ok, other} = Weir.generate(model, "hello", [lora: {"fake:1", 0.5}] ++ @greedy)
      assert {:ok, ^other} = Server.generate(server, "hello", @greedy)
      assert other != text
    end

    test "changes the engine while requests run", %{slow: slow} do
      server = server(model: slow, n_parallel: 1, temp: 0.0)
      {:ok, text} = Weir.generate(slow, "hello", temp: 0.0, max_tokens: 300)

      for {opts, n_parallel} <- [
            {[n_parallel: 3], 3},
            {[batch_strategy: Server.Strategy.Balanced], 3},
            {[batch_strategy: {Server.Strategy.PrefillPriority, []}], 3},
            {[batch_strategy: :balanced, n_ctx: 1000, layout: :unified], 3}
          ] do
        before = Server.get_stats(server).n_submitted
        task = Task.async(fn -> Server.generate(server, "hello", max_tokens: 300) end)
        assert eventually(fn -> Server.get_stats(server).n_submitted > before end)
        assert :ok = Server.configure(server, opts)
        assert %{n_parallel: ^n_parallel} = Server.get_stats(server)
        assert {:ok, _} = Server.generate(server, "a", max_tokens: 2)
        assert {:ok, ^text} = Task.await(task, 20_000)
        assert eventually(fn -> map_size(:sys.get_state(server).engines) == 1 end)
      end

      assert %{n_kv: 1024, strategy: :balanced} = Server.get_stats(server)
      assert {:error, reason} = Server.configure(server, chunk_size: 0)
      assert reason =~ "chunk_size"
      assert {:ok, ^text} = Server.generate(server, "hello", max_tokens: 300)
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

    for {i, vector} <- Task.await_many(tasks, 20_000),
        do: assert(vector == Weir.embed(model, "text #{i}"))

    for bad <- [:hello, nil, [nil]] do
      assert_raise ArgumentError, ~r/a text or a list/, fn -> Server.embed(server, bad) end
    end

    assert_raise ArgumentError, ~r/:timeout/, fn -> Server.embed(server, "a", timeout: -1) end
    assert_raise ArgumentError, fn -> Server.embed(server, "hello", normalize: 7) end
    assert {:ok, _} = Task.await(task, 20_000)
    # its end is not the server's
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

      together = countries |> Task.async_stream(&ask.(server, &1), max_concurrency: 6, timeout: 60_000)

      assert Enum.map(together, &elem(&1, 1)) == alone
      {:ok, prompt} = Weir.Chat.apply_template(model, [{:user, "Is water wet?"}])
      schema = %{enum: ["yes", "no"]}
      {:ok, answer} = Server.generate(server, prompt, json_schema: schema, max_tokens: 9)
      assert answer in [~S("yes"), ~S("no")]
    end
  end
end
