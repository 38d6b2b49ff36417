# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ClusterTargetTest do
  # A cluster is a target as those of the package weir are. It has only this node.
  use Weir.ServerCase, async: true
  use Weir.TargetCase
  doctest Weir.Cluster
  alias Weir.Cluster

  setup context do
    path = "fake:tick_us=#{context[:tick_us] || 500}"
    {:ok, model} = Weir.load_model(path)
    server = server(model_path: path)
    name = alone(server)

    %{
      model: model,
      targets: [{{Cluster, name}, nil}],
      modules: [{Cluster, 1}],
      idle?: fn -> idle?(server) end
    }
  end

  defp alone(server) do
    name = :"target_#{System.unique_integer([:positive])}"
    start_supervised!({Cluster, name: name, server: server}, id: name)
    assert eventually(fn -> Cluster.members(name) != [] end)
    name
  end

  test "a stream reads its options before it is enumerated", %{targets: [{{Cluster, name}, nil}]} do
    for opts <- [
          [top: 7],
          [timeout: -1],
          [emit: :all],
          [best_of: 2],
          [strict_schema: false, json_schema: "{}"],
          :none
        ],
        do: assert_raise(ArgumentError, fn -> Cluster.stream_chat(name, [], opts) end)
  end

  test "a stream is the same again unless its own time or the server's ends it" do
    for {own, given, again?} <- [
          {[], [], true},
          {[], [deadline: 60_000], false},
          {[deadline: 60_000], [], false},
          {[deadline: 60_000], [deadline: nil], true}
        ] do
      tag = :erlang.alias()
      job = {:stream, "hello", [timeout: 20_000] ++ given, 7}
      {:ok, relay} = Cluster.Relay.start(self(), tag, server(own), job)
      send(relay, {tag, :go})
      assert_receive {^tag, {:begun, _worker, ^again?}}
      send(relay, {tag, :stop})
      :erlang.unalias(tag)
    end
  end

  test "the former name of an option is refused" do
    Application.put_env(:weir, :cluster_silence, 2_000)
    on_exit(fn -> Application.delete_env(:weir, :cluster_silence) end)
    assert_raise ArgumentError, ~r/:weir_cluster, silence/, fn -> Cluster.Application.start(:normal, []) end
  end

  test "an answer ends with the process that started its task", %{long: long} do
    server = server(model: long, n_parallel: 1)
    name = alone(server)
    # the likeliest token never ends the answer
    opts = [max_tokens: 4000, temp: 0.0]
    me = self()

    for ask <- [
          fn -> Cluster.generate(name, "hello", opts) end,
          fn -> catch_error(Enum.to_list(Cluster.stream(name, "hello", opts))) end
        ] do
      pid =
        spawn(fn ->
          send(me, {:task, Task.async(fn -> send(me, {:result, ask.()}) end).pid})
          receive do: (:end -> :ok)
        end)

      assert_receive {:task, task}
      assert eventually(fn -> {:process, pid} in elem(Process.info(task, :monitors), 1) end)
      refute_received {:result, _}
      send(pid, :end)
      assert_receive {:result, result}
      assert match?({:error, %{code: :cancelled}}, result) or match?(%Weir.Error{code: :cancelled}, result)
      assert eventually(fn -> idle?(server) end)
    end
  end
end
