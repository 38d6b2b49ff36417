# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Driver do
  @moduledoc false
  # The ticks of an engine whose plans come from Elixir. A process of its own, so that the server answers while a pass
  # runs. It waits for `:work`, which follows each submit, and goes on while there is any.

  # between two ticks it is in OTP's code: this module may be loaded anew at any time
  use GenServer
  require Logger
  alias Weir.NIF
  alias Weir.Server.{Guard, Telemetry}

  @report_ms 1000
  @int32 -2_147_483_648..2_147_483_647

  # view: what the last tick has left.
  defstruct [:engine, :module, :opts, :server, :telemetry, :failures, :view, :reported]

  @doc "`failures`: a counter of the plans that were replaced because the strategy gave none."
  def start_link(engine, {:module, module, opts}, failures, telemetry) do
    state = %__MODULE__{
      engine: engine,
      module: module,
      opts: opts,
      server: self(),
      telemetry: telemetry,
      failures: failures
    }

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

  # What is in the mailbox comes before the next tick, which is a timeout of 0.
  @impl true
  def handle_info(:timeout, %{view: nil} = state), do: tick(state)
  def handle_info(:timeout, state), do: go_on(%{state | view: nil}, state.view)
  def handle_info(:work, state), do: {:noreply, %{state | view: nil}, 0}

  def handle_info({:strategy, module, opts}, state),
    do: {:noreply, %{state | module: module, opts: opts, view: nil}, 0}

  def handle_info(:stop, state), do: {:stop, :normal, state}
  def handle_info(_other, state), do: {:noreply, state, 0}

  @impl true
  def handle_call(_other, _from, state), do: {:reply, {:error, :unknown_call}, state, 0}

  @impl true
  def handle_cast(_other, state), do: {:noreply, state, 0}

  defp tick(state) do
    case NIF.engine_view(state.engine) do
      {:ok, view} -> go_on(state, view)
      # stopped by the server, which has no more use for it
      {:error, _reason} -> {:noreply, state}
    end
  end

  defp go_on(state, %{slots: [], queue_depth: 0}), do: {:noreply, state}

  # One visit to a dirty scheduler for each tick.
  defp go_on(state, view) do
    {plan, state} = plan(state, view)

    case NIF.engine_turn(state.engine, plan) do
      {:ok, %{idle: true}, _view} ->
        # what waits in the queue cannot begin yet
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
    # The others wait for one of these.
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

  # With work at hand an empty plan would let it wait for ever.
  defp plan?([_ | _] = plan), do: entries?(plan)
  defp plan?(_other), do: false

  defp entries?([{slot, n} | rest])
       when is_integer(slot) and is_integer(n) and slot in @int32 and n in @int32,
       do: entries?(rest)

  defp entries?([]), do: true
  defp entries?(_other), do: false

  defp count(state) do
    :counters.add(state.failures, 1, 1)
    state
  end

  # To the log at most once a second: the next tick may bring the same.
  defp report(state, kind, reason, stacktrace) do
    if state.telemetry do
      metadata = %{
        server: state.server,
        strategy: state.module,
        kind: kind,
        reason: reason,
        stacktrace: stacktrace
      }

      Telemetry.execute([:strategy, :exception], %{count: 1}, metadata)
    end

    now = System.monotonic_time(:millisecond)

    if state.reported == nil or now - state.reported >= @report_ms do
      Logger.error([
        "the strategy #{inspect(state.module)} gave no plan that can be used; decode-maximal replaces it\n",
        describe(kind, reason, stacktrace)
      ])

      %{state | reported: now}
    else
      state
    end
  end

  defp describe(:error, {:no_plan, plan}, []),
    do: "it returned #{inspect(plan)}, which is no list of {slot, n_tokens} with an entry"

  defp describe(:error, {:bad_plan, plan}, []),
    do: "it returned #{inspect(plan)}: over the budget, or for slots or of tokens that there are not"

  defp describe(kind, reason, stacktrace), do: Exception.format(kind, reason, stacktrace)
end
