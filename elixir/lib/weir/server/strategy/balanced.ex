# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Strategy.Balanced do
  @moduledoc "Half of the budget for generating slots, half for prompts. Either may use what the other leaves."
  @behaviour Weir.Server.BatchStrategy
  alias Weir.Server.Strategy

  @impl true
  def build_batch(slots, budget, chunk_size, _opts) do
    kept = min(Strategy.n_generating(slots), budget - div(budget, 2))
    {prefills, rest} = Strategy.prefills(slots, budget - kept, chunk_size)
    {decodes, _rest} = Strategy.decodes(slots, rest + kept)
    prefills ++ decodes
  end
end
