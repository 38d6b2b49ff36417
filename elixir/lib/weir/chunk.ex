# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Chunk do
  @moduledoc """
  A piece of a stream with `emit: :chunks`: token ids, text, and in the last one why it ended (else `nil`): `:end`,
  `:length`, and from a `Weir.Server` also `:stop_words`, `:deadline` or `:cancelled`. A chunk's text may be empty; the
  texts together are the answer. `logprobs` has an entry for each id where a server was asked for them, else it is `nil`.

  From a `Weir.Server`: `prompt_logprobs`, where it was asked for them, has an entry for each token of the prompt and comes
  in a chunk of its own before the others; the last chunk has `usage` and `miss`, as `Weir.Server.complete/3` has them.
  """
  defstruct ids: [],
            text: "",
            reason: nil,
            logprobs: nil,
            prompt_logprobs: nil,
            usage: nil,
            miss: nil

  @type reason :: :end | :length | :stop_words | :deadline | :cancelled

  @typedoc """
  A token's text (`"bytes:\\\\xe2…"` where it is only a part of a character), the natural logarithm of the model's own
  probability for it, its bytes, and the likeliest tokens in its place, without alternatives of their own. -9999.0 stands
  for impossible, and `nil` for what follows nothing: a prompt's first token.
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
          usage: map() | nil,
          miss: map() | nil
        }

  @doc false
  # A stream of chunks as texts, none of them empty. A request that was cancelled has no whole answer.
  @spec texts(Enumerable.t()) :: Enumerable.t()
  def texts(chunks) do
    Stream.flat_map(chunks, fn
      %__MODULE__{reason: :cancelled} -> raise Weir.Error, :cancelled
      %__MODULE__{text: ""} -> []
      %__MODULE__{text: text} -> [text]
    end)
  end
end
