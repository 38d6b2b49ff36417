# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Sampler do
  @moduledoc """
  A sampler chain, which chooses tokens, with its own history, random numbers and grammar. Use one per
  sequence.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, sampler} = Weir.Sampler.create(model, temp: 0.0)
      iex> Weir.Sampler.accept(sampler, 104)
      :ok
  """

  alias Weir.{Context, Model, NIF, Options}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference()}

  @doc """
  Options: `seed` (random), `temp` (0.8), `top_k` (40), `top_p` (0.95), `min_p` (0.05), `penalty_repeat`
  (1.0), `penalty_freq` (0.0), `penalty_present` (0.0), `grammar` (GBNF; nil or `""`: none), `grammar_root` ("root"),
  `json_schema` (see `Weir.Grammar.from_json_schema/1`).

  The default `nil` of the others means the library's: `dynatemp_range`, `dynatemp_exponent`, `typical_p`,
  `top_n_sigma`, `xtc_probability`, `xtc_threshold`, `min_keep`, `dry_multiplier`, `dry_base`,
  `dry_allowed_length`, `dry_penalty_last_n`, `dry_breakers` (texts), `penalty_last_n`, `mirostat` (0, 1, 2),
  `mirostat_tau`, `mirostat_eta`, `adaptive_target`, `adaptive_decay`, `logit_bias` (a list of `{token,
  number}`, added to the token's logit, or `{token, :never}`), `ignore_eos` (never choose a token that ends
  the answer), `order` (the samplers' names, separated by `;`). `weir_sampler_params` in the C API describes
  them.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, sampler} = Weir.Sampler.create(model, temp: 0.0, logit_bias: [{?x, 1000.0}])
      iex> {:ok, context} = Weir.Context.create(model, n_ctx: 512)
      iex> Weir.Context.generate(context, sampler, ~c"hello", max_tokens: 3)
      {:ok, "xxx"}
  """
  @spec create(Model.t(), keyword()) :: {:ok, t()} | {:error, Weir.Error.t()}
  def create(%Model{} = model, opts \\ []) do
    sampling = opts |> Options.read!(Options.sampler()) |> Options.sampling()
    with {:ok, ref} <- NIF.sampler_create(model.ref, sampling), do: {:ok, %__MODULE__{ref: ref}}
  end

  @doc "Resets the sampler to its state after `create/2`; a fixed seed gives the same draws again."
  @spec reset(t()) :: :ok | {:error, Weir.Error.t()}
  def reset(%__MODULE__{ref: ref}), do: NIF.sampler_reset(ref)

  @doc "Adds a token that was chosen elsewhere to the history. An error if the grammar refuses it."
  @spec accept(t(), integer()) :: :ok | {:error, Weir.Error.t()}
  def accept(%__MODULE__{ref: ref}, token), do: NIF.sampler_accept(ref, token)

  @doc "Chooses a token from the last row of the context's last pass, and accepts it."
  @spec sample(t(), Context.t()) :: integer() | {:error, Weir.Error.t()}
  def sample(%__MODULE__{ref: ref}, %Context{ref: context}), do: NIF.sampler_sample(ref, context)
end
