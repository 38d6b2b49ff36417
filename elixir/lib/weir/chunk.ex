defmodule Weir.Chunk do
  @moduledoc """
  A piece of a stream with `emit: :chunks`: token ids, text, and in the last one why it ended (else `nil`): `:end`,
  `:length`, and from a `Weir.Server` also `:stop_words`, `:deadline` or `:cancelled`. A chunk's text may be empty; the
  texts together are the answer. `logprobs` has an entry for each id where a server was asked for them, else it is `nil`.
  """
  defstruct ids: [], text: "", reason: nil, logprobs: nil

  @type reason :: :end | :length | :stop_words | :deadline | :cancelled

  @typedoc """
  A token's text (`"bytes:\\\\xe2…"` where it is only a part of a character), the natural logarithm of the model's own
  probability for it, its bytes, and the likeliest tokens in its place, without alternatives of their own. -9999.0 stands
  for impossible.
  """
  @type logprob :: %{
          required(:token) => String.t(),
          required(:logprob) => float(),
          required(:bytes) => [byte()],
          optional(:top_logprobs) => [logprob()]
        }

  @type t :: %__MODULE__{
          ids: [integer()],
          text: String.t(),
          reason: reason() | nil,
          logprobs: [logprob()] | nil
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
