# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Loader do
  @moduledoc false
  # Loads models and adapters and creates engines, which takes long, in a separate process, so that the server
  # can answer meanwhile. The process ends with its server, and ends a download.

  alias Weir.{Adapter, Hub, Model, NIF, Options}
  alias Weir.Server.{Engine, Request}

  # A draft model reads no images, is small, and has positions of its own.
  @not_drafts [:projector, :rpc, :rpc_timeout_ms, :rope_scaling, :rope_freq_base, :rope_freq_scale] ++
                [:yarn_ext_factor, :yarn_attn_factor, :yarn_beta_fast, :yarn_beta_slow, :yarn_orig_ctx]

  @typedoc "`draft`: `{path, model}` if the option is a path. `engine`: nil if the running one suffices."
  @type loaded :: %{
          model: Model.t(),
          options: map(),
          draft: {Path.t(), Model.t()} | nil,
          engine: NIF.engine() | nil
        }

  @doc "The calling process gets `{:loaded, pid, result}` once, or an exit signal."
  @spec start_link((() -> result)) :: pid() when result: {:ok, loaded()} | {:error, Weir.Error.t()}
  def start_link(fun) do
    server = self()
    spawn_link(fn -> send(server, {:loaded, self(), fun.()}) end)
  end

  @doc "True if a server's options name a model that may need a download."
  @spec remote?(Model.t() | Path.t(), map()) :: boolean()
  def remote?(source, o), do: Hub.name?(source) or Hub.name?(o.draft_model)

  @doc "Loads what a new server needs. `tell` gets the progress of the model, as in `Hub.file/2` and `Model.load/3`."
  @spec first(Model.t() | Path.t(), map(), {pid(), reference()} | nil) ::
          {:ok, loaded()} | {:error, Weir.Error.t()}
  def first(source, o, tell \\ nil) do
    with {:ok, model} <- model(source, o, tell),
         {:ok, o} <- with_adapters(model, o),
         do: engine(model, nil, o)
  end

  @doc """
  Loads what a server needs for changed options. `draft` as in `t:loaded/0`; `engine?`: whether options need a
  new engine.
  """
  @spec changed(Model.t(), {Path.t(), Model.t()} | nil, map(), map(), (map() -> boolean())) ::
          {:ok, loaded()} | {:error, Weir.Error.t()}
  def changed(model, draft, options, given, engine?) do
    with {:ok, o} <- with_adapters(model, Request.merge(options, given)) do
      if engine?.(o),
        do: engine(model, draft, o),
        else: {:ok, %{model: model, options: o, draft: draft, engine: nil}}
    end
  end

  defp engine(model, draft, o) do
    with {:ok, guesses} <- draft(draft, o),
         {:ok, ref} <- Engine.create(model, guesses, o) do
      draft = if is_binary(o.draft_model), do: {o.draft_model, guesses}
      {:ok, %{model: model, options: o, draft: draft, engine: ref}}
    end
  end

  defp model(source, o, tell \\ nil)
  defp model(%Model{} = model, _o, _tell), do: {:ok, model}

  defp model(path, o, tell) do
    with {:ok, file} <- Hub.file(path, tell),
         do: Model.load(file, o |> Map.take(Keyword.keys(Options.model())) |> Map.to_list(), tell)
  end

  defp draft({path, model}, %{draft_model: path}), do: {:ok, model}
  defp draft(_draft, %{draft_model: nil}), do: {:ok, nil}
  defp draft(_draft, o), do: model(o.draft_model, Map.drop(o, @not_drafts))

  # Adapters in the server's own options are loaded once.
  defp with_adapters(model, o) do
    with {:ok, adapters} <- Adapter.loaded(model, o.lora), do: {:ok, %{o | lora: adapters}}
  end
end
