# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Engine do
  @moduledoc false
  # An engine of a server, with the process that drives it if its plans come from Elixir.

  alias Weir.{Model, NIF, Options}
  alias Weir.Server.{BatchStrategy, Driver, Telemetry}

  # failures: counts the plans that were replaced. n: its requests. tick: the first one that was not reported
  # yet.
  @enforce_keys [:ref, :driver, :failures]
  defstruct [:ref, :driver, :failures, n: 0, tick: 0]

  @type t :: %__MODULE__{
          ref: NIF.engine(),
          driver: pid() | nil,
          failures: :counters.counters_ref(),
          n: non_neg_integer(),
          tick: non_neg_integer()
        }

  # These have another name or form in the native functions.
  @others [:n_parallel, :n_batch, :max_queue, :batch_strategy, :draft_model]

  # n_ctx is here the number of all KV cells.
  @doc "Options as `{type, default}`."
  def options do
    Options.from("engine",
      # nothing here reads the events that cache_block is for
      except: [:n_kv, :max_tokens, :manual, :cache_block],
      ranges: [:n_slots],
      defaults: [n_parallel: 4, n_batch: 0],
      own: [
        n_ctx: {{:range, 1..0x10000000}, 8192},
        cache_bytes: {:auto_or_bytes, :auto},
        batch_strategy: {:any, :decode_maximal},
        draft_model: {{:maybe, :model}, nil}
      ]
    )
  end

  @doc "`draft`: the loaded model of the option `draft_model`, or nil."
  @spec create(Model.t(), Model.t() | nil, map()) :: {:ok, NIF.engine()} | {:error, Weir.Error.t()}
  def create(model, draft, o) do
    NIF.engine_create(model.ref, Map.put(params(o), :draft_model, draft && draft.ref))
  end

  @doc "The options for the native functions, without `draft_model`."
  @spec params(map()) :: map()
  def params(o) do
    o
    |> Map.take(Keyword.keys(options()) -- @others)
    |> Map.merge(%{n_slots: o.n_parallel, n_kv: o.n_ctx, n_batch: n_batch(o), queue_limit: o.max_queue})
    |> Map.merge(
      case BatchStrategy.resolve!(o.batch_strategy) do
        {:c, name} -> %{strategy: name}
        {:module, _module, _opts} -> %{manual: true}
      end
    )
  end

  defp n_batch(%{n_batch: 0} = o), do: o.n_ctx |> max(o.n_parallel) |> min(Options.most("engine", :n_batch))
  defp n_batch(o), do: o.n_batch

  @doc "For the server's process. Starts a driver if the plans come from Elixir."
  @spec start(NIF.engine(), map(), boolean()) :: t()
  def start(ref, o, telemetry) do
    failures = :counters.new(1, [])
    strategy = BatchStrategy.resolve!(o.batch_strategy)
    driver = if elem(strategy, 0) == :module, do: Driver.start_link(ref, strategy, failures, telemetry)
    %__MODULE__{ref: ref, driver: driver, failures: failures}
  end

  @doc """
  Frees the engine, after its running pass and once cached prefixes are on the disk. The remaining streams end
  with an error.
  """
  @spec stop(t()) :: :ok
  def stop(engine) do
    Driver.stop(engine.driver)
    NIF.engine_destroy(engine.ref)
  end

  @doc "Its state and its part of `Weir.Server.get_stats/1`. An engine that is being destroyed has no counters."
  @spec stats(t(), map()) :: {:running | :stopping, map()}
  def stats(engine, o) do
    with %{} = s <- NIF.engine_stats(engine.ref),
         slots when is_list(slots) <- slots(engine, s),
         do: {:running, merged(engine, s, slots)},
         else: ({:error, _stopping} -> {:stopping, no_stats(o)})
  end

  defp slots(_engine, %{n_slots_prefilling: 0, n_slots_generating: 0}), do: []
  defp slots(engine, _stats), do: NIF.engine_slots(engine.ref)

  defp merged(engine, s, slots) do
    active = s.n_slots_prefilling + s.n_slots_generating

    s
    |> Map.drop([:n_slots, :n_slots_prefilling, :n_slots_generating])
    |> Map.merge(%{
      active_slots: active,
      idle_slots: s.n_slots - active,
      prefilling_slots: s.n_slots_prefilling,
      generating_slots: s.n_slots_generating,
      n_parallel: s.n_slots,
      strategy_failures: :counters.get(engine.failures, 1),
      slots: slots
    })
  end

  @doc "The same while there is no engine yet."
  @spec no_stats(map()) :: map()
  def no_stats(o) do
    ~w(active_slots idle_slots prefilling_slots generating_slots queue_depth strategy_failures)a
    |> Map.new(&{&1, 0})
    |> Map.merge(%{n_parallel: o.n_parallel, n_batch: n_batch(o), slots: []})
  end

  @doc "Sends events for the ticks since the last call. For the server's process."
  @spec tell_ticks(t()) :: t()
  def tell_ticks(engine) do
    case NIF.engine_ticks(engine.ref, engine.tick) do
      {_next, []} ->
        engine

      {:error, _stopping} ->
        engine

      {next, ticks} ->
        Enum.each(ticks, &Telemetry.tick(&1, self()))
        tell_ticks(%{engine | tick: next})
    end
  end
end
