# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ModelsTest do
  # Several models under one budget. It counts native handles, so nothing may run beside it.
  use ExUnit.Case, async: false
  import Weir.Wait, only: [eventually: 1, freed?: 1, mailbox: 0]
  alias Weir.{Error, Model, Models, NIF, Tokenizer}

  doctest Weir.Models

  @mib 1_048_576
  # slower than every test; a load ends when nobody waits for it
  @slow "fake:load_us=60000000"

  # Models of 100 MiB each, and a bit for cells and buffers.
  defp rack(names, opts \\ []) do
    for {name, i} <- Enum.with_index(names, 1) do
      [name: name, model_path: "fake:seed=#{i},n_bytes=#{100 * @mib}", n_ctx: 256, n_parallel: 2] ++
        [cache_bytes: 65_536, lookup_bytes: 0, temp: 0.0] ++ opts
    end
  end

  defp start(models, opts \\ []), do: start_supervised!({Models, [models: models] ++ opts})

  defp state(models, name) do
    {:ok, info} = Models.info(models, name)
    info.state
  end

  # The handles of this test, when what earlier ones left is freed.
  defp settled do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
    live = NIF.live_handles()
    Process.sleep(100)
    if live == NIF.live_handles(), do: live, else: settled()
  end

  defp collected?(before) do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
    freed?(before)
  end

  test "each model answers as alone, whichever of them fit" do
    names = ["a", "b", "c"]
    models = start(rack(names), memory: 250 * @mib)

    alone =
      for i <- 1..3 do
        {:ok, model} = Weir.load_model("fake:seed=#{i}")
        {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 20)
        text
      end

    for {name, text} <- Enum.take_random(Enum.zip(names ++ names, alone ++ alone), 6) do
      assert {:ok, ^text} = Models.generate(models, name, "hello", max_tokens: 20)
      assert text == models |> Models.stream(name, "hello", max_tokens: 20) |> Enum.join()
    end

    together =
      for {name, text} <- Enum.zip(names, alone), _ <- 1..4 do
        Task.async(fn -> {:ok, text} == Models.generate(models, name, "hello", max_tokens: 20) end)
      end

    assert Enum.all?(Task.await_many(together, Weir.Wait.patience()))
    assert %{n_models: 3, n_loaded: 2, n_leases: 0, n_waiting: 0, n_failures: 0} = settled_stats(models)
    assert mailbox() == []
  end

  # Leases are released by another thread.
  defp settled_stats(models) do
    assert eventually(fn -> Models.get_stats(models).n_leases == 0 end)
    Models.get_stats(models)
  end

  test "conversations, embeddings and scores" do
    models = start(rack(["a"]))
    {:ok, model} = Weir.load_model("fake:seed=1")
    messages = [%{role: "user", content: "hi"}]
    short = [max_tokens: 6, temp: 0.0]
    assert Models.chat(models, "a", messages, short) == Weir.chat(model, messages, short)

    assert Enum.join(Models.stream_chat(models, "a", messages, short)) ==
             elem(Weir.chat(model, messages, short), 1)

    {:ok, answer} = Models.chat_completion(models, "a", messages, [n: 2, logprobs: true] ++ short)
    {:ok, expected} = Weir.chat_completion(model, messages, [n: 2, logprobs: true] ++ short)
    assert answer.choices == expected.choices

    deltas = models |> Models.stream_chat_completion("a", messages, short) |> Enum.to_list()
    assert List.last(deltas).choices |> hd() |> Map.get(:finish_reason) == "length"

    texts = ["one", "another"]
    {:ok, vectors} = Weir.embed_batch(model, texts)
    assert {:ok, ^vectors} = Models.embed(models, "a", texts)
    assert {:ok, hd(vectors)} == Models.embed(models, "a", "one")
    assert {:ok, []} == Models.embed(models, "a", [])

    for no_text <- [nil, :one, [nil], ["one" | "another"], 1] do
      assert_raise ArgumentError, ~r/a text or a list of texts, got: /, fn ->
        Models.embed(models, "a", no_text)
      end
    end

    assert {:ok, %{ids: [_, _, _], logprobs: [_, _, _], usage: %{generated_tokens: 3}}} =
             Models.complete(models, "a", "hello", max_tokens: 3, logprobs: true)

    assert %{n_leases: 0} = settled_stats(models)
    assert mailbox() == []
  end

  test "defaults of a model and its adapters" do
    adapted = [[name: "l", model_path: "fake:", lora: [{"fake:1", 0.5}], max_tokens: 4, temp: 0.0]]
    models = start(adapted)
    {:ok, model} = Weir.load_model("fake:")
    alone = fn lora -> Weir.generate(model, "hello", max_tokens: 4, temp: 0.0, lora: lora) end
    assert Models.generate(models, "l", "hello") == alone.({"fake:1", 0.5})
    assert Models.generate(models, "l", "hello", lora: []) == alone.([])
    assert Models.generate(models, "l", "hello", lora: "fake:1") == alone.("fake:1")
    assert Models.generate(models, "l", "hello", lora: ["fake:1", "fake:2"]) == alone.(["fake:1", "fake:2"])
    assert {:ok, %{ids: [_, _]}} = Models.complete(models, "l", "hello", max_tokens: 2)
  end

  test "a lease keeps its model, for its process alone" do
    models = start(rack(["a", "b"]), memory: 150 * @mib)
    {:ok, lease} = Models.lease(models, "a")
    assert Model.n_ctx_train(lease.model) == 4096
    assert {:ok, [_ | _] = ids} = Tokenizer.encode(lease.model, "hello")
    assert {:ok, text} = Models.generate(models, lease, ids, max_tokens: 5)
    assert text == models |> Models.stream(lease, ids, max_tokens: 5) |> Enum.join()
    assert %{n_submitted: 2} = NIF.engine_stats(lease.ref)
    assert {:error, %{code: :timeout}} = Models.lease(models, "b", timeout: 20)
    assert {:error, %{code: :timeout}} = Models.generate(models, "b", "hello", timeout: 20)
    assert_raise Error, fn -> models |> Models.stream("b", "hello", timeout: 20) |> Enum.to_list() end
    assert state(models, "a") == :loaded

    # others cannot end its engine
    assert_raise ArgumentError, fn -> NIF.engine_stop(lease.ref) end

    assert :ok = Models.release(lease)
    assert :ok = Models.release(lease)
    assert_raise ArgumentError, fn -> Model.n_ctx_train(lease.model) end
    assert_raise ArgumentError, fn -> NIF.engine_stats(lease.ref) end
    assert_raise ArgumentError, fn -> Models.generate(models, lease, "hello") end
    assert {:ok, _} = Models.generate(models, "b", "hello", max_tokens: 2)
    assert mailbox() == []
  end

  test "a lease ends with its process, also one that waits for a load" do
    before = settled()
    models = start(rack(["a", "b"]) ++ [[name: "slow", model_path: @slow]], memory: 150 * @mib)
    me = self()

    holder = spawn(fn -> send(me, Models.lease(models, "a")) && Process.sleep(:infinity) end)
    assert_receive {:ok, _lease}
    waiting = spawn(fn -> Models.generate(models, "b", "hello") end)
    stream = spawn(fn -> models |> Models.stream("slow", "hello") |> Enum.to_list() end)
    assert eventually(fn -> Models.get_stats(models).n_waiting == 2 end)
    Process.exit(waiting, :kill)
    assert eventually(fn -> Models.get_stats(models).n_waiting == 1 end)
    Process.exit(holder, :kill)
    assert eventually(fn -> state(models, "slow") == :loading end)
    # the load ends with the last one who waits for it
    Process.exit(stream, :kill)
    assert eventually(fn -> state(models, "slow") == :unloaded end)
    assert {:ok, _} = Models.generate(models, "b", "hello", max_tokens: 2)
    assert %{n_leases: 0, n_failures: 0} = settled_stats(models)
    stop_supervised!(Models)
    assert eventually(fn -> collected?(before) end)
  end

  test "a model that is unloaded while it is leased says that it leaves" do
    models = start(rack(["a"]), memory: 150 * @mib)
    {:ok, lease} = Models.lease(models, "a")
    assert :ok = Models.unload(models, "a")
    assert state(models, "a") == :leaving
    # takes it back
    assert :ok = Models.load(models, "a")
    assert state(models, "a") == :loaded
    assert :ok = Models.unload(models, "a")
    :ok = Models.release(lease)
    assert eventually(fn -> state(models, "a") == :unloaded end)
  end

  test "a stream keeps its model to its end, whoever released the lease" do
    models = start(rack(["a", "b"]), memory: 150 * @mib)
    {:ok, lease} = Models.lease(models, "a")
    {:ok, ref} = NIF.engine_submit(lease.ref, %{prompt: "hello", temp: 0.0, max_tokens: 50}, self(), 1)
    :ok = Models.release(lease)
    assert {:error, %{code: :timeout}} = Models.generate(models, "b", "hello", timeout: 50)
    assert state(models, "a") == :loaded
    :ok = NIF.engine_demand(ref, :infinity)
    Weir.Wait.join(ref)
    assert {:ok, _} = Models.generate(models, "b", "hello", max_tokens: 2)
    assert eventually(fn -> state(models, "a") == :sleeping end)
    NIF.engine_close(ref)
  end

  test "nothing that a caller sends ends the process" do
    models = start(rack(["a"]))

    for fun <- [&Models.info/2, &Models.load/2, &Models.unload/2, &Models.pin(&1, &2, true), &Models.lease/2],
        name <- [:a, nil, "a\0"] do
      assert_raise ArgumentError, ~r/the name of a model is a text, got: /, fn -> fun.(models, name) end
    end

    for call <- [
          {:by_name, :pool_load, :a},
          {:by_name, :backend_free, "a"},
          {:lease, "a", :soon, self(), make_ref()},
          {:lease, "a", 0, nil, nil},
          {:pin, "a", 1},
          {:set, [:a]},
          {:set, [%{native: %{name: "a", path: "fake:"}}]},
          {:set, nil},
          :unknown
        ] do
      assert {:error, %{message: reason}} = GenServer.call(models, call)
      assert is_binary(reason)
    end

    GenServer.cast(models, :unknown)
    send(models, :unknown)
    assert {:ok, _} = Models.generate(models, "a", "hello", max_tokens: 2)
    assert Process.alive?(models)
  end

  test "calls and streams outlive the release of their lease, with logprobs, too" do
    before = settled()
    models = start(rack(["a", "b"]), memory: 150 * @mib)
    few = [max_tokens: 30, logprobs: true, top_logprobs: 2, prompt_logprobs: true, interval: 1]
    messages = [%{role: "user", content: "hi"}]

    for stream <- [
          &Models.stream(models, &1, "hello", [emit: :chunks] ++ few),
          &Models.stream_chat_completion(models, &1, messages, few)
        ] do
      {:ok, lease} = Models.lease(models, "a")
      expected = lease |> stream.() |> Enum.map(&scores/1)

      {:suspended, first, more} =
        Enumerable.reduce(stream.(lease), {:cont, nil}, &{:suspend, [&1 | &2 || []]})

      :ok = Models.release(lease)
      assert {over, answer} = rest(more, first)
      assert over in [:done, :halted]
      assert answer |> Enum.reverse() |> Enum.map(&scores/1) |> List.flatten() == List.flatten(expected)
      assert_raise ArgumentError, ~r/the lease .* has ended/, fn -> lease |> stream.() |> Enum.take(1) end
      assert_raise ArgumentError, ~r/the lease .* has ended/, fn -> Models.embed(models, lease, "x") end

      # nothing keeps the model now
      assert {:ok, _} = Models.generate(models, "b", "hello", max_tokens: 2)
      assert state(models, "a") != :loaded
    end

    assert %{n_leases: 0} = settled_stats(models)
    stop_supervised!(Models)
    assert eventually(fn -> collected?(before) end)
    assert mailbox() == []
  end

  defp scores(%Weir.Chunk{} = chunk), do: [chunk.logprobs || [], chunk.prompt_logprobs || []]
  defp scores(%{choices: [choice]}), do: (choice.logprobs || %{content: []}).content

  test "a stream that is left early ends its lease" do
    models = start(rack(["a", "b"]), memory: 150 * @mib)
    assert [_] = models |> Models.stream("a", "hello", max_tokens: 100) |> Enum.take(1)

    assert_raise RuntimeError, fn ->
      models |> Models.stream("a", "hello") |> Enum.each(fn _ -> raise "no" end)
    end

    assert {:ok, _} = Models.generate(models, "b", "hello", max_tokens: 2)
    assert mailbox() == []
  end

  test "states, loads, pins and a new list" do
    models = start(rack(["a", "b"]), memory: 250 * @mib)
    assert [%{name: "a", state: :unloaded}, %{name: "b", n_loads: 0}] = Models.list(models)
    assert :ok = Models.load(models, "a")
    assert eventually(fn -> state(models, "a") == :loaded end)
    assert :ok = Models.unload(models, "a")
    assert eventually(fn -> state(models, "a") == :unloaded end)

    # a pinned one is loaded again, and stays
    assert :ok = Models.pin(models, "a")
    assert eventually(fn -> state(models, "a") == :loaded end)
    assert :ok = Models.set(models, rack(["a"], pinned: true) ++ tl(rack(["x", "b", "c"])))
    assert Enum.map(Models.list(models), & &1.name) == ["a", "b", "c"]
    for name <- ["b", "c", "b"], do: {:ok, _} = Models.generate(models, name, "hi", max_tokens: 1)
    assert {:ok, %{state: :loaded, pinned: true, n_loads: 2}} = Models.info(models, "a")
    assert {:ok, %{n_loads: 2}} = Models.info(models, "b")
    assert :ok = Models.pin(models, "a", false)
    assert {:ok, %{pinned: false}} = Models.info(models, "a")

    # removed
    assert :ok = Models.set(models, rack(["a"]))
    assert {:error, %{code: :not_found}} = Models.generate(models, "b", "hello")
    assert eventually(fn -> Models.get_stats(models).n_loaded == 1 end)

    for fun <- [&Models.info/2, &Models.load/2, &Models.unload/2, &Models.pin/2, &Models.lease/2],
        do: assert({:error, %{code: :not_found}} = fun.(models, "b"))

    # nothing changes by a bad list
    assert {:error, %{message: reason}} = Models.set(models, rack(["a", "a"]))
    assert reason =~ "names two models"
    assert [%{name: "a"}] = Models.list(models)
  end

  test "a smaller budget puts models to sleep" do
    models = start(rack(["a", "b"]), memory: 250 * @mib)
    for name <- ["a", "b"], do: {:ok, _} = Models.generate(models, name, "hello", max_tokens: 2)
    {:ok, lease} = Models.lease(models, "b")
    assert :ok = Models.set_memory(models, 150 * @mib)
    assert eventually(fn -> state(models, "a") == :sleeping end)
    assert state(models, "b") == :loaded
    assert {:error, %{code: :timeout}} = Models.lease(models, "a", timeout: 20)
    Models.release(lease)
    assert {:ok, _} = Models.generate(models, "a", "hello", max_tokens: 2)
    assert :ok = Models.set_memory(models, 0)
    assert {:ok, _} = Models.generate(models, "b", "hello", max_tokens: 2)
    assert %{n_loaded: 2} = Models.get_stats(models)
    assert :ok = Models.set_memory(models, :auto)
    assert_raise ArgumentError, fn -> Models.set_memory(models, -1) end
  end

  test "idle models sleep, and keep their prefixes" do
    models = start(rack(["a"], idle: 1))
    prompt = String.duplicate("a long beginning ", 8)

    assert {:ok, %{usage: %{cached_tokens: 0}, text: text}} =
             Models.complete(models, "a", prompt, max_tokens: 2)

    assert eventually(fn -> state(models, "a") == :sleeping end)
    assert {:ok, %{usage: usage, text: ^text}} = Models.complete(models, "a", prompt, max_tokens: 2)
    assert usage.cached_tokens > 100
  end

  @tag :capture_log
  test "why a model is not there" do
    models = start(rack(["big"]) ++ [[name: "gone", model_path: "/nowhere/model.gguf"]], memory: 50 * @mib)
    assert {:error, %{message: reason}} = Models.generate(models, "big", "hello")
    assert reason =~ "100." and reason =~ "50.0 MiB"
    assert {:error, %{message: reason}} = Models.generate(models, "gone", "hello")
    assert reason =~ "model.gguf"

    assert_raise Error, ~r/model.gguf/, fn ->
      models |> Models.stream("gone", "hello") |> Enum.to_list()
    end

    assert {:ok, %{state: :failed, n_failures: 2, message: message}} = Models.info(models, "gone")
    assert message =~ "model.gguf"
  end

  test "a full queue" do
    models = start([[name: "slow", model_path: @slow]], max_queue: 1)
    waiting = spawn(fn -> Models.generate(models, "slow", "hello") end)
    assert eventually(fn -> Models.get_stats(models).n_waiting == 1 end)
    assert {:error, %{code: :model_busy}} = Models.generate(models, "slow", "hello")
    Process.exit(waiting, :kill)
  end

  test "those who wait when the process ends learn it, and what runs goes on" do
    before = settled()
    Process.flag(:trap_exit, true)
    list = rack(["a"]) ++ [[name: "slow", model_path: @slow]]
    {:ok, models} = Models.start_link(models: list)
    me = self()

    stream = Models.stream(models, "a", "hello", max_tokens: 30, interval: 1)
    {:suspended, first, more} = Enumerable.reduce(stream, {:cont, nil}, fn text, _ -> {:suspend, text} end)

    for fun <- [&Models.generate/3, &Models.lease(&1, &2, timeout: &3 && :infinity)] do
      spawn_link(fn -> send(me, {:answer, fun.(models, "slow", "hello"), mailbox()}) end)
    end

    assert eventually(fn -> Models.get_stats(models).n_waiting == 2 end)
    Process.exit(models, :kill)
    for _ <- 1..2, do: assert_receive({:answer, {:error, %{code: :server_down}}, []})
    assert {over, _text} = rest(more, first)
    assert over in [:done, :halted]
    assert {:error, %{code: :server_down}} = Models.generate(models, "a", "hello")
    assert_raise Error, fn -> Models.list(models) end
    assert_receive {:EXIT, ^models, :killed}
    assert eventually(fn -> collected?(before) end)
  end

  defp rest(more, text) do
    case more.({:cont, text}) do
      {:suspended, text, more} -> rest(more, text)
      over -> over
    end
  end

  test "options" do
    for {list, part} <- [
          {[[name: "a"]], "model_path"},
          {[[model_path: "fake:"]], ":name"},
          {[[name: "a", model_path: "fake:", nonsense: 1]], "nonsense"},
          {[[name: "a", model_path: "fake:", n_parallel: "x"]], "n_parallel"},
          {[[name: "a", model_path: "fake:", batch_strategy: Weir.Server.Strategy.Balanced]],
           "batch_strategy"},
          {[[name: "a", model_path: "fake:", lora: 5]], "lora"},
          {:none, "keyword lists"}
        ] do
      assert_raise ArgumentError, ~r/#{part}/, fn -> Models.start_link(models: list) end
    end

    # all that the machine has, and not a number that happens to be in memory
    assert Models.get_stats(start([])).memory_bytes > @mib
    assert_raise ArgumentError, fn -> Models.start_link(memory: -1) end
    assert_raise ArgumentError, fn -> Models.generate(self(), :no_text, "hello") end
    Process.flag(:trap_exit, true)

    assert {:error, %{message: reason}} =
             Models.start_link(models: [[name: "a", model_path: "fake:", chunk_size: -1]])

    assert reason =~ "models[0]"

    assert {:error, %{message: reason}} =
             Models.start_link(models: [[name: "a", model_path: "hf:no/such:model"]])

    assert is_binary(reason)
  end

  @tag :model
  test "a real model beside a fake one" do
    path = System.fetch_env!("WEIR_TEST_MODEL")
    models = start([[name: "real", model_path: path, n_ctx: 512, n_parallel: 1, temp: 0.0]] ++ rack(["a"]))
    {:ok, model} = Weir.load_model(path)
    {:ok, text} = Weir.generate(model, "The capital of France is", temp: 0.0, max_tokens: 5)
    assert {:ok, ^text} = Models.generate(models, "real", "The capital of France is", max_tokens: 5)
    assert {:ok, _} = Models.generate(models, "a", "hello", max_tokens: 2)
    assert :ok = Models.unload(models, "real")
    assert eventually(fn -> state(models, "real") == :unloaded end)
    assert {:ok, ^text} = Models.generate(models, "real", "The capital of France is", max_tokens: 5)
    {:ok, vector} = Weir.embed(model, "hello")
    assert {:ok, ^vector} = Models.embed(models, "real", "hello")
  end
end
