# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Call do
  @moduledoc false
  # A request to a cluster, in the caller's process: it chooses a node, and another one if that is lost.

  alias Weir.{Chunk, Error}
  alias Weir.Cluster.{Attempt, Clock, Member, Relay, Replay, Route, Telemetry}

  # tried: the nodes that have failed. error: of the last one. failed_at: when, in ms, until new output
  # comes. deterministic: nil until a node has begun.
  @enforce_keys [:cluster, :key]
  defstruct [
    :cluster,
    :key,
    :attempt,
    :error,
    :failed_at,
    :deterministic,
    tried: [],
    telemetry: false,
    replay: %Replay{}
  ]

  # ---- Whole ----

  @doc """
  Calls `Weir.Server.fun(server, prompt, opts)` for a server of the cluster. Nothing of an answer was
  delivered before its end, so another node may start over at any time.
  """
  @spec whole(atom(), atom(), term(), Route.key(), keyword(), timeout() | nil) ::
          {:ok, term()} | {:error, Error.t()}
  def whole(cluster, fun, prompt, key, opts, timeout) do
    begun = Clock.now()
    # without one the server limits each phase of the request
    deadline = Clock.at(timeout || :infinity)
    left = fn -> if timeout, do: [timeout: Clock.left(deadline)], else: [] end

    job = fn ->
      opts = opts |> Keyword.merge(left.()) |> shorter(Clock.now() - begun)
      {:call, fun, [prompt, opts]}
    end

    attempt_whole(%__MODULE__{cluster: cluster, key: key}, job, deadline)
  end

  defp attempt_whole(call, job, deadline) do
    with {:ok, call} <- open(call, job, deadline) do
      case Attempt.next(call.attempt, deadline) do
        {:failed, reason} ->
          call |> failed(reason, true) |> attempt_whole(job, deadline)

        {:raised, exception} ->
          Attempt.close(call.attempt)
          raise exception

        outcome ->
          Attempt.close(call.attempt)
          with {:answer, value} <- outcome, do: value
      end
    end
  end

  # ---- Streams ----

  @typep started :: {%__MODULE__{}, (() -> Relay.job()), timeout()}

  @doc "A lazy stream of the chunks of what `start` starts. `begun` is called when it has started."
  @spec stream((() -> {:ok, started()} | {:error, Error.t()}), (() -> term())) :: Enumerable.t()
  def stream(start, begun \\ fn -> :ok end) do
    open = fn ->
      case start.() do
        {:ok, started} -> begin(started, begun)
        {:error, error} -> raise error
      end
    end

    # An exception arrives as an element, after which nothing is left to close.
    open
    |> Stream.resource(&next/1, &close/1)
    |> Stream.map(&if(is_exception(&1), do: raise(&1), else: &1))
  end

  @doc """
  Starts a stream, for `stream/1`. `make` returns the job, this many ms after the start. `timeout`: of each chunk;
  without one the server limits each phase of the request.
  """
  @spec start(atom(), Route.key(), timeout() | nil, (non_neg_integer() -> Relay.job())) ::
          {:ok, started()} | {:error, Error.t()}
  def start(cluster, key, timeout, make) do
    begun = Clock.now()
    job = fn -> make.(Clock.now() - begun) end
    timeout = timeout || :infinity
    call = %__MODULE__{cluster: cluster, key: key}
    with {:ok, call} <- open(call, job, Clock.at(timeout)), do: {:ok, {call, job, timeout}}
  end

  # The next chunk, or how the stream has ended, as an exception.
  defp next(:over), do: {:halt, :over}

  defp next({call, job, timeout}) do
    case step(call, job, Clock.at(timeout)) do
      {:chunk, %Chunk{reason: reason} = last, call} when reason != nil ->
        Attempt.close(call.attempt)
        {[last], :over}

      {:chunk, chunk, call} ->
        {[chunk], {call, job, timeout}}

      {:over, call} ->
        Attempt.close(call.attempt)
        {:halt, :over}

      {:ended, exception} ->
        {[exception], :over}
    end
  end

  # The next chunk that the consumer does not have, or how the stream has ended.
  defp step(call, job, deadline) do
    case Attempt.next(call.attempt, deadline) do
      {:begun, deterministic?, attempt} ->
        step(%{call | attempt: attempt, deterministic: deterministic?}, job, deadline)

      {:chunk, chunk, attempt} ->
        take(%{call | attempt: attempt}, chunk, job, deadline)

      {:answer, :over} ->
        {:over, call}

      {:answer, last} ->
        take(call, last, job, deadline)

      {:failed, reason} ->
        retry? = Replay.empty?(call.replay) or call.deterministic == true
        call = failed(call, reason, retry?)
        if retry?, do: again(call, job, deadline), else: lost(call)

      {kind, exception} when kind in [:error, :raised] ->
        Attempt.close(call.attempt)
        {:ended, exception}
    end
  end

  defp take(call, chunk, job, deadline) do
    case Replay.take(call.replay, chunk) do
      {:ok, nil, replay} -> step(%{call | replay: replay}, job, deadline)
      {:ok, new, replay} -> {:chunk, new, %{resumed(call) | replay: replay}}
      :diverged -> call |> failed(:diverged, false) |> lost()
    end
  end

  defp again(call, job, deadline) do
    case open(%{call | replay: Replay.again(call.replay)}, job, deadline) do
      {:ok, call} ->
        step(call, job, deadline)

      {:error, error} ->
        if Replay.empty?(call.replay), do: {:ended, error}, else: lost(call)
    end
  end

  defp lost(call), do: {:ended, %{node_down() | text: Replay.text(call.replay)}}

  # A stream that cannot begin closes what it has started.
  defp begin(started, begun) do
    begun.()
    started
  catch
    kind, reason ->
      close(started)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp close(:over), do: :ok
  defp close({call, _job, _timeout}), do: Attempt.close(call.attempt)

  # ---- Nodes ----

  @doc "The options after so many ms: the answer's own deadline does not begin again on another node."
  @spec shorter(keyword(), non_neg_integer()) :: keyword()
  def shorter(opts, ms) do
    case opts[:deadline] do
      deadline when is_integer(deadline) and deadline > 0 -> put_in(opts[:deadline], max(deadline - ms, 1))
      _none -> opts
    end
  end

  # Starts the job on the best node that has not failed.
  defp open(call, job, deadline) do
    with {:ok, view} <- view(call.cluster),
         call = %{call | telemetry: view.telemetry},
         {:ok, member} <- choose(call, view) do
      case Attempt.open(member, job.(), deadline) do
        {:ok, attempt} ->
          {:ok, %{call | attempt: attempt}}

        {:failed, :timeout, attempt} ->
          Attempt.close(attempt)
          {:error, Error.exception(:timeout)}

        {:failed, reason, attempt} ->
          %{call | attempt: attempt} |> failed(reason, true) |> open(job, deadline)
      end
    end
  end

  defp view(cluster) do
    case Member.view(cluster) do
      nil ->
        {:error, Error.exception({:server_down, :noproc})}

      %{status: {:refused, text}} ->
        {:error, refusal(:refused, "the cluster refuses this node's server: " <> text)}

      view ->
        {:ok, view}
    end
  end

  defp choose(call, view) do
    candidates = Enum.reject(view.members, &(&1.node in call.tried))

    case Route.choose(candidates, call.key, view.spill, Clock.now()) do
      nil ->
        {:error, call.error || refusal(:no_node, "no node serves the cluster's model")}

      {member, place} ->
        reason = if call.tried != [], do: :failover, else: if(place == 0, do: :first, else: :spill)
        measured = %{place: place, candidates: length(candidates), load: Route.load(member)}
        event(call, [:route], measured, %{node: member.node, reason: reason})
        {:ok, member}
    end
  end

  defp failed(%{attempt: %{member: member}} = call, reason, retry?) do
    Attempt.close(call.attempt)
    code = with %Error{code: code} <- reason, do: code
    metadata = %{node: member.node, reason: code, retry: retry?}
    event(call, [:node, :failed], %{tokens: Replay.n_ids(call.replay)}, metadata)

    %{
      call
      | attempt: nil,
        tried: [member.node | call.tried],
        error: with(lost when not is_struct(lost, Error) <- reason, do: node_down()),
        # a full queue is no failure
        failed_at: call.failed_at || if(code != :queue_full, do: Clock.now())
    }
  end

  defp resumed(%{failed_at: nil} = call), do: call

  defp resumed(call) do
    measured = %{gap_ms: Clock.now() - call.failed_at, tokens: Replay.n_ids(call.replay)}
    event(call, [:resume], measured, %{node: call.attempt.member.node})
    %{call | failed_at: nil}
  end

  defp event(call, name, measured, metadata) do
    Telemetry.execute(call.telemetry, name, measured, Map.put(metadata, :cluster, call.cluster))
  end

  defp node_down, do: refusal(:node_down, "the node that computed the answer was lost")

  defp refusal(code, message), do: %Error{status: 503, code: code, message: message}
end
