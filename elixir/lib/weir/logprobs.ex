# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Logprobs do
  @moduledoc false
  # Logprobs of tokens in the format of OpenAI's API.

  alias Weir.{Model, NIF}

  @typedoc "An id with its score (see `NIF.engine_submit/4`)."
  @type scored :: {integer(), {float() | nil, [{integer(), float()}]}}

  @doc "nil if none were requested."
  @spec entries(Model.t(), [scored()] | nil) :: [Weir.Chunk.logprob()] | nil
  def entries(_model, nil), do: nil

  def entries(model, scored) do
    Enum.map(scored, fn {id, {logprob, top}} ->
      model
      |> entry(id, logprob)
      |> Map.put(:top_logprobs, Enum.map(top, fn {id, logprob} -> entry(model, id, logprob) end))
    end)
  end

  # in the place of an image or a sound
  defp entry(_model, id, logprob) when id < 0, do: %{token: "", logprob: logprob, bytes: []}

  defp entry(%Model{ref: ref}, id, logprob) do
    bytes = NIF.token_to_piece(ref, id)
    %{token: text(bytes), logprob: logprob, bytes: :binary.bin_to_list(bytes)}
  end

  # a token may be part of a character
  defp text(bytes) do
    if String.valid?(bytes),
      do: bytes,
      else:
        "bytes:" <>
          for(<<byte <- bytes>>, into: "", do: "\\x" <> Base.encode16(<<byte>>, case: :lower))
  end
end
