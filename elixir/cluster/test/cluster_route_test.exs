# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ClusterRouteTest do
  # The parts of a cluster that need no nodes.
  use ExUnit.Case, async: true
  alias Weir.Chunk
  alias Weir.Cluster.{Identity, Replay, Route}

  defp member(node, changes \\ []) do
    Map.merge(
      %{
        node: node,
        server: self(),
        slots: 4,
        active: 0,
        queue: 0,
        kv: 0.0,
        heard: 0,
        running: :counters.new(1, []),
        reported: 0
      },
      Map.new(changes)
    )
  end

  defp first(members, key), do: hd(Route.rank(members, key)).node

  # A cluster of this node alone.
  defp alone(opts) do
    server = start_supervised!({Weir.Server, [model_path: "fake:"] ++ opts}, id: make_ref())
    name = :"alone #{System.unique_integer()}"
    start_supervised!({Weir.Cluster, name: name, server: server}, id: name)
    assert Weir.Wait.eventually(fn -> Weir.Cluster.members(name) != [] end)
    name
  end

  describe "seeds" do
    @sampled [temp: 1.0, max_tokens: 40, ignore_eos: true]

    test "are drawn for each enumeration" do
      stream = Weir.Cluster.stream(alone([]), "hello", @sampled)
      assert [_, _, _] = Enum.uniq(for _ <- 1..3, do: Enum.join(stream))
    end

    test "of the request and of the server count" do
      {:ok, model} = Weir.load_model("fake:")
      cluster = alone(seed: 5)
      messages = [%{role: "user", content: "hello"}]

      for {given, seed} <- [{[], 5}, {[seed: 6], 6}] do
        {:ok, text} = Weir.generate(model, "hello", [seed: seed] ++ @sampled)
        assert cluster |> Weir.Cluster.stream("hello", given ++ @sampled) |> Enum.join() == text
        {:ok, text} = Weir.chat(model, messages, [seed: seed] ++ @sampled)
        assert cluster |> Weir.Cluster.stream_chat(messages, given ++ @sampled) |> Enum.join() == text
      end
    end
  end

  describe "keys" do
    test "stay the same over the turns of a conversation" do
      turns = [{:system, "Be short."}, {:user, "hello"}, {:assistant, "Hi."}, {:user, "Who are you?"}]
      keys = for n <- 2..4, do: Route.key({:chat, Enum.take(turns, n), %{}}, [])
      assert [_key] = Enum.uniq(keys)

      other = for {role, content} <- turns, do: %{"role" => to_string(role), "content" => content}
      assert [_key] = Enum.uniq(for n <- 2..4, do: Route.key({:chat, Enum.take(other, n), %{}}, []))
      assert Route.key({:chat, [{:system, "Be short."}, {:user, "bye"}], %{}}, []) != hd(keys)
      assert Route.key({:chat, [{:system, "Be long."}, {:user, "hello"}], %{}}, []) != hd(keys)
    end

    test "stay the same while a prompt grows" do
      text = String.duplicate("a long prompt ", 30)
      assert Route.key(text, []) == Route.key(text <> "and more", [])
      ids = Enum.to_list(1..64)
      assert Route.key(ids, []) == Route.key(ids ++ [1, 2], [])
    end

    test "depend on the salt, or on the route alone" do
      assert Route.key("hello", cache_salt: "a") != Route.key("hello", cache_salt: "b")
      assert Route.key("hello", route: 7) == Route.key("bye", route: 7, cache_salt: "a")
      assert Route.key("hello", route: 7) != Route.key("hello", route: 8)
      # what a server refuses has one, too
      for bad <- [{:chat, [], %{}}, {:chat, [:nothing], %{}}, {:chat, :nothing, %{}}, [], :nothing],
          do: assert(is_integer(Route.key(bad, [])))
    end
  end

  describe "rank" do
    test "gives each member its share, by slots" do
      members = [member(:a@h), member(:b@h), member(:c@h, slots: 8)]
      shares = Enum.frequencies(for key <- 1..8000, do: first(members, key))

      for {node, expected} <- [a@h: 2000, b@h: 2000, c@h: 4000],
          do: assert_in_delta(shares[node], expected, 250)
    end

    test "moves only the keys of a member that goes" do
      members = for node <- [:a@h, :b@h, :c@h, :d@h], do: member(node)
      without = tl(members)

      for key <- 1..1000, first(members, key) != :a@h do
        assert first(without, key) == first(members, key)
      end
    end
  end

  describe "choose" do
    test "takes the first that is not busy" do
      for busy <- [[active: 4, queue: 2], [kv: 0.97], [heard: -6_000]], key <- 1..50 do
        members = for node <- [:a@h, :b@h, :c@h], do: member(node)
        [one, two | _] = Route.rank(members, key)
        assert {^one, 0} = Route.choose(members, key, 1.5, 0)
        members = [Map.merge(one, Map.new(busy)) | members -- [one]]
        assert {^two, 1} = Route.choose(members, key, 1.5, 0)
      end
    end

    test "takes the least loaded if all are busy, a silent one last" do
      members = [member(:a@h, active: 4, queue: 5), member(:b@h, active: 4, queue: 4)]
      silent = member(:c@h, heard: -6_000)
      for key <- 1..20, do: assert({%{node: :b@h}, _} = Route.choose([silent | members], key, 1.5, 0))
      assert {%{node: :c@h}, 0} = Route.choose([silent], 1, 1.5, 0)
      assert Route.choose([], 1, 1.5, 0) == nil
    end

    test "counts requests since the last report" do
      member = member(:a@h, active: 2)
      assert Route.load(member) == 0.5
      :counters.add(member.running, 1, 2)
      assert Route.load(member) == 1.0
      # they are in a later report
      member = %{member | active: 4, reported: 2}
      assert Route.load(member) == 1.0
      :counters.sub(member.running, 1, 2)
      assert Route.load(member) == 0.5
    end
  end

  describe "replay" do
    # A text as chunks of a few tokens each; some tokens show their text later, and some have their scores in a
    # later chunk.
    defp chunks(tokens, held \\ []) do
      case Enum.split(tokens, :rand.uniform(4)) do
        {[], []} ->
          [%Chunk{reason: :length, logprobs: held}]

        {some, more} ->
          scores = for {id, _text} <- some, do: %{token: "#{id}", logprob: -id / 10, bytes: []}
          ids = for {id, _text} <- some, do: id
          {shown, held} = Enum.split(held ++ scores, -Enum.random([0, 0, 1, 2]))
          text = Enum.map_join(some, &elem(&1, 1))
          [%Chunk{ids: ids, text: text, logprobs: shown} | chunks(more, held)]
      end
    end

    # What the consumer gets, and how it ended.
    defp feed(replay, chunks) do
      Enum.reduce_while(chunks, {[], replay}, fn chunk, {got, replay} ->
        case Replay.take(replay, chunk) do
          {:ok, nil, replay} -> {:cont, {got, replay}}
          {:ok, new, replay} -> {:cont, {[new | got], replay}}
          :diverged -> {:halt, {got, :diverged}}
        end
      end)
    end

    defp joined(got, key), do: got |> Enum.reverse() |> Enum.flat_map(&(Map.get(&1, key) || []))

    test "continues an answer at any place, however it is cut" do
      :rand.seed(:exsss, {1, 2, 3})

      for _ <- 1..500 do
        tokens = for i <- 1..(1 + :rand.uniform(30)), do: {i, Enum.random(["", "a", "bc", "é", "🙂", "日本"])}

        {before, _lost} = tokens |> chunks() |> then(&Enum.split(&1, :rand.uniform(length(&1)) - 1))
        {got, replay} = feed(%Replay{}, before)
        {again, _lost} = tokens |> chunks() |> then(&Enum.split(&1, :rand.uniform(length(&1)) - 1))
        {more, replay} = feed(Replay.again(replay), again)
        {rest, replay} = feed(Replay.again(replay), chunks(tokens))
        all = rest ++ more ++ got

        assert joined(all, :ids) == for({id, _text} <- tokens, do: id)
        assert all |> Enum.reverse() |> Enum.map_join(& &1.text) == Enum.map_join(tokens, &elem(&1, 1))
        assert Enum.map(joined(all, :logprobs), & &1.token) == for({id, _text} <- tokens, do: "#{id}")
        assert Enum.all?(all, &String.valid?(&1.text))
        assert Enum.count(all, & &1.reason) == 1
        assert Replay.text(replay) == Enum.map_join(tokens, &elem(&1, 1))
        assert Replay.n_ids(replay) == length(tokens)
      end
    end

    test "ends where another answer differs" do
      {:ok, _chunk, replay} = Replay.take(%Replay{}, %Chunk{ids: [1, 2], text: "ab"})
      again = Replay.again(replay)
      assert Replay.take(again, %Chunk{ids: [1, 3], text: "ab"}) == :diverged
      assert Replay.take(again, %Chunk{ids: [1, 2], text: "aX"}) == :diverged
      # shorter
      assert {:ok, nil, shorter} = Replay.take(again, %Chunk{ids: [1], text: "a"})
      assert Replay.take(shorter, %Chunk{reason: :end}) == :diverged
      assert Replay.text(again) == "ab"
    end

    test "tells no earlier progress of the prompt" do
      at = &%Chunk{progress: %{n_processed: &1}}
      assert {:ok, %Chunk{}, replay} = Replay.take(%Replay{}, at.(800))
      assert {:ok, nil, replay} = Replay.take(Replay.again(replay), at.(0))
      assert {:ok, %Chunk{}, _replay} = Replay.take(replay, at.(900))
    end

    test "tells the scores of the prompt once" do
      scores = %Chunk{prompt_logprobs: [%{token: "a", logprob: nil, bytes: []}]}
      assert Replay.empty?(%Replay{})
      assert {:ok, ^scores, replay} = Replay.take(%Replay{}, scores)
      refute Replay.empty?(replay)
      assert {:ok, nil, _replay} = Replay.take(Replay.again(replay), scores)
    end
  end

  describe "identity" do
    test "is that of the model, its template and the version" do
      {:ok, model} = Weir.load_model("fake:")
      {:ok, slow} = Weir.load_model("fake:tick_us=1")
      {:ok, other} = Weir.load_model("fake:seed=7")
      identity = Identity.of(model)
      assert Identity.difference(identity, Identity.of(slow)) == nil
      assert Identity.difference(Identity.of(other), identity) =~ "fingerprint of the model"
      assert Identity.difference(%{identity | template: "x"}, identity) =~ "the chat template: x instead of"

      assert Identity.difference(%{identity | version: "weir 9"}, identity) =~
               "the version: weir 9 instead of weir_cluster 0"

      both = Identity.difference(%{identity | version: "weir 9", template: "x"}, identity)
      assert both =~ "version" and both =~ "template"
    end
  end
end
