# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Chunk do
  @moduledoc """
  A piece of a stream with `emit: :chunks`: token ids, text and, in the last chunk, the finish reason
  (otherwise `nil`): `:end`, `:length`, and from a `Weir.Server` also `:stop_words`, `:deadline` or
  `:cancelled`. A chunk's text may be empty; the concatenated texts are the answer. `logprobs` has an entry
  for each id whose text has come if a server was asked for them, otherwise it is `nil`: the ids of a text that
  may be a stop text come first, and the ids of a stop text have none.

  From a `Weir.Server`: `prompt_logprobs`, if requested, has an entry per token of the prompt and is in a
  separate chunk before the others.

  With `progress: true`, chunks before the others tell how far the prompt is: `progress` is then a map with
  `n_prompt`, `n_cached`, `n_processed` (tokens that are there, cached or computed, never fewer than before) and
  `prefill_ns`.

  The last chunk has `usage` and `miss` as in `Weir.Server.complete/3`.
  """
  use Weir.Encodable

  defstruct ids: [],
            text: "",
            reason: nil,
            logprobs: nil,
            prompt_logprobs: nil,
            progress: nil,
            usage: nil,
            miss: nil

  @type reason :: :end | :length | :stop_words | :deadline | :cancelled

  @typedoc """
  A token's text (`"bytes:\\\\xe2…"` if it is only part of a character), the natural logarithm of the model's
  probability for it, its bytes, and the top alternatives, without alternatives of their own. -9999.0 means
  impossible; `nil` is for a prompt's first token, which has no predecessor, and for the entries in the place
  of an image or a sound, whose token is `""`.
  """
  @type logprob :: %{
          required(:token) => String.t(),
          required(:logprob) => float() | nil,
          required(:bytes) => [byte()],
          optional(:top_logprobs) => [logprob()]
        }

  @type t :: %__MODULE__{
          ids: [integer()],
          text: String.t(),
          reason: reason() | nil,
          logprobs: [logprob()] | nil,
          prompt_logprobs: [logprob()] | nil,
          progress: map() | nil,
          usage: map() | nil,
          miss: map() | nil
        }

  @doc false
  # A stream of chunks as non-empty texts. A cancelled request raises, because its answer is not complete.
  @spec texts(Enumerable.t()) :: Enumerable.t()
  def texts(chunks) do
    Stream.flat_map(chunks, fn
      %__MODULE__{reason: :cancelled} -> raise Weir.Error, :cancelled
      %__MODULE__{text: ""} -> []
      %__MODULE__{text: text} -> [text]
    end)
  end
end
