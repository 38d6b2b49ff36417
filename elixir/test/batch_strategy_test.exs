# SPDX-License-Identifier: Apache-2.0
defmodule Weir.BatchStrategyTest do
  # Without a real model: strategies are pure functions, and the fake model suffices for the rest.
  use ExUnit.Case, async: true
  import ExUnit.CaptureLog
  import Weir.Effort
  import Weir.Wait, only: [eventually: 1]
  alias Weir.{NIF, Server, Terms}
  alias Weir.Server.Strategy.{Balanced, DecodeMaximal, PrefillPriority}

  doctest Weir.Server.Strategy

  @strategies [
    {DecodeMaximal, "decode-maximal"},
    {PrefillPriority, "prefill-priority"},
    {Balanced, "balanced"}
  ]

  defp slot(i, fields) do
    Map.merge(
      %{
        slot: i,
        state: :generating,
        n_prompt_left: 0,
        n_prompt: 10,
        n_generated: 1,
        n_past: 10,
        waited_ns: 1000 - i,
        idle_ns: 0,
        priority: 0,
        deadline_ns: :infinity
      },
      Map.new(fields)
    )
  end

  defp generating(i, idle_ns \\ 0), do: slot(i, idle_ns: idle_ns)

  defp prefilling(i, left, priority \\ 0),
    do: slot(i, state: :prefilling, n_prompt_left: left, n_past: 0, priority: priority)

  defp plan(module, slots, budget, chunk_size \\ 512),
    do: module.build_batch(slots, budget, chunk_size, queue_depth: 0)

  test "generating slots come first with decode-maximal" do
    slots = [prefilling(0, 1000), generating(1), generating(2)]
    assert plan(DecodeMaximal, slots, 100) == [{1, 1}, {2, 1}, {0, 98}]
    assert plan(DecodeMaximal, slots, 2) == [{1, 1}, {2, 1}]
    assert plan(DecodeMaximal, [prefilling(4, 7)], 100, 3) == [{4, 3}]
  end

  test "prompts come first with prefill-priority, but for one token" do
    slots = [prefilling(0, 1000), generating(1, 5), generating(2, 9)]
    assert plan(PrefillPriority, slots, 100) == [{0, 99}, {2, 1}]
    assert plan(PrefillPriority, slots, 1000, 64) == [{0, 64}, {1, 1}, {2, 1}]
    assert plan(PrefillPriority, [prefilling(0, 10)], 4) == [{0, 4}]
  end

  test "half and half with balanced" do
    slots = [prefilling(0, 1000)] ++ for(i <- 1..8, do: generating(i, i))
    assert [{0, 4} | decodes] = plan(Balanced, slots, 8)
    assert decodes == [{8, 1}, {7, 1}, {6, 1}, {5, 1}]
    assert [{0, 2} | decodes] = plan(Balanced, [prefilling(0, 2) | tl(slots)], 8)
    assert length(decodes) == 6
  end

  test "the oldest prompt gets on whatever its priority" do
    slots = [prefilling(0, 1000, -5), prefilling(1, 1000, 0), prefilling(2, 1000, 9)]
    assert plan(DecodeMaximal, slots, 100) == [{2, 75}, {0, 25}]
    assert plan(DecodeMaximal, slots, 1000, 100) == [{2, 100}, {1, 100}, {0, 100}]
  end

  test "plans keep to the rules, whatever there is" do
    Terms.sow("plans")

    for _ <- 1..effort(2000, 300) do
      slots =
        for i <- Enum.take_random(0..40, :rand.uniform(40)) do
          if :rand.uniform(2) == 1,
            do: generating(i, :rand.uniform(5)),
            else: prefilling(i, :rand.uniform(600), :rand.uniform(5))
        end

      {budget, chunk} = {:rand.uniform(100), :rand.uniform(100)}
      by_id = Map.new(slots, &{&1.slot, &1})

      work = Enum.map(slots, &if(&1.state == :generating, do: 1, else: min(&1.n_prompt_left, chunk)))

      for {module, _name} <- @strategies do
        plan = plan(module, slots, budget, chunk)
        assert plan |> Enum.map(&elem(&1, 0)) |> Enum.uniq() |> length() == length(plan)
        tokens = plan |> Enum.map(&elem(&1, 1)) |> Enum.sum()
        # no part of the budget is left that a slot could use
        assert tokens == min(budget, Enum.sum(work))

        for {id, n} <- plan do
          slot = Map.fetch!(by_id, id)
          assert n >= 1 and n <= chunk
          if slot.state == :generating, do: assert(n == 1), else: assert(n <= slot.n_prompt_left)
        end

        if Enum.any?(slots, &(&1.state == :generating)),
          do: assert(Enum.any?(plan, fn {id, _} -> by_id[id].state == :generating end))
      end
    end
  end

  test "they plan what the strategies of the same names do in C" do
    Terms.sow("strategies in C and in Elixir")
    {:ok, %{ref: model}} = Weir.load_model("fake:")

    for {module, name} <- @strategies, n_batch <- effort([8, 24, 200], [24]) do
      options = %{n_slots: 6, n_ctx: 600, n_batch: n_batch, chunk_size: 60, manual: true}
      # the number of drafts and the share of outranked prompts depend on the time of passes
      # as the ages of requests do, which a busy machine makes large
      options = Map.merge(options, %{n_draft_max: 0, itl_target_ms: 10_000, ageing_ms: 0})
      {:ok, c} = NIF.engine_create(model, Map.put(options, :strategy, name))
      {:ok, elixir} = NIF.engine_create(model, options)

      arrivals =
        for _ <- 1..25 do
          request = %{
            prompt: for(_ <- 1..:rand.uniform(min(300, 10 * n_batch)), do: 96 + :rand.uniform(26)),
            temp: 0.0,
            max_tokens: :rand.uniform(20),
            priority: :rand.uniform(3),
            cache_prompt: false
          }

          {:rand.uniform(60), request}
        end

      finished = fn -> NIF.engine_stats(elixir).n_finished.length end

      # the smallest batch takes some 150 ticks
      for tick <- 1..5000, tick < 60 or finished.() < 25 do
        for {^tick, request} <- arrivals, engine <- [c, elixir] do
          {:ok, _ref} = NIF.engine_submit(engine, request, self(), 0)
        end

        {:ok, view} = NIF.engine_view(elixir)
        plan = module.build_batch(view.slots, view.budget, view.chunk_size, [])
        {:ok, expected} = NIF.engine_step(c, nil)
        {:ok, report} = NIF.engine_step(elixir, if(view.slots != [], do: plan))
        keys = [:n_prefill, :n_decode, :n_active, :queue_depth, :bad_plan, :idle]
        assert Map.take(report, keys) == Map.take(expected, keys)
      end

      assert finished.() == 25
    end
  end

  defmodule Odd do
    @behaviour Weir.Server.BatchStrategy
    @impl true
    def build_batch(slots, budget, chunk_size, opts) do
      case :counters.get(opts[:ticks], 1) do
        0 -> :counters.add(opts[:ticks], 1, opts[:every])
        _n -> :counters.sub(opts[:ticks], 1, 1)
      end

      if :counters.get(opts[:ticks], 1) == 0,
        do: opts[:oddity].(slots),
        else: DecodeMaximal.build_batch(slots, budget, chunk_size, opts)
    end
  end

  for {name, oddity} <- [
        {"raises", quote(do: fn _ -> raise "no plan today" end)},
        {"throws", quote(do: fn _ -> throw(:plan) end)},
        {"exits", quote(do: fn _ -> exit(:now) end)},
        {"returns an atom", quote(do: fn _ -> :ok end)},
        {"returns nothing", quote(do: fn _ -> [] end)},
        {"returns an improper list", quote(do: fn _ -> [{0, 1} | :end] end)},
        {"returns entries that are none", quote(do: fn _ -> [{0, 1, 2}] end)},
        {"returns floats", quote(do: fn _ -> [{0, 1.0}] end)},
        {"returns huge numbers", quote(do: fn _ -> [{0, 1_000_000_000_000}] end)},
        {"goes over the budget", quote(do: fn [s | _] -> [{s.slot, 100_000}] end)},
        {"names a slot twice", quote(do: fn [s | _] -> [{s.slot, 1}, {s.slot, 1}] end)},
        {"names a slot that there is not", quote(do: fn _ -> [{99, 1}] end)},
        {"gives a negative number", quote(do: fn [s | _] -> [{s.slot, -1}] end)}
      ] do
    test "a strategy that #{name} stops nothing" do
      {:ok, model} = Weir.load_model("fake:")
      {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 20)

      start = System.monotonic_time(:second)

      log =
        capture_log(fn ->
          opts = [ticks: :counters.new(1, []), every: 3, oddity: unquote(oddity)]
          server = start_supervised!({Server, model: model, strategy: {Odd, opts}})

          texts =
            1..12
            |> Task.async_stream(
              fn _ -> Server.generate(server, "hello", temp: 0.0, max_tokens: 20) end,
              timeout: Weir.Wait.patience()
            )
            |> Enum.uniq()

          assert texts == [{:ok, {:ok, text}}]
          stats = Server.get_stats(server)
          assert stats.strategy_failures + stats.n_bad_plans > 0
          stop_supervised!(Server)
        end)

      assert log =~ "Weir.BatchStrategyTest.Odd gave no valid plan"
      # ticks continue; the log has at most one report per second
      seconds = System.monotonic_time(:second) - start
      assert log |> String.split("gave no valid plan") |> length() <= 3 + seconds
    end
  end

  test "one that ends the process it runs in ends the server, and its callers learn of it" do
    defmodule Kills do
      @behaviour Weir.Server.BatchStrategy
      @impl true
      def build_batch(_slots, _budget, _chunk_size, _opts), do: Process.exit(self(), :kill)
    end

    Process.flag(:trap_exit, true)
    {:ok, server} = Server.start_link(model_path: "fake:", strategy: Kills)

    capture_log(fn ->
      assert {:error, %{code: :stopping}} = Server.generate(server, "hello")
      assert_receive {:EXIT, ^server, :killed}
    end)
  end

  test "a strategy gets its own options and the engine's" do
    defmodule Nosy do
      @behaviour Weir.Server.BatchStrategy
      @impl true
      def build_batch(slots, budget, chunk_size, opts) do
        send(opts[:to], {:asked, slots, budget, chunk_size, Keyword.delete(opts, :to)})
        PrefillPriority.build_batch(slots, budget, chunk_size, opts)
      end
    end

    server =
      start_supervised!(
        {Server,
         model_path: "fake:",
         batch_strategy: {Nosy, to: self(), mine: 1},
         n_batch: 100,
         chunk_size: 7,
         layout: :per_slot,
         itl_target_ms: 3}
      )

    {:ok, _} = Server.generate(server, "hello", max_tokens: 2, priority: 4)
    assert_received {:asked, [slot], 100, 7, opts}
    assert %{state: :prefilling, n_prompt: 6, n_prompt_left: 6, priority: 4, lane: 0} = slot
    assert opts[:mine] == 1 and opts[:queue_depth] == 0 and opts[:itl_target_ns] == 3_000_000
    assert opts[:layout] == :per_slot
    assert %{n_ticks: 0, pass_ns: pass_ns, prefill_ns: prefill_ns} = opts[:cost]
    assert pass_ns >= 0 and prefill_ns >= 0
    assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
    assert Server.get_stats(server).strategy_failures == 0
  end
end
