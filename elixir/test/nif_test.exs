# SPDX-License-Identifier: Apache-2.0
defmodule Weir.NIFTest do
  # The native functions of the low level.
  use ExUnit.Case, async: true
  import Weir.Arguments, only: [resources: 0, resources: 1]
  alias Weir.{NIF, Wait}

  test "who gets a load's progress is checked" do
    load = &NIF.model_load("fake:", 0, true, 0, 0, [], false, false, false, %{progress: &1})

    for wrong <- [self(), {self()}, {self(), :ref}, {:me, make_ref()}, {self(), make_ref(), 1}],
        do: assert_raise(ArgumentError, fn -> load.(wrong) end)

    ref = make_ref()
    assert {:ok, _model} = load.({self(), ref})
    for done <- [0.0, 0.5, 1.0], do: assert_receive({^ref, {:progress, ^done}})
  end

  test "a resource of one kind is none of another" do
    {model, context, _, sampler, _, _, _, _} = resources()
    assert_raise ArgumentError, fn -> NIF.model_desc(context) end
    assert_raise ArgumentError, fn -> NIF.context_n_ctx(sampler) end
    assert_raise ArgumentError, fn -> NIF.sampler_reset(model) end
  end

  test "a child keeps its parents, and what nobody holds is freed" do
    parent = self()

    pid =
      spawn(fn ->
        {_model, context, _, sampler, _, _, _, _} = resources()
        send(parent, {context, sampler})
        :timer.sleep(:infinity)
      end)

    assert_receive {context, sampler}
    Process.exit(pid, :kill)
    assert {:ok, text} = NIF.generate(context, sampler, ~c"hello", 5)
    assert String.valid?(text)

    for _ <- 1..50, do: resources()
    :erlang.garbage_collect()
    assert {:ok, ^text} = NIF.generate(context, sampler, ~c"hello", 5)
  end

  test "a token that the grammar refuses is an error" do
    {model, context, _, _, _, _, _, _} = resources()
    grammar = "root ::= \"yes\" | \"no\""

    {:ok, sampler} = NIF.sampler_init(model, 7, 0.8, 40, 0.95, 0.05, 1.0, 0.0, 0.0, grammar, "root")

    assert {:error, %{message: reason}} = NIF.sampler_accept(sampler, ?x)
    assert reason =~ "grammar"
    assert {:error, _} = NIF.sampler_accept(sampler, NIF.vocab_eos(model))
    assert :ok = NIF.sampler_accept(sampler, ?y)
    assert :ok = NIF.sampler_reset(sampler)
    assert {:ok, text} = NIF.generate(context, sampler, ~c"say", 10)
    assert text in ["yes", "no"]
  end

  test "a batch of two sequences is each alone" do
    {model, context, _, _, _, _, _, _} = resources()

    sampler = fn ->
      elem(NIF.sampler_init(model, 7, 0.0, 40, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil), 1)
    end

    alone =
      for text <- [~c"one", ~c"other"] do
        :ok = NIF.memory_clear(context)
        :ok = NIF.decode(context, text)
        NIF.sampler_sample(sampler.(), context)
      end

    :ok = NIF.memory_clear(context)

    entries =
      for {text, seq} <- [{~c"one", 1}, {~c"other", 2}],
          {token, pos} <- Enum.with_index(text),
          do: {token, pos, seq, pos == length(text) - 1}

    assert :ok = NIF.batch_eval(context, entries)
    rows = for {{_, _, _, true}, i} <- Enum.with_index(entries), do: i
    assert alone == for(i <- rows, do: NIF.sampler_sample_at(sampler.(), context, i))
    assert {:error, _} = NIF.sampler_sample_at(sampler.(), context, 0)
    assert {NIF.memory_seq_pos_max(context, 1), NIF.memory_seq_pos_max(context, 2)} == {2, 4}

    :ok = NIF.memory_clear(context)
    assert {:ok, sampled} = NIF.decode_batch(context, sampler.(), entries)
    assert Enum.reject(sampled, &is_nil/1) == alone
    assert {:ok, 5} = NIF.prefill(context, ~c"er", 1)
  end

  describe "decode_batch with a sampler for each entry" do
    setup do
      {:ok, %{ref: model}} = Weir.load_model("fake:any=1")
      {:ok, context} = NIF.context_create(model, 1024, 64, 64, 1, 1, false, -1, 4)
      %{model: model, context: context}
    end

    defp drawing(model, seed) do
      {:ok, sampler} = NIF.sampler_create(model, %{seed: seed, temp: 1.5, top_k: 0})
      sampler
    end

    # Different sequences of one token each.
    defp entries(n), do: for(i <- 0..(n - 1), do: {?a + i, 0, i, true})

    test "draws for each sequence what that sampler draws alone", c do
      for seed <- 1..30 do
        alone =
          for {token, pos, _seq, logits} <- entries(4) do
            {:ok, context} = NIF.context_create(c.model, 512, 64, 64, 1, 1, false, -1, 1)
            sampler = drawing(c.model, seed + token)
            {:ok, [first]} = NIF.decode_batch(context, sampler, [{token, pos, 0, logits}])
            {:ok, [next]} = NIF.decode_batch(context, [sampler], [{first, 1, 0, true}])
            {first, next}
          end

        :ok = NIF.memory_clear(c.context)
        samplers = for {token, _, _, _} <- entries(4), do: drawing(c.model, seed + token)
        assert {:ok, first} = NIF.decode_batch(c.context, samplers, entries(4))
        more = for {token, seq} <- Enum.with_index(first), do: {token, 1, seq, true}
        assert {:ok, next} = NIF.decode_batch(c.context, samplers, more)
        assert Enum.zip(first, next) == alone
      end
    end

    test "leaves out entries without one, or without logits", c do
      sampler = drawing(c.model, 1)
      entries = [{?a, 0, 0, true}, {?b, 0, 1, false}, {?c, 0, 2, true}]

      assert {:ok, [nil, nil, token]} = NIF.decode_batch(c.context, [nil, sampler, sampler], entries)

      assert is_integer(token)
      # as with one sampler
      assert NIF.decode_batch(c.context, [], []) == NIF.decode_batch(c.context, sampler, [])
    end

    test "wants as many as there are entries", c do
      sampler = drawing(c.model, 1)

      for wrong <- [
            [],
            [sampler],
            [sampler, sampler, sampler],
            [sampler | sampler],
            [sampler, :no],
            nil
          ] do
        assert_raise ArgumentError, fn -> NIF.decode_batch(c.context, wrong, entries(2)) end
      end

      assert NIF.memory_seq_pos_max(c.context, 0) == -1
    end

    # Callers take the samplers' locks in both orders.
    test "callers that share samplers do not wait for each other for ever", c do
      samplers = for seed <- 1..4, do: drawing(c.model, seed)

      1..200
      |> Task.async_stream(
        fn i ->
          {:ok, context} = NIF.context_create(c.model, 256, 64, 64, 1, 1, false, -1, 4)
          mine = Enum.at([samplers, Enum.reverse(samplers)], rem(i, 2))
          assert {:ok, [_, _, _, _]} = NIF.decode_batch(context, mine, entries(4))
        end,
        max_concurrency: 16,
        timeout: Weir.Wait.patience()
      )
      |> Enum.each(&assert match?({:ok, _}, &1))
    end
  end

  test "the memory of sequences" do
    {_, context, _, sampler, _, _, _, _} = resources()
    assert {:ok, 5} = NIF.prefill(context, ~c"hello", 0)
    token = NIF.sampler_sample(sampler, context)
    assert {:ok, 3} = NIF.prefill(context, ~c"hel", 1)
    assert {NIF.memory_seq_pos_max(context, 0), NIF.memory_seq_pos_max(context, 1)} == {4, 2}
    assert :ok = NIF.decode_token(context, ?l, 3, 1)
    assert :ok = NIF.decode_token(context, ?o, 4, 1)
    assert NIF.sampler_sample(sampler, context) == token
    :ok = NIF.memory_clear(context)
    assert {NIF.memory_seq_pos_max(context, 0), NIF.memory_seq_pos_max(context, 1)} == {-1, -1}
    :ok = NIF.decode(context, ~c"hello")
    assert NIF.sampler_sample(sampler, context) == token
  end

  test "processes that share a context take turns" do
    {_, context, _, sampler, _, _, _, _} = resources("fake:tick_us=200")
    {:ok, text} = NIF.generate(context, sampler, ~c"hello", 20)

    1..8
    |> Task.async_stream(fn _ ->
      :ok = NIF.sampler_accept(sampler, ?a)
      assert is_integer(NIF.memory_seq_pos_max(context, 0))
      NIF.generate(context, sampler, ~c"hello", 20)
    end)
    |> Enum.each(&assert &1 == {:ok, {:ok, text}})
  end

  test "a caller that is killed computes no further" do
    {_, context, _, sampler, _, _, _, _} = resources("fake:tick_us=20000")
    pid = spawn(fn -> NIF.generate(context, sampler, ~c"hello", 400) end)
    Wait.until_inside(pid, :generate, 4)
    Process.exit(pid, :kill)
    # waits for the context; 400 passes take 8 s and would end at position 404
    assert NIF.memory_seq_pos_max(context, 0) < 300
  end
end
