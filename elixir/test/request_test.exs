# SPDX-License-Identifier: Apache-2.0
defmodule Weir.RequestTest do
  # Requests that run while their caller does something else.
  use Weir.ServerCase, async: true
  doctest Weir.Request
  alias Weir.{Chunk, Request, Server}

  # The events of a request, to its last one.
  defp events(%Request{ref: ref} = request, done \\ []) do
    assert_receive {:weir, ^ref, event}

    if elem(event, 0) in [:end, :error],
      do: Enum.reverse([event | done]),
      else: events(request, [event | done])
  end

  defp next(%Request{ref: ref}) do
    assert_receive {:weir, ^ref, event}
    event
  end

  defp text(events), do: for({:text, text} <- events, into: "", do: text)

  describe "messages" do
    test "from the start to the end, with the prompt's progress between", %{model: model} do
      server = server(model: model, chunk_size: 16, n_parallel: 1, n_batch: 16)
      prompt = String.duplicate("a long prompt ", 20)
      request = Server.submit(server, prompt, [id: :mine] ++ @greedy)
      assert %Request{id: :mine} = request
      events = events(request)

      assert {:start, %{id: :mine, prompt_tokens: n, queue_position: 0}} = hd(events)
      assert n > 16
      {progress, rest} = Enum.split_while(tl(events), &(elem(&1, 0) == :progress))
      counts = for {:progress, map} <- progress, do: map.n_processed
      assert counts == counts |> Enum.sort() |> Enum.uniq() and List.last(counts) == n
      assert {:end, %{reason: :length, usage: usage, miss: %{miss: _}}} = List.last(rest)
      assert %{prompt_tokens: ^n, generated_tokens: 40} = usage

      assert {:ok, text(rest)} == Server.generate(server, prompt, @greedy)
      assert Request.status(request) == %{state: :ended}
      assert eventually(fn -> match?({:error, %{code: :not_found}}, Request.cancel(request)) end)
      assert {:error, %{code: :not_found}} = Request.set_interval(request, 3)
      assert mailbox() == []
    end

    test "as chunks, of a conversation and of a shared answer", %{model: model} do
      server = server(model: model)
      opts = [progress: false] ++ @greedy
      messages = [%{role: "user", content: "hello"}]

      events = events(Server.submit_chat(server, messages, [emit: :chunks, logprobs: true] ++ opts))
      chunks = for {:chunk, %Chunk{} = chunk} <- events, do: chunk
      assert {:ok, Enum.map_join(chunks, & &1.text)} == Server.chat(server, messages, @greedy)
      {:end, last} = List.last(events)
      assert length(Enum.flat_map(chunks, & &1.logprobs)) + length(last.logprobs || []) == 40

      shared = Server.submit(server, "hello", [share: true, id: 7] ++ opts)
      assert {:ok, text} = Server.generate(server, "hello", @greedy)
      assert text(events(shared)) == text
      assert text(events(Server.submit(server, "hello", [echo: true] ++ opts))) == "hello" <> text
    end

    test "tell of errors; wrong options raise", %{model: model, long: long} do
      server = server(model: model)
      assert [{:error, %{message: reason}}] = events(Server.submit(server, "hello", top_p: 7))
      assert reason =~ "top_p"

      assert [{:error, %{message: reason}}] =
               events(Server.submit(server, "hello", json_schema: %{a: self()}))

      assert is_binary(reason)
      # a shared one is submitted elsewhere
      assert [{:error, %{message: reason}}] =
               events(Server.submit(server, "hello", share: true, temp: 0.0, top_p: 7))

      assert reason =~ "top_p"
      assert [{:error, %{code: :server_down}}] = events(Server.submit(:nobody, "hello"))
      assert [{:error, %{code: :not_found}}] = events(Server.submit(server, {:fork, :nobody}))
      assert_raise ArgumentError, ~r/nonsense/, fn -> Server.submit(server, "hello", nonsense: 1) end
      assert_raise ArgumentError, ~r/a prompt is/, fn -> Server.submit(server, :hello) end

      full = server(model: long, n_parallel: 1, max_queue: 1)
      first = Server.submit(full, "a", max_tokens: 4000)
      assert eventually(fn -> Server.get_stats(full).active_slots == 1 end)
      second = Server.submit(full, "b", max_tokens: 4000)
      assert {:start, %{queue_position: 1}} = next(second)
      assert [{:error, %{code: :queue_full}}] = events(Server.submit(full, "c"))
      assert Server.get_stats(full).max_queue == 1

      Process.exit(full, :kill)
      assert {:error, %{code: :server_down}} = List.last(events(second))
      assert {:error, %{code: :server_down}} = List.last(events(first))
      assert Request.status(first) == %{state: :ended}
    end

    test "never flood a slow receiver, and lose nothing", %{model: model} do
      server = server(model: model)
      opts = [temp: 0.0, max_tokens: 2000]
      {:ok, text} = Server.generate(server, "hello", opts)

      request = Server.submit(server, "hello", opts)
      # it has computed everything, and this process has read nothing
      assert eventually(fn -> Server.get_stats(server).n_generated_tokens >= 4000 end)
      assert eventually(fn -> length(mailbox()) >= 16 end)
      assert length(mailbox()) < 100
      events = events(request)
      assert text(events) == text
      assert Enum.count(events) < 100
      assert mailbox() == []
    end

    test "bring all text before an error", %{long: long} do
      server = server(model: long)
      request = Server.submit(server, "hello", max_tokens: 4000)
      # the receiver has read nothing, so that some text is kept
      for _ <- 1..16, do: send(self(), :other)
      assert eventually(fn -> match?(%{generated_tokens: n} when n >= 30, Request.status(request)) end)
      n = Request.status(request).generated_tokens
      Process.exit(server, :kill)
      events = events(request)
      assert {:error, %{code: :server_down}} = List.last(events)
      # of the tokens that the engine has counted the last one's text may be on its way
      assert String.length(text(events)) >= n - 1
    end

    test "have all been sent before the request has ended", %{long: long} do
      server = server(model: long)
      %{ref: ref} = request = Server.submit(server, "hello", max_tokens: 4000)
      assert {:start, _} = next(request)
      :erlang.suspend_process(request.guard)
      assert :ok = Request.cancel(request)
      assert eventually(fn -> not Process.alive?(request.pid) and idle?(server) end)
      asked = Task.async(fn -> Request.status(request) end)
      assert eventually(fn -> Process.info(asked.pid, :monitors) == {:monitors, process: request.guard} end)
      :erlang.resume_process(request.guard)
      assert Task.await(asked, :infinity) == %{state: :ended}
      assert [{:weir, ^ref, {:end, %{reason: :cancelled}}}] = Enum.take(mailbox(), -1)
      # a process that outlives its request is not about to start it
      assert Request.status(%{request | pid: self()}) == %{state: :ended}
    end

    test "reach a receiver that leaves others in its mailbox", %{model: model} do
      server = server(model: model)
      for _ <- 1..16, do: send(self(), :other)
      {:ok, text} = Server.generate(server, "hello", temp: 0.0, max_tokens: 2000)
      assert text(events(Server.submit(server, "hello", temp: 0.0, max_tokens: 2000))) == text
      assert mailbox() == List.duplicate(:other, 16)
    end
  end

  describe "a running request" do
    test "tells its status, and stands in statistics under its id", %{long: long} do
      server = server(model: long, n_parallel: 1)
      first = Server.submit(server, "hello", id: :first, max_tokens: 4000)
      assert {:start, %{prompt_tokens: 6}} = next(first)
      assert eventually(fn -> Request.status(first).state == :generating end)

      assert %{id: :first, seq_id: 1, queue_position: 0, prompt_tokens: 6, processed_tokens: 6} =
               status = Request.status(first)

      assert %{generated_tokens: n, interval: 1, cancelled: false} = status
      assert n > 0

      others =
        for i <- 1..3 do
          other = Server.submit(server, "hello #{i}", max_tokens: 4)
          assert {:start, %{queue_position: ^i}} = next(other)
          other
        end

      assert Enum.map(others, &Request.status(&1).queue_position) == [1, 2, 3]
      assert Enum.all?(others, &(Request.status(&1).state == :queued))

      assert eventually(fn -> match?([%{id: :first, seq_id: 1}], Server.get_stats(server).slots) end)
      assert Server.get_stats(server).requests == 4

      # by the default id, the ref
      [one, two, three] = others
      assert :ok = Server.cancel(server, one.ref)
      assert {:end, %{reason: :cancelled}} = List.last(events(one))
      assert :ok = Request.cancel(two)
      assert {:end, %{reason: :cancelled}} = List.last(events(two))
      assert Request.status(three).queue_position == 1
      assert :ok = Request.cancel(first)
      assert {:end, %{reason: :cancelled, usage: %{generated_tokens: _}}} = List.last(events(first))
      assert {:end, %{reason: :length}} = List.last(events(three))
      assert eventually(fn -> idle?(server) end)
    end

    test "is cancelled before it has begun", %{long: long} do
      server = server(model: long, n_parallel: 1)
      messages = [%{role: "user", content: "hello"}]

      for _ <- 1..20 do
        request = Server.submit_chat(server, messages, max_tokens: 4000)
        assert :ok = Request.cancel(request)
        last = List.last(events(request))
        assert match?({:error, %{code: :cancelled}}, last) or match?({:end, %{reason: :cancelled}}, last)
      end

      assert eventually(fn -> idle?(server) end)
    end

    test "changes its interval", %{long: long} do
      server = server(model: long)
      request = Server.submit(server, "hello", max_tokens: 4000, emit: :chunks, progress: false)
      assert {:start, _} = next(request)
      assert {:chunk, %Chunk{ids: [_ | _]}} = next(request)
      assert :ok = Request.set_interval(request, 5)
      assert Request.status(request).interval == 5
      assert eventually(fn -> match?({:chunk, %Chunk{ids: [_, _, _, _, _]}}, next(request)) end)
      assert :ok = Request.set_interval(request, 1)
      assert eventually(fn -> match?({:chunk, %Chunk{ids: [_]}}, next(request)) end)
      assert_raise ArgumentError, ~r/an interval is/, fn -> Request.set_interval(request, 0) end

      shared = Server.submit(server, "other", share: true, max_tokens: 4000, temp: 0.0)
      assert {:start, %{prompt_tokens: 6}} = next(shared)
      assert {:error, %{code: :shared}} = Request.set_interval(shared, 5)
      assert %{state: state} = Request.status(shared)
      assert state in [:queued, :prefilling, :generating]
    end

    test "ends when its caller ends, in the queue and in a slot", %{long: long} do
      for reason <- [:normal, :kill], share <- [false, true] do
        server = server(model: long, n_parallel: 1, temp: 0.0)
        me = self()

        caller =
          spawn(fn ->
            requests = for t <- ["a", "b"], do: Server.submit(server, t, max_tokens: 4000, share: share)
            send(me, Enum.map(requests, & &1.pid))
            receive do: (:end -> :ok)
          end)

        assert_receive [_, _] = pids
        assert eventually(fn -> match?(%{active_slots: 1, queue_depth: 1}, Server.get_stats(server)) end)
        if reason == :kill, do: Process.exit(caller, :kill), else: send(caller, :end)
        assert eventually(fn -> idle?(server) end)
        assert eventually(fn -> not Enum.any?(pids, &Process.alive?/1) end)
      end
    end
  end

  describe "a task whose caller has ended normally" do
    # A task that calls fun, and its caller, which ends at once.
    defp orphan(fun, start) do
      me = self()

      spawn(fn ->
        task = start.(fn -> send(me, {:result, self(), fun.()}) end)
        send(me, {:task, task})
        receive do: (:end -> :ok)
      end)
    end

    test "computes nothing more, whatever it asked for", %{long: long} do
      server = server(model: long, n_parallel: 1)
      {:ok, models} = Weir.Models.start_link(models: [[name: "m", model_path: "fake:tick_us=20000"]])
      # the likeliest token never ends the answer
      long_answer = [max_tokens: 4000, temp: 0.0]
      messages = [%{role: "user", content: "hello"}]

      for ask <- [
            fn -> Server.generate(server, "hello", long_answer) end,
            fn -> Server.generate(server, "hello", [share: true] ++ long_answer) end,
            fn -> Server.chat_completion(server, messages, [n: 2] ++ long_answer) end,
            fn -> catch_error(Enum.to_list(Server.stream(server, "hello", long_answer))) end,
            fn -> Weir.generate(long, "hello", long_answer) end,
            fn -> Weir.chat_completion(long, messages, long_answer) end,
            fn -> Weir.Models.generate(models, "m", "hello", long_answer) end
          ] do
        pid = orphan(ask, &Task.async/1)
        assert_receive {:task, %Task{pid: task}}
        assert eventually(fn -> {:process, pid} in elem(Process.info(task, :monitors), 1) end)
        refute_received {:result, ^task, _}
        send(pid, :end)
        assert_receive {:result, ^task, result}

        assert match?({:error, %{code: :cancelled}}, result) or match?(%Weir.Error{code: :cancelled}, result)

        assert eventually(fn -> idle?(server) end)
      end
    end

    test "goes on if it is not linked, and others are not concerned", %{model: model} do
      server = server(model: model)
      {:ok, supervisor} = Task.Supervisor.start_link()

      pid =
        orphan(
          fn -> Process.sleep(1) && Server.generate(server, "hello", @greedy) end,
          fn fun -> Task.Supervisor.start_child(supervisor, fun) end
        )

      send(pid, :end)
      assert_receive {:result, _task, {:ok, _text}}

      # the monitors of a task's requests leave nothing in its mailbox
      task = Task.async(fn -> {Server.generate(server, "hello", @greedy), mailbox(), monitors()} end)
      assert {{:ok, _text}, [], 0} = Task.await(task, Weir.Wait.patience())
    end

    defp monitors, do: self() |> Process.info(:monitors) |> elem(1) |> length()
  end
end
