# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ChatCompletion do
  @moduledoc """
  An answer in the format of OpenAI's `chat.completion`.

  There are `n` choices. A choice has `index`, `message`, `logprobs` and `finish_reason` (`"stop"`, `"length"`
  or `"tool_calls"`). A message has `role`, `content`, `reasoning_content` (or `nil`) and, if tools are
  called, `tool_calls`: each with `id`, `type` and `function`, which has `name` and `arguments`, a JSON text;
  its content may then be `nil`. `logprobs` is `nil`, or has `content`, a list of `t:Weir.Chunk.logprob/0`.
  Usage has `prompt_tokens`, `completion_tokens` and `total_tokens`; a prompt counts once. Its
  `prompt_tokens_details` has `cached_tokens` and `miss`, the reason why there were no more
  (`t:Weir.Server.miss/0`; words of other requests need their `cache_salt`). `prompt_logprobs`, if requested, is
  a list of `t:Weir.Chunk.logprob/0`.

  `Weir.JSON`, Jason and Elixir's `JSON` encode the struct.
  """
  use Weir.Encodable

  @enforce_keys [:id, :created, :model, :choices, :usage]
  defstruct [:id, :created, :model, :choices, :usage, :prompt_logprobs, object: "chat.completion"]

  @type t :: %__MODULE__{
          id: String.t(),
          object: String.t(),
          created: integer(),
          model: String.t(),
          choices: [map()],
          usage: map(),
          prompt_logprobs: [Weir.Chunk.logprob()] | nil
        }
end
