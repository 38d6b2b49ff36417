# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ClusterTest do
  # Clusters of real nodes: three with servers, and one that calls.
  use ExUnit.Case, async: false
  import Weir.Wait, only: [eventually: 1]
  alias Weir.Cluster
  alias Weir.ClusterNodes, as: Nodes

  setup_all do
    nodes = Nodes.start(4)
    on_exit(fn -> Enum.each(nodes, &Nodes.stop/1) end)
    {servers, [caller]} = Enum.split(nodes, 3)
    %{servers: servers, caller: caller}
  end

  # Its own cluster for each test, with a server on each of the given nodes.
  defp cluster(%{servers: servers, caller: caller, test: test}, opts \\ [], cluster_opts \\ []) do
    for node <- servers, do: Nodes.serve(node, test, opts, cluster_opts)
    Nodes.follow(caller, test, cluster_opts)
    nodes = Enum.sort(for node <- servers, do: node.node)
    for node <- [caller | servers], do: assert(eventually(fn -> Nodes.members(node, test) == nodes end))
    Nodes.events(caller)
    on_exit(fn -> for node <- [caller | servers], do: left(node, test) end)
    test
  end

  defp left(node, test) do
    Nodes.leave(node, test)
  catch
    :exit, _gone -> :ok
  end

  defp routes(caller),
    do: for({[:weir, :cluster, :route], _measured, metadata} <- Nodes.events(caller), do: metadata)

  defp text(prompt, opts) do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, text} = Weir.generate(model, prompt, [temp: 0.0] ++ opts)
    text
  end

  defp whole(caller, cluster, fun, arguments), do: Nodes.call(caller, Cluster, fun, [cluster | arguments])

  # The node that gets the requests of a route.
  defp node_of(%{servers: servers, caller: caller}, cluster, route) do
    Nodes.events(caller)
    {:ok, _text} = whole(caller, cluster, :generate, ["a", [route: route, max_tokens: 1]])
    [%{node: name}] = routes(caller)
    Enum.find(servers, &(&1.node == name))
  end

  defp idle(nodes, cluster), do: eventually(fn -> Enum.all?(nodes, &Nodes.idle?(&1, cluster)) end)

  # Runs `during` once each of the streams has so many chunks.
  defp read(caller, cluster, jobs, chunks, during) do
    reader = Task.async(fn -> Nodes.read(caller, cluster, jobs) end)

    assert eventually(fn ->
             progress = Nodes.progress(caller)
             length(progress) == length(jobs) and Enum.min(progress) >= chunks
           end)

    during.()
    Task.await(reader, Weir.Wait.patience())
  end

  test "a cluster answers as a server does", %{caller: caller} = context do
    cluster = cluster(context)
    messages = [{:system, "Be short."}, {:user, "hello"}]
    {:ok, model} = Weir.load_model("fake:")
    {:ok, chat} = Weir.chat(model, messages, temp: 0.0, max_tokens: 20)
    hello = text("hello", max_tokens: 20)

    assert {:ok, ^hello} = whole(caller, cluster, :generate, ["hello", [max_tokens: 20]])
    assert {:ok, ^hello} = whole(caller, cluster, :generate, [[256 | ~c"hello"], [max_tokens: 20]])

    assert {:ok, %{text: ^hello, reason: :length}} =
             whole(caller, cluster, :complete, ["hello", [max_tokens: 20]])

    assert {:ok, ^chat} = whole(caller, cluster, :chat, [messages, [max_tokens: 20]])

    assert {:ok, %Weir.ChatCompletion{choices: [%{message: %{content: ^chat}}]}} =
             whole(caller, cluster, :chat_completion, [messages, [max_tokens: 20]])

    assert {:ok, vector} = whole(caller, cluster, :embed, ["hello"])
    assert {:ok, ^vector} = Weir.embed(model, "hello")

    assert [%{text: ^hello, ends: [:length], left: 0}, %{text: ^chat, ends: [:length], left: 0}] =
             Nodes.read(caller, cluster, [{"hello", [max_tokens: 20]}, {{:chat, messages}, [max_tokens: 20]}])

    # a server's own node is a caller, too
    assert {:ok, ^hello} = whole(hd(context.servers), cluster, :generate, ["hello", [max_tokens: 20]])
  end

  test "errors are a server's", %{caller: caller} = context do
    cluster = cluster(context, n_ctx: 512)

    assert {:error, %{status: 400, code: :context_full, field: "prompt"}} =
             whole(caller, cluster, :generate, [String.duplicate("a", 5000)])

    assert [%{ends: [:context_full], left: 0}] =
             Nodes.read(caller, cluster, [{String.duplicate("a", 5000), []}])

    for {fun, arguments} <- [
          generate: ["a", [max_tokens: :many]],
          generate: ["a", [top_logprobs: 3]],
          generate: [{:fork, :id}],
          chat: [[:nothing]],
          generate: ["a", [lora: %Weir.Adapter{ref: make_ref()}]],
          generate: ["a", [lora: [{%Weir.Adapter{ref: make_ref()}, 0.5}]]]
        ] do
      assert_raise ArgumentError, fn -> whole(caller, cluster, fun, arguments) end
    end

    assert_raise ArgumentError, ~r/:name/, fn -> Cluster.start_link(server: :nobody) end
    elsewhere = [name: :nobody, server: {:llm, :a@b}]
    assert_raise ArgumentError, ~r/is on the node a@b/, fn -> Cluster.start_link(elsewhere) end
    assert_raise ArgumentError, ~r/:spill/, fn -> Cluster.start_link(name: :nobody, spill: 0) end
    assert {:error, %{code: :server_down}} = Cluster.generate(:nobody, "hello")
    assert {Cluster.members(:nobody), Cluster.status(:nobody)} == {[], nil}
    start_supervised!({Cluster, name: :nobody})
    assert {:error, %{code: :no_node}} = Cluster.generate(:nobody, "hello")
    error = assert_raise Weir.Error, fn -> :nobody |> Cluster.stream("hello") |> Enum.to_list() end
    assert error.code == :no_node
    assert {:error, %{code: :not_found}} = Cluster.cancel(:nobody, :id)
  end

  test "a caller's bad term is its error, and no node's failure", %{caller: caller} = context do
    cluster = cluster(context)

    for {fun, arguments} <- [
          generate: [[104 | 101]],
          generate: ["a", [stop: ["b" | "c"]]],
          generate: ["a", [json_schema: %{"type" => {:no, :json}}]],
          chat: [[{:user, ["a" | "b"]}]],
          chat: [[%{role: "user", content: [%{type: "text", text: [1 | 2]}]}]],
          chat: [[{:user, "a"} | :b]],
          chat_completion: [[{:user, "a"}], [tools: [%{type: {:no, :json}}]]],
          embed: [["a" | "b"]],
          embed: [:a]
        ] do
      raised =
        try do
          whole(caller, cluster, fun, arguments)
        rescue
          error -> error
        end

      assert is_exception(raised), inspect({fun, arguments, raised})
      failed = for {[:weir, :cluster, :node, :failed], _, metadata} <- Nodes.events(caller), do: metadata
      assert failed == [], inspect({fun, arguments, failed})
    end

    assert length(Nodes.members(caller, cluster)) == 3
  end

  test "servers come and go", %{servers: [a, b, c], caller: caller} = context do
    cluster = cluster(context)
    all = Nodes.members(caller, cluster)
    assert length(all) == 3
    Nodes.leave(a, cluster)
    assert eventually(fn -> Nodes.members(caller, cluster) == all -- [a.node] end)
    Nodes.serve(a, cluster)
    assert eventually(fn -> Nodes.members(caller, cluster) == all end)

    # a server that its supervisor starts again
    pid = Nodes.call(b, Process, :whereis, [Nodes.server(cluster)])
    true = Nodes.call(b, Process, :exit, [pid, :kill])

    assert eventually(fn ->
             servers = for m <- whole(caller, cluster, :members, []), do: m.server
             length(servers) == 3 and pid not in servers
           end)

    [d] = Nodes.start(1, [a, b, c, caller])
    Nodes.serve(d, cluster)
    assert eventually(fn -> Nodes.members(caller, cluster) == Enum.sort([d.node | all]) end)
    Nodes.stop(d)
    assert eventually(fn -> Nodes.members(caller, cluster) == all end)

    events =
      for {[:weir, :cluster, :member, name], _m, %{node: node}} <- Nodes.events(caller), do: {name, node}

    assert Enum.filter(events, &match?({_name, node} when node == d.node, &1)) == [
             join: d.node,
             leave: d.node
           ]

    assert {:leave, a.node} in events and {:leave, b.node} in events
  end

  test "the later turns of a conversation reach the node of the first", %{caller: caller} = context do
    cluster = cluster(context, n_ctx: 65_536)
    n = 60
    opts = [max_tokens: 8, enable_thinking: true]
    asked = for i <- 1..n, do: [{:system, "You are agent number #{rem(i, 5)}."}, {:user, "Question #{i}"}]

    turn = fn conversations ->
      answers =
        for messages <- conversations do
          [answer] = Nodes.read(caller, cluster, [{{:chat, messages}, opts}])
          assert answer.ends == [:length]
          answer
        end

      {answers, for(%{node: node} <- routes(caller), do: node)}
    end

    {answers, first} = turn.(asked)

    more =
      for {messages, a} <- Enum.zip(asked, answers),
          do: messages ++ [{:assistant, a.text}, {:user, "And then?"}]

    {again, second} = turn.(more)
    same = Enum.count(Enum.zip(first, second), fn {a, b} -> a == b end)
    assert same >= 0.95 * n
    # each node has some of them
    assert first |> Enum.frequencies() |> Map.values() |> Enum.min() >= 8
    # and their prompts are cached there
    for {a, b} <- Enum.zip(answers, again), do: assert(b.usage.cached_tokens >= a.usage.prompt_tokens - 1)
  end

  test "a busy node's requests go to the next", context do
    %{servers: servers, caller: caller} = context
    cluster = cluster(context, model_path: "fake:tick_us=20000", n_parallel: 2)
    first = node_of(context, cluster, :x)
    job = {"hello", [route: :x, max_tokens: 40]}
    answers = Nodes.read(caller, cluster, List.duplicate(job, 8))
    assert Enum.uniq(for a <- answers, do: {a.text, a.ends}) == [{text("hello", max_tokens: 40), [:length]}]
    assert eventually(fn -> n_running(caller, cluster) == 0 end)
    Nodes.events(caller)

    # One after the other, because those that begin at the same time do not see each other, and a report may miss
    # those that it crosses. None ends meanwhile.
    readers =
      for i <- 1..8 do
        pid = Nodes.call(caller, Nodes, :begin, [cluster, "hello", [route: :x, max_tokens: 4000]])
        assert eventually(fn -> n_running(caller, cluster) == i end)
        pid
      end

    # three of them make a load of 1.5 on each node
    chosen = routes(caller)
    for pid <- readers, do: Nodes.call(caller, Process, :exit, [pid, :kill])
    assert %{first: n_first, spill: n_spill} = Enum.frequencies_by(chosen, & &1.reason)
    # a report that crossed a request may hide one
    assert n_first in 3..4 and n_first + n_spill == 8
    assert [least, _, most] = chosen |> Enum.frequencies_by(& &1.node) |> Map.values() |> Enum.sort()
    assert least >= 1 and most <= 4
    assert Enum.all?(chosen, &(&1.reason == :spill or &1.node == first.node))

    # afterwards it is the first again
    assert idle(servers, cluster)
    assert eventually(fn -> n_running(caller, cluster) == 0 end)
    assert node_of(context, cluster, :x) == first
  end

  # The requests on all servers, as the node sees them.
  defp n_running(node, cluster),
    do: Enum.sum(for m <- whole(node, cluster, :members, []), do: round(m.load * m.slots))

  test "a full queue is not the end", context do
    %{servers: servers, caller: caller} = context
    cluster = cluster(context, [model_path: "fake:tick_us=20000", n_parallel: 1, max_queue: 1], spill: 1000)
    text = text("hello", max_tokens: 40)
    job = {"hello", [route: :x, max_tokens: 40]}

    results =
      read(caller, cluster, List.duplicate(job, 3), 0, fn ->
        assert eventually(fn -> Enum.sum(for n <- servers, do: requests(n, cluster)) == 3 end)
      end)

    assert for(r <- results, do: {r.text, r.ends}) == List.duplicate({text, [:length]}, 3)

    # as many as all nodes take, and three more
    results = Nodes.read(caller, cluster, List.duplicate(job, 9))
    assert Enum.count(results, &(&1.ends == [:queue_full] and &1.text == "")) == 3
    assert Enum.count(results, &(&1.ends == [:length] and &1.text == text)) == 6
  end

  defp requests(node, cluster),
    do: Nodes.call(node, Weir.Server, :get_stats, [Nodes.server(cluster)]).requests

  test "a slow node gets less", %{servers: [slow | fast], caller: caller, test: test} = context do
    Nodes.serve(slow, test, model_path: "fake:tick_us=50000", n_parallel: 2)
    for node <- fast, do: Nodes.serve(node, test, model_path: "fake:tick_us=2000", n_parallel: 2)
    Nodes.follow(caller, test)
    on_exit(fn -> for node <- [caller | context.servers], do: left(node, test) end)
    assert eventually(fn -> length(Nodes.members(caller, test)) == 3 end)
    Nodes.events(caller)

    for round <- 1..3 do
      jobs = for i <- 1..6, do: {"#{round} #{i}", [max_tokens: 10]}
      results = Nodes.call(caller, Nodes, :race, [test, jobs])
      assert results == for({prompt, opts} <- jobs, do: {:ok, text(prompt, opts)})
    end

    counts = caller |> routes() |> Enum.frequencies_by(& &1.node)
    assert map_size(counts) == 3
  end

  test "kill -9 of one of three nodes under 24 streams", %{servers: [a, b, c], caller: caller} = context do
    [victim] = Nodes.start(1, [a, b, c, caller])
    context = %{context | servers: [a, b, victim]}
    cluster = cluster(context, model_path: "fake:tick_us=20000", n_parallel: 16)
    greedy = for i <- 1..24, do: {"Prompt number #{i}", [max_tokens: 60]}

    # so long that it has not ended when each stream has 20 tokens
    seeded =
      {"seeded",
       [max_tokens: 500, temp: 1.0, seed: 42, ignore_eos: true, route: on(context, cluster, victim)]}

    sampled = {"sampled", [max_tokens: 60, temp: 1.0, ignore_eos: true, route: on(context, cluster, victim)]}
    # so long that it cannot end before the node does
    limited = [max_tokens: 2_000, deadline: 600_000, route: on(context, cluster, victim)]
    {:ok, model} = Weir.load_model("fake:")
    {:ok, drawn} = Weir.generate(model, "seeded", max_tokens: 500, temp: 1.0, seed: 42, ignore_eos: true)
    Nodes.events(caller)

    # whole answers have delivered nothing: they start over, whatever their options are
    route = on(context, cluster, victim)

    whole =
      Task.async(fn ->
        whole(caller, cluster, :complete, [
          "whole",
          [max_tokens: 60, temp: 1.0, ignore_eos: true, route: route]
        ])
      end)

    results =
      read(caller, cluster, greedy ++ [seeded, sampled, {"limited", limited}], 20, fn ->
        Nodes.signal(victim, "KILL")
      end)

    {greedy_results, [seeded, sampled, limited]} = Enum.split(results, 24)

    for {{prompt, opts}, result} <- Enum.zip(greedy, greedy_results) do
      assert result.ends == [:length]
      assert result.text == text(prompt, opts)
      assert length(result.ids) == 60
    end

    assert {seeded.text, seeded.ends} == {drawn, [:length]}
    assert {length(sampled.ids), sampled.ends} == {60, [:length]}
    assert limited.ends == [:node_down]
    assert limited.error_text == limited.text and limited.text != ""
    assert Enum.all?(results, &(&1.left == 0))
    assert {:ok, %{reason: :length}} = Task.await(whole, Weir.Wait.patience())

    events = Nodes.events(caller)

    failed =
      for {[:weir, :cluster, :node, :failed], _m, %{node: node, retry: retry}} <- events, do: {node, retry}

    assert Enum.all?(failed, fn {node, _retry} -> node == victim.node end)
    assert Enum.count(failed, fn {_node, retry} -> not retry end) == 1
    # at least the seeded one has moved
    resumed = for {[:weir, :cluster, :resume], measured, _m} <- events, do: measured
    assert resumed != [] and Enum.all?(resumed, &(&1.tokens >= 0))
    assert idle([a, b], cluster)
  end

  # A route whose first choice is this node.
  defp on(context, cluster, node, i \\ 1) do
    if node_of(context, cluster, {:route, i}) == node,
      do: {:route, i},
      else: on(context, cluster, node, i + 1)
  end

  test "an answer with a deadline", %{servers: [a | _], caller: caller} = context do
    cluster = cluster(context, model_path: "fake:tick_us=20000")
    route = on(context, cluster, a)
    job = {"hello", [max_tokens: 3000, deadline: 60_000, route: route]}
    first = Nodes.call(a, Process, :whereis, [Nodes.server(cluster)])

    assert [%{ends: [:node_down], text: text, error_text: text}] =
             read(caller, cluster, [job], 10, fn -> Nodes.call(a, Process, :exit, [first, :kill]) end)

    assert text != ""

    # the next server of the node, not the lost one, whose end the caller may not know yet
    assert eventually(fn ->
             members = Nodes.call(caller, Weir.Cluster, :members, [cluster])
             Enum.any?(members, &(&1.node == a.node and &1.server != first))
           end)

    # a whole answer goes to another node, for the rest of its time
    whole =
      Task.async(fn ->
        whole(caller, cluster, :complete, ["hello", Keyword.put(elem(job, 1), :deadline, 3000)])
      end)

    assert eventually(fn -> requests(a, cluster) == 1 end)
    pid = Nodes.call(a, Process, :whereis, [Nodes.server(cluster)])
    Nodes.call(a, Process, :exit, [pid, :kill])
    assert {:ok, %{reason: :deadline, text: part}} = Task.await(whole, Weir.Wait.patience())
    assert String.starts_with?(text("hello", max_tokens: 300), part)
  end

  test "a server that crashes, and one that is stopped", %{servers: [a | _], caller: caller} = context do
    cluster = cluster(context, model_path: "fake:tick_us=20000", drain_timeout: 0)
    text = text("hello", max_tokens: 60)
    route = on(context, cluster, a)
    job = {"hello", [max_tokens: 60, route: route]}

    for how <- [:crash, :stop] do
      assert [%{text: ^text, ends: [:length], left: 0}] =
               read(caller, cluster, [job], 20, fn ->
                 case how do
                   :crash ->
                     pid = Nodes.call(a, Process, :whereis, [Nodes.server(cluster)])
                     Nodes.call(a, Process, :exit, [pid, :kill])

                   :stop ->
                     Nodes.leave(a, cluster)
                 end
               end)

      if how == :crash, do: assert(eventually(fn -> a.node in Nodes.members(caller, cluster) end))
    end
  end

  @tag :model
  test "a real model's stream goes on", %{servers: servers, caller: caller} = context do
    path = System.fetch_env!("WEIR_TEST_MODEL")
    context = %{context | servers: Enum.take(servers, 2)}
    cluster = cluster(context, model_path: path, n_ctx: 2048, n_threads: 1)
    victim = node_of(context, cluster, :x)
    messages = [{:user, "Count from one to twenty, in words."}]
    {:ok, model} = Weir.load_model(path)
    {:ok, text} = Weir.chat(model, messages, temp: 0.0, max_tokens: 60)

    for opts <- [[temp: 0.0], [temp: 0.8, seed: 7]] do
      [whole] = Nodes.read(caller, cluster, [{{:chat, messages}, [max_tokens: 60, route: :x] ++ opts}])
      if opts[:temp] == 0.0, do: assert(whole.text == text)

      [moved] =
        read(caller, cluster, [{{:chat, messages}, [max_tokens: 60, route: :x] ++ opts}], 20, fn ->
          pid = Nodes.call(victim, Process, :whereis, [Nodes.server(cluster)])
          Nodes.call(victim, Process, :exit, [pid, :kill])
        end)

      assert {moved.text, moved.ids, moved.ends} == {whole.text, whole.ids, whole.ends}
      assert eventually(fn -> victim.node in Nodes.members(caller, cluster) end)
    end

    resumed = for {[:weir, :cluster, :resume], measured, _m} <- Nodes.events(caller), do: measured.tokens
    assert [_greedy, _seeded] = Enum.filter(resumed, &(&1 >= 20))
  end

  test "a net that splits, and is whole again", %{servers: [a, b, c], caller: caller} = context do
    cluster = cluster(context, model_path: "fake:tick_us=20000", n_parallel: 16)
    jobs = for i <- 1..12, do: {"Prompt number #{i}", [max_tokens: 60]}
    jobs = [{"one", [max_tokens: 60, route: on(context, cluster, a)]} | jobs]

    results =
      read(caller, cluster, jobs, 20, fn ->
        # both ways
        Nodes.call(a, Nodes, :disconnect, [[b.node, c.node, caller.node]])
        for node <- [b, c, caller], do: Nodes.call(node, Nodes, :disconnect, [[a.node]])
      end)

    for {{prompt, opts}, result} <- Enum.zip(jobs, results) do
      assert {result.text, result.ends} == {text(prompt, Keyword.delete(opts, :route)), [:length]}
    end

    assert eventually(fn -> Nodes.members(caller, cluster) == Enum.sort([b.node, c.node]) end)
    assert eventually(fn -> Nodes.members(a, cluster) == [a.node] end)
    # the lost callers' requests have ended
    assert idle([a, b, c], cluster)
    # each side serves its own callers
    assert {:ok, _text} = whole(a, cluster, :generate, ["hello", [max_tokens: 2]])

    Nodes.connect(a, [b, c, caller])
    for node <- [a, b, c, caller], do: assert(eventually(fn -> length(Nodes.members(node, cluster)) == 3 end))
  end

  # How long a node may be silent, which is 5 s by default.
  defp silence(context, ms) do
    # from Nodes.prepare/0
    usual = Weir.Wait.patience()

    for node <- [context.caller | context.servers] do
      :ok = Nodes.call(node, Application, :put_env, [:weir_cluster, :silence, ms])
      on_exit(fn -> Nodes.call(node, Application, :put_env, [:weir_cluster, :silence, usual]) end)
    end
  end

  test "a node that hangs gets nothing", %{servers: [a | _], caller: caller} = context do
    silence(context, 10_000)
    cluster = cluster(context)
    route = on(context, cluster, a)
    text = text("hello", max_tokens: 20)
    # also if an assertion fails: the tests behind this one need the node
    on_exit(fn -> Nodes.signal(a, "CONT") end)
    Nodes.signal(a, "STOP")
    # nobody knows yet
    assert {:ok, ^text} = whole(caller, cluster, :generate, ["hello", [max_tokens: 20, route: route]])

    assert {:error, %{code: :timeout}} =
             whole(caller, cluster, :generate, ["hello", [timeout: 0, route: route]])

    # Its silence is known soon. Until then requests try it first: a report that it sent before may be read late.
    assert eventually(fn ->
             Nodes.events(caller)
             {:ok, ^text} = whole(caller, cluster, :generate, ["hello", [max_tokens: 20, route: route]])
             [%{node: first} | _others] = routes(caller)
             first != a.node
           end)

    Nodes.signal(a, "CONT")
    assert eventually(fn -> node_of(context, cluster, route) == a end)
    assert idle(context.servers, cluster)
  end

  test "a node that hangs amid its answers loses them", %{servers: [a | _], caller: caller} = context do
    silence(context, 10_000)
    cluster = cluster(context, model_path: "fake:tick_us=20000", n_parallel: 8)
    opts = [timeout: :infinity, max_tokens: 150, route: on(context, cluster, a)]
    text = text("hello", max_tokens: 150)
    # so long that they cannot end before the node hangs
    endless = Keyword.put(opts, :max_tokens, 2_000)
    limited = {"limited", [temp: 1.0, ignore_eos: true, deadline: 600_000] ++ endless}
    Nodes.events(caller)
    on_exit(fn -> Nodes.signal(a, "CONT") end)

    [moved, late] =
      for opts <- [opts, Keyword.put(endless, :timeout, 8_000)],
          do: Task.async(fn -> whole(caller, cluster, :generate, ["hello", opts]) end)

    assert eventually(fn -> requests(a, cluster) == 2 end)

    [greedy, limited] =
      read(caller, cluster, [{"hello", opts}, limited], 2, fn -> Nodes.signal(a, "STOP") end)

    assert {greedy.text, length(greedy.ids), greedy.ends} == {text, 150, [:length]}
    assert {limited.error_text, limited.ends} == {limited.text, [:node_down]}
    assert {greedy.left, limited.left} == {0, 0}
    assert Task.await(moved, Weir.Wait.patience()) == {:ok, text}
    assert {:error, %{code: :timeout}} = Task.await(late, Weir.Wait.patience())

    failed = for {[:weir, :cluster, :node, :failed], _m, metadata} <- Nodes.events(caller), do: metadata
    assert Enum.all?(failed, &(&1.node == a.node and &1.reason == :silent))
    assert Enum.sort(for metadata <- failed, do: metadata.retry) == [false, true, true]

    Nodes.signal(a, "CONT")
    assert idle(context.servers, cluster)
  end

  test "a node that only computes for long is not lost", %{caller: caller} = context do
    # longer than a node may be silent
    silence(context, 10_000)
    cluster = cluster(context, model_path: "fake:tick_us=15000000")
    [result] = Nodes.read(caller, cluster, [{"hello", [timeout: :infinity, max_tokens: 1]}])
    assert {result.text, result.ends, result.left} == {text("hello", max_tokens: 1), [:length], 0}
    assert [{[:weir, :cluster, :route], _measured, %{reason: :first}}] = Nodes.events(caller)
  end

  test "requests end with their callers", %{servers: servers, caller: caller} = context do
    cluster = cluster(context, model_path: "fake:tick_us=5000")
    endless = [max_tokens: 4000]

    # cancelled
    reader = Task.async(fn -> Nodes.read(caller, cluster, [{"hello", [id: :mine] ++ endless}]) end)
    assert eventually(fn -> whole(caller, cluster, :cancel, [:mine]) == :ok end)
    assert [%{ends: [:cancelled], left: 0}] = Task.await(reader, Weir.Wait.patience())
    assert {:error, %{code: :not_found}} = whole(caller, cluster, :cancel, [:mine])

    # ended early
    assert {[_one, _two, _three], []} = Nodes.call(caller, Nodes, :take, [cluster, "hello", endless, 3])
    assert idle(servers, cluster)

    # out of time
    assert {:error, %{code: :timeout}} =
             whole(caller, cluster, :generate, ["hello", [timeout: 200] ++ endless])

    assert idle(servers, cluster)

    # dead
    for _ <- 1..3 do
      pid = Nodes.call(caller, Nodes, :begin, [cluster, "hello", endless])
      assert eventually(fn -> not Enum.all?(servers, &Nodes.idle?(&1, cluster)) end)
      Nodes.call(caller, Process, :exit, [pid, :kill])
      assert idle(servers, cluster)
    end

    # what a caller does not read is bounded by the windows of relay, server and engine; the rest is one chunk
    chunks = Nodes.call(caller, Nodes, :sleepy, [cluster, "hello", [max_tokens: 200]])
    assert length(chunks) <= 16 + 16 + 32 + 3
    assert Enum.map_join(chunks, & &1.text) == text("hello", max_tokens: 200)
  end

  test "a server of another model is refused", %{servers: [a, b, c], caller: caller, test: test} do
    Nodes.serve(a, test)
    Nodes.follow(caller, test)
    on_exit(fn -> for node <- [a, b, c, caller], do: left(node, test) end)
    assert eventually(fn -> Nodes.members(caller, test) == [a.node] end)
    Nodes.serve(b, test, model_path: "fake:seed=7")

    assert eventually(fn -> match?({:refused, _text}, whole(b, test, :status, [])) end)
    {:refused, text} = whole(b, test, :status, [])
    assert text =~ ~r/fingerprint of the model: [0-9a-f]{16} \(fake, no weights\) instead of [0-9a-f]{16}/
    assert {:error, %{status: 503, code: :refused, message: refused}} = whole(b, test, :generate, ["hello"])
    assert refused =~ text
    assert [%{reason: ^text, node: refused}] = refusals(b, test)
    assert refused == b.node
    assert Nodes.members(caller, test) == [a.node]

    # one of the same model, with other times, is not
    Nodes.serve(c, test, model_path: "fake:tick_us=10")
    assert eventually(fn -> Nodes.members(caller, test) == Enum.sort([a.node, c.node]) end)

    # until the others have gone
    for node <- [a, c], do: Nodes.leave(node, test)
    assert eventually(fn -> Nodes.members(caller, test) == [b.node] end)
    assert whole(b, test, :status, []) == :member
    assert {:ok, _text} = whole(caller, test, :generate, ["hello", [max_tokens: 2]])
  end

  test "clusters of two models that meet remain apart", %{servers: [a, b, c], caller: caller, test: test} do
    on_exit(fn -> for node <- [a, b, c, caller], do: left(node, test) end)
    Nodes.call(b, Nodes, :disconnect, [[a.node, c.node, caller.node]])
    for node <- [a, c], do: Nodes.serve(node, test)
    Nodes.follow(caller, test)
    Nodes.serve(b, test, model_path: "fake:seed=7")
    assert eventually(fn -> whole(b, test, :status, []) == :member end)
    assert eventually(fn -> length(Nodes.members(caller, test)) == 2 end)
    for node <- [a, caller], do: Nodes.events(node)

    Nodes.connect(b, [a, c, caller])
    # each of them hears the other one
    for node <- [a, caller],
        do:
          assert(
            eventually(fn -> [%{node: b.node}] == Enum.map(refusals(node, test), &Map.take(&1, [:node])) end)
          )

    assert Nodes.members(a, test) == Enum.sort([a.node, c.node])
    assert Nodes.members(caller, test) == Enum.sort([a.node, c.node])
    assert Nodes.members(b, test) == [b.node]
  end

  defp refusals(node, cluster) do
    for {[:weir, :cluster, :member, :refused], _m, %{cluster: ^cluster} = metadata} <- Nodes.events(node),
        do: metadata
  end
end
