# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Turns do
  @moduledoc false
  # Native calls that hold a dirty scheduler for long run a few at a time, so that schedulers are left for
  # others. Callers wait in order; a caller that dies or gives up leaves.
  use GenServer
  alias Weir.Deadline
  alias Weir.Server.Broker

  # limit: how many may run. held: the monitors of those that do, by their turn. waiting: {turn, from, monitor}.
  defstruct [:limit, held: %{}, waiting: []]

  @typedoc "`:compute` on CPU schedulers; `:download`, and `:ask` for a hub's other calls, on those for I/O."
  @type kind :: :compute | :download | :ask

  def start_link(_), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @doc "Calls `fun` with the ms that are left, once it has its turn."
  @spec take(kind(), timeout(), (timeout() -> result)) :: result | {:error, Weir.Error.t()}
        when result: term()
  def take(kind, timeout, fun) do
    deadline = Deadline.at(timeout)
    turn = make_ref()

    try do
      with :ok <- Broker.ask(__MODULE__, {:begin, kind, turn}, timeout), do: fun.(Deadline.left(deadline))
    after
      GenServer.cast(__MODULE__, {:end, turn})
    end
  end

  @doc "How many calls of a kind run at once."
  @spec limit(kind()) :: pos_integer()
  def limit(:compute), do: max(:erlang.system_info(:dirty_cpu_schedulers_online) - 1, 1)
  def limit(:download), do: max(div(:erlang.system_info(:dirty_io_schedulers), 2), 1)
  def limit(:ask), do: max(div(:erlang.system_info(:dirty_io_schedulers), 4), 1)

  @impl true
  def init(_),
    do: {:ok, for(kind <- [:compute, :download, :ask], do: {kind, %__MODULE__{limit: limit(kind)}})}

  @impl true
  def handle_call({:begin, kind, turn}, {pid, _} = from, state) do
    one = {turn, from, Process.monitor(pid)}
    {:noreply, Keyword.update!(state, kind, &next(%{&1 | waiting: &1.waiting ++ [one]}))}
  end

  @impl true
  def handle_cast({:end, turn}, state), do: {:noreply, each(state, &leave(&1, turn))}

  @impl true
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, state) do
    gone = fn queue ->
      held = Enum.find_value(queue.held, fn {turn, m} -> if m == monitor, do: turn end)
      waits = Enum.find_value(queue.waiting, fn {turn, _from, m} -> if m == monitor, do: turn end)
      leave(queue, held || waits)
    end

    {:noreply, each(state, gone)}
  end

  def handle_info(_other, state), do: {:noreply, state}

  defp each(state, fun), do: for({kind, queue} <- state, do: {kind, fun.(queue)})

  defp leave(queue, turn) do
    {monitor, held} = Map.pop(queue.held, turn)
    {gone, waiting} = Enum.split_with(queue.waiting, &(elem(&1, 0) == turn))
    for monitor <- [monitor | Enum.map(gone, &elem(&1, 2))], monitor, do: Process.demonitor(monitor, [:flush])
    next(%{queue | held: held, waiting: waiting})
  end

  defp next(%{waiting: [{turn, from, monitor} | waiting]} = queue) when map_size(queue.held) < queue.limit do
    GenServer.reply(from, :ok)
    next(%{queue | held: Map.put(queue.held, turn, monitor), waiting: waiting})
  end

  defp next(queue), do: queue
end
