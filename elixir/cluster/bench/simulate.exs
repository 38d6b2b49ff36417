# elixir -r lib/weir/cluster/route.ex bench/simulate.exs [NODES ...]: agents' traffic on 2 to 1,000 nodes, by the
# way that requests are routed. The nodes are simulated, with measured costs; the hash is Weir.Cluster's code.
# SPDX-License-Identifier: Apache-2.0

defmodule Simulate do
  alias Weir.Cluster.Route

  # A node: the default model in Q8_0 on 2 cores (bench/results/compare.md and long.md).
  @prefill_per_s 2_000
  @pass_ms 2.0
  @row_ms 0.75
  @target_ms 50
  @slots 8
  @cells 65_536

  # The traffic: agents that work in turns, each of them with one of these sets of instructions and tools.
  @users_per_node 6
  @agents 40
  @instructions 3_000
  @first 300
  @step 500
  @answer 100
  @turns 10
  @think_s 4.0

  @warm_s 60
  @report_s 0.5
  @spill 1.5
  @policies [:random, :round_robin, :hash, :precise]

  def main(args) do
    sizes = if args == [], do: [2, 10, 100, 1_000], else: Enum.map(args, &String.to_integer/1)

    IO.puts("""
    A node: prefill #{@prefill_per_s} tok/s, a pass of #{@pass_ms} ms and #{@row_ms} ms per stream, #{@slots} slots, \
    #{@cells} tokens of cached prefixes. #{@users_per_node} users per node.

    | nodes | routing | prompt cached | TTFT p50, s | p95, s | turns per node and minute | busiest node |
    |---|---|---|---|---|---|---|\
    """)

    for n <- sizes, policy <- @policies, do: IO.puts(row(n, policy, run(n, policy, measured_s(n))))
  end

  defp measured_s(n), do: if(n < 500, do: 600, else: 60)

  defp row(n, policy, r) do
    ttft = Enum.sort(r.ttft)
    computed = for {_id, node} <- r.nodes, do: node.computed
    busiest = Enum.max(computed) / max(Enum.sum(computed) / n, 1)
    cached = round(100 * r.cached / max(r.prompt, 1))

    "| #{n} | #{name(policy)} | #{cached} % | #{round_to(at(ttft, 0.5))} | #{round_to(at(ttft, 0.95))} | " <>
      "#{round_to(length(ttft) * 60 / n / measured_s(n))} | #{round_to(busiest)} × |"
  end

  defp name(:round_robin), do: "round robin"
  defp name(:hash), do: "Weir.Cluster"
  defp name(:precise), do: "precise prefix"
  defp name(:random), do: "random"

  defp at([], _share), do: 0.0
  defp at(sorted, share), do: Enum.at(sorted, min(trunc(length(sorted) * share), length(sorted) - 1))
  defp round_to(x), do: :erlang.float_to_binary(x * 1.0, decimals: 2)

  # ---- Events ----

  def run(n, policy, measured_s) do
    :rand.seed(:exsss, {n, 2, 3})
    counter = :counters.new(1, [])

    state = %{
      policy: policy,
      nodes: Map.new(1..n, &{&1, new_node(&1, counter)}),
      n: n,
      next: 0,
      seq: 0,
      events: :gb_sets.new(),
      holders: %{},
      warm: @warm_s,
      ttft: [],
      cached: 0,
      prompt: 0
    }

    users = for user <- 1..(n * @users_per_node), do: new_talk(user, :rand.uniform(@turns))
    users |> Enum.reduce(state, &schedule(&2, think(), {:ask, &1})) |> loop(@warm_s + measured_s)
  end

  defp new_node(id, counter) do
    %{
      id: id,
      at: 0.0,
      version: 0,
      queue: :queue.new(),
      queued: 0,
      prefill: [],
      decode: [],
      talks: %{},
      ages: :gb_trees.empty(),
      n_agent: %{},
      used: 0,
      computed: 0,
      member: %{
        node: :"node#{id}",
        server: self(),
        slots: @slots,
        active: 0,
        queue: 0,
        kv: 0.0,
        heard: 0,
        running: counter,
        reported: 0
      },
      told: -1.0
    }
  end

  # Agents are not equally popular: the k-th is asked 1/k times as often as the first.
  defp new_talk(user, turn \\ 1) do
    %{user: user, id: :rand.uniform(1_000_000_000_000), agent: draw_agent(), turn: turn}
  end

  defp draw_agent do
    weights = for k <- 1..@agents, do: 1 / k
    draw(weights, :rand.uniform() * Enum.sum(weights), 1)
  end

  defp draw([weight | _], x, k) when x <= weight, do: k
  defp draw([_], _x, k), do: k
  defp draw([weight | rest], x, k), do: draw(rest, x - weight, k + 1)

  defp think, do: -:math.log(:rand.uniform()) * @think_s
  defp prompt(talk), do: @instructions + @first + (talk.turn - 1) * (@step + @answer)

  defp schedule(state, time, event) do
    seq = state.seq + 1
    %{state | seq: seq, events: :gb_sets.add_element({time, seq, event}, state.events)}
  end

  defp loop(state, until) do
    {{time, _seq, event}, events} = :gb_sets.take_smallest(state.events)
    if time > until, do: state, else: state |> Map.put(:events, events) |> handle(event, time) |> loop(until)
  end

  defp handle(state, {:ask, talk}, now) do
    {state, id} = route(state, talk, now)
    node = advance(state.nodes[id], now)
    job = %{talk: talk, asked: now}
    node = admit(%{node | queue: :queue.in(job, node.queue), queued: node.queued + 1}, state, now)
    wake(state, node, now)
  end

  defp handle(state, {:node, id, version}, now) do
    node = state.nodes[id]
    if node.version == version, do: finish(state, advance(node, now), now), else: state
  end

  # ---- A node ----

  # Rates change only with events: between them every stream gets its share of passes.
  defp rates(%{prefill: [], decode: decode}), do: {0.0, 1_000 / (@pass_ms + @row_ms * length(decode))}
  defp rates(%{decode: []}), do: {@prefill_per_s * 1.0, 0.0}

  defp rates(%{decode: decode}) do
    left = max(@target_ms - @pass_ms - @row_ms * length(decode), 5) / @target_ms
    {@prefill_per_s * left, 1_000 / @target_ms}
  end

  defp advance(node, now) do
    {prefill, decode} = rates(node)
    s = now - node.at

    %{
      node
      | at: now,
        prefill: with([job | rest] <- node.prefill, do: [%{job | left: job.left - s * prefill} | rest]),
        decode: for(job <- node.decode, do: %{job | left: job.left - s * decode})
    }
  end

  defp admit(node, state, now) do
    if node.queued > 0 and length(node.prefill) + length(node.decode) < @slots do
      {{:value, job}, queue} = :queue.out(node.queue)
      cached = cached(node, job.talk)
      job = Map.merge(job, %{left: max(prompt(job.talk) - cached, 1) * 1.0, cached: cached})
      node = touch(node, job.talk)
      computed = if now >= state.warm, do: job.left, else: 0

      admit(
        %{
          node
          | queue: queue,
            queued: node.queued - 1,
            prefill: node.prefill ++ [job],
            computed: node.computed + computed
        },
        state,
        now
      )
    else
      node
    end
  end

  # The next event of the node, in place of the one that was expected.
  defp wake(state, node, now) do
    {prefill, decode} = rates(node)
    first = for job <- Enum.take(node.prefill, 1), do: job.left / prefill
    ends = for job <- node.decode, do: job.left / decode
    node = %{node | version: node.version + 1}
    state = put_in(state.nodes[node.id], node)

    case first ++ ends do
      [] -> state
      times -> schedule(state, now + max(Enum.min(times), 1.0e-6), {:node, node.id, node.version})
    end
  end

  defp finish(state, node, now) do
    {state, node} =
      case node.prefill do
        [%{left: left} = job | rest] when left < 1.0e-3 ->
          job = %{job | left: @answer * 1.0}
          {note(state, job, now), %{node | prefill: rest, decode: [job | node.decode]}}

        _ ->
          {state, node}
      end

    {done, decode} = Enum.split_with(node.decode, &(&1.left < 1.0e-3))
    node = %{node | decode: decode}

    {state, node} =
      Enum.reduce(done, {state, node}, fn job, {state, node} ->
        {state, node} = keep(state, node, job.talk, prompt(job.talk) + @answer)

        next =
          if job.talk.turn < @turns, do: %{job.talk | turn: job.talk.turn + 1}, else: new_talk(job.talk.user)

        {schedule(state, now + think(), {:ask, next}), node}
      end)

    wake(state, admit(node, state, now), now)
  end

  defp note(state, job, now) when now < state.warm or job.asked < state.warm, do: state

  defp note(state, job, now) do
    %{
      state
      | ttft: [now - job.asked | state.ttft],
        cached: state.cached + job.cached,
        prompt: state.prompt + prompt(job.talk)
    }
  end

  # ---- A node's prefix cache: what conversations have of their own, and their instructions once ----

  defp cached(node, %{id: id} = talk) do
    case node.talks do
      %{^id => {tokens, _agent, _age}} -> min(tokens, prompt(talk) - 1)
      _ -> if Map.has_key?(node.n_agent, talk.agent), do: @instructions, else: 0
    end
  end

  defp touch(node, %{id: id}) do
    case node.talks do
      %{^id => {tokens, agent, age}} ->
        key = {node.at, id}
        ages = :gb_trees.insert(key, id, :gb_trees.delete(age, node.ages))
        %{node | talks: Map.put(node.talks, id, {tokens, agent, key}), ages: ages}

      _ ->
        node
    end
  end

  defp keep(state, node, talk, tokens) do
    {state, node} = drop(state, node, talk.id)
    key = {node.at, talk.id}
    count = Map.get(node.n_agent, talk.agent, 0)

    node = %{
      node
      | talks: Map.put(node.talks, talk.id, {tokens, talk.agent, key}),
        ages: :gb_trees.insert(key, talk.id, node.ages),
        n_agent: Map.put(node.n_agent, talk.agent, count + 1),
        used: node.used + tokens - if(count > 0, do: @instructions, else: 0)
    }

    evict(update_in(state.holders, &Map.put(&1, talk.id, [node.id | Map.get(&1, talk.id, [])])), node)
  end

  defp evict(state, %{used: used} = node) when used <= @cells, do: {state, node}

  defp evict(state, node) do
    {_age, id} = :gb_trees.smallest(node.ages)
    {state, node} = drop(state, node, id)
    evict(state, node)
  end

  defp drop(state, node, id) do
    case Map.pop(node.talks, id) do
      {nil, _} ->
        {state, node}

      {{tokens, agent, age}, talks} ->
        count = node.n_agent[agent]
        last = count == 1
        n_agent = if last, do: Map.delete(node.n_agent, agent), else: Map.put(node.n_agent, agent, count - 1)
        used = node.used - tokens + if(last, do: 0, else: @instructions)
        holders = List.delete(state.holders[id], node.id)

        holders =
          if holders == [], do: Map.delete(state.holders, id), else: Map.put(state.holders, id, holders)

        {%{state | holders: holders},
         %{node | talks: talks, ages: :gb_trees.delete(age, node.ages), n_agent: n_agent, used: used}}
    end
  end

  # ---- Routing ----

  defp route(%{policy: :random} = state, _talk, _now), do: {state, :rand.uniform(state.n)}

  defp route(%{policy: :round_robin} = state, _talk, _now),
    do: {%{state | next: state.next + 1}, rem(state.next, state.n) + 1}

  # As each caller sees the cluster: by reports that are up to half a second old.
  defp route(%{policy: :hash} = state, talk, now) do
    nodes = Map.new(state.nodes, fn {id, node} -> {id, report(node, now)} end)
    members = for {_id, node} <- nodes, do: node.member
    key = Route.key({:chat, [{:system, "agent #{talk.agent}"}, {:user, "talk #{talk.id}"}]}, [])
    {member, _place} = Route.choose(members, key, @spill, trunc(now * 1_000))
    "node" <> id = Atom.to_string(member.node)
    {%{state | nodes: nodes}, String.to_integer(id)}
  end

  # A router that knows all caches and loads at once: the least work in front of the first token. Nodes that
  # have nothing of the conversation are compared by a sample of 32.
  defp route(%{policy: :precise} = state, talk, _now) do
    others = for _ <- 1..min(32, state.n), do: :rand.uniform(state.n)
    ids = Map.get(state.holders, talk.id, []) ++ others
    {state, Enum.min_by(ids, &work(state.nodes[&1], talk))}
  end

  defp work(node, talk) do
    ahead = Enum.sum(for job <- node.prefill, do: job.left)
    queued = Enum.sum(for job <- :queue.to_list(node.queue), do: prompt(job.talk) - cached(node, job.talk))
    decoding = length(node.decode) * @answer
    ahead + queued + decoding + prompt(talk) - cached(node, talk)
  end

  defp report(node, now) do
    if now - node.told < @report_s do
      node
    else
      active = length(node.prefill) + length(node.decode)
      member = %{node.member | active: active, queue: node.queued, heard: trunc(now * 1_000)}
      %{node | told: now, member: member}
    end
  end
end

Simulate.main(System.argv())
