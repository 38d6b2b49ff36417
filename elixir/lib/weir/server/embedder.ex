# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Embedder do
  @moduledoc false
  # Embeddings beside a server's generation: one context, which grows with the texts, and one call after the other.
  use GenServer
  alias Weir.Embedding

  def start_link(model), do: GenServer.start_link(__MODULE__, model)

  def embed(embedder, texts, o, timeout) do
    GenServer.call(embedder, {:embed, texts, o}, timeout)
  catch
    :exit, {:timeout, _call} -> {:error, :timeout}
    :exit, {reason, _call} -> {:error, {:server_down, reason}}
  end

  @impl true
  def init(model), do: {:ok, %{model: model, context: nil, pooling: nil}}

  @impl true
  def handle_call({:embed, texts, o}, _from, state) do
    with {:ok, inputs} <- Embedding.encode(state.model, texts),
         {:ok, state} <- fit(state, inputs, o) do
      {:reply, Embedding.compute(state.context, inputs, o.normalize), state}
    else
      {:error, reason} -> {:reply, {:error, reason}, state}
    end
  end

  defp fit(%{context: context} = state, inputs, o) do
    n_ctx = Embedding.n_ctx(inputs, o)

    if context != nil and state.pooling == o.pooling_type and Weir.Context.n_ctx(context) >= n_ctx do
      {:ok, state}
    else
      with {:ok, context} <- Embedding.context(state.model, n_ctx, o),
           do: {:ok, %{state | context: context, pooling: o.pooling_type}}
    end
  end
end
