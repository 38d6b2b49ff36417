# SPDX-License-Identifier: Apache-2.0
defmodule Weir.AnswerTest do
  # Answers of a server beyond a text: forks, logprobs of prompts, the best of several, shared answers,
  # drafts, prefixes that outlive the server, and cache misses.
  use ExUnit.Case, async: true
  import Weir.Wait, only: [eventually: 1, mailbox: 0]
  alias Weir.{Chunk, NIF, Server, Terms, Tokenizer}

  @strategies [:decode_maximal, Server.Strategy.Balanced]

  setup_all do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, slow} = Weir.load_model("fake:tick_us=2000")
    %{model: model, slow: slow}
  end

  defp server(opts) do
    start_supervised!({Server, Keyword.put_new(opts, :temp, 0.0)}, id: make_ref())
  end

  # The first chunk of a stream, and its rest.
  defp read(stream) do
    {:suspended, first, reduce} =
      Enumerable.reduce(stream, {:cont, nil}, fn chunk, _ -> {:suspend, chunk} end)

    {first, reduce}
  end

  defp rest(reduce, chunks \\ []) do
    case reduce.({:cont, nil}) do
      {:suspended, chunk, reduce} -> rest(reduce, [chunk | chunks])
      {_done_or_halted, _} -> Enum.reverse(chunks)
    end
  end

  defp halt(reduce), do: assert({:halted, _} = reduce.({:halt, nil}))

  describe "a fork" do
    test "of an answer that is not streamed continues from its present end", %{slow: slow} do
      server = server(model: slow, n_draft_max: 0)
      opts = [id: :a, max_tokens: 4000]

      for whole <- [
            fn -> Server.generate(server, "hello", opts) end,
            fn -> Server.complete(server, "hello", [best_of: 2] ++ opts) end,
            fn -> Server.chat(server, [{:user, "hello"}], opts) end,
            fn -> Server.chat_completion(server, [{:user, "hello"}], opts) end
          ] do
        source = Task.async(whole)
        ask = fn prompt -> Server.complete(server, prompt, max_tokens: 2) end
        # at a token after the first one, which is an error until it is there
        assert eventually(fn -> match?({:ok, _}, ask.({:fork, :a, 10})) end)
        assert {:ok, fork} = ask.({:fork, :a})
        assert byte_size(fork.before) >= 10
        Server.cancel(server, :a)
        assert {:error, %{code: :cancelled}} = Task.await(source, Weir.Wait.patience())
      end
    end

    test "goes on where its source was, at any token", %{model: model} do
      Terms.sow("forks")
      {:ok, prompt} = Tokenizer.encode(model, "hello")

      for strategy <- @strategies do
        server = server(model: model, batch_strategy: strategy)
        {:ok, whole} = Server.complete(server, "hello", max_tokens: 60)

        {first, reduce} = read(Server.stream(server, "hello", id: :a, emit: :chunks, max_tokens: 60))

        assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)

        for at <- [0, 1, 60, -1 | Enum.map(1..5, fn _ -> :rand.uniform(60) end)] do
          {:ok, fork} = Server.complete(server, {:fork, :a, at}, max_tokens: 20)
          ids = if at < 0, do: whole.ids, else: Enum.take(whole.ids, at)
          assert {:ok, fork.before} == Tokenizer.decode(model, ids)
          {:ok, expected} = Server.complete(server, prompt ++ ids, max_tokens: 20)
          assert {fork.text, fork.ids, fork.reason} == {expected.text, expected.ids, :length}
        end

        assert {:error, %{message: reason}} = Server.complete(server, {:fork, :a, 61})
        assert reason =~ ~r/^at/
        # as a stream, and of a fork
        {_, more} = read(Server.stream(server, {:fork, :a, 3}, id: :b, max_tokens: 9))
        assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
        {:ok, second} = Server.complete(server, {:fork, :b, 2}, max_tokens: 3)
        assert {:ok, second.before} == Tokenizer.decode(model, Enum.take(whole.ids, 5))
        assert second.ids == Enum.slice(whole.ids, 5, 3)
        halt(more)
        assert Enum.map_join([first | rest(reduce)], & &1.text) == whole.text
        # its end was read
        assert {:error, %{code: :not_found}} = Server.generate(server, {:fork, :a})
        assert {:error, %{code: :not_found}} = Server.generate(server, {:fork, nil})
        assert mailbox() == []
      end
    end

    test "stays on its source's engine", %{slow: slow} do
      server = server(model: slow)
      {first, reduce} = read(Server.stream(server, "hello", id: 1, max_tokens: 400))
      assert :ok = Server.configure(server, n_parallel: 2)
      assert {:ok, fork} = Server.complete(server, {:fork, 1, 1}, max_tokens: 3)
      assert String.starts_with?(first, fork.before) and fork.before != ""
      halt(reduce)
      assert eventually(fn -> map_size(:sys.get_state(server).engines) == 1 end)
    end

    test "needs a prompt's form", %{model: model} do
      server = server(model: model)

      for prompt <- [{:fork}, {:fork, 1, :all}, {:fork, 1, -2}, {:spoon, 1}] do
        assert_raise ArgumentError, ~r/a prompt is/, fn -> Server.generate(server, prompt) end
      end

      assert_raise ArgumentError, ~r/:echo/, fn ->
        Server.generate(server, {:fork, 1}, echo: true)
      end
    end

    test "of what has ended needs a reference that keeps it", %{model: model} do
      {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 2})

      for keep <- [true, false] do
        request = %{prompt: "hello", temp: 0.0, max_tokens: 5, keep: keep}
        {:ok, ref} = NIF.engine_submit(engine, request, self(), :infinity)
        assert_receive {^ref, {:done, :length, _usage}}

        case NIF.engine_submit(
               engine,
               %{source: ref, temp: 0.0, max_tokens: 2},
               self(),
               :infinity
             ) do
          {:ok, fork} ->
            assert keep
            assert_receive {^fork, {:done, :length, %{before: before}}}
            assert before != ""

          {:error, error} ->
            assert not keep and error.field == "source"
        end
      end
    end
  end

  describe "a prompt's logprobs" do
    test "are there for each token, whole and streamed", %{model: model} do
      server = server(model: model)
      {:ok, ids} = Tokenizer.encode(model, "hello")
      opts = [max_tokens: 2, n_prompt_logprobs: 3]
      {:ok, answer} = Server.complete(server, "hello", opts)
      assert [first | others] = answer.prompt_logprobs
      assert %{logprob: nil, top_logprobs: []} = first
      assert length(others) == length(ids) - 1

      # the same as the logprob of that token when it is generated
      for {entry, i} <- Enum.with_index(others, 1) do
        assert length(entry.top_logprobs) == 3
        id = Enum.at(ids, i)

        {:ok, forced} =
          Server.complete(server, Enum.take(ids, i),
            max_tokens: 1,
            logprobs: true,
            logit_bias: [{id, 1000.0}]
          )

        assert [%{logprob: logprob}] = forced.logprobs
        assert forced.ids == [id]
        assert_in_delta entry.logprob, logprob, 1.0e-4
      end

      [chunk | chunks] = server |> Server.stream("hello", [emit: :chunks] ++ opts) |> Enum.to_list()

      assert %Chunk{ids: [], text: "", prompt_logprobs: scores} = chunk
      assert scores == answer.prompt_logprobs
      assert Enum.all?(chunks, &(&1.prompt_logprobs == nil))
      assert server |> Server.stream("hello", opts) |> Enum.join() == answer.text
      {:ok, completion} = Server.chat_completion(server, [{:user, "hello"}], opts)
      assert [%{logprob: nil} | [_ | _]] = completion.prompt_logprobs
      {:ok, plain} = Server.complete(server, "hello", max_tokens: 2)
      assert plain.prompt_logprobs == nil
      # also if nothing is generated
      {:ok, none} = Server.complete(server, "hello", max_tokens: 0, prompt_logprobs: true)
      assert length(none.prompt_logprobs) == length(ids)
    end

    test "of a long prompt come whatever the demand is", %{model: model} do
      {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1})
      prompt = String.duplicate("a", 2000)
      request = %{prompt: prompt, temp: 0.0, max_tokens: 3, n_prompt_logprobs: 5}
      {:ok, ref} = NIF.engine_submit(engine, request, self(), 0)
      assert eventually(fn -> Weir.Wait.at_rest?(engine) end)
      :ok = NIF.engine_demand(ref, :infinity)
      assert_receive {^ref, {:prompt, ids, scores}}
      assert length(ids) == 2001 and length(scores) == 2001
      assert_receive {^ref, {:chunk, [_ | _], _text}}
      assert_receive {^ref, {:done, :length, _usage}}
    end
  end

  test "echo: the prompt stands before the answer", %{model: model} do
    server = server(model: model)
    {:ok, text} = Server.generate(server, "hello", max_tokens: 5)
    assert {:ok, "hello" <> ^text} = Server.generate(server, "hello", max_tokens: 5, echo: true)
    {:ok, ids} = Tokenizer.encode(model, "hello")
    {:ok, echoed} = Tokenizer.decode(model, ids)
    assert Server.generate(server, ids, max_tokens: 5, echo: true) == {:ok, echoed <> text}

    assert ["hello" | rest] = server |> Server.stream("hello", max_tokens: 5, echo: true) |> Enum.to_list()

    assert Enum.join(rest) == text
    assert ["hello"] = server |> Server.stream("hello", echo: true) |> Enum.take(1)
    assert mailbox() == []
  end

  describe "best_of" do
    test "is the likeliest of as many answers as n gives", %{model: model, slow: slow} do
      server = server(model: model)
      opts = [temp: 1.0, seed: 7, max_tokens: 12]

      alone =
        for i <- 0..4 do
          {:ok, answer} =
            Server.complete(server, "hello", [logprobs: true] ++ Keyword.put(opts, :seed, 7 + i))

          mean = Enum.sum(Enum.map(answer.logprobs, & &1.logprob)) / length(answer.logprobs)
          # the end has a probability, too
          if answer.reason == :length, do: assert_in_delta(answer.score, mean, 1.0e-3)
          answer
        end

      best = Enum.max_by(alone, & &1.score)
      {:ok, answer} = Server.complete(server, "hello", [best_of: 5] ++ opts)
      assert answer.text == best.text
      assert_in_delta answer.score, best.score, 1.0e-6
      assert answer.logprobs == nil
      {:ok, told} = Server.complete(server, "hello", [best_of: 5, logprobs: true] ++ opts)
      assert told.logprobs == best.logprobs
      assert {:ok, best.text} == Server.generate(server, "hello", [best_of: 5] ++ opts)

      {:ok, scored} = Server.complete(server, "hello", [best_of: 3, prompt_logprobs: true] ++ opts)

      assert length(scored.prompt_logprobs) == 6

      slow = server(model: slow)
      endless = [best_of: 3, timeout: 0, max_tokens: 2000, temp: 0.0]
      assert {:error, %{code: :timeout}} = Server.generate(slow, "hello", endless)

      assert_raise ArgumentError, ~r/:best_of/, fn ->
        Server.stream(server, "hello", best_of: 2)
      end

      assert mailbox() == []
    end
  end

  describe "share" do
    test "gives one generation to all who ask for the same", %{slow: slow} do
      for strategy <- @strategies do
        server = server(model: slow, n_parallel: 2, batch_strategy: strategy)
        opts = [max_tokens: 100, share: true]
        {:ok, text} = Server.generate(server, "hello", max_tokens: 100)
        # The generation waits for a slot until all have asked.
        busy = for i <- 1..2, do: read(Server.stream(server, "busy #{i}", max_tokens: 2000))
        before = Server.get_stats(server).n_submitted

        readers =
          for i <- 1..21 do
            Task.async(fn ->
              answer =
                if rem(i, 2) == 0,
                  do: elem(Server.generate(server, "hello", opts), 1),
                  else: server |> Server.stream("hello", opts) |> Enum.join()

              {answer, mailbox()}
            end)
          end

        assert eventually(fn -> Server.get_stats(server).n_shared == 20 end)
        for {_, reduce} <- busy, do: halt(reduce)
        assert Enum.all?(Task.await_many(readers, Weir.Wait.patience()), &(&1 == {text, []}))
        assert %{n_submitted: n, n_shared: 20} = Server.get_stats(server)
        assert n == before + 1
        assert eventually(fn -> :sys.get_state(server).flights == %{} end)
        # and is gone afterwards
        assert {:ok, ^text} = Server.generate(server, "hello", opts)
        assert Server.get_stats(server).n_submitted == n + 1
        assert mailbox() == []
      end
    end

    test "is for what is the same each time", %{slow: slow} do
      server = server(model: slow, n_parallel: 4)
      {_, reduce} = read(Server.stream(server, "hello", max_tokens: 2000, share: true))

      for opts <- [
            [max_tokens: 2001],
            [max_tokens: 2000, cache_salt: "me"],
            [max_tokens: 2000, temp: 0.7],
            [max_tokens: 2000, deadline: 60_000],
            [max_tokens: 2000, prompt_logprobs: true]
          ] do
        {_, other} = read(Server.stream(server, "hello", [share: true] ++ opts))
        assert Server.get_stats(server).n_shared == 0
        halt(other)
      end

      {_, other} = read(Server.stream(server, "hello", max_tokens: 2000))
      assert Server.get_stats(server).n_shared == 0
      halt(other)
      seeded = [max_tokens: 2000, temp: 0.7, seed: 3, share: true]
      {_, one} = read(Server.stream(server, "hello", seeded))
      {_, other} = read(Server.stream(server, "hello", seeded))
      assert Server.get_stats(server).n_shared == 1
      for reduce <- [one, other, reduce], do: halt(reduce)
      assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
      assert mailbox() == []
    end

    test "ends with its last reader", %{slow: slow} do
      server = server(model: slow)
      opts = [max_tokens: 4000, share: true]
      {_, one} = read(Server.stream(server, "hello", opts))
      {_, other} = read(Server.stream(server, "hello", [id: :other] ++ opts))

      killed =
        spawn(fn ->
          Enum.each(Server.stream(server, "hello", opts), fn _ -> :ok end)
        end)

      assert eventually(fn -> Server.get_stats(server).n_shared == 2 end)
      halt(one)
      Process.exit(killed, :kill)
      assert eventually(fn -> Server.get_stats(server).requests == 1 end)
      assert Server.get_stats(server).active_slots == 1
      # a cancel affects one reader only
      assert :ok = Server.cancel(server, :other)
      assert_raise Weir.Error, fn -> rest(other) end
      assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
      assert eventually(fn -> :sys.get_state(server).flights == %{} end)
      assert {:error, %{code: :timeout}} = Server.generate(server, "hello", [timeout: 20] ++ opts)
      assert {:error, %{message: reason}} = Server.generate(server, "hello", [top_p: 2] ++ opts)
      assert reason =~ "top_p"
      assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
      assert mailbox() == []
    end

    test "of what no engine can read is an error, and the server lives", %{model: model} do
      server = server(model: model)

      {:ok, session} =
        GenServer.call(server, {:begin, %{mode: :generate, id: nil, n: 1, tag: nil, fork: nil}})

      [key] = session.keys
      ref = Server.Flight.ref()
      call = {:join, session.number, %{prompt: :nonsense}, key, ref, :infinity}
      assert {:ok, _flight} = GenServer.call(server, call)
      assert_receive {^ref, {:error, %Weir.Error{status: 400}} = error}
      GenServer.cast(server, {:ended, key, error})
      assert {:ok, _} = Server.generate(server, "hello", max_tokens: 2, share: true)
      assert eventually(fn -> :sys.get_state(server).flights == %{} end)
    end

    test "with readers that are killed at random", %{slow: slow} do
      Terms.sow("killed readers")
      server = server(model: slow, n_parallel: 4)

      readers =
        for _ <- 1..200 do
          opts = [max_tokens: Enum.random([50, 4000]), share: true]
          prompt = Enum.random(["one", "two", "three"])

          pid = spawn(fn -> server |> Server.stream(prompt, opts) |> Enum.take(Enum.random(1..60)) end)

          if :rand.uniform(4) == 1, do: Process.sleep(1)
          pid
        end

      for pid <- Enum.shuffle(readers), do: Process.exit(pid, :kill)

      assert eventually(fn ->
               stats = Server.get_stats(server)
               stats.active_slots + stats.queue_depth + stats.requests == 0
             end)

      assert eventually(fn -> :sys.get_state(server).flights == %{} end)
      assert {:messages, []} = Process.info(server, :messages)
    end
  end

  test "misses are told", %{model: model} do
    server = server(model: model)
    {:ok, first} = Server.complete(server, "It is 10:20 now. Tell me a story", max_tokens: 2)
    assert first.miss == %{miss: :cold}
    {:ok, again} = Server.complete(server, "It is 10:20 now. Tell me a story", max_tokens: 2)
    assert again.miss == %{miss: :none}
    {:ok, other} = Server.complete(server, "It is 10:21 now. Tell me a story", max_tokens: 2)
    assert %{miss: :diverged, message: nil, role: nil, n_matched: n} = other.miss
    assert n == other.usage.cached_tokens
    assert other.miss.prompt =~ "21"
    {:ok, salted} = Server.complete(server, "It is 10:20 now.", cache_salt: "me", max_tokens: 1)
    assert %{miss: :salt, text: text} = salted.miss
    assert text != ""
    {:ok, off} = Server.complete(server, "It is 10:20 now.", cache_prompt: false, max_tokens: 1)
    assert off.miss == %{miss: :off}

    chunks = server |> Server.stream("Something else", emit: :chunks, max_tokens: 2) |> Enum.to_list()

    assert %Chunk{miss: %{miss: _}, usage: %{generated_tokens: 2}} = List.last(chunks)

    messages = [{:system, "It is 10:20."}, {:user, "Hello"}]
    {:ok, _} = Server.chat_completion(server, messages, max_tokens: 2)
    messages = [{:system, "It is 10:25."}, {:user, "Hello"}]
    {:ok, completion} = Server.chat_completion(server, messages, max_tokens: 2)
    assert %{cached_tokens: n, miss: miss} = completion.usage.prompt_tokens_details
    assert n > 0
    assert %{miss: :diverged, message: 0, in_message: true, role: "system"} = miss
    assert %{n_matched: ^n, prompt: prompt} = miss
    assert prompt =~ "10:25"
    stats = Server.get_stats(server)
    assert stats.n_misses.diverged >= 2 and stats.n_misses.salt == 1
  end

  # One caller's words never reach another one who does not know the salt.
  test "others' words are told under their salt alone", %{model: model} do
    server = server(model: model)
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1})
    secret = "The door opens with swordfish"
    guess = "The door opens with what?"

    asks = [
      completion: fn text, opts -> Server.complete(server, text, [max_tokens: 2] ++ opts) end,
      chat: fn text, opts ->
        Server.chat_completion(server, [{:system, text}, {:user, "Hello"}], [max_tokens: 2] ++ opts)
      end,
      stream: fn text, opts ->
        {:ok, server |> Server.stream(text, [emit: :chunks, max_tokens: 2] ++ opts) |> Enum.to_list()}
      end,
      native: fn text, opts ->
        request = Map.merge(%{prompt: text, max_tokens: 2, temp: 0.0}, Map.new(opts))
        {:ok, ref} = NIF.engine_submit(engine, request, self(), :infinity)
        {:ok, native_usage(ref)}
      end
    ]

    strangers = [
      {[], []},
      {[cache_salt: ""], []},
      {[], [cache_salt: ""]},
      {[], [cache_salt: "a"]},
      {[cache_salt: "a"], []},
      {[cache_salt: "a"], [cache_salt: "b"]}
    ]

    for {door, ask} <- asks, {theirs, ours} = pair <- strangers do
      {:ok, _} = ask.("#{door} #{inspect(pair)} #{secret}", theirs)
      {:ok, told} = ask.("#{door} #{inspect(pair)} #{guess}", ours)
      refute inspect(told, limit: :infinity, printable_limit: :infinity) =~ "swordfish"
    end

    for {door, ask} <- asks do
      {:ok, _} = ask.("my #{door}: #{secret}", cache_salt: "0f3b")
      {:ok, told} = ask.("my #{door}: #{guess}", cache_salt: "0f3b")
      assert inspect(told, limit: :infinity, printable_limit: :infinity) =~ "swordfish"
    end
  end

  defp native_usage(ref) do
    receive do
      {^ref, {:done, _reason, usage}} -> usage
      {^ref, _} -> native_usage(ref)
    end
  end

  test "drafts: the text is the same, and what they saved is told", %{model: model} do
    {:ok, other} = Weir.load_model("fake:")
    {:ok, slow} = Weir.load_model("fake:tick_us=2000")
    opts = [max_tokens: 100]
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)
    off = server(model: slow, n_draft_max: 0)
    {:ok, plain} = Server.complete(off, "hello", opts)
    assert %{drafted_tokens: 0, accepted_tokens: 0} = plain.usage
    drafting = server(model: slow, draft_model: other, prompt_lookup: false)
    {:ok, drafted} = Server.complete(drafting, "hello", opts)
    assert plain.text == text and drafted.text == text
    # it is the same model, so all its drafts are right
    assert drafted.usage.accepted_tokens > 0
    assert %{n_drafted: n, n_accepted: n, drafters: "model"} = Server.get_stats(drafting)
    assert %{drafters: ""} = Server.get_stats(off)
    {:ok, without} = Server.complete(drafting, "hello", [n_draft_max: 0] ++ opts)
    assert %{drafted_tokens: 0} = without.usage
    # by its path; another one later
    by_path = server(model: model, draft_model: "fake:")
    assert {:ok, ^text} = Server.generate(by_path, "hello", opts)
    assert :ok = Server.configure(by_path, draft_model: nil)
    assert {:ok, ^text} = Server.generate(by_path, "hello", opts)
    assert {:error, %{message: reason}} = Server.configure(by_path, draft_model: "fake:n_vocab=600")
    assert reason =~ "draft_model"
    assert {:error, _} = Server.configure(by_path, draft_model: "/nowhere")
    assert {:ok, ^text} = Server.generate(by_path, "hello", opts)

    assert_raise ArgumentError, ~r/:draft_model must be/, fn ->
      Server.start_link(model: model, draft_model: 5)
    end
  end

  test "prefixes outlive the server in cache_dir", %{model: model} do
    folder = Path.join(System.tmp_dir!(), "weir cache #{System.pid()}")
    File.rm_rf!(folder)
    on_exit(fn -> File.rm_rf!(folder) end)
    prompt = String.duplicate("all the same ", 20)
    opts = [model: model, temp: 0.0, cache_dir: folder, cache_disk_bytes: 100_000_000]
    {:ok, server} = Server.start_link(opts)
    {:ok, cold} = Server.complete(server, prompt, max_tokens: 5)
    assert cold.usage.cached_tokens == 0
    # this process still refers to the engine
    [%{ref: engine}] = Map.values(:sys.get_state(server).engines)
    :ok = GenServer.stop(server)
    files = folder |> Path.join("**") |> Path.wildcard() |> Enum.filter(&File.regular?/1)
    assert files != []
    assert {:error, %{code: :stopping}} = NIF.engine_stats(engine)

    {:ok, server} = Server.start_link(opts)
    {:ok, warm} = Server.complete(server, prompt, max_tokens: 5)
    stats = Server.get_stats(server)
    :ok = GenServer.stop(server)
    assert warm.text == cold.text
    assert warm.usage.cached_tokens > 200 and stats.n_cache_restored == 1

    Process.flag(:trap_exit, true)
    File.chmod!(folder, 0o755)
    assert {:error, %{message: reason}} = Server.start_link(opts)
    assert reason =~ "cache_dir"

    assert_raise ArgumentError, ~r/:cache_bytes must be/, fn ->
      Server.start_link(model: model, cache_bytes: -1)
    end
  end

  test "samplers have all that the library has", %{model: model} do
    server = server(model: model)
    {:ok, ids} = Tokenizer.encode(model, "xyz", add_special: false)
    biases = for id <- ids, do: {id, 1000.0}
    never = [{hd(ids), :never}]

    for ask <- [
          &Server.generate(server, "hello", &1),
          &Weir.generate(model, "hello", [temp: 0.0] ++ &1)
        ] do
      assert {:ok, text} = ask.(max_tokens: 20, logit_bias: biases)
      assert text =~ ~r/^[xyz]{20}$/
      assert {:ok, text} = ask.(max_tokens: 20, logit_bias: never ++ tl(biases))
      assert text =~ ~r/^[yz]{20}$/
    end

    for {opts, message} <- [
          {[mirostat: 3], ~r/:mirostat must be/},
          {[logit_bias: [{1, :always}]], ~r/:logit_bias must be/},
          {[logit_bias: [1]], ~r/:logit_bias must be/},
          {[dry_breakers: "x"], ~r/:dry_breakers must be/},
          {[interval: 0], ~r/:interval must be/},
          {[n_draft_max: 33], ~r/:n_draft_max must be/}
        ] do
      assert_raise ArgumentError, message, fn -> Server.generate(server, "a", opts) end
    end

    assert {:error, %{message: reason}} = Server.generate(server, "a", order: "nonsense")
    assert reason =~ "order"
    assert {:error, %{message: reason}} = Weir.generate(model, "a", xtc_probability: 2)
    assert reason =~ "xtc_probability"
  end

  test "tokens that end an answer, tokens that alone may come, and texts that must not", %{model: model} do
    server = server(model: model)
    greedy = [temp: 0.0, max_tokens: 20]
    {:ok, whole} = Server.complete(server, "hello", greedy)
    last = Enum.at(whole.ids, 5)
    n = Enum.find_index(whole.ids, &(&1 == last))

    {:ok, cut} = Server.complete(server, "hello", [stop_tokens: [last, 1]] ++ greedy)
    assert cut.reason not in [:length, whole.reason] and cut.usage.generated_tokens in n..(n + 1)
    assert Enum.take(cut.ids, n) == Enum.take(whole.ids, n)
    assert String.starts_with?(whole.text, cut.text) and byte_size(cut.text) < byte_size(whole.text)

    {:ok, ids} = Tokenizer.encode(model, "xyz", add_special: false)
    {:ok, text} = Server.generate(server, "hello", [allowed_tokens: ids] ++ greedy)
    assert text =~ ~r/^[xyz]{20}$/
    assert Server.generate(server, "hello", [allowed_tokens: []] ++ greedy) == {:ok, whole.text}

    {bad, word} =
      Enum.find_value(whole.ids, fn id ->
        {:ok, piece} = Tokenizer.decode(model, [id])
        if piece =~ ~r/^[[:alnum:]]$/, do: {id, piece}
      end)

    {:ok, other} = Server.complete(server, "hello", [bad_words: [word]] ++ greedy)
    refute bad in other.ids

    for {opts, message} <- [
          {[stop_tokens: List.duplicate(1, 257)], ~r/:stop_tokens must be/},
          {[allowed_tokens: ["a"]], ~r/:allowed_tokens must be/},
          {[bad_words: ["a" | "b"]], ~r/:bad_words must be/},
          {[bad_words: [<<0>>]], ~r/:bad_words must be/}
        ] do
      assert_raise ArgumentError, message, fn -> Server.generate(server, "a", opts) end
    end

    for {opts, name} <- [
          {[stop_tokens: [-1]], "stop_tokens"},
          {[allowed_tokens: [1_000_000]], "allowed_tokens"},
          {[bad_words: [" "]], "bad_words"}
        ] do
      assert {:error, %{message: reason}} = Server.generate(server, "a", opts)
      assert reason =~ name
    end
  end

  test "an interval makes chunks of as many tokens", %{slow: slow} do
    server = server(model: slow, n_draft_max: 0)
    opts = [emit: :chunks, max_tokens: 31, interval: 10]
    sizes = server |> Server.stream("hello", opts) |> Enum.map(&length(&1.ids))
    assert Enum.sum(sizes) == 31
    # the first token and the end are not delayed
    assert hd(sizes) == 1 and length(sizes) <= 6
  end
end
