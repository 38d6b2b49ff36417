defmodule Weir.Sampler do
  @moduledoc """
  How tokens are chosen: a chain with its own history, random numbers and grammar. One for each sequence.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, sampler} = Weir.Sampler.create(model, temp: 0.0)
      iex> Weir.Sampler.accept(sampler, 104)
      :ok
  """

  alias Weir.{Context, Grammar, Model, NIF, Options}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference()}

  @doc """
  Options: `seed` (random), `temp` (0.8), `top_k` (40), `top_p` (0.95), `min_p` (0.05), `penalty_repeat` (1.0),
  `penalty_freq` (0.0), `penalty_present` (0.0), `grammar` (GBNF), `grammar_root` ("root"), `json_schema` (a map).
  """
  @spec create(Model.t(), keyword()) :: {:ok, t()} | {:error, String.t()}
  def create(%Model{} = model, opts \\ []) do
    o = Options.read!(opts, Options.sampler())

    with {:ok, grammar} <- grammar(o),
         {:ok, ref} <-
           NIF.sampler_init(
             model.ref,
             o.seed,
             o.temp,
             o.top_k,
             o.top_p,
             o.min_p,
             o.penalty_repeat,
             o.penalty_freq,
             o.penalty_present,
             grammar,
             o.grammar_root
           ) do
      {:ok, %__MODULE__{ref: ref}}
    end
  end

  defp grammar(%{json_schema: nil, grammar: grammar}), do: {:ok, grammar}
  defp grammar(%{json_schema: schema, grammar: nil}), do: Grammar.from_json_schema(schema)
  defp grammar(_both), do: raise(ArgumentError, "give either :grammar or :json_schema, not both")

  @doc "Back to the state after `create/2`; a fixed seed gives the same draws again."
  @spec reset(t()) :: :ok | {:error, String.t()}
  def reset(%__MODULE__{ref: ref}), do: NIF.sampler_reset(ref)

  @doc "Counts a token that was chosen elsewhere. An error when the grammar refuses it."
  @spec accept(t(), integer()) :: :ok | {:error, String.t()}
  def accept(%__MODULE__{ref: ref}, token), do: NIF.sampler_accept(ref, token)

  @doc "Chooses a token from the last row of the context's last pass, and accepts it."
  @spec sample(t(), Context.t()) :: integer() | {:error, String.t()}
  def sample(%__MODULE__{ref: ref}, %Context{ref: context}), do: NIF.sampler_sample(ref, context)
end
