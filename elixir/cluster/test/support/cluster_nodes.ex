# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ClusterNodes do
  @moduledoc false
  # Real nodes on loopback for tests and benchmarks of clusters. They are controlled through their standard
  # input and output, so that the VM that starts them needs no distribution, and need no epmd
  # (`Weir.ClusterEpmd`). They connect only when told, so that a closed connection stays closed.

  defstruct [:peer, :node, :os_pid]

  # Without prevent_overlapping_partitions, which closes further connections when one is lost.
  @flags ~w(-setcookie weir -start_epmd false -epmd_module Elixir.Weir.ClusterEpmd -kernel inet_dist_use_interface
            {127,0,0,1} -kernel dist_auto_connect never -kernel prevent_overlapping_partitions false -kernel
            logger_level emergency -pa)c

  # ---- From outside ----

  @doc "Starts so many nodes with the application, connected to each other and to the given ones."
  def start(n, others \\ []) do
    nodes =
      1..n |> Enum.map(fn _ -> Task.async(fn -> started(20) end) end) |> Task.await_many(Weir.Wait.patience())

    Enum.reduce(nodes, others, fn node, others ->
      connect(node, others)
      [node | others]
    end)

    nodes
  end

  def connect(node, others), do: :ok = call(node, __MODULE__, :do_connect, [Enum.map(others, & &1.node)])

  defp started(tries) do
    options = %{
      name: :"weir#{free_port()}",
      host: ~c"127.0.0.1",
      longnames: true,
      connection: :standard_io,
      wait_boot: Weir.Wait.patience(),
      args: @flags ++ :code.get_path()
    }

    # not linked to this process
    case :peer.start(options) do
      {:ok, peer, node} ->
        :ok = :peer.call(peer, __MODULE__, :prepare, [], Weir.Wait.patience())
        %__MODULE__{peer: peer, node: node, os_pid: to_string(:peer.call(peer, :os, :getpid, []))}

      # the port was taken meanwhile
      {:error, _reason} when tries > 1 ->
        started(tries - 1)
    end
  end

  defp free_port do
    {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(socket)
    :gen_tcp.close(socket)
    port
  end

  @doc "Calls a function there. Raises what it raises."
  def call(node, module, fun, arguments),
    do: :peer.call(node.peer, module, fun, arguments, Weir.Wait.patience())

  @doc "A signal for its process: KILL, STOP or CONT."
  def signal(node, name) do
    {_output, 0} = System.cmd("kill", ["-#{name}", node.os_pid])
    :ok
  end

  def stop(node), do: :peer.stop(node.peer)

  @doc "Starts a server and its cluster there."
  def serve(node, cluster, server_opts \\ [], cluster_opts \\ []) do
    # no drafts: each token takes a pass
    opts = Keyword.merge([model_path: "fake:", temp: 0.0, lookup_bytes: 0, n_draft_max: 0], server_opts)
    server = {Weir.Server, [name: server(cluster)] ++ opts}

    call(node, __MODULE__, :keep, [
      cluster,
      [server, part(cluster, [server: server(cluster)] ++ cluster_opts)]
    ])
  end

  @doc "Starts only the caller's part there."
  def follow(node, cluster, opts \\ []), do: call(node, __MODULE__, :keep, [cluster, [part(cluster, opts)]])

  @doc "Ends both."
  def leave(node, cluster), do: call(node, Supervisor, :stop, [:"#{cluster}_supervisor"])

  defp part(cluster, opts), do: {Weir.Cluster, [name: cluster] ++ opts}

  @doc "The name of a cluster's server on each node."
  def server(cluster), do: :"#{cluster}_server"

  @doc "The nodes that one of them routes to."
  def members(node, cluster), do: for(m <- call(node, Weir.Cluster, :members, [cluster]), do: m.node)

  @doc "The events that a node has told since the last time, as `{name, measurements, metadata}`."
  def events(node), do: call(node, __MODULE__, :take_events, [])

  @doc "Whether a cluster's server there has no requests."
  def idle?(node, cluster) do
    stats = call(node, Weir.Server, :get_stats, [server(cluster)])
    stats.requests + stats.active_slots + stats.queue_depth == 0
  end

  @doc """
  Reads streams on a node, each in a process of its own. `jobs` are `{prompt, opts}`. Returns for each a map:
  `text`, `ids`, `ends` (what ended it: reasons of last chunks, or errors), `error_text`, `gap_ms` (the
  longest time between two chunks), `left` (messages in its mailbox).
  """
  def read(node, cluster, jobs), do: call(node, __MODULE__, :do_read, [cluster, jobs])

  @doc "How many chunks each of them has got so far."
  def progress(node), do: call(node, __MODULE__, :do_progress, [])

  # ---- On the nodes ----

  @doc false
  def prepare do
    {:ok, _started} = Application.ensure_all_started(:weir_cluster)
    # a node on a busy machine may be silent for longer than the usual 5 s
    Application.put_env(:weir_cluster, :silence, Weir.Wait.patience())
    owner = spawn(fn -> Process.sleep(:infinity) end)

    for table <- [:events, :progress],
        do: :ets.new(table, [:named_table, :public, :ordered_set, {:heir, owner, nil}])

    # the part of :telemetry that is used
    {:module, :telemetry, _, _} =
      Module.create(
        :telemetry,
        quote do
          def execute(name, measurements, metadata) do
            :ets.insert(:events, {:erlang.unique_integer([:monotonic]), {name, measurements, metadata}})
          end
        end,
        Macro.Env.location(__ENV__)
      )

    :ok
  end

  @doc false
  def do_connect(nodes) do
    Enum.each(nodes, &(true = Node.connect(&1)))
  end

  @doc false
  def keep(cluster, children) do
    {:ok, supervisor} =
      Supervisor.start_link(children,
        strategy: :one_for_one,
        name: :"#{cluster}_supervisor",
        max_restarts: 100
      )

    Process.unlink(supervisor)
    :ok
  end

  @doc false
  def take_events, do: for({number, event} <- :ets.tab2list(:events), :ets.delete(:events, number), do: event)

  @doc false
  def do_progress, do: for({_i, n} <- :ets.tab2list(:progress), do: n)

  @doc false
  def do_read(cluster, jobs) do
    for {_job, i} <- Enum.with_index(jobs), do: :ets.insert(:progress, {i, 0})

    results =
      jobs
      |> Enum.with_index()
      |> Enum.map(fn {{prompt, opts}, i} -> Task.async(fn -> read_one(cluster, prompt, opts, i) end) end)
      |> Task.await_many(Weir.Wait.patience())

    # the next ones begin at none
    :ets.delete_all_objects(:progress)
    results
  end

  defp read_one(cluster, prompt, opts, i) do
    {:ok, got} = Agent.start_link(fn -> [] end)

    {ends, error_text} =
      try do
        cluster
        |> stream(prompt, [emit: :chunks] ++ opts)
        |> Enum.each(fn chunk ->
          :ets.update_counter(:progress, i, 1)
          Agent.update(got, &[{System.monotonic_time(:millisecond), chunk} | &1])
        end)

        {[], nil}
      rescue
        error in Weir.Error -> {[error.code], error.text}
      end

    chunks = got |> Agent.get(& &1) |> Enum.reverse()
    times = for {ms, _chunk} <- chunks, do: ms

    %{
      text: Enum.map_join(chunks, fn {_ms, chunk} -> chunk.text end),
      ids: Enum.flat_map(chunks, fn {_ms, chunk} -> chunk.ids end),
      ends: for({_ms, %{reason: reason}} <- chunks, reason != nil, do: reason) ++ ends,
      usage: List.last([nil | Enum.map(chunks, fn {_ms, chunk} -> chunk.usage end)]),
      error_text: error_text,
      gap_ms:
        times |> Enum.zip(Enum.drop(times, 1)) |> Enum.map(fn {a, b} -> b - a end) |> Enum.max(fn -> 0 end),
      left: elem(Process.info(self(), :message_queue_len), 1)
    }
  end

  defp stream(cluster, {:chat, messages}, opts), do: Weir.Cluster.stream_chat(cluster, messages, opts)
  defp stream(cluster, prompt, opts), do: Weir.Cluster.stream(cluster, prompt, opts)

  @doc false
  # On the node of a caller: a process that reads a stream until it dies.
  def begin(cluster, prompt, opts) do
    spawn(fn -> cluster |> Weir.Cluster.stream(prompt, opts) |> Stream.run() end)
  end

  @doc false
  def take(cluster, prompt, opts, n) do
    {cluster |> Weir.Cluster.stream(prompt, opts) |> Enum.take(n), elem(Process.info(self(), :messages), 1)}
  end

  @doc false
  # Whole answers, at the same time.
  def race(cluster, jobs) do
    jobs
    |> Enum.map(fn {prompt, opts} -> Task.async(fn -> Weir.Cluster.generate(cluster, prompt, opts) end) end)
    |> Task.await_many(Weir.Wait.patience())
  end

  @doc false
  # Reads a chunk, and the others once the answer was generated.
  def sleepy(cluster, prompt, opts) do
    servers = for m <- Weir.Cluster.members(cluster), do: m.server

    over = fn ->
      for server <- servers,
          stats = GenServer.call(server, :get_stats),
          stats.n_submitted != Enum.sum(Map.values(stats.n_finished)),
          reduce: true,
          do: (_ -> false)
    end

    cluster
    |> Weir.Cluster.stream(prompt, [emit: :chunks] ++ opts)
    |> Enum.map(fn chunk -> Weir.Wait.eventually(over) && chunk end)
  end

  @doc false
  def disconnect(nodes), do: Enum.each(nodes, &Node.disconnect/1)
end
