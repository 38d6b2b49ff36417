# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Models.Telemetry do
  @moduledoc """
  The events of `Weir.Models`, for applications with `:telemetry`. Without it nothing is looked at.

  All metadata include `models` (a pid). Those of a model also have `name`.

  | event | measurements | metadata |
  |---|---|---|
  | `[:weir, :models, :load]` | `loads` (since the last event: 1, or more if it slept between), `load_ms` (of the last one), `bytes` (of the budget) | |
  | `[:weir, :models, :failure]` | `failures` (since the last event) | `reason`, a text |
  | `[:weir, :models, :sleep]` | `bytes` (that it takes when it is loaded) | `state`: `:sleeping`, `:unloaded` after `Weir.Models.unload/2`, or `:removed` after `Weir.Models.set/2` |
  | `[:weir, :models, :stats]` | as `Weir.Models.get_stats/1`, when one of them has changed | |

  The process looks at its models twice a second and reports what has changed since, so a model that is loaded
  and sleeps again between two looks has both events.
  """

  alias Weir.Server

  @look_ms 500

  @typep seen :: %{models: %{String.t() => map()}, stats: map()}

  @doc false
  @spec start() :: seen() | nil
  def start do
    if Server.Telemetry.loaded?() do
      again()
      %{models: %{}, stats: %{}}
    end
  end

  @doc false
  @spec look(seen() | nil, [map()], map()) :: seen() | nil
  def look(nil, _infos, _stats), do: nil

  def look(seen, infos, stats) do
    again()
    now = Map.new(infos, &{&1.name, &1})

    # a model that was set again counts anew
    for info <- infos do
      before = Map.get(seen.models, info.name, fresh())
      compare(if(info.n_loads < before.n_loads, do: fresh(), else: before), info)
    end

    for {name, before} <- seen.models, not is_map_key(now, name) and before.state == :loaded do
      execute([:sleep], %{bytes: before.n_bytes}, %{name: name, state: :removed})
    end

    if stats != seen.stats, do: execute([:stats], stats, %{})
    %{models: now, stats: stats}
  end

  defp again, do: Process.send_after(self(), {__MODULE__, :look}, @look_ms)

  defp fresh, do: %{n_loads: 0, n_failures: 0, state: :unloaded, n_bytes: 0}

  defp compare(before, now) do
    loads = now.n_loads - before.n_loads
    failures = now.n_failures - before.n_failures
    gone? = now.state in [:sleeping, :unloaded] and (loads > 0 or before.state in [:loaded, :leaving])

    if loads > 0,
      do: execute([:load], %{loads: loads, load_ms: now.load_ms, bytes: now.n_bytes}, %{name: now.name})

    if failures > 0,
      do: execute([:failure], %{failures: failures}, %{name: now.name, reason: now.message})

    if gone?,
      do: execute([:sleep], %{bytes: now.n_bytes}, %{name: now.name, state: now.state})
  end

  defp execute(event, measurements, metadata),
    do: Server.Telemetry.execute([:models | event], measurements, Map.put(metadata, :models, self()))
end
