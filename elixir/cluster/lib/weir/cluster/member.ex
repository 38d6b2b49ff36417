# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Member do
  @moduledoc false
  # The process of a cluster on one node. It reports this node's server to the processes of the same cluster
  # on other nodes, and keeps what they report in a table, from which callers route by themselves: no request
  # passes through it.

  use GenServer
  require Logger

  alias Weir.Cluster.{Clock, Identity, Route, Telemetry}
  alias Weir.{Error, Server}

  # the scope of :pg, which the application starts
  @scope Weir.Cluster

  # Between two reports, and the number of times that an unchanged one may be left out.
  @report_ms 500
  @unchanged 3

  # after which a node that is not heard is forgotten
  @forget_ms 15_000

  # how long the processes of other nodes have to answer
  @ask_ms 2_000

  # server: as given; nil: this node only calls. status: :absent, :loading, :member, or {:refused, text}.
  # identity: of this node's server once it has loaded. agreed: what members must be like. events: of the :pg
  # group. monitor: of the server, {pid, reference}. loader: finds out the identity. peers: by node,
  # %{identity, member}; this node's own among them. report: the last one; unchanged: how often it was left
  # out since. warned: refusals of others that the log has.
  defstruct [
    :name,
    :server,
    :spill,
    :events,
    :identity,
    :agreed,
    :monitor,
    :loader,
    :report,
    status: :absent,
    telemetry: false,
    unchanged: 0,
    peers: %{},
    warned: []
  ]

  @type view :: %{
          status: :absent | :loading | :member | {:refused, String.t()},
          members: [Route.member()],
          spill: number(),
          telemetry: boolean()
        }

  @spec start_link(map()) :: GenServer.on_start()
  def start_link(o), do: GenServer.start_link(__MODULE__, o, name: o.name)

  @doc "What this node knows; nil: the cluster is not running."
  @spec view(atom()) :: view() | nil
  def view(name) do
    case :ets.lookup(name, :about) do
      [about: about] -> Map.put(about, :members, :ets.select(name, [{{{:member, :_}, :"$1"}, [], [:"$1"]}]))
      [] -> nil
    end
  rescue
    ArgumentError -> nil
  end

  @doc "For other nodes: the identity of the cluster's server here."
  @spec identity(atom()) :: {:ok, Identity.t()} | {:error, Error.t()}
  def identity(name), do: GenServer.call(name, :identity, @ask_ms)

  # ---- The cluster ----

  # The servers are the members of the :pg group, not these processes: in OTP 25 a scope crashes when a
  # process ends that is a member and monitors a group. These have the same name on each node instead.
  @impl true
  def init(o) do
    Process.flag(:trap_exit, true)
    _table = :ets.new(o.name, [:named_table, :protected, read_concurrency: true])
    {events, _servers} = :pg.monitor(@scope, o.name)
    :ok = :net_kernel.monitor_nodes(true)
    state = struct!(__MODULE__, Map.merge(o, %{events: events, telemetry: Telemetry.loaded?()}))
    for node <- Node.list(), do: tell(o.name, node, :hello)
    {:ok, state |> show() |> find_server(), {:continue, :tick}}
  end

  @impl true
  def handle_continue(:tick, state), do: {:noreply, tick(state)}

  @impl true
  def handle_call(:identity, _from, %{status: :member} = state), do: {:reply, {:ok, state.identity}, state}

  def handle_call(:identity, _from, state),
    do: {:reply, {:error, Error.exception({:not_found, "the cluster has no server here"})}, state}

  def handle_call(_other, _from, state), do: {:reply, {:error, Error.exception(:unknown_call)}, state}

  @impl true
  def handle_cast(_other, state), do: {:noreply, state}

  @impl true
  def handle_info(:tick, state), do: {:noreply, state |> find_server() |> tick()}

  # a new node, which has not got this one's report
  def handle_info({:nodeup, node}, state) do
    tell(state.name, node, :hello)
    {:noreply, state}
  end

  def handle_info({:nodedown, node}, state), do: {:noreply, state |> without([node]) |> show()}

  def handle_info({:weir_cluster, node, :hello}, state) do
    if state.report, do: tell(state.name, node, state.report)
    {:noreply, state}
  end

  def handle_info({:weir_cluster, node, nil}, state), do: {:noreply, state |> without([node]) |> show()}

  def handle_info({:weir_cluster, node, %{server: _, identity: _, load: _} = report}, state),
    do: {:noreply, state |> heard(node, report) |> show(node)}

  def handle_info({events, :leave, _group, servers}, %{events: events} = state) do
    gone = for {node, %{member: %{server: server}}} <- state.peers, server in servers, do: node
    {:noreply, state |> without(gone) |> show()}
  end

  def handle_info({:prepared, loader, result}, %{loader: loader} = state),
    do: {:noreply, %{state | loader: nil} |> prepared(result) |> report() |> show()}

  def handle_info({:EXIT, loader, _reason}, %{loader: loader} = state),
    do: {:noreply, %{state | loader: nil}}

  def handle_info({:DOWN, ref, :process, _pid, _reason}, %{monitor: {_server, ref}} = state) do
    if state.loader, do: Process.exit(state.loader, :kill)
    {:noreply, %{state | monitor: nil, loader: nil, status: :absent} |> report() |> show()}
  end

  def handle_info(_other, state), do: {:noreply, state}

  @impl true
  def terminate(_reason, state) do
    _withdrawn = report(leave(%{state | status: :absent}))
    :ok
  end

  defp tick(state) do
    _timer = Process.send_after(self(), :tick, @report_ms)
    state |> report() |> forget()
  end

  # ---- This node's server ----

  defp find_server(%{server: nil} = state), do: state
  defp find_server(%{monitor: {_pid, _ref}, status: :member} = state), do: state
  # also again, if it could not be prepared, or was refused
  defp find_server(%{monitor: {_pid, _ref}} = state), do: prepare(state)

  defp find_server(state) do
    case GenServer.whereis(state.server) do
      pid when is_pid(pid) and node(pid) == node() ->
        %{state | monitor: {pid, Process.monitor(pid)}, status: :loading} |> show() |> prepare()

      _none ->
        state
    end
  end

  # A process waits for the model and asks the others, which may take long.
  defp prepare(%{loader: nil, monitor: {server, _ref}} = state) do
    {to, name} = {self(), state.name}
    %{state | loader: spawn_link(fn -> send(to, {:prepared, self(), introduce(server, name)}) end)}
  end

  defp prepare(state), do: state

  defp introduce(server, name) do
    with {:ok, model} <- Server.fetch_model(server) do
      answers = :erpc.multicall(Node.list(), __MODULE__, :identity, [name], 2 * @ask_ms)
      {:ok, Identity.of(model), for({:ok, {:ok, identity}} <- answers, do: identity)}
    end
  end

  # A server joins a cluster without servers, or with one that is like it.
  defp prepared(state, {:ok, identity, others}) do
    if others == [] or identity in others,
      do: join(%{state | identity: identity, status: :member}),
      else: refuse(%{state | identity: identity}, Identity.difference(identity, hd(others)))
  end

  # its monitor reports when the server has ended
  defp prepared(state, {:error, _reason}), do: state

  defp join(%{monitor: {server, _ref}} = state) do
    # a former process of this cluster may have been killed
    if server not in :pg.get_local_members(@scope, state.name), do: :ok = :pg.join(@scope, state.name, server)
    state
  end

  defp leave(%{monitor: {server, _ref}} = state) do
    _left = :pg.leave(@scope, state.name, server)
    state
  end

  defp leave(state), do: state

  defp refuse(%{status: {:refused, text}} = state, text), do: state

  defp refuse(state, text) do
    Logger.error("the cluster #{inspect(state.name)} refuses this node's server: #{text}")
    event(state, :refused, node(), length(view(state.name).members), %{reason: text})
    %{state | status: {:refused, text}}
  end

  # ---- Reports ----

  # At most one per tick; another one reports at once that the server has come or gone.
  defp report(state) do
    report = current(state)

    if report == state.report and state.unchanged < @unchanged do
      %{state | unchanged: state.unchanged + 1}
    else
      if report || state.report, do: Enum.each([node() | Node.list()], &tell(state.name, &1, report))
      %{state | report: report, unchanged: 0}
    end
  end

  defp current(%{status: :member, monitor: {server, _ref}} = state) do
    case Server.get_stats(server, div(@report_ms, 2)) do
      %{state: :stopping} -> nil
      stats -> %{server: server, identity: state.identity, load: load(stats)}
    end
  rescue
    # too late, or down: its monitor says so
    Error -> state.report
  end

  defp current(_state), do: nil

  defp load(stats) do
    %{
      slots: stats.n_parallel,
      active: stats.active_slots,
      queue: stats.queue_depth,
      kv: Float.round((stats.n_kv_used - stats.n_kv_cached) / max(stats.n_kv, 1), 2),
      # so that each report with other work differs from the last
      submitted: stats.n_submitted
    }
  end

  # Never waits for a slow connection, nor makes a new one.
  defp tell(name, node, what) do
    _ignored = :erlang.send({name, node}, {:weir_cluster, node(), what}, [:nosuspend, :noconnect])
    :ok
  end

  defp heard(state, node, report) do
    running =
      case state.peers do
        %{^node => %{member: known}} -> known.running
        _new -> :counters.new(1, [])
      end

    member =
      report.load
      |> Map.delete(:submitted)
      |> Map.merge(%{
        node: node,
        server: report.server,
        heard: Clock.now(),
        running: running,
        reported: :counters.get(running, 1)
      })

    %{state | peers: Map.put(state.peers, node, %{identity: report.identity, member: member})}
  end

  defp without(state, nodes), do: %{state | peers: Map.drop(state.peers, nodes)}

  defp forget(state) do
    before = Clock.now() - @forget_ms

    case for {node, peer} <- state.peers, peer.member.heard < before, do: node do
      [] -> state
      silent -> state |> without(silent) |> show()
    end
  end

  # ---- What callers see ----

  # A row for each member, and one about the cluster.
  defp show(state) do
    state = agree(state)
    {members, others} = Enum.split_with(state.peers, fn {_node, peer} -> peer.identity == state.agreed end)
    about = %{status: state.status, spill: state.spill, telemetry: state.telemetry}
    former = for %{node: node} <- (view(state.name) || %{members: []}).members, do: node
    nodes = for {node, _peer} <- members, do: node
    for node <- former -- nodes, do: :ets.delete(state.name, {:member, node})
    rows = for {node, peer} <- members, do: {{:member, node}, peer.member}
    true = :ets.insert(state.name, [{:about, about} | rows])
    for node <- nodes -- former, do: event(state, :join, node, length(nodes), %{})
    for node <- former -- nodes, do: event(state, :leave, node, length(nodes), %{})
    warn(state, for({_node, peer} <- others, do: peer), length(nodes))
  end

  # Most reports change the row of one member.
  defp show(state, node) do
    %{identity: identity, member: member} = state.peers[node]

    if identity == state.agreed and :ets.member(state.name, {:member, node}) do
      true = :ets.insert(state.name, {{:member, node}, member})
      state
    else
      show(state)
    end
  end

  # A node with a server knows what it serves. Another one stays with the identity that it knows while there
  # are servers of it, and otherwise takes the most frequent one of its own version.
  defp agree(%{identity: identity} = state) when identity != nil, do: %{state | agreed: identity}

  defp agree(state) do
    known = for {_node, %{identity: identity}} <- state.peers, Identity.mine?(identity), do: identity

    if known == [] or state.agreed in known,
      do: state,
      else: %{state | agreed: known |> Enum.frequencies() |> Enum.max_by(fn {i, n} -> {n, i} end) |> elem(0)}
  end

  # Each server that is not like the members is reported once. A refused node has reported itself.
  defp warn(%{status: {:refused, _text}} = state, _others, _n), do: state

  defp warn(state, others, n) do
    refused = for %{identity: identity, member: member} <- others, do: {member.node, identity}

    for {node, identity} <- refused -- state.warned do
      text = Identity.difference(identity, state.agreed || Identity.mine(identity))
      Logger.warning("the cluster #{inspect(state.name)} refuses the server of #{node}: #{text}")
      event(state, :refused, node, n, %{reason: text})
    end

    %{state | warned: refused}
  end

  defp event(state, name, node, n_members, metadata) do
    metadata = Map.merge(%{cluster: state.name, node: node}, metadata)
    Telemetry.execute(state.telemetry, [:member, name], %{members: n_members}, metadata)
  end
end
