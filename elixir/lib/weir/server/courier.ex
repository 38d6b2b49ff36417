# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Courier do
  @moduledoc false
  # The processes of a `Weir.Request`. The courier enumerates the answer. Its guard sends the events to the caller;
  # while the caller's mailbox has no room, it keeps what comes, and sends that as one event. It also sends the last
  # event, however the courier has ended, and ends the courier with the caller.

  alias Weir.{Chunk, Error, Request, Target}
  alias Weir.Server.Limits

  # messages in the caller's mailbox, its own and others'
  @room 16

  # Nobody tells when a mailbox has become shorter. A receiver that reads only some of its messages must still
  # get these.
  @look_ms 10
  @most_ms 1000

  # The state of the guard. pid, courier: the courier and its monitor. caller: the monitor of the caller. kept:
  # chunks, the newest first. since: when the last event was sent. started: the first event was sent. looking: a
  # look has been ordered. cancelled: by `cancel/1`.
  @enforce_keys [:to, :ref, :id, :emit, :pid, :courier, :caller, :since]
  defstruct [
    :to,
    :ref,
    :id,
    :emit,
    :pid,
    :courier,
    :caller,
    :since,
    kept: [],
    started: false,
    looking: false,
    cancelled: false
  ]

  @doc """
  See `Weir.Target.submit/3`. `make` reads the options, which may raise, and returns a lazy stream of chunks.
  `server` knows the courier; nil: there is none.
  """
  @spec start(
          (Target.submission() | nil -> Enumerable.t()),
          term(),
          :text | :chunks,
          GenServer.server() | nil
        ) ::
          Request.t()
  def start(make, id, emit, server) do
    _not_enumerated = make.(nil)
    {to, ref} = {self(), make_ref()}
    id = id || ref

    # without links: neither ends the other by a failure
    guard =
      spawn(fn ->
        guard = self()
        submission = %{id: id, started: &send(guard, {:start, &1})}
        {pid, courier} = spawn_monitor(fn -> exit({:shutdown, {ref, carry(make, submission, guard)}}) end)
        send(to, {ref, pid})
        known = %{to: to, ref: ref, id: id, emit: emit, pid: pid, courier: courier}
        guard(struct!(__MODULE__, Map.merge(known, %{caller: Process.monitor(to), since: Limits.now()})))
      end)

    receive do: ({^ref, pid} -> %Request{ref: ref, id: id, pid: pid, guard: guard, server: server})
  end

  @doc "Ends a request without a server; its last message still comes."
  @spec cancel(pid()) :: :ok
  def cancel(guard) do
    send(guard, :cancel)
    :ok
  end

  @doc "Where a request is: `:starting` before its first event, `:ended` after its last one, else `:running`."
  @spec state(pid()) :: :starting | :running | :ended
  def state(guard) do
    monitor = Process.monitor(guard)
    send(guard, {:state, self(), monitor})

    receive do
      {^monitor, state} ->
        Process.demonitor(monitor, [:flush])
        state

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        :ended
    end
  end

  # Returns the last event.
  defp carry(make, submission, guard) do
    case Enum.reduce(make.(submission), nil, &carried(&1, &2, guard)) do
      nil -> {:error, Error.new({:failed, "the target's stream ended without a last chunk"})}
      last -> {:end, Map.take(last, [:reason, :usage, :miss, :logprobs])}
    end
  rescue
    error in Error -> {:error, error}
    error in ArgumentError -> {:error, Error.new({:invalid, Exception.message(error)})}
    error -> {:error, Error.new({:failed, Exception.message(error)})}
  end

  defp carried(%Chunk{reason: nil} = chunk, nil, guard) do
    send(guard, {:chunk, chunk})
    nil
  end

  # The last chunk may have a part of the answer.
  defp carried(%Chunk{} = last, nil, guard) do
    part = %Chunk{last | reason: nil, usage: nil, miss: nil, logprobs: nil}
    if part != %Chunk{}, do: send(guard, {:chunk, part})
    last
  end

  # ---- The guard ----

  defp guard(%{courier: courier, caller: caller, ref: ref} = state) do
    receive do
      # a target that tries another server may say it again
      {:start, start} ->
        if not state.started, do: tell(state, {:start, Map.put(start, :id, state.id)})
        guard(%{state | started: true})

      {:state, asker, tag} ->
        send(asker, {tag, if(state.started, do: :running, else: :starting)})
        guard(state)

      {:chunk, chunk} ->
        guard(serve(%{state | kept: [chunk | state.kept]}))

      :look ->
        guard(serve(%{state | looking: false}))

      {:DOWN, ^courier, :process, _pid, {:shutdown, {^ref, event}}} ->
        state |> emptied() |> tell(event)

      {:DOWN, ^courier, :process, _pid, reason} ->
        text = "the request's process has ended: " <> Exception.format_exit(reason)
        reason = if state.cancelled, do: :cancelled, else: {:failed, text}
        state |> emptied() |> tell({:error, Error.new(reason)})

      {:DOWN, ^caller, :process, _pid, _reason} ->
        Process.exit(state.pid, :kill)

      :cancel ->
        Process.exit(state.pid, :kill)
        guard(%{state | cancelled: true})
    end
  end

  defp serve(%{kept: []} = state), do: state

  defp serve(state) do
    cond do
      room?(state.to) or Limits.now() - state.since >= @most_ms ->
        emptied(state)

      state.looking ->
        state

      true ->
        Process.send_after(self(), :look, @look_ms)
        %{state | looking: true}
    end
  end

  # A dead process has room; the request then ends.
  defp room?(to) do
    case Process.info(to, :message_queue_len) do
      {:message_queue_len, n} -> n < @room
      nil -> true
    end
  end

  defp emptied(state) do
    for event <- state.kept |> Enum.reverse() |> events(state.emit), do: tell(state, event)
    %{state | kept: [], since: Limits.now()}
  end

  # The newest progress, and all text in one event.
  defp events(chunks, emit) do
    {told, answer} = Enum.split_with(chunks, & &1.progress)
    {prompt, answer} = Enum.split_with(answer, & &1.prompt_logprobs)
    progress = for %{progress: map} <- Enum.take(told, -1), do: {:progress, map}

    case emit do
      :chunks -> progress ++ for(chunk <- prompt ++ joined(answer), do: {:chunk, chunk})
      :text -> progress ++ for(%{text: text} when text != "" <- joined(answer), do: {:text, text})
    end
  end

  defp joined([]), do: []
  defp joined([chunk]), do: [chunk]

  defp joined(chunks) do
    scored = Enum.filter(chunks, & &1.logprobs)

    [
      %Chunk{
        ids: Enum.flat_map(chunks, & &1.ids),
        text: Enum.map_join(chunks, & &1.text),
        logprobs: if(scored != [], do: Enum.flat_map(scored, & &1.logprobs))
      }
    ]
  end

  defp tell(%{to: to, ref: ref}, event), do: send(to, {:weir, ref, event})
end
