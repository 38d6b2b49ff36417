# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Clock do
  @moduledoc false
  # The present in ms, and when a wait ends.

  @type deadline :: integer() | :infinity

  @spec now() :: integer()
  def now, do: System.monotonic_time(:millisecond)

  @doc "The time this many ms from now."
  @spec at(timeout()) :: deadline()
  def at(:infinity), do: :infinity
  def at(ms), do: now() + ms

  @doc "How many ms are left until then."
  @spec left(deadline()) :: timeout()
  def left(:infinity), do: :infinity
  def left(deadline), do: max(deadline - now(), 0)
end
