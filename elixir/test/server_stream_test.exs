# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ServerStreamTest do
  # Streams of a server: their mailbox, cancels, and consumers that die.
  use Weir.ServerCase, async: true
  alias Weir.{Chunk, Server, Terms}

  describe "streams" do
    test "do nothing before they are enumerated, and can be enumerated again", %{model: model} do
      server = server(model: model)
      stream = Server.stream(server, "hello", @greedy)
      assert idle?(server)
      # the chunks' limits depend on when they are read
      assert Enum.join(stream) == Enum.join(stream)
    end

    test "that end early leave nothing", %{slow: slow, model: model} do
      for model <- [slow, model], strategy <- [:balanced, Server.Strategy.Balanced] do
        server = server(model: model, batch_strategy: strategy)

        for n <- [1, 2, 5, 1, 1, 3, 1, 2, 4, 1] do
          taken = server |> Server.stream("hello", temp: 0.0, max_tokens: 400) |> Enum.take(n)
          assert length(taken) == n
          assert mailbox() == []
        end

        assert_raise RuntimeError, fn ->
          server |> Server.stream("hello") |> Enum.each(fn _ -> raise "enough" end)
        end

        assert eventually(fn -> idle?(server) end)
        Process.sleep(5)
        assert mailbox() == []
      end
    end

    test "tell how far the prompt is, if asked", %{model: model} do
      server = server(model: model, chunk_size: 16, n_parallel: 1, n_batch: 16)
      prompt = String.duplicate("a long prompt ", 20)
      opts = [temp: 0.0, max_tokens: 5, emit: :chunks]
      plain = server |> Server.stream(prompt, opts) |> Enum.to_list()
      assert Enum.all?(plain, &(&1.progress == nil))

      prompt = "another " <> prompt
      chunks = server |> Server.stream(prompt, [progress: true] ++ opts) |> Enum.to_list()
      {told, rest} = Enum.split_while(chunks, &(&1.progress != nil))
      assert Enum.all?(rest, &(&1.progress == nil)) and Enum.all?(told, &(&1.text == ""))
      usage = List.last(rest).usage
      counts = Enum.map(told, & &1.progress.n_processed)
      assert counts == counts |> Enum.sort() |> Enum.uniq() and counts != []
      assert List.last(counts) == usage.prompt_tokens
      assert List.last(told).progress.n_cached == usage.cached_tokens
      assert Enum.all?(told, &(&1.progress.n_prompt == usage.prompt_tokens))

      assert Enum.join(Server.stream(server, prompt, temp: 0.0, max_tokens: 5)) ==
               Enum.map_join(rest, & &1.text)

      # calls for the whole answer ignore it, and so do those of a shared one
      assert {:ok, _} = Server.generate(server, prompt, progress: true, max_tokens: 2)
      shared = server |> Server.stream(prompt, [progress: true, share: true] ++ opts) |> Enum.to_list()
      assert Enum.all?(shared, &(&1.progress == nil))
      completion = Server.stream_chat_completion(server, [{"user", prompt}], progress: true, max_tokens: 3)
      assert Enum.count(completion) > 0
      assert mailbox() == []
    end

    test "of one process do not meet", %{model: model} do
      server = server(model: model)
      one = Server.stream(server, "one", @greedy)
      other = Server.stream(server, "other", @greedy)
      {ones, others} = one |> Enum.zip(other) |> Enum.unzip()
      assert one |> Enum.join() |> String.starts_with?(Enum.join(ones))
      assert other |> Enum.join() |> String.starts_with?(Enum.join(others))
      assert mailbox() == []
    end

    test "have a bounded mailbox, and lose nothing", %{model: model} do
      server = server(model: model)
      opts = [temp: 0.0, max_tokens: 2000]
      {:ok, text} = Server.generate(server, "hello", opts)

      {first, reduce} = read(Server.stream(server, "hello", opts))
      assert eventually(fn -> Server.get_stats(server).active_slots == 0 end)
      assert length(mailbox()) <= 17
      assert first <> rest(reduce) == text
      assert mailbox() == []
    end

    # The first element of a stream, and its rest.
    defp read(stream) do
      {:suspended, first, reduce} =
        Enumerable.reduce(stream, {:cont, nil}, fn text, _ -> {:suspend, text} end)

      {first, reduce}
    end

    defp rest(reduce) do
      case reduce.({:cont, ""}) do
        {:suspended, text, reduce} -> text <> rest(reduce)
        {_done_or_halted, ""} -> ""
      end
    end
  end

  describe "cancel" do
    test "by id and by process, wherever the request is", %{long: model} do
      for strategy <- [:decode_maximal, Server.Strategy.DecodeMaximal] do
        server = server(model: model, n_parallel: 1, batch_strategy: strategy)
        me = self()
        long = [max_tokens: 4000]

        [running, _queued] =
          for id <- [:running, :queued] do
            pid =
              spawn_link(fn ->
                send(me, {id, Server.generate(server, "hello", [id: {:mine, id}] ++ long)})
              end)

            assert eventually(fn -> {:mine, id} in ids(server) end)
            pid
          end

        assert {:error, %{code: :not_found}} = Server.cancel(server, :nobody)
        assert {:error, %{code: :not_found}} = Server.cancel(server, nil)
        assert :ok = Server.cancel(server, {:mine, :queued})
        assert_receive {:queued, {:error, %{code: :cancelled}}}
        assert :ok = Server.cancel(server, running)
        assert_receive {:running, {:error, %{code: :cancelled}}}

        spawn_link(fn ->
          chunks = server |> Server.stream("hello", [id: 1, emit: :chunks] ++ long)
          send(me, {:chunks, List.last(Enum.to_list(chunks))})
        end)

        assert eventually(fn -> 1 in ids(server) end)
        assert :ok = Server.cancel(server, 1)
        assert_receive {:chunks, %Chunk{reason: :cancelled}}

        spawn_link(fn ->
          error =
            assert_raise Weir.Error, fn ->
              Enum.to_list(Server.stream(server, "a", [id: 1] ++ long))
            end

          send(me, {:raised, error.code})
        end)

        assert eventually(fn -> 1 in ids(server) end)
        assert :ok = Server.cancel(server, 1)
        assert_receive {:raised, :cancelled}
        assert eventually(fn -> idle?(server) end)
      end
    end

    test "before the request was submitted" do
      server = server([])

      {:ok, session} =
        GenServer.call(server, {:begin, %{mode: :generate, id: :early, n: 1, tag: nil, fork: nil}})

      assert :ok = Server.cancel(server, :early)
      request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
      {:ok, ref} = Weir.NIF.engine_submit(session.engine, request, self(), 0)
      GenServer.cast(server, {:running, hd(session.keys), ref})
      assert eventually(fn -> Server.get_stats(server).n_finished.cancelled == 1 end)
    end
  end

  describe "the result of a cancelled stream" do
    test "is all that was generated, held back or not", %{model: model} do
      {:ok, %{ids: ids}} = Server.complete(server(model: model), "hello", max_tokens: 10)

      [{:ok, shown}, {:ok, all}] = for n <- [8, 10], do: Weir.Tokenizer.decode(model, Enum.take(ids, n))

      held = String.replace_prefix(all, shown, "")
      assert held != "" and held != all

      {:ok, engine} = Weir.NIF.engine_create(model.ref, %{manual: true, n_ctx: 256, n_draft_max: 0})

      # a stop string that starts in the text and never ends
      request = %{prompt: "hello", temp: 0.0, max_tokens: 30, stop: [held <> "\u2603"]}
      {:ok, ref} = Weir.NIF.engine_submit(engine, request, self(), :infinity)
      # one token per tick
      for _ <- 1..10, do: {:ok, _report} = Weir.NIF.engine_step(engine, nil)
      assert told(ref) == shown
      :ok = Weir.NIF.engine_cancel(ref)
      {:ok, _report} = Weir.NIF.engine_step(engine, nil)
      assert told(ref) == held
      assert_received {^ref, {:done, :cancelled, %{n_generated: 10}}}
      assert mailbox() == []
    end

    # the text of the chunks that have come
    defp told(ref) do
      receive do
        {^ref, {:chunk, _ids, text}} -> text <> told(ref)
      after
        0 -> ""
      end
    end

    test "ends with the reason, whoever cancels and whenever", %{slow: slow} do
      server = server(model: slow)
      {:ok, text} = Server.generate(server, "hello", max_tokens: 400)
      stop = String.slice(text, 200, 3) <> "\u2603"

      for n <- 1..20 do
        opts = [id: n, emit: :chunks, max_tokens: 400, stop: [stop]]

        chunks =
          server
          |> Server.stream("hello", opts)
          |> Stream.with_index()
          |> Enum.map(fn {chunk, i} ->
            if i == n, do: spawn(fn -> Server.cancel(server, n) end)
            chunk
          end)

        assert %Chunk{reason: :cancelled} = List.last(chunks)
        assert Enum.count(chunks, & &1.reason) == 1
        assert {:ok, said} = Weir.Tokenizer.decode(slow, Enum.flat_map(chunks, & &1.ids))
        assert said == Enum.map_join(chunks, & &1.text)
        assert String.starts_with?(text, said)
      end
    end
  end

  describe "consumers" do
    test "that die before the strategy's process has heard of their request", %{slow: slow} do
      server = server(model: slow, batch_strategy: Server.Strategy.Balanced)
      %{engines: %{1 => %{driver: driver}}} = :sys.get_state(server)
      # it waits for work
      waits = &match?({:current_function, {:gen_server, :loop, _}}, Process.info(&1, :current_function))

      assert eventually(fn -> waits.(driver) end)

      spawn(fn ->
        {:ok, session} =
          GenServer.call(server, {:begin, %{mode: :generate, id: nil, n: 1, tag: nil, fork: nil}})

        request = %{prompt: "hello", temp: 0.0, max_tokens: 4000}
        {:ok, _ref} = Weir.NIF.engine_submit(session.engine, request, self(), 0)
      end)

      assert eventually(fn -> Server.get_stats(server).n_finished.cancelled == 1 end)
      assert eventually(fn -> idle?(server) end)
    end

    test "that are killed at any time free their slots", %{slow: slow} do
      Terms.sow("killed consumers of a server")

      for strategy <- [:decode_maximal, Server.Strategy.DecodeMaximal] do
        server = server(model: slow, n_parallel: 4, batch_strategy: strategy)

        consumers =
          for _ <- 1..150 do
            pid =
              case :rand.uniform(3) do
                1 -> spawn(fn -> Server.generate(server, "hello", max_tokens: 4000) end)
                2 -> spawn(fn -> Stream.run(Server.stream(server, "hello", max_tokens: 4000)) end)
                3 -> spawn(fn -> Enum.take(Server.stream(server, "hello"), :rand.uniform(5)) end)
              end

            if :rand.uniform(3) == 1, do: Process.sleep(1)
            pid
          end

        for pid <- Enum.shuffle(consumers), do: Process.exit(pid, :kill)
        assert eventually(fn -> idle?(server) end)
        assert {:ok, _} = Server.generate(server, "hello", max_tokens: 3)
        assert eventually(fn -> idle?(server) end)
        stats = Server.get_stats(server)
        assert stats.n_kv_used == stats.n_kv_cached
        # a slot that ended between view and plan is not an error of the strategy
        assert stats.n_bad_plans + stats.strategy_failures == 0
        assert {:messages, []} = Process.info(server, :messages)
      end
    end

    test "learn that their server was killed", %{long: long} do
      Process.flag(:trap_exit, true)

      for strategy <- [:balanced, Server.Strategy.Balanced] do
        opts = [model: long, temp: 0.0, batch_strategy: strategy, drain_timeout: Weir.Wait.patience()]
        {:ok, server} = Server.start_link(opts)

        task =
          Task.async(fn ->
            result = Server.generate(server, "hello", max_tokens: 4000)
            {result, mailbox()}
          end)

        assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
        Process.exit(server, :kill)
        assert {{:error, %{code: :server_down}}, []} = Task.await(task, Weir.Wait.patience())
        assert_receive {:EXIT, ^server, :killed}
      end
    end
  end
end
