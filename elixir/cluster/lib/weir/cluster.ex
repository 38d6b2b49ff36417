# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster do
  @moduledoc """
  The servers of one model on several connected nodes behind one call.

  Each node with a server has, after it under the same supervisor:

      children = [
        {Weir.Server, name: MyApp.LLM, model_path: "model.gguf"},
        {Weir.Cluster, name: :llama, server: MyApp.LLM}
      ]

  A node that only calls has `{Weir.Cluster, name: :llama}`. On each of them (for `Weir.Target`, the cluster is
  `{Weir.Cluster, :llama}`):

      {:ok, text} = Weir.Cluster.chat(:llama, [%{role: "user", content: "Why is the sky blue?"}])
      :llama |> Weir.Cluster.stream("Once upon a time", temp: 0.0) |> Enum.each(&IO.write/1)

  How the nodes connect is up to the application (`Node.connect/1`, a library, a release's configuration). The
  servers of a cluster are a `:pg` group with its name (scope `Weir.Cluster`), which needs OTP 25.1 or newer.

  ## Routing

  The caller's process chooses the node; no process is common to all requests. Nodes are ranked by a
  rendezvous hash of the conversation's start (system messages and the first other message; of a prompt
  without messages the first 256 bytes or 64 ids) and its `cache_salt`. So later turns of a conversation reach
  the node that has their prefix cached, and when a node comes or goes, only its own conversations move. A
  server with more slots gets proportionally more of them. `route: term` replaces the start of the
  conversation.

  Servers report requests and KV cells at most twice a second. A node is busy when it has more running and
  queued requests per slot than `spill` (1.5), when 95 % of its KV cells are in use, or when it has sent no
  report for 5 s. Then the request goes to the next node in the ranking that is not busy, and if all are, to
  the least loaded one. It also goes on to the next if the server refuses it because of a full queue or
  because it is stopping.

  ## Lost nodes

  A request without output goes to another node. So do all calls that return whole answers.

  A stream without `deadline` goes on with the same text. For a sampled request without a seed, its own or the
  server's, the caller's node draws one. Another node generates the answer again, and the stream compares and
  skips the part that the caller has. A stream with `deadline` ends with a `Weir.Error` whose code is
  `:node_down`; its `text` is the answer so far. The same happens if the new answer differs (for
  example between processors whose sums differ), if there is no other node, and with a stream of
  `stream_chat_completion/3` that has sent a chunk. Each stream ends exactly once: with a last chunk or an exception.

  When the connection of two nodes is lost, OTP 25 and newer close those to others, too, unless
  `-kernel prevent_overlapping_partitions false` is set; streams between these nodes then move as well.

  A node that hangs without losing its connection counts as lost when it does not start a request within 5 s,
  or when it sends nothing for 5 s and then does not say within another 5 s that it is alive. A shorter
  `timeout` ends the request before. `config :weir_cluster, silence: ms` replaces these 5 s.

  ## One model

  The servers of a cluster have the same versions of this package, weir and llama.cpp, the same model
  (`Weir.Model.fingerprint/1`) and the same chat template. A server that differs from those that are there is
  refused: the log says in what it differs, and calls on its node return the error `:refused` as long
  as the others are there. Two groups that meet when a network is whole again remain apart, with a warning on
  each node. Servers should also have the same defaults for requests and the same adapters (by path), which is
  not checked.

  ## Requests

  `generate/3`, `stream/3`, `chat/3` and the others that answer are described in `Weir.Target`. They also take the
  option `route`. Forks and a `Weir.Adapter` in `lora` belong to one node and are refused; `lora` takes a path that
  exists on each node. Additional codes of errors, all with the status 503: `:no_node`, `:refused`, and `:node_down`
  if every node that got the request was lost. The node that computes the chunks of a stream merges those that the
  caller has not read yet.

  ## Options

    * `name` (an atom; required): of the model. Clusters with the same name on connected nodes are one
    * `server`: the name or pid of a `Weir.Server` on this node; without it the node only calls
    * `spill` (1.5)

  `Weir.Cluster.Telemetry` lists the events. Distribution is not encrypted unless configured so, and every
  connected node is trusted.
  """

  alias Weir.{Error, Server}
  alias Weir.Cluster.{Call, Clock, Member, Route}

  use Weir.Target, cluster: cluster()

  @type cluster :: atom()

  @typedoc "`load`: running and queued requests per slot; `kv`: the share of KV cells in use."
  @type member :: %{node: node(), server: pid(), slots: pos_integer(), load: float(), kv: float()}

  # ---- Starting ----

  @doc false
  def child_spec(opts) do
    %{id: opts[:name] || __MODULE__, start: {__MODULE__, :start_link, [opts]}}
  end

  @doc "Starts this node's part. Options: see above."
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    o = opts |> Keyword.validate!(name: nil, server: nil, spill: 1.5) |> Map.new()

    if not is_atom(o.name) or o.name == nil do
      raise ArgumentError, "option :name must be an atom, got: #{inspect(o.name)}"
    end

    if not (is_number(o.spill) and o.spill > 0) do
      raise ArgumentError, "option :spill must be a number above 0, got: #{inspect(o.spill)}"
    end

    if o.server, do: here!(o.server)
    Member.start_link(o)
  end

  defp here!(server) do
    where =
      case GenServer.whereis(server) do
        nil -> node()
        pid when is_pid(pid) -> node(pid)
        {_name, node} -> node
      end

    if where != node() do
      raise ArgumentError,
            "option :server: #{inspect(server)} is on the node #{where}; a cluster's process there reports it"
    end
  end

  @doc """
  The servers that this node knows and routes to. While a server loads, it is not among them.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:")
      iex> {:ok, _pid} = Weir.Cluster.start_link(name: :doc_members, server: server)
      iex> Enum.find(1..2000, fn _ -> Weir.Cluster.members(:doc_members) != [] || Process.sleep(5) == nil end)
      iex> [%{node: node, server: ^server, slots: 4}] = Weir.Cluster.members(:doc_members)
      iex> {node == node(), Weir.Cluster.generate(:doc_members, "hello", temp: 0.0, max_tokens: 3)}
      {true, Weir.Server.generate(server, "hello", temp: 0.0, max_tokens: 3)}
  """
  @spec members(cluster()) :: [member()]
  def members(cluster) do
    case Member.view(cluster) do
      nil ->
        []

      view ->
        for m <- Enum.sort_by(view.members, & &1.node),
            do: m |> Map.take([:node, :server, :slots, :kv]) |> Map.put(:load, Route.load(m))
    end
  end

  @doc "`:member`, `:loading`, `{:refused, text}`, or `:absent` if this node has no server; nil: not started."
  @spec status(cluster()) :: :member | :loading | :absent | {:refused, String.t()} | nil
  def status(cluster) do
    view = Member.view(cluster)
    view && view.status
  end

  # ---- Requests ----

  @impl Weir.Target
  @doc false
  def whole(cluster, input, opts), do: call(cluster, :whole, input, input, opts)

  @impl Weir.Target
  @doc false
  def completion(cluster, messages, opts),
    do: call(cluster, :completion, messages, {:chat, messages, %{}}, opts)

  @impl Weir.Target
  @doc false
  # Texts are distributed over the nodes by their hash, or by `route`.
  def vectors(cluster, text_or_texts, opts), do: call(cluster, :vectors, text_or_texts, text_or_texts, opts)

  defp call(cluster, fun, argument, input, opts) do
    {key, opts} = routed!(input, opts)
    {timeout, opts} = Keyword.pop(opts, :timeout)
    Call.whole(cluster, fun, argument, key, opts, timeout)
  end

  @impl Weir.Target
  @doc false
  def chunks(cluster, input, opts, submission) do
    {key, opts} = routed!(input, opts)
    # options that are wrong on every node raise here
    _not_enumerated = Server.chunks(cluster, input, opts, nil)
    opts = if submission, do: Keyword.put(opts, :id, opts[:id] || submission.id), else: opts

    start = fn ->
      # each enumeration is another answer
      seed = :rand.uniform(0xFFFFFFFF) - 1
      Call.start(cluster, key, opts[:timeout], &{:stream, input, Call.shorter(opts, &1), seed})
    end

    Call.stream(start, fn ->
      if submission, do: submission.started.(%{prompt_tokens: nil, queue_position: nil})
    end)
  end

  @impl Weir.Target
  @doc false
  def completion_chunks(cluster, messages, opts) do
    {key, opts} = routed!({:chat, messages, %{}}, opts)

    Call.stream(fn ->
      Call.start(cluster, key, opts[:timeout], &{:completion_chunks, messages, Call.shorter(opts, &1)})
    end)
  end

  @doc """
  Cancels the requests with this `id` on all nodes, like `Weir.Server.cancel/2`. It may miss a request that is
  just moving from a lost node to another one.
  """
  @spec cancel(cluster(), term()) :: :ok | {:error, Error.t()}
  def cancel(cluster, id) do
    asked = for m <- members(cluster), do: :erpc.send_request(m.node, Server, :cancel, [m.server, id])
    deadline = Clock.at(5_000)

    # all are waited for, so that no reply is left in the mailbox
    if :ok in Enum.map(asked, &reply(&1, Clock.left(deadline))),
      do: :ok,
      else: {:error, Error.exception({:not_found, "no node has such a request"})}
  end

  defp reply(request, timeout) do
    :erpc.receive_response(request, timeout)
  catch
    # the node is lost, or slow
    :error, {:erpc, reason} -> reason
  end

  # The key of the route, and the other options.
  defp routed!(input, opts) do
    if not Keyword.keyword?(opts) do
      raise ArgumentError, "options must be a keyword list, got: #{inspect(opts)}"
    end

    if not (is_nil(opts[:timeout]) or opts[:timeout] == :infinity or opts[:timeout] in 0..0xFFFFFFFF) do
      raise ArgumentError,
            "option :timeout must be milliseconds or :infinity, got: #{inspect(opts[:timeout])}"
    end

    if not (is_binary(input) or proper?(input) or match?({:chat, _messages, _template}, input)) do
      raise ArgumentError,
            "a cluster's prompt is a text or a list of token ids; forks belong to one node; got: " <>
              inspect(input)
    end

    lora = List.wrap(opts[:lora])

    if proper?(lora) and Enum.any?(lora, &adapter?/1) do
      raise ArgumentError, "option :lora: an adapter belongs to one node; give its path"
    end

    {Route.key(input, opts), Keyword.delete(opts, :route)}
  end

  defp proper?(list), do: is_list(list) and not List.improper?(list)

  defp adapter?({adapter, _scale}), do: adapter?(adapter)
  defp adapter?(adapter), do: is_struct(adapter, Weir.Adapter)
end
