# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Embedder do
  @moduledoc false
  # Embeddings of a server. Its callers take turns with one context, which grows with the texts. Each caller
  # computes in its own process, so that the work ends with the caller or its timeout.
  use GenServer
  alias Weir.{Context, Deadline, Embedding}
  alias Weir.Server.Broker

  # context: nil before the first texts. turn: the present one. waiting: a queue of turns.
  defstruct [:model, :context, :pooling, :turn, waiting: :queue.new()]

  def start_link(model), do: GenServer.start_link(__MODULE__, model)

  def embed(embedder, texts, o, deadline) do
    with {:ok, model} <- call(embedder, :model, deadline),
         {:ok, [_ | _] = inputs} <- Embedding.encode(model, texts) do
      in_turn(embedder, inputs, o, deadline)
    end
  end

  defp in_turn(embedder, inputs, o, deadline) do
    turn = make_ref()

    try do
      with {:ok, context} <-
             call(embedder, {:begin, turn, Embedding.size(inputs, o), o.pooling_type}, deadline) do
        Embedding.compute(context, inputs, o, deadline)
      end
    after
      GenServer.cast(embedder, {:end, turn})
    end
  end

  defp call(embedder, message, deadline), do: Broker.ask(embedder, message, Deadline.left(deadline))

  @impl true
  def init(model), do: {:ok, %__MODULE__{model: model}}

  @impl true
  def handle_call(:model, _from, state), do: {:reply, {:ok, state.model}, state}

  def handle_call({:begin, ref, size, pooling}, {pid, _} = from, state) do
    turn = %{ref: ref, from: from, monitor: Process.monitor(pid), size: size, pooling: pooling}
    {:noreply, next(%{state | waiting: :queue.in(turn, state.waiting)})}
  end

  @impl true
  def handle_cast({:end, ref}, state), do: {:noreply, leave(state, &(&1.ref == ref))}

  @impl true
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, state),
    do: {:noreply, leave(state, &(&1.monitor == monitor))}

  def handle_info(_stray, state), do: {:noreply, state}

  # A caller that has ended or given up may still be inside its pass. The context's lock makes the next one
  # wait for it.
  defp leave(%{turn: turn} = state, who?) do
    if turn != nil and who?.(turn) do
      Process.demonitor(turn.monitor, [:flush])
      next(%{state | turn: nil})
    else
      {gone, waiting} = state.waiting |> :queue.to_list() |> Enum.split_with(who?)
      for turn <- gone, do: Process.demonitor(turn.monitor, [:flush])
      %{state | waiting: :queue.from_list(waiting)}
    end
  end

  defp next(%{turn: nil} = state) do
    case :queue.out(state.waiting) do
      {:empty, _} -> state
      {{:value, turn}, waiting} -> give(turn, %{state | waiting: waiting})
    end
  end

  defp next(state), do: state

  defp give(turn, state) do
    case fit(state, turn) do
      {:ok, state} ->
        GenServer.reply(turn.from, {:ok, state.context})
        %{state | turn: turn}

      {:error, reason} ->
        Process.demonitor(turn.monitor, [:flush])
        GenServer.reply(turn.from, {:error, reason})
        next(state)
    end
  end

  # Replaces the context for another pooling; replaces it by a larger one if the texts do not fit.
  defp fit(%{pooling: pooling} = state, %{pooling: pooling} = turn) when state.context != nil do
    present = {Context.n_ctx(state.context), Context.n_seq_max(state.context)}
    size = most(present, turn.size)
    if size == present, do: {:ok, state}, else: make(state, size, pooling)
  end

  defp fit(state, turn), do: make(state, turn.size, turn.pooling)

  defp most({a, b}, {c, d}), do: {max(a, c), max(b, d)}

  defp make(state, size, pooling) do
    with {:ok, context} <- Embedding.context(state.model, size, pooling),
         do: {:ok, %{state | context: context, pooling: pooling}}
  end
end
