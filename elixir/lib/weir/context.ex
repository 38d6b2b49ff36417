# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Context do
  @moduledoc """
  A context of the low-level API: the KV memory of one or more sequences, driven by hand.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, context} = Weir.Context.create(model, n_ctx: 512)
      iex> {Weir.Context.n_ctx(context), Weir.Context.decode(context, ~c"hello")}
      {512, :ok}
  """

  alias Weir.{Model, NIF, Options, Sampler, Turns}

  @enforce_keys [:ref, :model]
  defstruct [:ref, :model]
  @type t :: %__MODULE__{ref: reference(), model: Model.t()}

  @doc """
  Options: `n_ctx` (2048), `n_batch` (n_ctx), `n_ubatch` (512), `n_threads`, `n_threads_batch`, `embeddings`
  (false), `pooling_type` (`:unspecified`), `n_seq_max` (1).
  """
  @spec create(Model.t(), keyword()) :: {:ok, t()} | {:error, Weir.Error.t()}
  def create(%Model{} = model, opts \\ []) do
    o = Options.read!(opts, Options.context())

    {pooling, o} = Map.pop!(o, :pooling_type)

    with {:ok, ref} <- NIF.context_create(model.ref, Map.put(o, :pooling, pooling)),
         do: {:ok, %__MODULE__{ref: ref, model: model}}
  end

  @doc "The total number of tokens that it can hold."
  @spec n_ctx(t()) :: integer()
  def n_ctx(%__MODULE__{ref: ref}), do: NIF.context_n_ctx(ref)

  @doc "The maximum number of sequences."
  @spec n_seq_max(t()) :: integer()
  def n_seq_max(%__MODULE__{ref: ref}), do: NIF.context_n_seq_max(ref)

  @doc "Clears all sequences."
  @spec clear(t()) :: :ok | {:error, Weir.Error.t()}
  def clear(%__MODULE__{ref: ref}), do: NIF.memory_clear(ref)

  @doc """
  Returns the state of a sequence as bytes. A context of the same model, layout and types can load it instead
  of computing it again. A loaded state is trusted like the model.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, context} = Weir.Context.create(model, n_ctx: 512)
      iex> :ok = Weir.Context.decode(context, ~c"hello")
      iex> {:ok, bytes} = Weir.Context.save(context)
      iex> {:ok, other} = Weir.Context.create(model, n_ctx: 512)
      iex> :ok = Weir.Context.load(other, bytes)
      iex> Weir.NIF.memory_seq_pos_max(other.ref, 0)
      4
  """
  @spec save(t(), integer()) :: {:ok, binary()} | {:error, Weir.Error.t()}
  def save(%__MODULE__{ref: ref}, seq \\ 0), do: NIF.state_save(ref, seq)

  @doc "Replaces a sequence by a saved state. After an error the sequence is unchanged or empty."
  @spec load(t(), binary(), integer()) :: :ok | {:error, Weir.Error.t()}
  def load(%__MODULE__{ref: ref}, bytes, seq \\ 0),
    do: NIF.state_load(ref, seq, Options.argument!("the state", :binary, bytes))

  @doc "Appends tokens to sequence 0."
  @spec decode(t(), [integer()]) :: :ok | {:error, Weir.Error.t()}
  def decode(%__MODULE__{ref: ref}, tokens),
    do: NIF.decode(ref, Options.argument!("the ids", {:list, :integer}, tokens))

  @doc """
  Clears sequence 0, prefills the prompt and generates. Option: `max_tokens` (256). It holds one of the VM's
  dirty CPU schedulers until the end, so it waits until one is left for others; `Weir.generate/3` and
  `Weir.Server` hold none.
  """
  @spec generate(t(), Sampler.t(), [integer()], keyword()) ::
          {:ok, String.t()} | {:error, Weir.Error.t()}
  def generate(%__MODULE__{ref: ref}, %Sampler{} = sampler, tokens, opts \\ []) do
    tokens = Options.argument!("the ids", {:list, :integer}, tokens)
    o = Options.read!(opts, max_tokens: {:integer, 256})
    Turns.take(:compute, :infinity, fn _left -> NIF.generate(ref, sampler.ref, tokens, o.max_tokens) end)
  end
end
