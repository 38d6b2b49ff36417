# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ChatCompletionChunk do
  @moduledoc """
  A piece of an answer in the format of OpenAI's `chat.completion.chunk`.

  Its one choice has `index`, `delta`, `logprobs` (as in `Weir.ChatCompletion`, for the tokens since the last
  delta) and `finish_reason`. The first delta of a choice has the role; the last is empty and has a finish
  reason. The others have `content`, `reasoning_content` or `tool_calls`: the first delta of a call has
  `index`, `id`, `type` and the function's `name`, later ones `index` and more of its `arguments`.

  `usage` is `nil`, but in the last chunk of the stream that of the whole answer, as in `Weir.ChatCompletion`.
  `Weir.JSON`, Jason and Elixir's `JSON` encode the struct.
  """
  use Weir.Encodable

  @enforce_keys [:id, :created, :model, :choices]
  defstruct [:id, :created, :model, :choices, :usage, object: "chat.completion.chunk"]

  @type t :: %__MODULE__{
          id: String.t(),
          object: String.t(),
          created: integer(),
          model: String.t(),
          choices: [map()],
          usage: map() | nil
        }
end
