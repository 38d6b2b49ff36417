# SPDX-License-Identifier: Apache-2.0
defmodule Weir.LimitsTest do
  # How long callers wait: in the queue, for the first token, and after it.
  use Weir.ServerCase, async: true
  alias Weir.{Models, NIF, Server}
  alias Weir.Server.{Limits, Request}

  defp limits(opts, default, kind) do
    {options, []} = Limits.split!(opts, default)
    apply(Limits, kind, [options])
  end

  # The check of limits that began at 0, in ms.
  defp check(limits, place, since, now), do: Limits.check(%{limits | from: 0}, place, since, now)

  describe "limits" do
    @hour 3_600_000

    test "by default nothing is lost in the queue, however long it takes" do
      for {kind, default} <- [whole: 60_000, stream: 30_000] do
        limits = limits([], default, kind)
        assert {:infinity, _over} = Limits.start(limits)
        assert {:wait, ^default} = check(limits, :queued, 0, 0)
        assert {:wait, ^default} = check(limits, :queued, 0, @hour)
      end

      whole = limits([], 60_000, :whole)
      assert {:wait, 20_000} = check(whole, {:prefilling, 40_000}, @hour, @hour + 9)
      assert {:wait, 1} = check(whole, {:running, 59_999, 59_999}, @hour, @hour + 9)
      assert {:over, :timeout} = check(whole, {:running, 60_000, 60_000}, @hour, @hour + 9)

      stream = limits([], 30_000, :stream)
      assert {:wait, 30_000} = check(stream, {:prefilling, @hour}, 0, 2 * @hour)
      assert {:wait, 10_000} = check(stream, {:running, @hour, @hour}, 2 * @hour, 2 * @hour + 20_000)
      assert {:over, :timeout} = check(stream, {:running, @hour, @hour}, 2 * @hour, 2 * @hour + 30_000)

      # the first token is on its way after an hour in the queue, or in a prefill
      assert {:wait, 30_000} = check(stream, {:running, 1, 0}, 0, @hour)
      assert {:wait, 1} = check(stream, {:running, @hour, 29_999}, 0, @hour)
      assert {:over, :timeout} = check(stream, {:running, @hour, 30_000}, 0, @hour)
    end

    test "a given timeout is for all phases" do
      whole = limits([timeout: 100], 60_000, :whole)
      whole = %{whole | whole: 100}

      for {place, over} <- [
            {:queued, {:queued, 100}},
            {{:prefilling, 1}, :timeout},
            {{:running, 50, 50}, :timeout}
          ] do
        assert {:wait, 40} = check(whole, place, 0, 60)
        assert {:over, ^over} = check(whole, place, 90, 100)
      end

      stream = limits([timeout: 100], 30_000, :stream)

      for place <- [:queued, {:prefilling, 1}, {:running, 50, 50}] do
        assert {:wait, 40} = check(stream, place, 0, 60)
        assert {:wait, 90} = check(stream, place, 50, 60)
        assert {:over, over} = check(stream, place, 0, 100)
        assert Weir.Error.new(over).code == :timeout
      end
    end

    test "of a model that must be loaded first: the default counts from the call, too" do
      for {kind, default} <- [whole: 60_000, stream: 30_000] do
        limits = limits([], default, kind)
        until = limits.from + default
        assert {^until, :timeout} = limits |> Limits.loading() |> Limits.start()
        limits = limits([queue_timeout: 5], default, kind)
        assert {_at, {:queue_timeout, 5}} = limits |> Limits.loading() |> Limits.start()
        limits = limits([timeout: :infinity], default, kind)
        assert {:infinity, _over} = limits |> Limits.loading() |> Limits.start()
      end
    end

    test "of the queue and of the first token" do
      limits = limits([queue_timeout: 100, first_token_timeout: 50, timeout: :infinity], 1, :whole)
      assert {:wait, 40} = check(limits, :queued, 0, 60)
      # it could leave the queue now
      assert {:wait, 50} = check(limits, :queued, 0, 0)
      assert {:over, {:queue_timeout, 100}} = check(limits, :queued, 0, 100)
      assert {:wait, 20} = check(limits, {:prefilling, 30}, 0, 1000)
      assert {:over, {:first_token_timeout, 50}} = check(limits, {:prefilling, 50}, 0, 1000)
      assert {:wait, :infinity} = check(limits, {:running, @hour, @hour}, 0, @hour)
      assert {_at, {:queue_timeout, 100}} = Limits.start(limits)
    end
  end

  test "a request that was cancelled in the queue has had no slot and no token", %{model: model} do
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256, manual: true})
    {:ok, ref} = NIF.engine_submit(engine, %{prompt: "hello"}, self(), 1)
    assert Request.place_of(ref) == :queued
    :ok = NIF.engine_cancel(ref)
    {:ok, _tick} = NIF.engine_step(engine, nil)
    assert_receive {^ref, {:done, :cancelled, _usage}}
    assert Request.place_of(ref) == {:running, 0, 0}
  end

  # A server whose only slot is taken until `free` is called.
  defp busy(long) do
    server = server(model: long, n_parallel: 1)
    running = Server.submit(server, "first", max_tokens: 4000)
    assert eventually(fn -> Server.get_stats(server).active_slots == 1 end)
    {server, fn -> Weir.Request.cancel(running) end}
  end

  describe "a queued request" do
    test "waits by default beyond the time between two chunks", %{long: long} do
      {server, _free} = busy(long)
      {read, me} = {Weir.Server.Answer.read!(id: :queued), self()}

      # with 20 ms for the 30 s that are the default
      read = put_in(read.limits.default, 20)

      task =
        Task.async(fn ->
          open = fn ->
            opened = Weir.Server.Answer.open(server, "hello", read)
            send(me, :open)
            opened
          end

          open |> Weir.Server.Answer.chunks() |> Enum.map(& &1.reason)
        end)

      assert_receive :open
      refute Task.yield(task, 200)
      assert :ok = Server.cancel(server, :queued)
      assert Task.await(task, Weir.Wait.patience()) == [:cancelled]
    end

    test "ends at its queue_timeout, with an error that says so", %{long: long} do
      {server, free} = busy(long)
      short = [queue_timeout: 20, timeout: :infinity]
      messages = [%{role: "user", content: "hello"}]
      assert {:error, %{code: :queue_timeout}} = Server.generate(server, "hello", short)

      assert {:error, %{code: :queue_timeout}} =
               Server.generate(server, "hello", [share: true, temp: 0.0] ++ short)

      assert {:error, %{code: :queue_timeout}} = Server.chat_completion(server, messages, [n: 2] ++ short)

      error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream(server, "hello", short)) end
      assert error.code == :queue_timeout
      assert error.message =~ "waited 0.02 s in the queue"
      assert eventually(fn -> Server.get_stats(server).requests == 1 end)

      # a given timeout is over in the queue, too, and people see where
      assert {:error, %{code: :timeout}} = Server.generate(server, "hello", timeout: 20)
      assert {:error, %{code: :timeout}} = Server.chat_completion(server, messages, timeout: 20, n: 2)
      error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream(server, "hello", timeout: 20)) end
      assert error.code == :timeout

      assert error.message =~
               ~r/waited \d+\.\d+ s in the queue, until its timeout|it took longer than its timeout/

      free.()
      # which it has left in time
      assert {:ok, _text} =
               Server.generate(server, "hello", queue_timeout: Weir.Wait.patience(), max_tokens: 3)

      assert mailbox() |> Enum.reject(&match?({:weir, _, _}, &1)) == []
    end

    test "full: the error has the bound", %{long: long} do
      server = server(model: long, n_parallel: 1, max_queue: 1)
      _running = for _ <- 1..2, do: Server.submit(server, "hello", max_tokens: 4000)
      assert eventually(fn -> match?(%{active_slots: 1, queue_depth: 1}, Server.get_stats(server)) end)
      assert {:error, %{code: :queue_full}} = Server.generate(server, "hello")
      error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream(server, "hello")) end
      assert error.code == :queue_full
      assert error.message =~ "max_queue" and error.message =~ "1 more"
      messages = [%{role: "user", content: "hello"}]
      assert {:error, %{code: :queue_full}} = Server.chat_completion(server, messages)
      error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream_chat_completion(server, messages)) end
      assert error.message =~ "max_queue"
    end
  end

  test "a prompt whose first token takes too long", %{long: long} do
    server = server(model: long, n_parallel: 1, chunk_size: 1, n_batch: 1)
    prompt = String.duplicate("slow ", 400)
    opts = [first_token_timeout: 100]
    assert {:error, %{code: :first_token_timeout}} = Server.generate(server, prompt, opts)
    error = assert_raise Weir.Error, fn -> Enum.to_list(Server.stream(server, prompt, opts)) end
    assert error.message =~ "no token came within 0.1 s"
    assert eventually(fn -> idle?(server) end)
  end

  test "64 callers at once of a server with its defaults", %{model: model} do
    {:ok, server} = Server.start_link(model: model)
    assert %{n_parallel: 4, max_queue: 256} = Server.get_stats(server)

    results =
      1..64
      |> Enum.map(fn i ->
        Task.async(fn ->
          if rem(i, 2) == 0,
            do: Server.generate(server, "caller #{i}"),
            else: {:ok, server |> Server.stream("caller #{i}") |> Enum.join()}
        end)
      end)
      |> Task.await_many(:infinity)

    assert Enum.all?(results, &match?({:ok, _text}, &1))
    GenServer.stop(server)
  end

  test "models by name have the same limits" do
    slow = [name: "m", model_path: "fake:tick_us=20000", n_parallel: 1]
    {:ok, models} = Models.start_link(models: [slow])

    # it runs on while nobody reads it
    {:suspended, _text, _more} =
      models
      |> Models.stream("m", "first", max_tokens: 4000, temp: 0.0)
      |> Enumerable.reduce({:cont, nil}, fn text, _ -> {:suspend, text} end)

    short = [queue_timeout: 20]
    assert {:error, %{code: :queue_timeout}} = Models.generate(models, "m", "hello", short)
    assert {:error, %{code: :timeout}} = Models.generate(models, "m", "hello", timeout: 20)

    assert_raise Weir.Error, ~r/in the queue/, fn ->
      models |> Models.stream("m", "hello", short) |> Stream.run()
    end
  end
end
