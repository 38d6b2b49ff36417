defmodule Weir.Chunk do
  @moduledoc """
  A piece of a stream with `emit: :chunks`: token ids, text, and in the last one why it ended (`:end` or `:length`,
  else `nil`). A chunk's text may be empty; the texts together are the answer.
  """
  defstruct ids: [], text: "", reason: nil
  @type t :: %__MODULE__{ids: [integer()], text: String.t(), reason: :end | :length | nil}
end
