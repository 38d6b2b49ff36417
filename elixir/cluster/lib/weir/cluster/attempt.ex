# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Attempt do
  @moduledoc false
  # The caller's side of a request on one node: see `Weir.Cluster.Relay`.

  alias Weir.{Chunk, Error, Target}
  alias Weir.Cluster.{Clock, Relay, Route}

  # taken: chunks that were not acknowledged yet. asker: see `Target.watch/0`.
  @enforce_keys [:tag, :member]
  defstruct [:tag, :member, :relay, :monitor, :worker, :asker, taken: 0]

  @type t :: %__MODULE__{}

  @typedoc "`{:failed, reason}`: another node may answer the request."
  @type event ::
          {:begun, deterministic? :: boolean(), t()}
          | {:chunk, Chunk.t() | Weir.ChatCompletionChunk.t(), t()}
          | {:answer, term()}
          | {:error, Error.t()}
          | {:raised, Exception.t()}
          | {:failed, term()}

  @doc "Starts the request. Afterwards `close/1` is needed in any case."
  @spec open(Route.member(), Relay.job(), Clock.deadline()) ::
          {:ok, t()} | {:failed, term(), t()}
  def open(member, job, deadline) do
    :counters.add(member.running, 1, 1)
    tag = :erlang.alias()
    arguments = [self(), tag, member.server, job]

    # does not wait for the node, unlike Node.spawn/4
    start = :erlang.spawn_request(member.node, Relay, :start, arguments, [:monitor, {:reply, :error_only}])

    attempt = %__MODULE__{tag: tag, member: member}
    left = Clock.left(deadline)
    silent = Route.silent_ms()

    # a node that has not started the relay by then is as good as lost
    case started(tag, start, min(left, silent)) do
      {:ok, relay} ->
        monitor = Process.monitor(relay)
        tell(relay, {tag, :go})
        {:ok, %{attempt | relay: relay, monitor: monitor, asker: Target.watch()}}

      {:failed, :silent} when left <= silent ->
        {:failed, :timeout, attempt}

      {:failed, reason} ->
        {:failed, reason, attempt}
    end
  end

  defp started(tag, start, timeout) do
    receive do
      {^tag, {:relay, relay}} ->
        Process.demonitor(start, [:flush])
        {:ok, relay}

      {:spawn_reply, ^start, :error, reason} ->
        {:failed, reason}

      # The process that starts the relay ends normally; the relay's message may come later.
      {:DOWN, ^start, :process, _pid, :normal} ->
        started(tag, start, timeout)

      {:DOWN, ^start, :process, _pid, reason} ->
        {:failed, reason}
    after
      timeout ->
        _abandoned = :erlang.spawn_request_abandon(start)
        Process.demonitor(start, [:flush])
        flush_reply(start)
        {:failed, :silent}
    end
  end

  defp flush_reply(start) do
    receive do
      {:spawn_reply, ^start, _kind, _reason} -> :ok
    after
      0 -> :ok
    end
  end

  @doc "The next event. After one of the last four only `close/1` is left to call."
  @spec next(t(), Clock.deadline()) :: event()
  def next(attempt, deadline), do: next(attempt, deadline, false)

  defp next(%__MODULE__{tag: tag, monitor: monitor, asker: asker} = attempt, deadline, asked?) do
    left = Clock.left(deadline)
    silent = Route.silent_ms()

    receive do
      {^tag, {:begun, worker, deterministic?}} ->
        {:begun, deterministic?, %{attempt | worker: worker}}

      {^tag, {:chunk, chunk}} ->
        {:chunk, chunk, acknowledge(attempt)}

      {^tag, {:answer, value}} ->
        {:answer, value}

      {^tag, {:error, error}} ->
        {if(error.code in [:server_down, :stopping, :queue_full], do: :failed, else: :error), error}

      {^tag, {:raised, exception}} ->
        {:raised, exception}

      {^tag, :alive} ->
        next(attempt, deadline, false)

      {:DOWN, ^monitor, :process, _pid, reason} ->
        {:failed, reason}

      {:DOWN, ^asker, :process, _pid, _reason} ->
        {:error, Error.exception(:cancelled)}
    after
      # a relay that has sent nothing for so long is asked whether it is alive, and has as long to answer
      min(left, silent) ->
        cond do
          left <= silent -> {:error, Error.exception(:timeout)}
          asked? -> {:failed, :silent}
          true -> ask(attempt, deadline)
        end
    end
  end

  defp ask(attempt, deadline) do
    tell(attempt.relay, {attempt.tag, :ping})
    next(attempt, deadline, true)
  end

  defp acknowledge(attempt) do
    if attempt.taken + 1 == Relay.half() do
      tell(attempt.worker, {attempt.tag, :taken})
      %{attempt | taken: 0}
    else
      %{attempt | taken: attempt.taken + 1}
    end
  end

  @doc "Ends the request in any state. No message is left, and none follows."
  @spec close(t()) :: :ok
  def close(%__MODULE__{tag: tag} = attempt) do
    :erlang.unalias(tag)
    if attempt.monitor, do: Process.demonitor(attempt.monitor, [:flush])
    Target.unwatch(attempt.asker)
    if attempt.relay, do: tell(attempt.relay, {tag, :stop})
    flush(tag)
    :counters.sub(attempt.member.running, 1, 1)
  end

  defp flush(tag) do
    receive do
      {^tag, _message} -> flush(tag)
    after
      0 -> :ok
    end
  end

  # A lost connection is not made again for it; the relay ends when it loses the caller.
  defp tell(pid, message) do
    _ignored = :erlang.send(pid, message, [:noconnect])
    :ok
  end
end
