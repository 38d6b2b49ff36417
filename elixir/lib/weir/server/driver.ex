# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Driver do
  @moduledoc false
  # Drives an engine whose plans come from Elixir, in a separate process, so that the server can answer during
  # a pass. It waits for `:work`, which follows each submit, and makes ticks while there is work.

  # between two ticks it runs OTP's code, so that this module can be reloaded at any time
  use GenServer
  require Logger
  alias Weir.{Error, NIF, Options}
  alias Weir.Server.{Guard, Telemetry}

  @report_ms 1000

  # view: after the last tick, for the next plan
  defstruct [:engine, :module, :opts, :server, :telemetry, :failures, :view, :reported]

  @doc "`failures`: counts the ticks for which the strategy gave no plan."
  def start_link(engine, {:module, module, opts}, failures, telemetry) do
    state = %__MODULE__{engine: engine, module: module, opts: opts, server: self()}
    state = %{state | telemetry: telemetry, failures: failures}
    {:ok, driver} = GenServer.start_link(__MODULE__, state)
    :ok = Guard.start(driver, engine)
    driver
  end

  def work(nil), do: :ok
  def work(driver), do: send(driver, :work)

  def strategy(driver, {:module, module, opts}), do: send(driver, {:strategy, module, opts})
  def stop(nil), do: :ok
  def stop(driver), do: send(driver, :stop)

  @impl true
  def init(state), do: {:ok, state, 0}

  # The next tick is a timeout of 0, so messages are handled first.
  @impl true
  def handle_info(:timeout, %{view: nil} = state), do: tick(state)
  def handle_info(:timeout, state), do: go_on(%{state | view: nil}, state.view)
  def handle_info(:work, state), do: {:noreply, %{state | view: nil}, 0}

  def handle_info({:strategy, module, opts}, state),
    do: {:noreply, %{state | module: module, opts: opts, view: nil}, 0}

  def handle_info(:stop, state), do: {:stop, :normal, state}
  def handle_info(_other, state), do: {:noreply, state, 0}

  @impl true
  def handle_call(_other, _from, state), do: {:reply, {:error, Error.new(:unknown_call)}, state, 0}

  @impl true
  def handle_cast(_other, state), do: {:noreply, state, 0}

  defp tick(state) do
    case NIF.engine_view(state.engine) do
      {:ok, view} -> go_on(state, view)
      # the server has stopped the engine
      {:error, _reason} -> {:noreply, state}
    end
  end

  defp go_on(state, %{slots: [], queue_depth: 0}), do: {:noreply, state}

  # Each tick is one visit to a dirty scheduler.
  defp go_on(state, view) do
    {plan, state} = plan(state, view)

    case NIF.engine_turn(state.engine, plan) do
      {:ok, %{idle: true}, _view} ->
        # the queued requests cannot start yet
        {:noreply, state, 1}

      {:ok, %{bad_plan: true}, view} when plan != nil ->
        {:noreply, report(%{state | view: view}, :error, {:bad_plan, plan}, []), 0}

      {:ok, _report, view} ->
        {:noreply, %{state | view: view}, 0}

      {:error, _reason} ->
        {:noreply, state, 0}
    end
  end

  defp plan(state, view) do
    # the other slots wait for one of these
    case Enum.filter(view.slots, &(&1.state in [:prefilling, :generating])) do
      [] -> {nil, state}
      slots -> ask(state, slots, view)
    end
  end

  defp ask(state, slots, view) do
    opts = Map.to_list(Map.drop(view, [:slots, :budget, :chunk_size])) ++ state.opts
    plan = state.module.build_batch(slots, view.budget, view.chunk_size, opts)

    if plan?(plan),
      do: {plan, state},
      else: {nil, state |> count() |> report(:error, {:no_plan, plan}, [])}
  catch
    kind, reason -> {nil, state |> count() |> report(kind, reason, __STACKTRACE__)}
  end

  # There is work, so with an empty plan it would wait for ever.
  defp plan?(plan), do: plan != [] and Options.valid?({:list, :integers}, plan)

  defp count(state) do
    :counters.add(state.failures, 1, 1)
    state
  end

  # Logs at most once a second, because the next tick may fail in the same way.
  defp report(state, kind, reason, stacktrace) do
    if state.telemetry do
      known = %{server: state.server, strategy: state.module}
      metadata = Map.merge(known, %{kind: kind, reason: reason, stacktrace: stacktrace})
      Telemetry.execute([:server, :strategy, :exception], %{count: 1}, metadata)
    end

    now = System.monotonic_time(:millisecond)

    if state.reported == nil or now - state.reported >= @report_ms do
      Logger.error([
        "the strategy #{inspect(state.module)} gave no valid plan; decode-maximal replaces it\n",
        describe(kind, reason, stacktrace)
      ])

      %{state | reported: now}
    else
      state
    end
  end

  defp describe(:error, {:no_plan, plan}, []),
    do: "it returned #{inspect(plan)}, which is not a non-empty list of {slot, n_tokens}"

  defp describe(:error, {:bad_plan, plan}, []),
    do: "it returned #{inspect(plan)}, which exceeds the budget, or names slots or tokens that do not exist"

  defp describe(kind, reason, stacktrace), do: Exception.format(kind, reason, stacktrace)
end
