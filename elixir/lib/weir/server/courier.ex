# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Courier do
  @moduledoc false
  # The process of a `Weir.Request`: it consumes the request as a stream and sends its events to the caller.
  # It takes a chunk only when the caller's mailbox has room, so that others merge in the engine.

  alias Weir.{Chunk, Error, Request}
  alias Weir.Server.{Answer, Broker}

  # messages in the caller's mailbox, its own and others'
  @room 16

  # Nobody tells when a mailbox has become shorter. A receiver that reads only some of its messages must still
  # get these.
  @look_ms 10
  @looks 100

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
      with {:error, reason} <- Broker.ask(server, {:status, self()}, :infinity), do: raise(Error, reason)

    tell(to, ref, {:start, Map.take(start, [:id, :prompt_tokens, :queue_position])})

    fn -> {:ok, opened} end
    |> Answer.chunks(:chunks)
    |> Enum.each(&deliver(&1, read.own.emit, to, ref))
  rescue
    error in Error -> tell(to, ref, {:error, error.reason})
    error -> tell(to, ref, {:error, Exception.message(error)})
  end

  defp deliver(%Chunk{reason: nil} = chunk, emit, to, ref) do
    event = event(chunk, emit)
    if event, do: await_room(to)
    if event, do: tell(to, ref, event)
  end

  defp deliver(last, _emit, to, ref),
    do: tell(to, ref, {:end, Map.take(last, [:reason, :usage, :miss, :logprobs])})

  defp event(%Chunk{progress: %{} = progress}, _emit), do: {:progress, progress}
  defp event(chunk, :chunks), do: {:chunk, chunk}
  defp event(%Chunk{text: ""}, :text), do: nil
  defp event(%Chunk{text: text}, :text), do: {:text, text}

  # A dead process has room; the stream then ends.
  defp await_room(to, looks \\ @looks) do
    with {:message_queue_len, n} when n >= @room and looks > 0 <- Process.info(to, :message_queue_len) do
      Process.sleep(@look_ms)
      await_room(to, looks - 1)
    end
  end

  defp tell(to, ref, event) do
    send(to, {:weir, ref, event})
    :ok
  end
end
