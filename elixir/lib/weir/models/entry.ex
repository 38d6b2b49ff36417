# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Models.Entry do
  @moduledoc false
  # A model of the list of `Weir.Models`.

  alias Weir.{Hub, Options}
  alias Weir.Server.{BatchStrategy, Engine, Request}

  # native: for NIF.pool_set/2. defaults: for requests. lora: the adapters that are loaded with the model, as
  # {path, scale}, which requests have if they name no others.
  @enforce_keys [:native, :defaults, :lora]
  defstruct [:native, :defaults, :lora]
  @type t :: %__MODULE__{native: map(), defaults: map(), lora: [{Path.t(), number()}]}

  @doc "Reads the options of all models."
  @spec read_all([keyword()]) :: {:ok, [t()]} | {:error, Weir.Error.t()}
  def read_all(list) do
    if not is_list(list) or List.improper?(list) do
      raise ArgumentError, "models must be a list of keyword lists, got: #{inspect(list)}"
    end

    Weir.Error.map_ok(list, &read/1)
  end

  @doc "The model with this name or alias."
  @spec find([t()], String.t()) :: t() | nil
  def find(entries, name), do: Enum.find(entries, &(name == &1.native.name or name in &1.native.aliases))

  @spec pin(t(), boolean()) :: t()
  def pin(entry, pinned?), do: put_in(entry.native.pinned, pinned?)

  defp read(opts) do
    o = Options.read!(opts, own() ++ model() ++ engine() ++ request())
    required!(o, :name)
    required!(o, :model_path)
    Options.one_grammar!(o)
    lora = Enum.map(o.lora, &path!/1)

    if not match?({:c, _name}, BatchStrategy.resolve!(o.batch_strategy)) do
      raise ArgumentError, "option :batch_strategy must be a name here, got: #{inspect(o.batch_strategy)}"
    end

    defaults = o |> Map.take(Keyword.keys(Request.options())) |> Map.merge(%{lora: [], n_draft_max: -1})
    _request = Request.to_engine(defaults)

    with {:ok, path} <- Hub.cached(o.model_path),
         {:ok, draft} <- Hub.cached(o.draft_model) do
      native = %{
        name: o.name,
        aliases: o.aliases,
        path: path,
        draft_path: draft,
        adapters: Enum.map(lora, &elem(&1, 0)),
        pinned: o.pinned,
        idle_ms: o.idle,
        model: o |> Map.take(Keyword.keys(model())) |> Map.update!(:devices, &Enum.join(&1, ",")),
        engine: Engine.params(Map.take(o, Keyword.keys(engine())))
      }

      {:ok, %__MODULE__{native: native, defaults: defaults, lora: lora}}
    end
  end

  defp own do
    [model_path: {:string, nil}] ++
      Options.from("pool_model",
        ranges: [:idle_ms],
        except: [:path, :draft_path, :adapters, :template_source],
        own: [name: {:string, nil}, aliases: {{:list, :string}, []}]
      )
  end

  # A server of tokens alone has no engine, and the folder is that of all models.
  defp model, do: Keyword.delete(Options.model(), :vocab_only)

  defp engine do
    Engine.options()
    |> Keyword.drop([:cache_dir, :cache_disk_bytes])
    |> Keyword.put(:draft_model, {{:maybe, :string}, nil})
  end

  # n_draft_max is the engine's here
  defp request, do: Keyword.delete(Request.options(), :n_draft_max)

  defp required!(o, name) do
    if o[name] in [nil, ""], do: raise(ArgumentError, "a model needs the option #{inspect(name)}, a text")
  end

  defp path!({path, scale}) when is_binary(path), do: {path, scale}

  defp path!({other, _scale}) do
    raise ArgumentError, "option :lora must be a path here, or {path, scale}, got: #{inspect(other)}"
  end
end
