# SPDX-License-Identifier: Apache-2.0
defmodule Weir.RuntimeTest do
  # How the native layer lives with the VM. Counts what is there in all, so nothing else may run beside it.
  use ExUnit.Case, async: false
  import Weir.Wait
  alias Weir.{NIF, Server, Terms}

  # What tests before this one have left is freed when it is collected, by another thread.
  defp settled do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
    {live, n} = {NIF.live_handles(), threads()}
    Process.sleep(200)
    if {live, n} == {NIF.live_handles(), threads()}, do: {live, n}, else: settled()
  end

  defp threads, do: "/proc/self/task" |> File.ls!() |> length()

  test "what nobody holds is freed, with its threads" do
    {before, before_threads} = settled()

    {pid, monitor} =
      spawn_monitor(fn ->
        kept =
          for _ <- 1..20 do
            {:ok, model} = Weir.load_model("fake:")
            {:ok, context} = Weir.Context.create(model)
            {:ok, sampler} = Weir.Sampler.create(model)
            {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 2})
            {:ok, ref} = NIF.engine_submit(engine, %{prompt: "a", temp: 0.0}, self(), 1)
            messages = ~S([{"role": "user", "content": "a"}])
            {:ok, chat} = NIF.chat_create(model.ref, %{messages: messages})
            {:ok, parser} = NIF.chat_parser(chat)
            {:ok, adapter} = Weir.Adapter.load(model, "fake:1")
            {model, context, sampler, engine, ref, NIF.generate_ref(), chat, parser, adapter}
          end

        live = NIF.live_handles()
        for kind <- Map.keys(live), do: ^kind = if(live[kind] - before[kind] == 20, do: kind)
        true = threads() >= before_threads + 20
        exit({:kept, length(kept)})
      end)

    assert_receive {:DOWN, ^monitor, :process, ^pid, {:kept, 20}}
    assert eventually(fn -> NIF.live_handles() == before and threads() <= before_threads end)
  end

  # A process that submits and reads, until it is killed. Two monitors of it: an engine watches it after the
  # first and before the second, so that when both have told of its end the engine's has, too.
  defp consumer(engine, demand) do
    me = self()

    {pid, first} =
      spawn_monitor(fn ->
        request = %{prompt: "hello", temp: 0.0, keep: Enum.random([true, false])}
        {:ok, ref} = NIF.engine_submit(engine, request, self(), demand)
        send(me, {:submitted, self()})
        read(ref)
      end)

    assert_receive {:submitted, ^pid}
    {pid, [first, Process.monitor(pid)]}
  end

  defp read(ref) do
    receive do
      {^ref, {:chunk, _ids, _text}} -> NIF.engine_demand(ref, Enum.random([0, 1, 2]))
      {^ref, {:done, _reason, _usage}} -> Process.sleep(:infinity)
    end

    read(ref)
  end

  defp kill(consumers) do
    for {pid, _} <- consumers, do: Process.exit(pid, :kill)

    for {_, monitors} <- consumers, monitor <- monitors do
      assert_receive {:DOWN, ^monitor, :process, _, :killed}
    end
  end

  defp demand, do: Enum.random([0, 1, 5, :infinity])

  test "1,000 consumers that are killed at random: each has left its slot after one tick" do
    Terms.sow("killed consumers, ticks")
    {:ok, model} = Weir.load_model("fake:")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 8, n_ctx: 1024, queue_limit: 0, manual: true})

    consumers = for _ <- 1..1000, do: consumer(engine, demand())
    kill_and_step(engine, Enum.shuffle(consumers), 0)
    stats = NIF.engine_stats(engine)
    assert stats.n_slots_generating + stats.n_slots_prefilling + stats.queue_depth == 0
    # what is left are cached prefixes, which no request needs
    assert stats.n_kv_used == stats.n_kv_cached
    assert {:messages, []} = Process.info(self(), :messages)
  end

  defp kill_and_step(_engine, [], _n_killed), do: :ok

  defp kill_and_step(engine, consumers, n_killed) do
    {doomed, rest} = Enum.split(consumers, :rand.uniform(100) - 1)
    kill(doomed)
    n_killed = n_killed + length(doomed)
    assert {:ok, _} = NIF.engine_step(engine, nil)
    assert NIF.engine_stats(engine).n_finished.cancelled == n_killed
    kill_and_step(engine, rest, n_killed)
  end

  @tag :memory
  test "1,000 consumers that are killed at random leave no handle, no message and no memory behind" do
    Terms.sow("killed consumers, memory")
    {:ok, model} = Weir.load_model("fake:tick_us=100")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 8, n_ctx: 512, queue_limit: 0})
    {before, _} = settled()

    round = fn ->
      1..1000
      |> Enum.map(fn i ->
        if rem(i, 8) == 0, do: Process.sleep(Enum.random(0..1))
        demand = demand()
        request = %{prompt: "hello", temp: 0.0, keep: Enum.random([true, false])}

        pid = spawn(fn -> read(elem(NIF.engine_submit(engine, request, self(), demand), 1)) end)

        if :rand.uniform(3) == 1, do: Process.exit(pid, :kill)
        pid
      end)
      |> Enum.shuffle()
      |> Enum.each(&Process.exit(&1, :kill))

      assert eventually(fn -> at_rest?(engine) and NIF.live_handles() == before end)
      memory()
    end

    [_, _ | rounds] = for _ <- 1..12, do: round.()
    {first, later} = Enum.split(rounds, 5)
    # each stream has some kilobytes; what the VM itself takes sways by a few megabytes
    assert Enum.max(later) - Enum.max(first) < 4_000_000, inspect(rounds)
    assert {:messages, []} = Process.info(self(), :messages)
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 10)

    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 10}, self(), :infinity)

    assert join(ref) == text
  end

  # Resident bytes of the process, where they can be told.
  defp memory do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)

    case File.read("/proc/self/statm") do
      {:ok, text} -> String.to_integer(Enum.at(String.split(text), 1)) * 4096
      _ -> :erlang.memory(:total)
    end
  end

  # 30 forks a round, each of a source of its own whose history is 0.4 MB: what a fork holds would show.
  @tag :memory
  test "forks let go of what they went on from, refused or not" do
    {:ok, model} = Weir.load_model("fake:")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 100_000, cache_sequences: 0})

    prompt = String.duplicate("x", 90_000)
    {before, _} = settled()

    fork = fn ->
      request = %{prompt: prompt, temp: 0.0, max_tokens: 2, keep: true}
      {:ok, source} = NIF.engine_submit(engine, request, self(), :infinity)
      assert_receive {^source, {:done, :length, _}}
      assert {:error, _} = NIF.engine_submit(engine, %{source: source, priority: 1000}, self(), 1)

      assert_raise ArgumentError, fn ->
        NIF.engine_submit(engine, %{source: source, stop: :no}, self(), 1)
      end

      {:ok, ref} = NIF.engine_submit(engine, %{source: source, max_tokens: 1}, self(), :infinity)
      assert_receive {^ref, {:done, _, _}}
    end

    round = fn ->
      for _ <- 1..30, do: Task.await(Task.async(fork), 60_000)
      assert eventually(fn -> at_rest?(engine) and settled() |> elem(0) == before end)
      memory()
    end

    [_, first | rounds] = for _ <- 1..5, do: round.()
    # one for each of them would be 36 MB
    assert Enum.max(rounds) - first < 12_000_000, inspect([first | rounds])
  end

  test "what answers for one caller have computed with goes with their end" do
    # so that whoever ends beside it would show in the mailbox
    Process.flag(:trap_exit, true)
    {:ok, model} = Weir.load_model("fake:")
    {before, before_threads} = settled()
    messages = [{:user, "hello"}]
    opts = [temp: 0.0, max_tokens: 3]

    ways = [
      fn -> {:ok, _} = Weir.generate(model, "hello", opts) end,
      fn -> model |> Weir.stream("hello", opts) |> Stream.run() end,
      fn -> model |> Weir.stream("hello", opts) |> Enum.take(1) end,
      fn -> {:ok, _} = Weir.chat_completion(model, messages, [n: 3] ++ opts) end,
      fn -> model |> Weir.stream_chat_completion(messages, opts) |> Stream.run() end,
      fn -> {:error, _} = Weir.generate(model, "hello", [top_p: 2.0] ++ opts) end
    ]

    # this process's heap is not collected for it
    for way <- ways, _ <- 1..10 do
      way.()
      assert eventually(fn -> NIF.live_handles().weir_engine == before.weir_engine end)
    end

    assert eventually(fn -> threads() <= before_threads end)
    assert mailbox() == []
  end

  test "streams that were refused are freed" do
    {:ok, model} = Weir.load_model("fake:")

    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256, manual: true, queue_limit: 3})

    {:ok, stopped} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256})
    :ok = NIF.engine_stop(stopped)
    # of four places two are taken
    {:ok, [_, _] = queued} = NIF.engine_submit_n(engine, %{prompt: "a"}, 2, self(), 1)
    {before, _} = settled()

    refused = fn ->
      assert {:error, _} = NIF.engine_submit(engine, %{prompt: "a", top_p: 2.0}, self(), 1)

      assert {:error, _} = NIF.engine_submit_n(engine, %{prompt: "a", priority: 101}, 100, self(), 1)

      assert {:error, :queue_full} = NIF.engine_submit_n(engine, %{prompt: "a"}, 3, self(), 1)

      assert {:error, _} = NIF.engine_submit(engine, %{prompt: String.duplicate("a", 300)}, self(), 1)

      assert {:error, _} = NIF.engine_submit(engine, %{grammar: "root ::= [", prompt: "a"}, self(), 1)

      assert {:error, _} = NIF.engine_submit(stopped, %{prompt: "a"}, self(), 1)

      for wrong <- [
            %{},
            %{prompt: :a},
            %{prompt: "a", stop: "b"},
            %{prompt: "a", temp: "b"},
            %{source: "a"}
          ],
          do: assert_raise(ArgumentError, fn -> NIF.engine_submit(engine, wrong, self(), 1) end)
    end

    Task.await(Task.async(fn -> for(_ <- 1..20, do: refused.()) end))
    assert eventually(fn -> NIF.live_handles() == before end)
    assert NIF.engine_stats(engine).queue_depth == length(queued)
  end

  test "a drain whose caller was killed gives its scheduler back" do
    # as many ticks as take 80 s
    {:ok, model} = Weir.load_model("fake:tick_us=20000")
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 4096, prompt_lookup: false})
    request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
    {:ok, ref} = NIF.engine_submit(engine, request, self(), 0)

    drains =
      for _ <- 1..:erlang.system_info(:dirty_io_schedulers),
          do: spawn(fn -> NIF.engine_drain(engine, -1) end)

    # needs one that they have
    task = Task.async(fn -> Weir.load_model("fake:") end)
    before = Task.yield(task, 500)
    for pid <- drains, do: Process.exit(pid, :kill)
    loaded = before || Task.yield(task, 20_000)
    :ok = NIF.engine_close(ref)
    assert {:ok, {:ok, _model}} = loaded
    assert :ok = NIF.engine_drain(engine, 20_000)
  end

  test "a server that was killed leaves no engine, whoever drives it" do
    Process.flag(:trap_exit, true)
    {before, _} = settled()

    for strategy <- [:balanced, Server.Strategy.Balanced] do
      {:ok, server} =
        Server.start_link(
          model_path: "fake:tick_us=2000",
          temp: 0.0,
          batch_strategy: strategy
        )

      consumer =
        spawn(fn ->
          {:ok, session} = GenServer.call(server, {:begin, :generate, nil, 1, make_ref()})
          request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
          {:ok, ref} = NIF.engine_submit(session.engine, request, self(), 0)
          Server.Driver.work(session.driver)
          GenServer.cast(server, {:running, hd(session.keys), ref})
          Process.sleep(:infinity)
        end)

      assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
      Process.exit(server, :kill)
      assert_receive {:EXIT, ^server, :killed}
      # the tick that ran is over, and no other follows
      Process.sleep(100)
      Process.exit(consumer, :kill)

      assert eventually(fn ->
               Enum.each(Process.list(), &:erlang.garbage_collect/1)
               NIF.live_handles() == before
             end)
    end
  end

  test "a server whose modules are loaded anew twice lives on, and so do its answers" do
    modules = [
      Server,
      Server.Broker,
      Server.Driver,
      Server.Guard,
      Server.Flight,
      Server.Request,
      Server.Answer,
      Server.Strategy,
      Server.Strategy.Balanced
    ]

    for strategy <- [:balanced, Server.Strategy.Balanced] do
      server =
        start_supervised!(
          {Server, model_path: "fake:tick_us=2000", temp: 0.0, batch_strategy: strategy},
          id: make_ref()
        )

      {:ok, text} = Server.generate(server, "hello", max_tokens: 400)
      # two that run amid it, in C's engine and in a flight's process
      tasks =
        for share <- [false, true],
            do: {share, Server.stream(server, "hello", max_tokens: 400, share: share)}

      tasks =
        for {_share, stream} <- tasks do
          {:suspended, first, rest} =
            Enumerable.reduce(stream, {:cont, ""}, fn text, _ -> {:suspend, text} end)

          {first, rest}
        end

      for _ <- 1..2, module <- modules do
        :code.purge(module)
        {:module, _} = :code.load_file(module)
      end

      for {first, rest} <- tasks, do: assert(first <> all(rest) == text)
      assert {:ok, ^text} = Server.generate(server, "hello", max_tokens: 400)
      assert eventually(fn -> Server.get_stats(server).requests == 0 end)
    end
  end

  defp all(rest) do
    case rest.({:cont, ""}) do
      {:suspended, text, rest} -> text <> all(rest)
      {_done_or_halted, ""} -> ""
    end
  end

  # Streams of each kind, each with all of one text, and what has to come out of them.
  defp streams do
    {:ok, model} = Weir.load_model("fake:tick_us=500")
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 4})
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)

    submit = fn demand ->
      request = %{prompt: "hello", temp: 0.0, max_tokens: 100}
      elem(NIF.engine_submit(engine, request, self(), demand), 1)
    end

    me = self()

    {pid, _} =
      reader =
      spawn_monitor(fn ->
        try do
          model
          |> Weir.stream("hello", temp: 0.0, max_tokens: 100)
          |> Enum.map_join(&(send(me, {:begun, self()}) && &1))
        rescue
          Weir.Error -> exit(:told)
        else
          text -> exit({:text, text})
        end
      end)

    assert_receive {:begun, ^pid}

    all = submit.(:infinity)
    %{model: model, engine: engine, text: text, all: all, one: submit.(1), reader: reader}
  end

  defp outcome({pid, monitor}) do
    assert_receive {:DOWN, ^monitor, :process, ^pid, outcome}
    begun(pid)
    outcome
  end

  defp begun(pid) do
    receive do
      {:begun, ^pid} -> begun(pid)
    after
      0 -> :ok
    end
  end

  test "the module is loaded anew while streams run: nothing is lost" do
    for _ <- 1..5 do
      s = streams()

      for _ <- 1..5 do
        if :code.soft_purge(NIF), do: assert({:module, NIF} = :code.load_file(NIF))
        Process.sleep(5)
      end

      assert outcome(s.reader) == {:text, s.text}
      assert eventually(fn -> :code.soft_purge(NIF) end)
      assert join(s.all) == s.text
      :ok = NIF.engine_demand(s.one, :infinity)
      assert join(s.one) == s.text
      assert {:ok, s.text} == Weir.generate(s.model, "hello", temp: 0.0, max_tokens: 100)
    end

    assert {:messages, []} = Process.info(self(), :messages)
  end

  test "the module is purged, with what runs in it, while streams run" do
    for i <- 1..20 do
      s = streams()
      Process.sleep(rem(i, 5) * 3)
      :code.purge(NIF)
      true = :code.delete(NIF)
      :code.purge(NIF)
      # the engine's messages need no module
      assert join(s.all) == s.text

      # a purge kills a process that is inside a native function: the reader itself, or its generator
      assert outcome(s.reader) in [{:text, s.text}, :told, :killed]
      {:ok, model} = Weir.load_model("fake:")
      assert {:ok, s.text} == Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)
    end

    drain_messages()
  end

  # As an upgrade of a release does it: the application in another folder.
  test "another file of the library: handles belong to the one that made them" do
    here = to_string(:code.lib_dir(:weir))
    base = Path.join(System.tmp_dir!(), "weir_upgrade_#{System.pid()}")
    on_exit(fn -> File.rm_rf!(base) end)

    for i <- 1..3 do
      s = streams()
      there = Path.join(base, "weir-9.#{i}")
      File.mkdir_p!(there)
      for part <- ["ebin", "priv"], do: File.cp_r!(Path.join(here, part), Path.join(there, part))
      ebin = to_charlist(Path.join(there, "ebin"))
      true = :code.add_patha(ebin)
      :code.purge(NIF)
      :persistent_term.put({NIF, "of the former one"}, [])
      assert {:module, NIF} = :code.load_file(NIF)
      assert :persistent_term.get({NIF, "of the former one"}, nil) == nil
      assert_raise ArgumentError, fn -> NIF.engine_stats(s.engine) end
      assert_raise ArgumentError, fn -> NIF.engine_demand(s.one, 1) end
      assert NIF.live_handles().weir_engine == 0
      {:ok, model} = Weir.load_model("fake:")
      assert {:ok, s.text} == Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)
      # what ran runs on
      assert join(s.all) == s.text
      assert outcome(s.reader) in [{:text, s.text}, :told, :killed]
      assert eventually(fn -> :code.soft_purge(NIF) end)
      true = :code.del_path(ebin)
    end

    assert {:module, NIF} = :code.load_file(NIF)
    drain_messages()
  end

  # The first messages of streams that nobody could ask for more.
  defp drain_messages do
    receive do
      {_ref, {:chunk, _ids, _text}} -> drain_messages()
    after
      0 -> assert {:messages, []} = Process.info(self(), :messages)
    end
  end

  defp join(ref, text \\ "") do
    receive do
      {^ref, {:chunk, _ids, more}} -> join(ref, text <> more)
      {^ref, {:done, :length, _usage}} -> text
    after
      20_000 -> flunk("no end came")
    end
  end

  # Whether a call of fun leaves the normal schedulers: the dirty ones have the number 0 in traces.
  defp dirty?(fun) do
    me = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        receive do: (:go -> fun.())
      end)

    :erlang.trace(pid, true, [:running, :scheduler_id, {:tracer, me}])
    send(pid, :go)
    assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}
    delivered = :erlang.trace_delivered(pid)
    assert_receive {:trace_delivered, ^pid, ^delivered}
    0 in traced(pid)
  end

  defp traced(pid) do
    receive do
      {:trace, ^pid, _in_or_out, _mfa, scheduler} -> [scheduler | traced(pid)]
    after
      0 -> []
    end
  end

  test "each function runs on the scheduler that the table names" do
    {:ok, %{ref: model}} = Weir.load_model("fake:")
    {:ok, context} = NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4)
    {:ok, wide} = NIF.context_create(model, 512, 0, 64, 1, 1, true, -1, 1)
    {:ok, large} = NIF.context_create(model, 70_000, 64, 64, 1, 1, false, -1, 1)

    init = fn grammar ->
      NIF.sampler_init(model, 7, 0.8, 40, 0.95, 0.05, 1.0, 0.0, 0.0, grammar, nil)
    end

    {:ok, sampler} = init.(nil)
    {:ok, bound} = init.("root ::= \"yes\"")
    {:ok, engine} = NIF.engine_create(model, %{n_slots: 2})
    {:ok, manual} = NIF.engine_create(model, %{n_slots: 2, manual: true})
    {:ok, stream} = NIF.engine_submit(manual, %{prompt: "hello", keep: true}, self(), 1)
    {:ok, chat} = NIF.chat_create(model, %{messages: ~S([{"role": "user", "content": "a"}])})
    {:ok, parser} = NIF.chat_parser(chat)
    long = String.duplicate("x", 5000)
    many = List.duplicate(?x, 5000)

    submit = fn request ->
      NIF.engine_submit(manual, Map.merge(%{prompt: "hi"}, request), self(), 1)
    end

    hub = %{offline: true, cache_dir: "/nowhere"}

    io = [
      model_load: fn -> NIF.model_load("fake:", 0, true, 0, 0, [], false, false, false) end,
      adapter_load: fn -> NIF.adapter_load(model, "fake:1") end,
      engine_drain: fn -> NIF.engine_drain(engine, 0) end,
      engine_stop: fn -> NIF.engine_stop(engine) end,
      hub_list: fn -> NIF.hub_list(nil, hub) end,
      hub_resolve: fn -> NIF.hub_resolve("hf:o/m", hub) end,
      hub_get: fn -> NIF.hub_get("x", hub) end,
      hub_download: fn -> NIF.hub_download("hf:o/m", hub, nil, make_ref()) end
    ]

    cpu = [
      context_create: fn -> NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4) end,
      context_set_adapters: fn -> :ok = NIF.context_set_adapters(context, []) end,
      decode: fn -> :ok = NIF.decode(context, ~c"hello") end,
      state_save: fn -> {:ok, _} = NIF.state_save(context, 0) end,
      state_load: fn -> NIF.state_load(context, 0, "x") end,
      generate: fn -> NIF.generate(context, sampler, ~c"hello", 5) end,
      generate_tokens: fn ->
        NIF.generate_tokens(context, sampler, ~c"hello", 5, self(), make_ref())
      end,
      prefill: fn -> NIF.prefill(context, ~c"hello", 1) end,
      embed_decode: fn -> :ok = NIF.embed_decode(wide, ~c"hello", 0) end,
      embed: fn -> {:ok, [_]} = NIF.embed(wide, [~c"hello"], 2, :infinity) end,
      batch_eval: fn -> NIF.batch_eval(context, [{?a, 0, 2, true}]) end,
      decode_token: fn -> NIF.decode_token(context, ?a, 0, 3) end,
      decode_batch: fn -> NIF.decode_batch(context, sampler, [{?a, 1, 2, true}]) end,
      chat_apply_template: fn -> NIF.chat_apply_template("a", [{"user", "a"}], true) end,
      chat_apply_template_jinja: fn ->
        NIF.chat_apply_template_jinja(model, [{"user", "a"}], true, true, [])
      end,
      chat_create: fn -> NIF.chat_create(model, %{messages: "[]"}) end,
      chat_tokens: fn -> {:ok, _} = NIF.chat_tokens(chat) end,
      chat_parser: fn -> NIF.chat_parser(chat) end,
      chat_parser_feed: fn -> {:ok, _} = NIF.chat_parser_feed(parser, "a", false) end,
      json_schema_to_grammar_nif: fn -> NIF.json_schema_to_grammar_nif("{}") end,
      engine_create: fn -> NIF.engine_create(model, %{manual: true}) end,
      engine_view: fn -> NIF.engine_view(manual) end,
      engine_step: fn -> NIF.engine_step(manual, nil) end,
      engine_turn: fn -> NIF.engine_turn(manual, nil) end
    ]

    normal = [
      backend_init: fn -> NIF.backend_init() end,
      backend_free: fn -> NIF.backend_free() end,
      backend_version: fn -> NIF.backend_version() end,
      live_handles: fn -> NIF.live_handles() end,
      members: fn -> NIF.members("sampler") end,
      log_to: fn -> :ok = NIF.log_to(Process.whereis(Weir.Log), :warning) end,
      model_n_ctx_train: fn -> NIF.model_n_ctx_train(model) end,
      model_n_embd: fn -> NIF.model_n_embd(model) end,
      model_desc: fn -> NIF.model_desc(model) end,
      model_size: fn -> NIF.model_size(model) end,
      model_n_params: fn -> NIF.model_n_params(model) end,
      model_chat_template: fn -> NIF.model_chat_template(model) end,
      vocab_n_tokens: fn -> NIF.vocab_n_tokens(model) end,
      vocab_bos: fn -> NIF.vocab_bos(model) end,
      vocab_eos: fn -> NIF.vocab_eos(model) end,
      vocab_is_eog: fn -> NIF.vocab_is_eog(model, 1) end,
      tokenize: fn -> NIF.tokenize(model, "short", true, true) end,
      detokenize: fn -> NIF.detokenize(model, ~c"short") end,
      token_to_piece: fn -> NIF.token_to_piece(model, ?a) end,
      context_n_ctx: fn -> NIF.context_n_ctx(context) end,
      context_n_seq_max: fn -> NIF.context_n_seq_max(context) end,
      sampler_init: fn -> init.(nil) end,
      sampler_create: fn -> {:ok, _} = NIF.sampler_create(model, %{temp: 0.5, mirostat: 1}) end,
      sampler_accept: fn -> :ok = NIF.sampler_accept(sampler, ?a) end,
      sampler_reset: fn -> :ok = NIF.sampler_reset(sampler) end,
      sampler_sample: fn -> NIF.sampler_sample(sampler, context) end,
      sampler_sample_at: fn -> NIF.sampler_sample_at(sampler, context, -1) end,
      get_embeddings: fn -> NIF.get_embeddings(wide, 0, 2) end,
      memory_seq_cp: fn -> NIF.memory_seq_cp(context, 0, 1, -1, -1) end,
      memory_seq_rm: fn -> NIF.memory_seq_rm(context, 1, -1, -1) end,
      memory_seq_pos_max: fn -> NIF.memory_seq_pos_max(context, 0) end,
      memory_seq_keep: fn -> NIF.memory_seq_keep(context, 0) end,
      memory_clear: fn -> NIF.memory_clear(context) end,
      generate_ref: fn -> NIF.generate_ref() end,
      generate_stop: fn -> NIF.generate_stop(NIF.generate_ref()) end,
      chat_prompt: fn -> NIF.chat_prompt(chat) end,
      chat_relaxed: fn -> NIF.chat_relaxed(chat) end,
      chat_special_content: fn -> NIF.chat_special_content(chat) end,
      engine_submit: fn -> {:ok, _} = submit.(%{}) end,
      engine_submit_n: fn ->
        {:ok, _} = NIF.engine_submit_n(manual, %{prompt: "a"}, 2, self(), 1)
      end,
      engine_demand: fn -> NIF.engine_demand(stream, 1) end,
      engine_cancel: fn -> NIF.engine_cancel(stream) end,
      engine_stats: fn -> NIF.engine_stats(manual) end,
      engine_usage: fn -> NIF.engine_usage(stream) end,
      engine_close: fn -> NIF.engine_close(stream) end,
      engine_ticks: fn -> NIF.engine_ticks(manual, 0) end,
      engine_slots: fn -> NIF.engine_slots(manual) end
    ]

    # The same functions, where they would take longer than a normal scheduler gives.
    moved = [
      tokenize: fn -> NIF.tokenize(model, long, true, true) end,
      detokenize: fn -> NIF.detokenize(model, many) end,
      sampler_init: fn -> init.("root ::= \"yes\"") end,
      sampler_create: fn -> {:ok, _} = NIF.sampler_create(model, %{dry_multiplier: 0.5}) end,
      sampler_accept: fn -> :ok = NIF.sampler_accept(bound, ?y) end,
      sampler_reset: fn -> :ok = NIF.sampler_reset(bound) end,
      sampler_sample: fn -> NIF.sampler_sample(bound, context) end,
      sampler_sample_at: fn -> NIF.sampler_sample_at(bound, context, -1) end,
      memory_clear: fn -> NIF.memory_clear(large) end,
      memory_seq_rm: fn -> NIF.memory_seq_rm(large, 0, -1, -1) end,
      memory_seq_keep: fn -> NIF.memory_seq_keep(large, 0) end,
      engine_submit: fn -> submit.(%{prompt: long}) end,
      engine_submit: fn -> submit.(%{prompt: many}) end,
      engine_submit: fn -> submit.(%{cache_salt: long}) end,
      engine_submit: fn -> submit.(%{stop: [long]}) end,
      engine_submit: fn -> submit.(%{grammar: "root ::= \"yes\""}) end,
      engine_submit: fn -> {:ok, _} = submit.(%{prompt: chat}) end,
      engine_submit: fn -> {:ok, _} = submit.(%{source: stream}) end,
      engine_submit: fn -> {:ok, _} = submit.(%{logit_bias: [{1, 0.5}]}) end,
      engine_submit_n: fn -> NIF.engine_submit_n(manual, %{prompt: "a"}, 20, self(), 1) end
    ]

    tried = Keyword.keys(io ++ cpu ++ normal)
    assert Enum.sort(tried) == Enum.sort(Keyword.keys(NIF.__info__(:functions)) -- [:load])
    for {name, fun} <- normal, do: assert({name, dirty?(fun)} == {name, false})
    for {name, fun} <- cpu ++ moved ++ io, do: assert({name, dirty?(fun)} == {name, true})

    # Which kind of dirty one: its threads have worked meanwhile.
    for {kind, funs} <- [dirty_io_scheduler: io, dirty_cpu_scheduler: cpu], {name, fun} <- funs do
      before = worked(kind)
      fun.()
      assert {name, worked(kind) > before} == {name, true}
    end
  after
    :erlang.system_flag(:microstate_accounting, false)
  end

  # Of the vocabularies the first one is small enough for any chain.
  test "a draw runs where its chain's cost allows" do
    for {n_vocab, large?} <- [{320, false}, {49_152, true}] do
      {:ok, %{ref: model}} = Weir.load_model("fake:n_vocab=#{n_vocab}")
      {:ok, context} = NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4)
      :ok = NIF.decode(context, ~c"hello")

      # what comes before the chain has cut the candidates down, or needs no candidates
      few = [
        %{},
        %{temp: 0.0, top_k: 0},
        %{temp: 0.0, mirostat: 1},
        %{top_k: 1024},
        %{typical_p: 0.9},
        %{xtc_probability: 0.5},
        %{dynatemp_range: 0.5},
        %{adaptive_target: 0.5},
        %{penalty_repeat: 1.1},
        %{top_k: 0, temp: 0.0, typical_p: 1.0}
      ]

      # what sorts all of them
      all = [
        %{top_k: 0},
        %{top_k: 1025},
        %{top_k: 0, typical_p: 0.9},
        %{top_k: 0, xtc_probability: 0.5},
        %{top_k: 0, dynatemp_range: 0.5},
        %{top_k: 0, adaptive_target: 0.5},
        %{mirostat: 1},
        %{mirostat: 2},
        %{temp: 0.0, top_k: 0, typical_p: 0.9},
        %{temp: 0.0, top_k: 0, xtc_probability: 0.5}
      ]

      for {sort?, chains} <- [{false, few}, {large?, all}], chain <- chains do
        {:ok, sampler} = NIF.sampler_create(model, chain)
        sample = fn -> NIF.sampler_sample(sampler, context) end
        assert {chain, dirty?(sample)} == {chain, sort?}
        sample_at = fn -> NIF.sampler_sample_at(sampler, context, -1) end
        assert {chain, dirty?(sample_at)} == {chain, sort?}
        refute dirty?(fn -> NIF.sampler_accept(sampler, ?a) end)
        refute dirty?(fn -> NIF.sampler_reset(sampler) end)
      end

      init = fn temp, top_k ->
        {:ok, sampler} = NIF.sampler_init(model, 1, temp, top_k, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil)

        dirty?(fn -> NIF.sampler_sample(sampler, context) end)
      end

      assert {init.(0.8, 40), init.(0.8, 0), init.(0.0, 0)} == {false, large?, false}
    end
  end

  defp worked(kind) do
    :erlang.system_flag(:microstate_accounting, true)

    Enum.sum(
      for %{type: ^kind, counters: counters} <- :erlang.statistics(:microstate_accounting),
          {state, time} <- counters,
          state != :sleep,
          do: time
    )
  end
end
