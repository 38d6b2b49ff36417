# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Deadline do
  @moduledoc false
  # How long functions wait: their option `:timeout`, in milliseconds or `:infinity`, and the time that it ends at.

  # what the VM can wait
  @longest 0xFFFFFFFF

  @type t :: integer() | :infinity

  @doc "The option `:timeout`, and the other options."
  @spec pop!(keyword(), timeout()) :: {timeout(), keyword()}
  def pop!(opts, default) do
    {timeout, opts} = opts |> Weir.Options.keywords!() |> Keyword.pop(:timeout, default)

    if timeout != :infinity and
         not (is_integer(timeout) and timeout >= 0 and timeout <= @longest) do
      raise ArgumentError,
            "option :timeout must be milliseconds, at most #{@longest}, or :infinity, got: #{inspect(timeout)}"
    end

    {timeout, opts}
  end

  @doc "The time that ends so many milliseconds from now."
  @spec at(timeout()) :: t()
  def at(:infinity), do: :infinity
  def at(timeout), do: System.monotonic_time(:millisecond) + timeout

  @doc "How many milliseconds are left."
  @spec left(t()) :: timeout()
  def left(:infinity), do: :infinity
  def left(deadline), do: max(deadline - System.monotonic_time(:millisecond), 0)
end
