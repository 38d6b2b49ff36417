# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Adapter do
  @moduledoc """
  A LoRA adapter of a model: small changes to its weights, in a GGUF file. It is immutable, can be shared
  between processes, and is freed when no longer used.

  The option `lora` takes an adapter, `{adapter, scale}`, or a list of these. A path may replace an adapter;
  it is loaded for each call, or once if it is an option of a `Weir.Server` itself.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, adapter} = Weir.Adapter.load(model, "fake:1")
      iex> ask = &Weir.generate(model, "hello", max_tokens: 8, temp: 0.0, lora: &1)
      iex> {ask.(adapter) == ask.("fake:1"), ask.(adapter) == ask.({adapter, 0.5}), ask.({adapter, 0}) == ask.([])}
      {true, false, true}
  """

  alias Weir.{Model, NIF, Options}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference()}

  @doc "Loads a GGUF file from llama.cpp's `convert_lora_to_gguf.py`; for a fake model `\"fake:NUMBER\"`."
  @spec load(Model.t(), Path.t()) :: {:ok, t()} | {:error, Weir.Error.t()}
  def load(%Model{ref: model}, path) do
    with {:ok, ref} <- NIF.adapter_load(model, Options.path!(path)),
         do: {:ok, %__MODULE__{ref: ref}}
  end

  @doc false
  # Loads the adapters that are paths.
  @spec loaded(Model.t(), [{t() | Path.t(), number()}]) ::
          {:ok, [{t(), number()}]} | {:error, Weir.Error.t()}
  def loaded(model, wanted) do
    Weir.Error.map_ok(wanted, fn
      {%__MODULE__{}, _scale} = use ->
        {:ok, use}

      {path, scale} ->
        case load(model, path) do
          {:ok, adapter} -> {:ok, {adapter, scale}}
          {:error, error} -> {:error, %{error | field: "lora"}}
        end
    end)
  end

  @doc false
  # For the native functions.
  @spec uses(Model.t(), [{t() | Path.t(), number()}]) ::
          {:ok, [{reference(), number()}]} | {:error, Weir.Error.t()}
  def uses(model, wanted) do
    with {:ok, adapters} <- loaded(model, wanted),
         do: {:ok, for({%__MODULE__{ref: ref}, scale} <- adapters, do: {ref, scale})}
  end
end
