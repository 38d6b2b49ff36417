# MIX_ENV=test mix run bench/cluster.exs [MODEL.gguf [ROUNDS]]: a cluster of three nodes and a caller on one
# machine. kill -9 of a node under 24 streams of the fake model (20 ms per pass), and where the second turns
# of conversations go, by the hash and at random: with a model also their TTFT.
# SPDX-License-Identifier: Apache-2.0
Code.require_file("support.exs", __DIR__)

defmodule ClusterBench do
  alias Weir.ClusterNodes, as: Nodes

  @n_streams 24
  @max_tokens 100

  def run(path, rounds) do
    [a, b, caller] = Nodes.start(3)
    for node <- [a, b], do: Nodes.serve(node, :killed, model_path: "fake:tick_us=20000", n_parallel: 16)
    Nodes.follow(caller, :killed)
    for round <- 1..rounds, do: kill(round, [a, b], caller)
    for node <- [a, b, caller], do: Nodes.stop(node)

    turns("fake:", 200, 400_000)
    if path, do: turns(path, 12, 16_384)
  end

  # ---- kill -9 ----

  defp kill(round, others, caller) do
    [victim] = Nodes.start(1, [caller | others])
    Nodes.serve(victim, :killed, model_path: "fake:tick_us=20000", n_parallel: 16)
    members(caller, :killed, 3)
    Nodes.events(caller)
    jobs = for i <- 1..@n_streams, do: {"Prompt #{round} #{i}", [max_tokens: @max_tokens]}
    reader = Task.async(fn -> Nodes.read(caller, :killed, jobs) end)
    wait(fn -> length(Nodes.progress(caller)) == @n_streams and Enum.min(Nodes.progress(caller)) >= 50 end)
    Nodes.signal(victim, "KILL")
    results = Task.await(reader, :infinity)

    {:ok, model} = Weir.load_model("fake:")
    texts = for {prompt, opts} <- jobs, do: elem(Weir.generate(model, prompt, [temp: 0.0] ++ opts), 1)
    gaps = for {[:weir, :cluster, :resume], %{gap_ms: ms}, _metadata} <- Nodes.events(caller), do: ms
    again = Enum.count(Enum.zip(results, texts), fn {result, text} -> result.text == text end)
    ends = Enum.count(results, &(&1.ends == [:length]))

    IO.puts(
      "kill -9 #{round}: #{length(gaps)} of #{@n_streams} streams moved, #{ends} ended once, #{again} same texts; " <>
        "from the failure to new text #{Bench.median(gaps)} ms (p50), #{Enum.max(gaps)} ms (longest)"
    )
  end

  # ---- Second turns ----

  defp turns(path, n, n_ctx) do
    [caller | servers] = nodes = Nodes.start(4)
    # each computes on its own, so that one waits for no other
    for node <- servers, do: Nodes.serve(node, :turns, model_path: path, n_ctx: n_ctx, n_threads: 1)
    Nodes.follow(caller, :turns)
    members(caller, :turns, 3)

    for {name, opts} <- [{"by the hash", fn -> [] end}, {"at random", fn -> [route: make_ref()] end}] do
      asked =
        for i <- 1..n,
            do: [{:system, "#{name} #{i}. " <> system()}, {:user, "Question #{i}: why is the sky blue?"}]

      {answers, first, _ttft} = ask(caller, asked, opts)

      more =
        for {messages, answer} <- Enum.zip(asked, answers),
            do: messages ++ [{:assistant, answer.text}, {:user, "And at night?"}]

      {answers, second, ttft} = ask(caller, more, opts)
      same = Enum.count(Enum.zip(first, second), fn {a, b} -> a == b end)
      prompt = answers |> Enum.map(& &1.usage.prompt_tokens) |> Enum.sum()
      cached = answers |> Enum.map(& &1.usage.cached_tokens) |> Enum.sum()

      IO.puts(
        "#{Path.basename(path)}, #{name}: #{same} of #{n} second turns on the node of the first, " <>
          "#{round(100 * cached / prompt)} % of their prompts cached, TTFT #{Float.round(Bench.median(ttft), 1)} ms (p50)"
      )
    end

    Enum.each(nodes, &Nodes.stop/1)
  end

  defp ask(caller, conversations, opts) do
    Nodes.events(caller)

    answers =
      for messages <- conversations do
        [answer] = Nodes.read(caller, :turns, [{{:chat, messages}, [max_tokens: 16] ++ opts.()}])
        answer
      end

    nodes = for {[:weir, :cluster, :route], _measured, %{node: node}} <- Nodes.events(caller), do: node
    {answers, nodes, Enum.map(answers, & &1.usage.ttft_ms)}
  end

  defp system,
    do: String.duplicate("You answer questions about the weather, in short sentences, and politely. ", 20)

  defp members(caller, cluster, n), do: wait(fn -> length(Nodes.members(caller, cluster)) == n end)
  defp wait(fun), do: if(not fun.(), do: Process.sleep(5) && wait(fun))
end

case System.argv() do
  [] -> ClusterBench.run(nil, 5)
  [path] -> ClusterBench.run(path, 5)
  [path, rounds] -> ClusterBench.run(path, String.to_integer(rounds))
  _other -> IO.puts("usage: MIX_ENV=test mix run bench/cluster.exs [MODEL.gguf [ROUNDS]]")
end
