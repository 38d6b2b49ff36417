# SPDX-License-Identifier: Apache-2.0
defmodule Weir.LoadingTest do
  # Servers whose model is still being downloaded, from a local hub. It changes the environment.
  use ExUnit.Case, async: false
  import ExUnit.CaptureLog
  import Weir.Wait, only: [eventually: 1, mailbox: 0]
  alias Weir.{HubServer, Server}
  alias Weir.Server.Loader

  @moduletag :curl

  setup do
    # takes more than a minute; no test waits for it
    slow = %{files: %{"m-Q4_0.gguf" => :crypto.strong_rand_bytes(20_000_000)}, delay: 250}
    hub = HubServer.start(%{"o/slow" => slow})
    dir = Path.join(System.tmp_dir!(), "weir-loading-#{System.unique_integer([:positive])}")
    before = Map.take(System.get_env(), ["HF_ENDPOINT", "HF_HUB_CACHE"])
    System.put_env(%{"HF_ENDPOINT" => hub.url, "HF_HUB_CACHE" => dir})

    on_exit(fn ->
      Enum.each(["HF_ENDPOINT", "HF_HUB_CACHE"], &System.delete_env/1)
      System.put_env(before)
      File.rm_rf!(dir)
    end)

    {:ok, model} = Weir.load_model("fake:")
    %{hub: hub, dir: dir, model: model}
  end

  defp slow(hub, opts \\ []) do
    server = start_supervised!({Server, [model_path: "hf:o/slow", temp: 0.0] ++ opts})
    assert eventually(fn -> HubServer.n_open(hub) == 1 end)
    server
  end

  # The result of the download, which it replaces.
  defp arrive(server, found) do
    %{options: options, loading: {loader, _for}} = :sys.get_state(server)
    loaded = with {:ok, model} <- found, do: Loader.first(model, options)
    send(server, {:loaded, loader, loaded})
  end

  test "a submitted request waits for the model, and may end before", %{hub: hub, model: model} do
    server = slow(hub, max_tokens: 5)
    [%{ref: ref} = one, %{ref: other} = two] = for _ <- 1..2, do: Server.submit(server, "hello")
    assert eventually(fn -> Server.get_stats(server).queue_depth == 2 end)
    assert Weir.Request.status(one) == %{state: :starting}
    assert :ok = Weir.Request.cancel(one)
    assert_receive {:weir, ^ref, {:error, %{code: :cancelled}}}
    late = Server.submit(server, "hello", queue_timeout: 20)
    late_ref = late.ref
    assert_receive {:weir, ^late_ref, {:error, %{code: :queue_timeout}}}
    arrive(server, {:ok, model})
    assert_receive {:weir, ^other, {:start, %{prompt_tokens: 6}}}
    assert_receive {:weir, ^other, {:end, %{usage: %{generated_tokens: 5}}}}
    assert eventually(fn -> Weir.Request.status(two) == %{state: :ended} end)
  end

  test "nobody waits for a model longer than its timeout", %{hub: hub} do
    server = slow(hub)
    messages = [{:user, "hello"}]
    short = [timeout: 20]
    assert {:error, %{code: :timeout}} = Server.generate(server, "hello", short)
    assert {:error, %{code: :timeout}} = Server.generate(server, "hello", timeout: 0)
    assert {:error, %{code: :timeout}} = Server.generate(server, "hello", [share: true] ++ short)
    assert {:error, %{code: :timeout}} = Server.complete(server, [1, 2], short)
    assert {:error, %{code: :timeout}} = Server.chat(server, messages, short)
    assert {:error, %{code: :timeout}} = Server.chat_completion(server, messages, [n: 2] ++ short)
    assert {:error, %{code: :timeout}} = Server.embed(server, "hello", short)
    assert {:error, %{code: :timeout}} = Server.fetch_model(server, 20)
    assert {:error, %{code: :timeout}} = Server.configure(server, [max_tokens: 3] ++ short)

    for stream <- [
          Server.stream(server, "hello", short),
          Server.stream_chat(server, messages, short),
          Server.stream_chat_completion(server, messages, short)
        ] do
      assert_raise Weir.Error, fn -> Enum.to_list(stream) end
    end

    # calls that need no model are answered at once
    assert %{state: :loading, queue_depth: 0, requests: 0, n_parallel: 4, active_slots: 0} =
             Server.get_stats(server)

    assert {:error, %{code: :not_found}} = Server.cancel(server, :nobody)
    assert {:error, %{code: :not_found}} = Server.generate(server, {:fork, :nobody})
    assert HubServer.n_open(hub) == 1
    assert mailbox() == []
  end

  test "requests that waited are answered once it is there", %{hub: hub, model: model} do
    server = slow(hub, max_tokens: 5, max_queue: 4)
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 5)
    {:ok, vector} = Weir.embed(model, "hello")
    me = self()

    ask = fn name, fun -> spawn_link(fn -> send(me, {name, fun.()}) end) end
    ask.(:whole, fn -> Server.generate(server, "hello") end)
    ask.(:stream, fn -> server |> Server.stream("hello") |> Enum.join() end)
    ask.(:model, fn -> Server.model(server) end)
    ask.(:vector, fn -> Server.embed(server, "hello") end)
    ask.(:cancelled, fn -> Server.generate(server, "hello", id: :third) end)
    assert eventually(fn -> Server.get_stats(server).queue_depth == 3 end)
    assert :ok = Server.cancel(server, :third)
    assert_receive {:cancelled, {:error, %{code: :cancelled}}}
    # only the first two have a place, and their consumer is gone when the model comes
    killed = spawn(fn -> Server.generate(server, "hello") end)
    assert eventually(fn -> Server.get_stats(server).queue_depth == 3 end)
    ask.(:last, fn -> Server.generate(server, "hello") end)
    assert eventually(fn -> Server.get_stats(server).queue_depth == 4 end)
    assert {:error, %{code: :queue_full}} = Server.generate(server, "hello")
    Process.exit(killed, :kill)
    assert {:error, %{code: :timeout}} = Server.configure(server, max_tokens: 3, timeout: 20)

    arrive(server, {:ok, model})

    for {name, answer} <- [
          whole: {:ok, text},
          stream: text,
          model: model,
          vector: {:ok, vector},
          last: {:ok, text}
        ] do
      assert_receive {^name, ^answer}
    end

    # the change took effect although its caller has given up
    assert eventually(fn -> Server.get_stats(server).requests == 0 end)

    assert eventually(fn -> match?({:ok, %{ids: [_, _, _]}}, Server.complete(server, "hello")) end)

    assert %{state: :running} = Server.get_stats(server)
    assert mailbox() == []
  end

  test "a supervisor's shutdown ends a download, and so does its death", %{hub: hub} do
    Process.flag(:trap_exit, true)

    for way <- [:shutdown, :kill] do
      {:ok, supervisor} = Supervisor.start_link([{Server, model_path: "hf:o/slow"}], strategy: :one_for_one)

      [{_id, server, _type, _modules}] = Supervisor.which_children(supervisor)
      monitor = Process.monitor(server)
      assert eventually(fn -> HubServer.n_open(hub) == 1 end)
      {pid, waiting} = spawn_monitor(fn -> exit(Server.generate(server, "hello")) end)
      assert eventually(fn -> Server.get_stats(server).queue_depth == 1 end)

      capture_log(fn ->
        Process.exit(supervisor, way)
        assert_receive {:DOWN, ^monitor, :process, ^server, _reason}
      end)

      assert_receive {:EXIT, ^supervisor, _reason}
      assert_receive {:DOWN, ^waiting, :process, ^pid, {:error, %{code: :stopping}}}
      assert eventually(fn -> HubServer.n_open(hub) == 0 end)
    end
  end

  test "statistics tell how far a download is", %{hub: hub} do
    server = slow(hub)
    told? = &match?(%{state: :loading, load: %{stage: :download, done: done}} when done > 0.0, &1)
    assert eventually(fn -> told?.(Server.get_stats(server)) end)
  end

  test "a server that is killed takes its download with it", %{hub: hub} do
    Process.flag(:trap_exit, true)
    {:ok, server} = Server.start_link(model_path: "hf:o/slow")
    assert eventually(fn -> HubServer.n_open(hub) == 1 end)
    Process.exit(server, :kill)
    assert_receive {:EXIT, ^server, :killed}
    assert eventually(fn -> HubServer.n_open(hub) == 0 end)
  end

  test "those who waited for what cannot be loaded learn why", %{hub: hub} do
    Process.flag(:trap_exit, true)
    me = self()
    {:ok, server} = Server.start_link(model_path: "hf:o/slow")
    assert eventually(fn -> HubServer.n_open(hub) == 1 end)
    spawn_link(fn -> send(me, {:answer, Server.generate(server, "hello")}) end)
    assert eventually(fn -> Server.get_stats(server).queue_depth == 1 end)

    capture_log(fn ->
      error = Weir.Error.new({:not_found, "no model"})
      arrive(server, {:error, error})
      assert_receive {:answer, {:error, %{status: 503, code: :load_failed, message: "no model"}}}
      assert_receive {:EXIT, ^server, ^error}
    end)

    assert eventually(fn -> HubServer.n_open(hub) == 0 end)
  end

  test "a change of options that takes long holds up nobody", %{hub: hub, model: model} do
    server = start_supervised!({Server, model: model, temp: 0.0, max_tokens: 5})
    {:ok, text} = Server.generate(server, "hello")
    me = self()
    spawn_link(fn -> send(me, {:slow, Server.configure(server, draft_model: "hf:o/slow")}) end)
    assert eventually(fn -> HubServer.n_open(hub) == 1 end)
    assert {:ok, ^text} = Server.generate(server, "hello")
    assert {:error, %{code: :not_found}} = Server.cancel(server, :nobody)
    assert %{state: :running, requests: 0} = Server.get_stats(server)
    # the next one comes after it
    assert {:error, %{code: :timeout}} = Server.configure(server, max_tokens: 3, timeout: 20)
    assert {:ok, ^text} = Server.generate(server, "hello")
    stop_supervised!(Server)
    assert_receive {:slow, {:error, %{code: :stopping}}}
    assert eventually(fn -> HubServer.n_open(hub) == 0 end)
  end

  test "a loader that dies is an error", %{model: model, hub: hub} do
    server = start_supervised!({Server, model: model, temp: 0.0, max_tokens: 5})
    me = self()
    spawn_link(fn -> send(me, {:slow, Server.configure(server, draft_model: "hf:o/slow")}) end)
    assert eventually(fn -> HubServer.n_open(hub) == 1 end)
    {loader, _from} = :sys.get_state(server).loading
    Process.exit(loader, :kill)
    assert_receive {:slow, {:error, %{message: reason}}}
    assert reason =~ "killed"
    assert {:ok, _} = Server.generate(server, "hello")
    assert :ok = Server.configure(server, max_tokens: 3)
    assert {:ok, %{ids: [_, _, _]}} = Server.complete(server, "hello")
  end
end
