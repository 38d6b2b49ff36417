# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Wait do
  @moduledoc "Waiting for events in tests. Time limits are long and end only tests that hang."

  @doc "Milliseconds after which a test gives up on what must come, also where all is many times slower than usual."
  def patience, do: 120_000

  @doc "Whether fun returns true before patience/0 is over."
  def eventually(fun, tries \\ div(patience(), 5)) do
    cond do
      fun.() -> true
      tries == 0 -> false
      true -> Process.sleep(5) && eventually(fun, tries - 1)
    end
  end

  @doc "The messages in this process's mailbox."
  def mailbox, do: elem(Process.info(self(), :messages), 1)

  @doc "Waits until a process is inside a native function that runs on a dirty scheduler."
  def until_inside(pid, name, arity) do
    inside = {:current_function, {Weir.NIF, name, arity}}
    true = eventually(fn -> Process.info(pid, :current_function) == inside end)
  end

  @doc "Whether an engine is idle: all submitted requests have ended, also those between queue and slot."
  def at_rest?(engine) do
    stats = Weir.NIF.engine_stats(engine)
    stats.n_submitted == Enum.sum(Map.values(stats.n_finished))
  end

  @doc """
  Whether no more handles of any kind live than `before` says. There may be fewer: the reaper frees what earlier
  tests left when it gets to it.
  """
  def freed?(before), do: Enum.all?(Weir.NIF.live_handles(), fn {kind, n} -> n <= before[kind] end)

  @doc "The text of a request's messages until its end, which `max_tokens` caused."
  def join(ref, text \\ "") do
    receive do
      {^ref, {:chunk, _ids, more}} -> join(ref, text <> more)
      {^ref, {:done, :length, _usage}} -> text
    after
      patience() -> raise "no end came"
    end
  end
end
