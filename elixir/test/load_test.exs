# SPDX-License-Identifier: Apache-2.0
defmodule Weir.LoadTest do
  # Servers that start before their model is loaded, from a file. Loads occupy all dirty schedulers for I/O, so
  # nothing may run beside it.
  use ExUnit.Case, async: false
  import ExUnit.CaptureLog
  import Weir.Wait, only: [eventually: 1]
  alias Weir.{Model, Server}

  # a minute, which no test waits for
  @slow "fake:load_us=60000000"

  test "a server with await: false starts at once, and tells its state" do
    server = start_supervised!({Server, model_path: @slow, await: false, n_parallel: 3})
    assert eventually(fn -> match?(%{load: %{stage: :load}}, Server.get_stats(server)) end)
    assert %{state: :loading, load: %{done: done}, n_parallel: 3} = Server.get_stats(server)
    assert done >= 0.0 and done <= 1.0
    assert {:error, %{code: :timeout}} = Server.generate(server, "hello", timeout: 0)
    assert {:error, %{code: :timeout}} = Server.fetch_model(server, 0)
    waiting = Task.async(fn -> Server.generate(server, "hello") end)
    assert eventually(fn -> Server.get_stats(server).queue_depth == 1 end)
    stop_supervised!(Server)
    assert {:error, %{code: :stopping}} = Task.await(waiting, Weir.Wait.patience())
  end

  test "requests wait for the model" do
    server = start_supervised!({Server, model_path: "fake:load_us=200000", await: false, temp: 0.0})
    {:ok, model} = Weir.load_model("fake:")
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 5)
    assert {:ok, ^text} = Server.generate(server, "hello", max_tokens: 5)
    stats = Server.get_stats(server)
    assert stats.state == :running and not is_map_key(stats, :load)
  end

  test "those who wait for what cannot be loaded learn why" do
    Process.flag(:trap_exit, true)

    capture_log(fn ->
      {:ok, server} = Server.start_link(model_path: "fake:load_us=200000,fail_load=1", await: false)
      assert {:error, %{status: 503, code: :load_failed, message: text}} = Server.generate(server, "hello")
      assert_receive {:EXIT, ^server, %Weir.Error{message: ^text}}
    end)

    assert {:error, %Weir.Error{}} = Server.start_link(model_path: "fake:fail_load=1")
    assert_raise ArgumentError, ~r/:await/, fn -> Server.start_link(model_path: "fake:", await: :no) end
  end

  test "a load ends with its process" do
    me = self()
    begun = options(await: false)

    # While all schedulers for I/O are busy, the VM can load no module: the first round has all that are needed.
    for n <- [1, :erlang.system_info(:dirty_io_schedulers)], ended <- [:by_itself, :by_its_server] do
      owners =
        for _ <- 1..n do
          if ended == :by_itself do
            loading(me)
          else
            {:ok, server} = GenServer.start(Weir.Server.Broker, begun)
            assert eventually(fn -> match?(%{load: %{stage: :load}}, Server.get_stats(server)) end)
            server
          end
        end

      for pid <- owners, do: Process.exit(pid, :kill)
      # a scheduler for I/O is free again
      assert [_ | _] = Weir.devices()
    end
  end

  # A process that loads, once it does.
  defp loading(me) do
    tag = make_ref()
    pid = spawn(fn -> Model.load(@slow, [], {me, tag}) end)
    assert_receive {^tag, {:progress, done}} when is_float(done)
    pid
  end

  # As Weir.Server.start_link/1 reads them.
  defp options(opts) do
    {:ok, server} = Server.start_link([model_path: "fake:"] ++ opts)
    %{options: o} = :sys.get_state(server)
    :ok = GenServer.stop(server)
    {@slow, o}
  end
end
