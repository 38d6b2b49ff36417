defmodule Weir.ChatCompletionChunk do
  @moduledoc """
  A piece of an answer in the shape of OpenAI's `chat.completion.chunk`. A choice has `index`, `delta` and
  `finish_reason`. The first delta has the role, the last is empty and has a finish reason.
  """
  @enforce_keys [:id, :created, :model, :choices]
  defstruct [:id, :created, :model, :choices, object: "chat.completion.chunk"]

  @type t :: %__MODULE__{
          id: String.t(),
          object: String.t(),
          created: integer(),
          model: String.t(),
          choices: [map()]
        }
end
