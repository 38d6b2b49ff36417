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

  @typedoc "An option of `create/2`. `min` and `max` are nil unless it is a number."
  @type option :: %{
          name: atom(),
          default: term(),
          min: number() | nil,
          max: number() | nil,
          help: String.t()
        }

  @doc """
  The options of `create/2`, which are those of the library.

      iex> Enum.find(Weir.Sampler.options(), &(&1.name == :top_p))
      %{name: :top_p, default: 0.95, min: 0.0, max: 1.0,
        help: "keep the likeliest tokens whose probabilities add up to P; 1 = off"}
  """
  @spec options() :: [option()]
  def options do
    options = Options.sampler()

    for %{option: name, initial: initial} = member <- NIF.members("sampler"),
        {_type, default} <- List.wrap(options[name]) do
      default = if initial == nil, do: default, else: initial
      %{name: name, default: default, min: member.min, max: member.max, help: member.help}
    end
  end

  @doc """
  Takes the options of `options/0`, such as `temp`, `top_p`, `seed` and `order` (the samplers' names, separated
  by `;`). Without `seed`, it is random. Three are not plain numbers or texts: `grammar` is GBNF (nil or `""`:
  none), `json_schema` is as for `Weir.Grammar.from_json_schema/1`, and `logit_bias` is a list of `{token,
  number}`, added to the token's logit, or `{token, :never}`. `weir_sampler_params` in the C API says more.

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
