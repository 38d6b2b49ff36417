# SPDX-License-Identifier: Apache-2.0
defmodule Weir.EmbeddingTest do
  use ExUnit.Case, async: true
  import Weir.Wait
  alias Weir.{NIF, Server}

  @texts for i <- 1..8, do: "text number #{i}"
  # 150 of them take 50 minutes on a fake model with 0.1 s per token
  @many for i <- 1..150, do: String.duplicate("text #{i} ", 25)
  @slow "fake:token_us=100000"

  # The vector of each text in a separate pass, by other functions of the library.
  defp alone(model, texts, pooling) do
    {:ok, context} = Weir.Context.create(model, n_ctx: 2048, embeddings: true, pooling_type: pooling)

    for text <- texts do
      {:ok, tokens} = Weir.Tokenizer.encode(model, text)
      :ok = NIF.embed_decode(context.ref, tokens, 0)
      {:ok, vector} = NIF.get_embeddings(context.ref, 0, 2)
      vector
    end
  end

  defp server(path) do
    {:ok, model} = Weir.load_model(path)
    start_supervised!({Server, model: model}, id: path)
  end

  describe "texts that fit into one pass share it" do
    # only the model's first pass succeeds
    @one_pass "fake:fail_pass=1"

    test "in embed_batch, with the vectors that each has alone" do
      {:ok, model} = Weir.load_model("fake:")

      for pooling <- [:unspecified, :none, :mean, :cls, :last] do
        {:ok, one_pass} = Weir.load_model(@one_pass)
        assert {:ok, vectors} = Weir.embed_batch(one_pass, @texts, pooling_type: pooling)
        assert vectors == alone(model, @texts, pooling)
        assert {:error, _second_pass} = Weir.embed(one_pass, "text")
      end
    end

    test "but no more of them than max_batch_sequences" do
      {:ok, model} = Weir.load_model("fake:")
      expected = alone(model, @texts, :unspecified)

      for {most, passes} <- [{3, 3}, {1, 8}, {8, 1}, {256, 1}], where <- [:model, :server] do
        # the passes after so many fail
        {:ok, counted} = Weir.load_model("fake:fail_pass=#{passes}")
        server = start_supervised!({Server, model: counted}, id: make_ref())

        embed = fn texts ->
          opts = [max_batch_sequences: most]

          if where == :model,
            do: Weir.embed_batch(counted, texts, opts),
            else: Server.embed(server, texts, opts)
        end

        assert {most, where, embed.(@texts)} == {most, where, {:ok, expected}}
        assert {:error, _pass_too_many} = embed.(["text"])
      end

      # the server's context has room for 32
      server = start_supervised!({Server, model: model}, id: make_ref())
      assert {:ok, ^expected} = Server.embed(server, @texts)
      assert {:ok, ^expected} = Server.embed(server, @texts, max_batch_sequences: 3)
      assert {:ok, _vector} = Weir.embed(model, "text", max_batch_sequences: 3)

      for wrong <- [0, 257, :many],
          do:
            assert_raise(ArgumentError, ~r/max_batch_sequences must be an integer in 1..256/, fn ->
              Weir.embed_batch(model, @texts, max_batch_sequences: wrong)
            end)
    end

    test "on a server" do
      {:ok, model} = Weir.load_model("fake:")
      server = server(@one_pass)
      assert {:ok, vectors} = Server.embed(server, @texts)
      assert vectors == alone(model, @texts, :unspecified)
    end

    test "and those that do not take as many as they need" do
      {:ok, model} = Weir.load_model("fake:")
      long = for i <- 1..5, do: String.duplicate("long text #{i} ", 100)
      texts = Enum.intersperse(Enum.concat([@texts, long, @many]), "")
      assert {:ok, vectors} = Weir.embed_batch(model, texts)
      assert vectors == alone(model, texts, :unspecified)
      assert Weir.embed_batch(model, []) == {:ok, []}
    end
  end

  describe "texts that nobody waits for are not computed" do
    test "after a timeout, in a pass and before it" do
      server = server(@slow)

      others = for _ <- 1..5, do: Task.async(fn -> Server.embed(server, @many, timeout: 300) end)

      for {:error, error} <- Task.await_many(others, Weir.Wait.patience()), do: assert(error.code == :timeout)
      assert {:ok, vector} = Server.embed(server, "short")
      {:ok, model} = Weir.load_model("fake:")
      assert [vector] == alone(model, ["short"], :unspecified)
      assert mailbox() == []
    end

    test "after the end of a caller, in a pass and before it" do
      server = server(@slow)

      callers = for _ <- 1..5, do: spawn(fn -> Server.embed(server, @many, timeout: :infinity) end)

      assert eventually(fn -> Enum.any?(callers, &inside?/1) end)
      for pid <- callers, do: Process.exit(pid, :kill)
      assert {:ok, _vector} = Server.embed(server, "short", timeout: Weir.Wait.patience())
    end

    test "nor without a server" do
      {:ok, slow} = Weir.load_model(@slow)

      callers = for _ <- 1..5, do: spawn(fn -> Weir.embed_batch(slow, @many) end)
      assert eventually(fn -> Enum.any?(callers, &inside?/1) end)
      for pid <- callers, do: Process.exit(pid, :kill)
      assert {:ok, _vector} = Weir.embed(slow, "short")
    end
  end

  # the process, or one that works for it
  defp inside?(pid) do
    {:links, linked} = Process.info(pid, :links)
    inside = {:current_function, {NIF, :embed, 4}}
    Enum.any?([pid | Enum.filter(linked, &is_pid/1)], &(Process.info(&1, :current_function) == inside))
  end

  test "callers of embed and generate leave a scheduler for others" do
    {:ok, slow} = Weir.load_model(@slow)
    {:ok, sampler} = Weir.Sampler.create(slow, temp: 0.0)
    tokens = List.duplicate(?a, 1000)

    callers =
      for i <- 1..(2 * :erlang.system_info(:dirty_cpu_schedulers_online)) do
        spawn(fn ->
          {:ok, context} = Weir.Context.create(slow)

          if rem(i, 2) == 0,
            do: Weir.embed_batch(slow, @many),
            else: Weir.Context.generate(context, sampler, tokens)
        end)
      end

    limit = Weir.Turns.limit(:compute)
    assert eventually(fn -> :sys.get_state(Weir.Turns)[:compute].held |> map_size() == limit end)

    assert eventually(fn ->
             length(:sys.get_state(Weir.Turns)[:compute].waiting) >= length(callers) - limit
           end)

    if :erlang.system_info(:dirty_cpu_schedulers_online) > 1 do
      server = server("fake:")

      assert {:ok, _text} =
               Server.chat(server, [{:user, "hello"}], max_tokens: 3, timeout: Weir.Wait.patience())
    end

    assert {:error, %{code: :timeout}} = Server.embed(server("fake:n_vocab=321"), "hello", timeout: 100)
    for pid <- callers, do: Process.exit(pid, :kill)
    assert {:ok, _vector} = Weir.embed(slow, "short")
  end

  test "callers take turns, of every size and pooling" do
    {:ok, model} = Weir.load_model("fake:")
    server = server("fake:")

    tasks =
      for i <- 1..40 do
        texts = for k <- 1..rem(i, 5)//1, do: String.duplicate("text #{k} ", 1 + rem(i * k, 400))
        pooling = Enum.at([:mean, :cls, :last], rem(i, 3))

        {texts, pooling, Task.async(fn -> Server.embed(server, texts, pooling_type: pooling) end)}
      end

    for {texts, pooling, task} <- tasks do
      assert {:ok, vectors} = Task.await(task, Weir.Wait.patience())
      {:ok, expected} = Weir.embed_batch(model, texts, pooling_type: pooling)
      assert vectors == expected
    end
  end

  test "embed refuses what it cannot do" do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, generates} = Weir.Context.create(model)
    {:ok, context} = Weir.Context.create(model, embeddings: true, n_ctx: 256)
    assert {:error, _} = NIF.embed(generates.ref, [~c"a"], 2, 1000)
    assert {:error, %{message: reason}} = NIF.embed(context.ref, [~c"a", []], 2, 1000)
    assert reason =~ "inputs[1]"
    assert {:error, _} = NIF.embed(context.ref, [], 2, 1000)
    assert {:error, _} = NIF.embed(context.ref, [~c"a"], 1, 1000)
    assert {:error, %{code: :timeout}} = NIF.embed(context.ref, [~c"a"], 2, 0)

    for wrong <- [[~c"a", :b], ~c"a", [["a"]], :a],
        do: assert_raise(ArgumentError, fn -> NIF.embed(context.ref, wrong, 2, 1000) end)

    for wrong <- [-1, 0x100000000, nil, 1.0],
        do: assert_raise(ArgumentError, fn -> NIF.embed(context.ref, [~c"a"], 2, wrong) end)
  end
end
