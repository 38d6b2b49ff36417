# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Tokenizer do
  @moduledoc """
  Converts text to token ids and back.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, tokens} = Weir.Tokenizer.encode(model, "hey", add_special: false)
      iex> tokens
      [104, 101, 121]
      iex> Weir.Tokenizer.decode(model, tokens)
      {:ok, "hey"}
  """

  alias Weir.{Model, NIF, Options}

  @doc """
  Options: `add_special` (true): add the tokens that start and end texts in this model; `parse_special`
  (true): read `"<|im_end|>"` and other control tokens as tokens.
  """
  @spec encode(Model.t(), String.t(), keyword()) :: {:ok, [integer()]} | {:error, Weir.Error.t()}
  def encode(%Model{ref: ref}, text, opts \\ []) do
    o = Options.read!(opts, add_special: {:boolean, true}, parse_special: {:boolean, true})
    text = Options.argument!("the text", :binary, text)
    NIF.tokenize(ref, text, o.add_special, o.parse_special)
  end

  @doc "Always well-formed UTF-8."
  @spec decode(Model.t(), [integer()]) :: {:ok, String.t()} | {:error, Weir.Error.t()}
  def decode(%Model{ref: ref}, tokens),
    do: NIF.detokenize(ref, Options.argument!("the ids", {:list, :integer}, tokens))

  @doc "The bytes of a token, which may be part of a character."
  @spec token_to_piece(Model.t(), integer()) :: binary() | {:error, Weir.Error.t()}
  def token_to_piece(%Model{ref: ref}, token), do: NIF.token_to_piece(ref, token)

  @doc "The size of the vocabulary."
  @spec vocab_size(Model.t()) :: integer()
  def vocab_size(%Model{ref: ref}), do: NIF.model_info(ref).n_vocab

  @doc "-1 when the vocabulary has none."
  @spec bos_token(Model.t()) :: integer()
  def bos_token(%Model{ref: ref}), do: NIF.model_info(ref).token_bos

  @doc "-1 when the vocabulary has none."
  @spec eos_token(Model.t()) :: integer()
  def eos_token(%Model{ref: ref}), do: NIF.model_info(ref).token_eos

  @doc "True if this token ends a generation."
  @spec eog?(Model.t(), integer()) :: boolean()
  def eog?(%Model{ref: ref}, token), do: NIF.vocab_is_eog(ref, token)
end
