# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ChatCompletionChunk do
  @moduledoc """
  A piece of an answer in the shape of OpenAI's `chat.completion.chunk`.

  Its one choice has `index`, `delta`, `logprobs` (as in `Weir.ChatCompletion`, of the tokens since the last delta) and
  `finish_reason`. The first delta of a choice has the role, the last is empty and has a finish reason. Those between
  have `content`, `reasoning_content`, or `tool_calls`: the first one of a call has `index`, `id`, `type` and the
  function's `name`, the others `index` and more of its `arguments`.
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
