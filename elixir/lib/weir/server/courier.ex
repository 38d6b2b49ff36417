# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Courier do
  @moduledoc false
  # The process of a `Weir.Request`: it consumes the request and sends its events to the caller. While the
  # caller's mailbox has no room, it keeps what comes, and sends that as one event. Its guard sends the last event,
  # however the courier has ended, and ends it with the caller.

  alias Weir.{Chunk, Error, NIF, Request}
  alias Weir.Server.{Answer, Broker, Limits}

  # messages in the caller's mailbox, its own and others'
  @room 16

  # Nobody tells when a mailbox has become shorter. A receiver that reads only some of its messages must still
  # get these.
  @look_ms 10
  @most_ms 1000

  # kept: chunks, the newest first. since: when the last event was sent. looking: a look has been ordered.
  @enforce_keys [:to, :ref, :by, :emit, :since]
  defstruct [:to, :ref, :by, :emit, :since, kept: [], looking: false]

  @typedoc """
  A request to carry. `open` is called in the courier's process, with the request's id, and returns what the
  functions `next/1` and `look/2` of the module `by` take. server: that knows the courier; nil: none.
  place: in the queue of the engine, for `by: Answer`; nil: not known.
  """
  @type carried :: %{
          required(:server) => GenServer.server() | nil,
          required(:id) => term(),
          required(:emit) => :text | :chunks,
          required(:by) => module(),
          optional(:place) => 0 | nil,
          required(:open) => (term() -> {:ok, term()} | {:error, Error.t()})
        }

  @doc "See `Weir.Target.submit/3`."
  @spec start(carried()) :: Request.t()
  def start(carried) do
    {to, ref} = {self(), make_ref()}
    carried = %{carried | id: carried.id || ref}

    # without links: neither ends the other by a failure
    guard =
      spawn(fn ->
        {pid, courier} = spawn_monitor(fn -> exit({:shutdown, carry(carried, to, ref)}) end)
        send(to, {ref, pid})
        guard(%{to: to, ref: ref, pid: pid, courier: courier, caller: Process.monitor(to)})
      end)

    receive do:
              ({^ref, pid} ->
                 %Request{ref: ref, id: carried.id, pid: pid, guard: guard, server: carried.server})
  end

  @doc "Ends a request without a server; its last message still comes."
  @spec cancel(pid()) :: :ok
  def cancel(guard) do
    send(guard, :cancel)
    :ok
  end

  defp guard(%{courier: courier, caller: caller} = state) do
    receive do
      {:DOWN, ^courier, :process, _pid, {:shutdown, {kind, _what} = event}} when kind in [:end, :error] ->
        tell(state.to, state.ref, event)

      {:DOWN, ^courier, :process, _pid, reason} ->
        text = "the request's process has ended: " <> Exception.format_exit(reason)
        tell(state.to, state.ref, {:error, Error.new(state[:reason] || {:failed, text})})

      {:DOWN, ^caller, :process, _pid, _reason} ->
        Process.exit(state.pid, :kill)

      :cancel ->
        Process.exit(state.pid, :kill)
        guard(Map.put(state, :reason, :cancelled))
    end
  end

  # Returns the last event.
  defp carry(carried, to, ref) do
    opened = Error.ok!(carried.open.(carried.id))
    start = start_of(carried, opened)
    if start, do: tell(to, ref, {:start, Map.put(start, :id, carried.id)})
    courier = %__MODULE__{to: to, ref: ref, by: carried.by, emit: carried.emit, since: Limits.now()}
    {:end, opened |> follow(courier) |> Map.take([:reason, :usage, :miss, :logprobs])}
  rescue
    error in Error -> {:error, error}
    error -> {:error, Error.new({:invalid, Exception.message(error)})}
  end

  defp start_of(%{server: nil, by: Answer, place: place}, request),
    do: %{prompt_tokens: NIF.engine_usage(request.ref).n_prompt, queue_position: place}

  defp start_of(%{server: nil}, _opened), do: %{prompt_tokens: nil, queue_position: nil}

  # A shared request that could not be submitted has no start; its error comes next.
  defp start_of(%{server: server}, _opened) do
    case Broker.ask(server, {:status, self()}, :infinity) do
      {:error, error} -> raise error
      %{state: :starting} -> nil
      status -> Map.take(status, [:prompt_tokens, :queue_position])
    end
  end

  # Returns the last chunk, when everything before it was sent.
  defp follow(opened, courier) do
    case next(courier.by, opened) do
      {[%Chunk{reason: nil} = chunk], request} ->
        follow(request, serve(%{courier | kept: [chunk | courier.kept]}, request))

      # the look
      {[], request} ->
        follow(request, serve(%{courier | looking: false}, request))

      {[last], :over} ->
        _empty = emptied(courier)
        if is_exception(last), do: raise(last), else: last
    end
  end

  defp next(by, opened) do
    by.next(opened)
  rescue
    error in Error -> {[error], :over}
  end

  defp serve(%{kept: []} = courier, _request), do: courier

  defp serve(courier, request) do
    cond do
      room?(courier.to) or Limits.now() - courier.since >= @most_ms ->
        emptied(courier)

      courier.looking ->
        courier

      true ->
        courier.by.look(request, @look_ms)
        %{courier | looking: true}
    end
  end

  # A dead process has room; the request then ends.
  defp room?(to) do
    case Process.info(to, :message_queue_len) do
      {:message_queue_len, n} -> n < @room
      nil -> true
    end
  end

  defp emptied(courier) do
    for event <- courier.kept |> Enum.reverse() |> events(courier.emit),
        do: tell(courier.to, courier.ref, event)

    %{courier | kept: [], since: Limits.now()}
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

  defp tell(to, ref, event) do
    send(to, {:weir, ref, event})
    :ok
  end
end
