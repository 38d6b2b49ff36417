# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Flight do
  @moduledoc false
  # One generation with any number of readers. The process consumes a request like any other consumer and
  # keeps its messages. It sends them to each reader from the start, in the engine's format (`{ref, {:chunk,
  # ids, text}}` and so on), as many as the reader has demanded.
  #
  # A reader's reference is an alias of its process. Once the reader has removed the alias, it gets no more
  # messages.
  #
  # Only the server adds readers. A flight without readers tells the server, which then adds no more and sends
  # `:stop`. A reader that was added earlier arrives before that message, and the flight continues.

  # between two messages it runs OTP's code, so that this module can be reloaded at any time
  use GenServer
  alias Weir.{Error, NIF}
  alias Weir.Server.{Driver, Limits, Request}

  @enforce_keys [:server, :monitor, :key]
  defstruct [:server, :monitor, :key, :ref, :last, chunks: %{}, readers: %{}]

  @doc "Submits `request`. `key` identifies the flight to the server."
  @spec start_link(NIF.engine(), pid() | nil, term(), map()) :: pid()
  def start_link(engine, driver, key, request) do
    {:ok, flight} = GenServer.start_link(__MODULE__, {self(), engine, driver, key, request})
    flight
  end

  @impl true
  def init({server, engine, driver, key, request}) do
    flight = %__MODULE__{server: server, monitor: Process.monitor(server), key: key}
    {:ok, flight, {:continue, {engine, driver, request}}}
  end

  @impl true
  def handle_continue({engine, driver, request}, flight) do
    case submit(engine, request) do
      {:ok, ref} ->
        Driver.work(driver)
        {:noreply, %{flight | ref: ref}}

      error ->
        {:noreply, came(flight, error)}
    end
  end

  # The flight is linked to the server, which a bad request must not end.
  defp submit(engine, request) do
    NIF.engine_submit(engine, request, self(), :infinity)
  rescue
    error in ArgumentError -> {:error, Error.new({:invalid, Exception.message(error)})}
  end

  @doc "For the server: adds a reader, with `ref` as an alias of `pid` and this demand of messages. `key` is its request's."
  def attach(flight, key, pid, ref, demand), do: tell(flight, {:attach, key, pid, ref, demand})
  @doc "For the server: the reader's answer ends now."
  def cancel(flight, ref), do: tell(flight, {:cancel, ref})
  @doc "For the server: removes a reader."
  def leave(flight, ref), do: tell(flight, {:leave, ref})
  @doc "For the server: no reader will be added any more."
  def stop(flight), do: tell(flight, :stop)
  @doc "For a reader: demands this many more messages."
  def demand(flight, ref, n), do: tell(flight, {:demand, ref, n})

  @doc "For a reader: where the request is."
  @spec place(pid()) :: Limits.place()
  def place(flight) do
    GenServer.call(flight, :place, :infinity)
  catch
    # its last message is on the way
    :exit, _reason -> {:running, 0, 0}
  end

  @doc "For a reader: a reference to join with."
  @spec ref() :: reference()
  def ref, do: :erlang.alias()

  @doc "For a reader: when it returns, no more messages will come."
  def close(ref) do
    :erlang.unalias(ref)
    :ok
  end

  defp tell(to, message) do
    :erlang.send(to, message)
    :ok
  end

  @impl true
  def handle_info({:attach, key, pid, ref, demand}, flight) do
    if flight.ref, do: GenServer.cast(flight.server, {:computed_by, key, flight.ref})
    reader = %{pid: pid, monitor: Process.monitor(pid), at: 0, credit: demand}
    {:noreply, flight |> put(ref, reader) |> serve(ref)}
  end

  def handle_info({:demand, ref, n}, flight), do: {:noreply, flight |> credit(ref, n) |> serve(ref)}

  def handle_info({:cancel, ref}, flight), do: {:noreply, cancelled(flight, ref)}
  def handle_info({:leave, ref}, flight), do: {:noreply, without(flight, ref)}

  def handle_info(:stop, %{readers: readers} = flight) when readers == %{}, do: {:stop, :normal, flight}

  def handle_info({:DOWN, monitor, :process, _pid, _reason}, %{monitor: monitor} = flight),
    do: {:stop, :normal, flight}

  def handle_info({:DOWN, monitor, :process, _pid, _reason}, flight) do
    case Enum.find(flight.readers, fn {_ref, reader} -> reader.monitor == monitor end) do
      {ref, _reader} -> {:noreply, without(flight, ref)}
      nil -> {:noreply, flight}
    end
  end

  def handle_info({own, message}, %{ref: own} = flight) when own != nil do
    flight = came(flight, message)
    {:noreply, flight.readers |> Map.keys() |> Enum.reduce(flight, &serve(&2, &1))}
  end

  def handle_info(_other, flight), do: {:noreply, flight}

  @impl true
  def handle_call(:place, _from, %{ref: nil} = flight), do: {:reply, :queued, flight}
  def handle_call(:place, _from, flight), do: {:reply, Request.place_of(flight.ref), flight}
  def handle_call(_other, _from, flight), do: {:reply, {:error, Error.new(:unknown_call)}, flight}

  @impl true
  def handle_cast(_other, flight), do: {:noreply, flight}

  defp came(flight, message) when elem(message, 0) == :chunk,
    do: %{flight | chunks: Map.put(flight.chunks, map_size(flight.chunks), message)}

  # Later requests do not share a failure.
  defp came(flight, last) do
    if elem(last, 0) == :error, do: deserted(flight), else: :ok
    %{flight | last: last}
  end

  defp deserted(flight), do: GenServer.cast(flight.server, {:deserted, flight.key, self()})

  # ---- Readers ----

  defp put(flight, ref, reader), do: %{flight | readers: Map.put(flight.readers, ref, reader)}

  defp without(flight, ref) do
    case Map.pop(flight.readers, ref) do
      {nil, _readers} ->
        flight

      {reader, readers} ->
        Process.demonitor(reader.monitor, [:flush])
        if readers == %{}, do: deserted(flight), else: :ok
        %{flight | readers: readers}
    end
  end

  # Demand after the reader's end has no effect.
  defp credit(flight, ref, n) do
    case flight.readers do
      %{^ref => %{credit: credit} = reader} when credit != :infinity ->
        put(flight, ref, %{reader | credit: if(n == :infinity, do: n, else: credit + n)})

      _other ->
        flight
    end
  end

  defp cancelled(flight, ref) do
    case flight do
      %{readers: %{^ref => _reader}, ref: own} when own != nil ->
        tell(ref, {ref, {:done, :cancelled, NIF.engine_usage(own)}})
        without(flight, ref)

      _other ->
        flight
    end
  end

  # Sends what the reader may get. Chunks beyond its credit merge into one message; the end comes with the
  # last one.
  defp serve(flight, ref) do
    n = map_size(flight.chunks)

    case flight.readers[ref] do
      nil ->
        flight

      %{at: at} when at == n ->
        if flight.last do
          tell(ref, {ref, flight.last})
          without(flight, ref)
        else
          flight
        end

      %{credit: 0} ->
        flight

      %{at: at, credit: credit} = reader when n - at > credit ->
        tell(ref, {ref, joined(for(i <- at..(n - 1), do: flight.chunks[i]))})
        flight |> put(ref, %{reader | at: n, credit: credit - 1}) |> serve(ref)

      %{at: at, credit: credit} = reader ->
        tell(ref, {ref, flight.chunks[at]})
        credit = if credit == :infinity, do: credit, else: credit - 1
        flight |> put(ref, %{reader | at: at + 1, credit: credit}) |> serve(ref)
    end
  end

  defp joined(chunks) do
    ids = Enum.flat_map(chunks, &elem(&1, 1))
    text = Enum.map_join(chunks, &elem(&1, 2))

    # One without ids has no scores: text that was held back, at the end.
    case Enum.filter(chunks, &(tuple_size(&1) == 5)) do
      [] -> {:chunk, ids, text}
      scored -> {:chunk, ids, text, Enum.flat_map(scored, &elem(&1, 3)), elem(List.last(scored), 4)}
    end
  end
end
