# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ServerLifeTest do
  # A server under its supervisor, reconfigured, and missing.
  use Weir.ServerCase, async: true
  alias Weir.Server

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
            do: assert({:error, %{code: :server_down}} = answer)

        for fun <- [
              fn -> Server.model(server) end,
              fn -> Server.get_stats(server) end,
              fn -> Enum.to_list(Server.stream(server, "hello")) end,
              fn -> Enum.to_list(Server.stream_chat(server, messages)) end,
              fn -> Enum.to_list(Server.stream_chat_completion(server, messages)) end
            ],
            do: assert(assert_raise(Weir.Error, fun).code == :server_down)
      end

      assert mailbox() == []
    end

    test "because it is on another node, says which" do
      # of a node that does not exist
      pid = :erlang.binary_to_term(<<131, 88, 119, 3, "a@b", 1::32, 0::32, 1::32>>)
      messages = [{:user, "hello"}]

      for server <- [pid, {:llm, :a@b}],
          fun <- [
            fn -> Server.generate(server, "hello") end,
            fn -> Server.chat(server, messages) end,
            fn -> Server.chat_completion(server, messages) end,
            fn -> Server.model(server) end,
            fn -> Server.embed(server, "hello") end,
            fn -> Server.embed(server, ["hello"]) end,
            fn -> Enum.to_list(Server.stream(server, "hello")) end
          ],
          do: assert_raise(ArgumentError, ~r/is on the node a@b/, fun)
    end
  end

  test "the time to wait for a model is checked" do
    server = server([])

    for timeout <- [:soon, -1, 1.5, nil, 0x100000000] do
      assert_raise ArgumentError, ~r/the timeout must be milliseconds, at most \d+, or :infinity/, fn ->
        Server.fetch_model(server, timeout)
      end
    end

    for timeout <- [1_000, :infinity], do: assert({:ok, %Weir.Model{}} = Server.fetch_model(server, timeout))
  end

  # Whoever destroys it: a native library that is replaced does, too.
  test "an engine that is being destroyed costs the server nothing" do
    server = server(model_path: "fake:", n_parallel: 3)
    assert {:ok, _} = Server.generate(server, "hello", max_tokens: 2)
    [engine] = Map.values(:sys.get_state(server).engines)
    :ok = Weir.NIF.engine_destroy(engine.ref)

    assert Weir.Server.Engine.tell_ticks(engine) == engine
    stats = Server.get_stats(server)
    assert %{state: :stopping, active_slots: 0, idle_slots: 0, n_parallel: 3, slots: []} = stats
    assert {:error, %{code: :stopping}} = Server.generate(server, "hello")
    assert Process.alive?(server)
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
        opts = [model: long, temp: 0.0, batch_strategy: strategy, drain_timeout: Weir.Wait.patience()]
        {:ok, server} = Server.start_link(opts)

        task =
          Task.async(fn ->
            Server.complete(server, "hello", max_tokens: 100, temp: 0.0, timeout: :infinity)
          end)

        assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
        stop = Task.async(fn -> GenServer.stop(server) end)

        assert eventually(fn ->
                 match?({:error, %{code: :stopping}}, Server.generate(server, "hello", max_tokens: 1))
               end)

        assert {:ok, %{reason: :length, ids: ids}} = Task.await(task, Weir.Wait.patience())
        assert length(ids) == 100
        assert :ok = Task.await(stop, Weir.Wait.patience())
      end
    end

    test "does not wait for ever", %{long: long} do
      {:ok, server} = Server.start_link(model: long, temp: 0.0, drain_timeout: 30)
      opts = [max_tokens: 4000, timeout: :infinity]

      tasks =
        for ask <- [
              fn -> Server.generate(server, "hello", opts) end,
              fn -> Server.generate(server, "hello", [id: 1] ++ opts) end,
              fn -> Server.chat_completion(server, [{:user, "hello"}], opts) end,
              fn -> server |> Server.stream("hello", opts) |> Stream.run() end
            ],
            do: Task.async(fn -> try do: ask.(), rescue: (error in Weir.Error -> {:error, error}) end)

      assert eventually(fn -> Server.get_stats(server).active_slots == 4 end)
      assert :ok = GenServer.stop(server)

      assert [:stopping, :stopping, :stopping, :stopping] =
               for({:error, error} <- Task.await_many(tasks, Weir.Wait.patience()), do: error.code)
    end

    test "names options", %{model: model} do
      Process.flag(:trap_exit, true)

      for {opts, text} <- [
            {[n_batch: 1], "n_batch is 1 and n_parallel is 4"},
            {[max_queue: -1], "max_queue is -1"},
            {[layout: :per_slot, n_draft_max: 99], "n_draft_max is 99"}
          ] do
        assert {:error, %{message: reason}} = Server.start_link([model: model] ++ opts)
        assert String.starts_with?(reason, text)

        # at the start, or when it is loaded
        models = [[name: "a", model_path: "fake:"] ++ opts]

        assert {:error, %{message: reason}} =
                 with({:ok, m} <- Weir.Models.start_link(models: models), do: Weir.Models.lease(m, "a"))

        assert reason =~ text
      end

      server = server(model: model, n_ctx: 512)

      for {prompt, opts, text} <- [
            {"hi", [top_p: 2.0], "top_p is 2;"},
            {"hi", [max_tokens: -2], "max_tokens is -2;"},
            {"hi", [stop: [""]], "stop[0] has 0 bytes"},
            {[99_999], [], "prompt[0] is 99999;"},
            {String.duplicate("a", 600), [], "prompt: the prompt has 601 tokens"}
          ],
          share <- [false, true] do
        assert {:error, %{message: reason}} = Server.generate(server, prompt, [share: share] ++ opts)
        assert String.starts_with?(reason, text)
        refute reason =~ "n_kv"
      end

      for max <- [0x7FFFFFFF, 300_000_000] do
        assert {:error, %{code: :out_of_range, field: "max_tokens"}} =
                 Weir.generate(model, "hi", max_tokens: max)

        assert {:error, %{code: :out_of_range, field: "max_tokens"}} =
                 Weir.chat_completion(model, [{:user, "hi"}], max_tokens: max, n: 2)
      end
    end

    @tag :llama
    test "names a template", %{model: model} do
      assert {:error, %{code: :template, field: "template"}} =
               Weir.Chat.apply_template(model, [{:user, "a"}], template: "{{")
    end

    test "learns what is wrong" do
      Process.flag(:trap_exit, true)
      assert {:error, %{message: reason}} = Server.start_link(model_path: "/nowhere/model.gguf")
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
      assert {:error, %{message: reason}} = Server.configure(server, lora: "/nowhere")
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
        assert {:ok, ^text} = Task.await(task, Weir.Wait.patience())
        assert eventually(fn -> map_size(:sys.get_state(server).engines) == 1 end)
      end

      assert %{n_kv: 1024, strategy: :balanced} = Server.get_stats(server)
      assert {:error, %{message: reason}} = Server.configure(server, chunk_size: 0)
      assert reason =~ "chunk_size"
      assert {:ok, ^text} = Server.generate(server, "hello", max_tokens: 300)
    end
  end
end
