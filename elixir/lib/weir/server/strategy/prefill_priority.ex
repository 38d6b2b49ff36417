# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Strategy.PrefillPriority do
  @moduledoc """
  Prompts first, because large passes compute the most tokens per second. One token of the budget is reserved
  for the generating slots, which take turns, so that a steady flow of prompts does not stop them.
  """
  @behaviour Weir.Server.BatchStrategy
  alias Weir.Server.Strategy

  @impl true
  def build_batch(slots, budget, chunk_size, _opts) do
    kept = min(Strategy.n_generating(slots), min(budget, 1))
    {prefills, rest} = Strategy.prefills(slots, budget - kept, chunk_size)
    {decodes, _rest} = Strategy.decodes(slots, rest + kept)
    prefills ++ decodes
  end
end
