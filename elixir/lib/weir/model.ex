# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Model do
  @moduledoc """
  A loaded model. It is immutable, can be shared between processes, and is freed when no longer referenced.

      iex> {:ok, model} = Weir.Model.load("fake:")
      iex> Weir.Model.n_ctx_train(model)
      4096
  """

  alias Weir.{Hub, NIF, Options}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference()}

  @doc """
  Loads a GGUF file. `"hf:OWNER/REPO"`, `"hf:OWNER/REPO:QUANTIZATION"` and `"hf:OWNER/REPO:FILE"` are files of a
  hub, which are downloaded once (`Weir.Hub`); `"fake:"` is a model without weights, for tests.

  Options:

    * the file: `use_mmap` (true), `use_mlock` (false), `use_direct_io` (false), `vocab_only` (false),
      `projector` (nil: none; a GGUF file with which the model reads images and sounds)
    * GPUs: `n_gpu_layers` (-1: all), `devices` ([]: all GPUs; the names of those to use, as `Weir.devices/0`
      has them; `["none"]`: the CPU alone), `main_gpu` (0), `split_mode` (`:none`, `:layer`, `:row`),
      `tensor_split` ([]: by free memory; a number for each GPU)
    * other machines: `rpc` (nil: none; `"HOST:PORT,…"`: workers, which take layers as GPUs do),
      `rpc_timeout_ms` (60,000: the longest wait for a worker's answer)
    * attention: `flash_attn` (`:auto`, `:off`, `:on`)
    * contexts beyond the training's: `rope_scaling` (`:model`: what the file says; `:none`, `:linear`,
      `:yarn`), `rope_freq_base` and `rope_freq_scale` (0: the model's), `yarn_ext_factor`,
      `yarn_attn_factor`, `yarn_beta_fast`, `yarn_beta_slow` (-1: the model's), `yarn_orig_ctx` (0: the
      model's)

      iex> {:error, error} = Weir.Model.load("/nowhere/model.gguf")
      iex> {error.status, error.code}
      {404, :not_found}
  """
  @spec load(Path.t(), keyword()) :: {:ok, t()} | {:error, Weir.Error.t()}
  def load(path, opts \\ []), do: load(path, opts, nil)

  @doc false
  # `tell`: nil, or `{pid, ref}`, which gets `{ref, {:progress, done}}`.
  @spec load(Path.t(), keyword(), {pid(), reference()} | nil) :: {:ok, t()} | {:error, Weir.Error.t()}
  def load(path, opts, tell) do
    path = Options.path!(path)
    o = Options.read!(opts, Options.model())
    o = Map.update!(o, :devices, &Enum.join(&1, ","))
    o = if tell, do: Map.put(o, :progress, tell), else: o

    with {:ok, path} <- Hub.file(path),
         {:ok, ref} <- NIF.model_load(path, o),
         do: {:ok, %__MODULE__{ref: ref}}
  end

  @doc "The training context length, in tokens."
  @spec n_ctx_train(t()) :: integer()
  def n_ctx_train(%__MODULE__{ref: ref}), do: NIF.model_info(ref).n_ctx_train

  @doc "The size of its hidden states."
  @spec n_embd(t()) :: integer()
  def n_embd(%__MODULE__{ref: ref}), do: NIF.model_info(ref).n_embd

  @doc "A description, such as `\"llama 135M Q4_1\"`."
  @spec desc(t()) :: String.t()
  def desc(%__MODULE__{ref: ref}), do: NIF.model_info(ref).description

  @doc """
  A checksum of the contents of the model's files, which is the same for copies on other machines. Names and
  times do not enter it, and only samples of the weights are read. A projector is not included.
  """
  @spec fingerprint(t()) :: non_neg_integer()
  def fingerprint(%__MODULE__{ref: ref}), do: NIF.model_info(ref).fingerprint

  @doc "The size of all tensors in bytes."
  @spec size(t()) :: non_neg_integer()
  def size(%__MODULE__{ref: ref}), do: NIF.model_info(ref).n_bytes

  @doc "The number of parameters."
  @spec n_params(t()) :: non_neg_integer()
  def n_params(%__MODULE__{ref: ref}), do: NIF.model_info(ref).n_params

  @doc "What it reads: `:text`, and with a projector `:image` or `:audio` or both."
  @spec modalities(t()) :: [:text | :image | :audio]
  def modalities(%__MODULE__{ref: ref}) do
    info = NIF.model_info(ref)

    for {true, modality} <- [{true, :text}, {info.reads_images, :image}, {info.reads_sounds, :audio}],
        do: modality
  end

  @doc "The Jinja source of its chat template, or `nil`."
  @spec chat_template(t()) :: String.t() | nil
  def chat_template(%__MODULE__{ref: ref}), do: NIF.model_info(ref).chat_template
end
