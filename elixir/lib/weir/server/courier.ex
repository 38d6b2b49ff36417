# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Courier do
  @moduledoc false
  # The process of a `Weir.Request`: it consumes the request and sends its events to the caller. While the
  # caller's mailbox has no room, it keeps what comes, and sends that as one event.

  alias Weir.{Chunk, Error, Request}
  alias Weir.Server.{Answer, Broker, Limits}

  # messages in the caller's mailbox, its own and others'
  @room 16

  # Nobody tells when a mailbox has become shorter. A receiver that reads only some of its messages must still
  # get these.
  @look_ms 10
  @most_ms 1000

  # kept: chunks, the newest first. since: when the last event was sent. looking: a look has been ordered.
  @enforce_keys [:to, :ref, :emit, :since]
  defstruct [:to, :ref, :emit, :since, kept: [], looking: false]

  @doc "See `Weir.Server.submit/3`."
  @spec start(GenServer.server(), Answer.read(), Answer.prompt()) :: Request.t()
  def start(server, read, prompt) do
    Broker.here!(server)
    # the request belongs to this server, not to the next one of its name
    server = GenServer.whereis(server) || server
    {to, ref} = {self(), make_ref()}
    read = %{read | id: read.id || ref}
    # without a link: neither ends the other by a failure
    pid = spawn(fn -> carry(server, read, prompt, to, ref) end)
    %Request{ref: ref, id: read.id, pid: pid, server: server}
  end

  defp carry(server, read, prompt, to, ref) do
    opened = server |> Answer.open(read, prompt) |> Error.ok!() |> Answer.asked_by(to)
    :ok = Answer.settled(opened)

    start =
      with {:error, error} <- Broker.ask(server, {:status, self()}, :infinity), do: raise(error)

    # a shared request that could not be submitted has no start; its error comes next
    if start.state != :starting,
      do: tell(to, ref, {:start, Map.take(start, [:id, :prompt_tokens, :queue_position])})

    last = follow(opened, %__MODULE__{to: to, ref: ref, emit: read.own.emit, since: Limits.now()})
    tell(to, ref, {:end, Map.take(last, [:reason, :usage, :miss, :logprobs])})
  rescue
    error in Error -> tell(to, ref, {:error, error})
    error -> tell(to, ref, {:error, Error.new({:invalid, Exception.message(error)})})
  end

  # Returns the last chunk, when everything before it was sent.
  defp follow(opened, courier) do
    case next(opened) do
      {[%Chunk{reason: nil} = chunk], request} ->
        follow(request, serve(%{courier | kept: [chunk | courier.kept]}, request))

      # the look
      {[], request} ->
        follow(request, serve(%{courier | looking: false}, request))

      {[last], :over} ->
        _empty = emptied(courier)
        last

      error ->
        _empty = emptied(courier)
        raise error
    end
  end

  defp next(opened) do
    Answer.next(opened)
  rescue
    error in Error -> error
  end

  defp serve(%{kept: []} = courier, _request), do: courier

  defp serve(courier, request) do
    cond do
      room?(courier.to) or Limits.now() - courier.since >= @most_ms ->
        emptied(courier)

      courier.looking ->
        courier

      true ->
        Answer.look(request, @look_ms)
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
