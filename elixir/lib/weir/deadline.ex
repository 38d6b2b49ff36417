# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Deadline do
  @moduledoc false
  # How long functions wait: their option `:timeout`, in milliseconds or `:infinity`, and the time when it
  # ends.

  alias Weir.Options

  @type t :: integer() | :infinity

  @doc "The option `:timeout`, and the other options."
  @spec pop!(keyword(), timeout()) :: {timeout(), keyword()}
  def pop!(opts, default) do
    {%{timeout: timeout}, opts} = Options.split!(opts, timeout: {:timeout, default})
    {timeout, opts}
  end

  @doc "The time this many milliseconds from now."
  @spec at(timeout()) :: t()
  def at(:infinity), do: :infinity
  def at(timeout), do: System.monotonic_time(:millisecond) + timeout

  @doc "How many milliseconds are left."
  @spec left(t()) :: timeout()
  def left(:infinity), do: :infinity
  def left(deadline), do: max(deadline - System.monotonic_time(:millisecond), 0)
end
