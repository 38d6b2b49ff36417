# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Log do
  @moduledoc """
  Sends the log of weir and llama.cpp to `Logger`: warnings and errors by default;
  `config :weir, log_level: level` sets the level (`:debug`, `:info`, `:warning`, `:error` or `:none`). Each
  message has the metadata `application: :weir`.

  The application `:weir` starts this process. While it does not run, warnings and errors go to stderr.
  """
  use GenServer
  require Logger

  @levels [:debug, :info, :warning, :error, :none]

  @doc false
  def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @impl true
  def init(_arg) do
    attach()
    {:ok, nil}
  end

  @impl true
  def handle_info({:weir_log, level, text}, state) do
    Logger.log(level, text, application: :weir)
    {:noreply, state}
  end

  def handle_info(_stray, state), do: {:noreply, state}

  # Another file of the library has its own log.
  @impl true
  def code_change(_old, state, _extra) do
    attach()
    {:ok, state}
  end

  defp attach do
    level = Application.get_env(:weir, :log_level, :warning)

    if level not in @levels do
      raise ArgumentError,
            "config :weir, log_level: must be one of #{inspect(@levels)}, got: #{inspect(level)}"
    end

    Weir.NIF.log_to(self(), level)
  end
end

defmodule Weir.Application do
  @moduledoc false
  use Application

  @impl true
  def start(_type, _args) do
    Supervisor.start_link([Weir.Log, Weir.Turns], strategy: :one_for_one, name: Weir.Supervisor)
  end
end
