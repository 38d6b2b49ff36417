# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Guard do
  @moduledoc false
  # Stops an engine whose driver has ended. After a kill no tick would end its streams, and they keep the
  # engine.

  use GenServer
  alias Weir.{Error, NIF}

  @doc "Starts without a link, because it must survive the driver."
  @spec start(pid(), NIF.engine()) :: :ok
  def start(driver, engine) do
    {:ok, _pid} = GenServer.start(__MODULE__, {driver, engine})
    :ok
  end

  @impl true
  def init({driver, engine}), do: {:ok, {Process.monitor(driver), engine}}

  @impl true
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, {monitor, engine} = state) do
    _ended = NIF.engine_stop(engine)
    {:stop, :normal, state}
  end

  def handle_info(_other, state), do: {:noreply, state}

  @impl true
  def handle_call(_other, _from, state), do: {:reply, {:error, Error.new(:unknown_call)}, state}

  @impl true
  def handle_cast(_other, state), do: {:noreply, state}
end
