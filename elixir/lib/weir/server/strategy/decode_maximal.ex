# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Strategy.DecodeMaximal do
  @moduledoc "Generating slots first: someone waits for each of their tokens. Prompts take what is left."
  @behaviour Weir.Server.BatchStrategy
  alias Weir.Server.Strategy

  @impl true
  def build_batch(slots, budget, chunk_size, _opts) do
    {decodes, budget} = Strategy.decodes(slots, budget)
    {prefills, _rest} = Strategy.prefills(slots, budget, chunk_size)
    decodes ++ prefills
  end
end
