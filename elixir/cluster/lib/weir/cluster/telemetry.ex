# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Telemetry do
  @moduledoc """
  The events of a `Weir.Cluster`, for applications with `:telemetry`. All metadata include `cluster`, its
  name.

  | event | measurements | metadata |
  |---|---|---|
  | `[:weir, :cluster, :route]` | `place` (0: the first choice of the hash), `candidates`, `load` (of the chosen node: requests per slot) | `node`, `reason`: `:first`, `:spill` (better places were busy) or `:failover` |
  | `[:weir, :cluster, :node, :failed]` | `tokens` (that the caller has) | `node`, `reason` (the code of a `Weir.Error`, or why the node is lost), `retry` (whether another node is tried) |
  | `[:weir, :cluster, :resume]` | `gap_ms` (from the failure to the next new chunk), `tokens` (generated again) | `node` |
  | `[:weir, :cluster, :member, :join]` | `members` (after it) | `node` |
  | `[:weir, :cluster, :member, :leave]` | `members` | `node` |
  | `[:weir, :cluster, :member, :refused]` | `members` | `node`, `reason` (a text) |

  The process of the caller sends the first three, the process of the cluster on each node the others. The
  events of the requests themselves (`Weir.Server.Telemetry`) are on the node that computes them.
  """

  @doc false
  @spec loaded?() :: boolean()
  def loaded?, do: Code.ensure_loaded?(:telemetry) and function_exported?(:telemetry, :execute, 3)

  @doc false
  @spec execute(boolean(), [atom()], map(), map()) :: :ok
  def execute(false, _event, _measurements, _metadata), do: :ok

  def execute(true, event, measurements, metadata) do
    # the package compiles without :telemetry
    apply(:telemetry, :execute, [[:weir, :cluster | event], measurements, metadata])
    :ok
  end
end
