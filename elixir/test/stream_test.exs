# SPDX-License-Identifier: Apache-2.0
defmodule Weir.StreamTest do
  use ExUnit.Case, async: true
  import Weir.Effort
  import Weir.Wait
  alias Weir.{Chunk, NIF, Terms}

  @greedy [temp: 0.0]

  setup_all do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, slow} = Weir.load_model("fake:tick_us=1000")
    {:ok, ends} = Weir.load_model("fake:eos_every=10,seed=3")
    {:ok, bytes} = Weir.load_model("fake:any=1")
    %{model: model, slow: slow, ends: ends, bytes: bytes}
  end

  defp texts(model, opts), do: Enum.to_list(Weir.stream(model, "hello", opts))

  test "the texts together are generate's", %{model: model, ends: ends, bytes: bytes} do
    Terms.sow("texts")

    for model <- [model, ends, bytes], _ <- 1..effort(30, 8) do
      opts = [seed: :rand.uniform(1_000_000), max_tokens: :rand.uniform(60)]
      {:ok, text} = Weir.generate(model, "hello", opts)
      texts = texts(model, opts)
      assert Enum.join(texts) == text
      assert Enum.all?(texts, &(String.valid?(&1) and &1 != ""))
      chunks = texts(model, [emit: :chunks] ++ opts)
      assert Enum.map_join(chunks, & &1.text) == text
      {:ok, decoded} = Weir.Tokenizer.decode(model, Enum.flat_map(chunks, & &1.ids))
      assert decoded == text
      n = length(Enum.flat_map(chunks, & &1.ids))
      assert %Chunk{ids: [], text: "", reason: reason} = List.last(chunks)
      assert reason == if(n == opts[:max_tokens], do: :length, else: :end)
      assert Enum.count(chunks, & &1.reason) == 1
    end

    assert mailbox() == []
  end

  test "nothing runs before it is enumerated, and it can be enumerated again", %{model: model} do
    stream = Weir.stream(model, "hello", [max_tokens: 5] ++ @greedy)
    assert Enum.to_list(stream) == Enum.to_list(stream)
  end

  test "an early end leaves no message and nothing that runs", %{slow: slow, model: model} do
    for model <- [slow, model], n <- [1, 2, 5, 1, 1, 3, 1, 2, 4, 1] do
      stream = Weir.stream(model, "hello", [max_tokens: 400] ++ @greedy)
      assert length(Enum.take(stream, n)) == n
      assert mailbox() == []
    end

    Process.sleep(20)
    assert mailbox() == []
  end

  test "an exception of the consumer's, too", %{slow: slow} do
    assert_raise RuntimeError, fn ->
      slow |> Weir.stream("hello", @greedy) |> Enum.each(fn _ -> raise "enough" end)
    end

    assert mailbox() == []
  end

  test "streams of one process do not meet", %{model: model} do
    opts = [max_tokens: 30] ++ @greedy
    one = Weir.stream(model, "one", opts)
    other = Weir.stream(model, "other", opts)
    {ones, others} = one |> Enum.zip(other) |> Enum.unzip()
    assert List.starts_with?(Enum.to_list(one), ones)
    assert List.starts_with?(Enum.to_list(other), others)
    assert mailbox() == []
  end

  test "errors are raised", %{model: model} do
    both = [grammar: "root ::= \"a\"", json_schema: %{}]
    assert_raise Weir.Error, fn -> texts(model, temp: -1.0) end
    assert_raise Weir.Error, fn -> texts(model, grammar: "root ::= [") end
    assert_raise ArgumentError, fn -> Weir.stream(model, "hello", tmep: 1.0) end
    assert_raise ArgumentError, fn -> texts(model, both) end
    assert mailbox() == []
  end

  describe "generate_tokens" do
    setup do
      generation(1000)
    end

    # A context and a sampler of a model with this time and this maximum of tokens per pass.
    defp generation(tick_us, per_pass \\ 32) do
      {:ok, %{ref: model}} = Weir.load_model("fake:tick_us=#{tick_us}")
      {:ok, context} = NIF.context_create(model, 512, per_pass, per_pass, 1, 1, false, -1, 1)
      {:ok, sampler} = NIF.sampler_init(model, 7, 0.0, 40, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil)
      %{context: context, sampler: sampler}
    end

    # At most this many tokens, sent to `to` with the reference.
    defp generate(c, ref, to, n, prompt \\ ~c"hi"),
      do: NIF.generate_tokens(c.context, c.sampler, prompt, n, to, ref)

    # Waits until no generation runs in the context.
    defp last_position(c), do: NIF.memory_seq_pos_max(c.context, 0)

    # Ends a generation from a prompt of 500 tokens in one of two ways, this many ms after its start. It
    # sends nothing.
    defp end_amid_prompt(c, way, ms) do
      me = self()
      ref = make_ref()
      to = if way == :receiver, do: spawn(fn -> Process.sleep(:infinity) end), else: me
      pid = spawn(fn -> generate(c, ref, to, 1, List.duplicate(?a, 500)) end)
      until_inside(pid, :generate_tokens, 6)
      Process.sleep(ms)

      case way do
        :generator -> Process.exit(pid, :kill)
        :receiver -> Process.exit(to, :kill)
      end

      last = last_position(c)
      refute_received {^ref, _}
      last
    end

    test "sends the messages of ADR 0023 to any process, with any reference", c do
      ref = make_ref()
      assert :ok = generate(c, ref, self(), 3)

      for _ <- 1..3,
          do: assert_received({^ref, {:token, id, text}} when is_integer(id) and is_binary(text))

      assert_received {^ref, :done}
      refute_received _

      assert :ok = generate(c, ref, self(), 3, [])
      assert_received {^ref, {:error, %Weir.Error{}}}
      refute_received _
    end

    # Generations that must be ended early: 16 passes of prompt, one pass of a minute, and 400 tokens always
    # leave the time for that.
    test "the end of either process, between the passes of a prompt" do
      c = generation(200_000)
      for way <- [:generator, :receiver], do: assert(end_amid_prompt(c, way, 20) < 499)
    end

    test "the end of either process, within a pass" do
      c = generation(60_000_000, 512)
      for way <- [:generator, :receiver], do: assert(end_amid_prompt(c, way, 0) == -1)
    end

    test "a receiver that is dead ends it" do
      c = generation(20_000)
      ref = make_ref()
      consumer = spawn(fn -> receive do: ({^ref, {:token, _, _}} -> :ok) end)
      :ok = generate(c, ref, consumer, 400)
      assert last_position(c) in 1..300
    end

    test "a generator that is killed ends it" do
      c = generation(20_000)
      me = self()
      ref = make_ref()
      pid = spawn(fn -> generate(c, ref, me, 400) end)
      assert_receive {^ref, {:token, _, _}}
      Process.exit(pid, :kill)
      assert last_position(c) in 1..300
    end
  end

  test "consumers that are killed at any time", %{slow: slow} do
    Terms.sow("killed consumers")

    for _ <- 1..100 do
      {pid, monitor} =
        spawn_monitor(fn ->
          slow |> Weir.stream("hello", [max_tokens: 300] ++ @greedy) |> Stream.run()
        end)

      Process.sleep(:rand.uniform(6) - 1)
      Process.exit(pid, :kill)
      # :normal where the machine is so busy that the stream ended first
      assert_receive {:DOWN, ^monitor, :process, ^pid, reason} when reason in [:killed, :normal]
    end

    # dirty schedulers are free again, long before the end of 100 streams
    {time, {:ok, _}} = :timer.tc(fn -> Weir.generate(slow, "hello", max_tokens: 1) end)
    assert time < 120_000_000
  end
end
