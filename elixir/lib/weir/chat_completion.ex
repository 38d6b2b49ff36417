defmodule Weir.ChatCompletion do
  @moduledoc """
  An answer in the shape of OpenAI's `chat.completion`. A choice has `index`, `message` (`role`, `content`,
  `reasoning_content`) and `finish_reason` (`"stop"` or `"length"`); usage has `prompt_tokens`, `completion_tokens`
  and `total_tokens`.
  """
  @enforce_keys [:id, :created, :model, :choices, :usage]
  defstruct [:id, :created, :model, :choices, :usage, object: "chat.completion"]

  @type t :: %__MODULE__{
          id: String.t(),
          object: String.t(),
          created: integer(),
          model: String.t(),
          choices: [map()],
          usage: map()
        }
end
