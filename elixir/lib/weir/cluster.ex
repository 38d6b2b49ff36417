# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster do
  @moduledoc """
  The servers of one model on several connected nodes behind one call.

  Each node with a server has, after it under the same supervisor:

      children = [
        {Weir.Server, name: MyApp.LLM, model_path: "model.gguf"},
        {Weir.Cluster, name: :llama, server: MyApp.LLM}
      ]

  A node that only calls has `{Weir.Cluster, name: :llama}`. On each of them:

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
  `timeout` ends the request before. `config :weir, cluster_silence: ms` replaces these 5 s.

  ## One model

  The servers of a cluster have the same version of weir and llama.cpp, the same model
  (`Weir.Model.fingerprint/1`) and the same chat template. A server that differs from those that are there is
  refused: the log says in what it differs, and calls on its node return the error `:refused` as long
  as the others are there. Two groups that meet when a network is whole again remain apart, with a warning on
  each node. Servers should also have the same defaults for requests and the same adapters (by path), which is
  not checked.

  ## Requests

  `generate/3`, `stream/3`, `chat/3` and the others that answer are described in `Weir.Target`. They also take the
  option `route`. Forks and a `Weir.Adapter` in `lora` belong to one node and are refused; `lora` takes a path that
  exists on each node. Additional codes of errors: `:no_node`, `:refused`, and `:node_down` if every node that got the
  request was lost. The node that computes the chunks of a stream merges those that the caller has not read yet.

  ## Options

    * `name` (an atom; required): of the model. Clusters with the same name on connected nodes are one
    * `server`: the name or pid of a `Weir.Server` on this node; without it the node only calls
    * `spill` (1.5)

  `Weir.Cluster.Telemetry` lists the events. Distribution is not encrypted unless configured so, and every
  connected node is trusted.
  """

  alias Weir.{Chunk, Deadline, Error, Options}
  alias Weir.Cluster.{Call, Member, Route}
  alias Weir.Server.{Answer, Broker}

  use Weir.Target, cluster: cluster()

  @type cluster :: atom()

  @typedoc "`load`: running and queued requests per slot; `kv`: the share of KV cells in use."
  @type member :: %{node: node(), server: pid(), slots: pos_integer(), load: float(), kv: float()}

  # ---- Starting ----

  @doc false
  def child_spec(opts) do
    name = opts |> Options.keywords!() |> Keyword.get(:name)
    %{id: name || __MODULE__, start: {__MODULE__, :start_link, [opts]}}
  end

  @doc "Starts this node's part. Options: see above."
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    o = Options.read!(opts, name: {:any, nil}, server: {:any, nil}, spill: {:number, 1.5})

    if not is_atom(o.name) or o.name == nil do
      raise ArgumentError, "option :name must be an atom, got: #{inspect(o.name)}"
    end

    if o.spill <= 0 do
      raise ArgumentError, "option :spill must be more than 0, got: #{inspect(o.spill)}"
    end

    if o.server, do: Broker.here!(o.server)
    Member.start_link(o)
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
    {%{timeout: timeout}, opts} = Options.split!(opts, timeout: {{:maybe, :timeout}, nil})
    Call.whole(cluster, fun, argument, key, opts, timeout)
  end

  @impl Weir.Target
  @doc false
  def chunks(cluster, input, opts) do
    carried = carried(cluster, input, opts)
    chunks = Call.stream(fn -> carried.open.(carried.id) end)
    if carried.emit == :chunks, do: chunks, else: Chunk.texts(chunks)
  end

  @impl Weir.Target
  @doc false
  def carried(cluster, input, opts) do
    {key, opts} = routed!(input, opts)
    read = Answer.read!(opts)

    open = fn id ->
      # Another node draws the same answer. Each enumeration is another answer.
      given = Map.put(read.given, :drawn_seed, :rand.uniform(0xFFFFFFFF) - 1)
      job = &{:stream, input, %{read | id: id, given: Call.shorter(given, &1)}}
      Call.start(cluster, key, read.limits.timeout, job)
    end

    %{server: nil, id: read.id, emit: read.own.emit, by: Call, open: open}
  end

  @impl Weir.Target
  @doc false
  def completion_chunks(cluster, messages, opts) do
    {key, opts} = routed!({:chat, messages, %{}}, opts)
    {%{timeout: timeout}, _others} = Options.split!(opts, timeout: {{:maybe, :timeout}, nil})

    Call.stream(fn ->
      Call.start(cluster, key, timeout, &{:completion_chunks, messages, Call.shorter(opts, &1)})
    end)
  end

  @doc """
  Cancels the requests with this `id` on all nodes, like `Weir.Server.cancel/2`. It may miss a request that is
  just moving from a lost node to another one.
  """
  @spec cancel(cluster(), term()) :: :ok | {:error, Error.t()}
  def cancel(cluster, id) do
    asked = for %{server: server} <- members(cluster), do: :gen_server.send_request(server, {:cancel, id})
    deadline = Deadline.at(5_000)

    # all are waited for, so that no reply is left in the mailbox
    replies = for request <- asked, do: :gen_server.receive_response(request, Deadline.left(deadline))

    if {:reply, :ok} in replies,
      do: :ok,
      else: {:error, Error.new({:not_found, "no node has such a request"})}
  end

  # The key of the route, and the other options.
  defp routed!(input, opts) do
    opts = Options.keywords!(opts)

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
