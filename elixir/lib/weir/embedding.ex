# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Embedding do
  @moduledoc """
  Texts as vectors.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, vector} = Weir.Embedding.embed(model, "hello")
      iex> Float.round(Enum.sum(Enum.map(vector, &(&1 * &1))), 3)
      1.0
  """

  alias Weir.{Context, Model, NIF, Options, Tokenizer}

  @doc """
  Options: `n_ctx` (2048, grown to the longest text), `pooling_type` (`:unspecified`; `:none`, `:mean`, `:cls`,
  `:last`), `normalize` (2: length 1; 0: the largest absolute value is 1; -1: as it is).
  """
  @spec embed(Model.t(), String.t(), keyword()) :: {:ok, [float()]} | {:error, String.t()}
  def embed(model, text, opts \\ []) do
    with {:ok, [vector]} <- embed_batch(model, [text], opts), do: {:ok, vector}
  end

  @doc "One vector for each text, in their order."
  @spec embed_batch(Model.t(), [String.t()], keyword()) ::
          {:ok, [[float()]]} | {:error, String.t()}
  def embed_batch(%Model{} = model, texts, opts \\ []) when is_list(texts) do
    o = options!(opts)

    with {:ok, inputs} <- encode(model, texts),
         {:ok, context} <- context(model, n_ctx(inputs, o), o) do
      compute(context, inputs, o.normalize)
    end
  end

  @doc false
  def options!(opts) do
    Options.read!(opts,
      n_ctx: {:integer, 2048},
      pooling_type: Options.pooling_type(),
      normalize: {{:in, [2, 0, -1]}, 2}
    )
  end

  @doc false
  def encode(model, texts), do: map_ok(texts, &Tokenizer.encode(model, &1))

  @doc false
  def n_ctx(inputs, o), do: inputs |> Enum.map(&length/1) |> Enum.max(fn -> 0 end) |> max(o.n_ctx)

  @doc false
  def context(model, n_ctx, o) do
    Context.create(model, n_ctx: n_ctx, embeddings: true, pooling_type: o.pooling_type)
  end

  @doc false
  def compute(context, inputs, normalize) do
    map_ok(inputs, fn tokens ->
      with :ok <- NIF.embed_decode(context.ref, tokens, 0),
           do: NIF.get_embeddings(context.ref, 0, normalize)
    end)
  end

  defp map_ok(list, fun) do
    result =
      Enum.reduce_while(list, [], fn element, done ->
        case fun.(element) do
          {:ok, value} -> {:cont, [value | done]}
          {:error, reason} -> {:halt, {:error, reason}}
        end
      end)

    if is_list(result), do: {:ok, Enum.reverse(result)}, else: result
  end
end
