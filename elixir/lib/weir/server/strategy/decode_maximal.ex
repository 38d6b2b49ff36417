# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Strategy.DecodeMaximal do
  @moduledoc "Generating slots first, because their readers wait for each token. Prompts get the rest."
  @behaviour Weir.Server.BatchStrategy
  alias Weir.Server.Strategy

  @impl true
  def build_batch(slots, budget, chunk_size, _opts) do
    {decodes, budget} = Strategy.decodes(slots, budget)
    {prefills, _rest} = Strategy.prefills(slots, budget, chunk_size)
    decodes ++ prefills
  end
end
