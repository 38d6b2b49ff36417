# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Effort do
  @moduledoc false

  @doc "How much a test does of what only repeats: under sanitizers, where that takes minutes, a part."
  def effort(all, part), do: if(System.get_env("WEIR_SANITIZED"), do: part, else: all)
end
