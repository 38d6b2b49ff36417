# SPDX-License-Identifier: Apache-2.0
defmodule Weir do
  @moduledoc """
  Language models in this process: llama.cpp with streams, samplers, grammars and chats.

      iex> :ok = Weir.init()
      iex> {:ok, model} = Weir.load_model("fake:")
      iex> {:ok, text} = Weir.generate(model, "hello", max_tokens: 8, temp: 0.0)
      iex> text == model |> Weir.stream("hello", max_tokens: 8, temp: 0.0) |> Enum.join()
      true

  Functions that can fail return `{:error, error}` with a `Weir.Error`; streams raise it. Unknown options, and options of the wrong type, raise `ArgumentError`.

  `generate/3`, `stream/3`, `chat/3` and the others that answer are described in `Weir.Target`.
  """

  alias Weir.{Completion, Embedding, Generation, Hub, Model, NIF, Options}
  alias Weir.Server.{Answer, Limits}

  use Weir.Target, model: Model.t()

  @doc "Does nothing. Kept for programs that call it."
  @spec init() :: :ok
  def init, do: :ok

  @typedoc "`type`: `:cpu`, `:gpu`, `:igpu` (it shares the CPU's memory) or `:accel`. Memory in bytes; 0: unknown."
  @type device :: %{
          name: String.t(),
          description: String.t(),
          type: atom(),
          memory_free: non_neg_integer(),
          memory_total: non_neg_integer(),
          n_processors: non_neg_integer()
        }

  @doc """
  The devices that the native part can compute on. Their names are for the option `devices` of
  `Weir.Model.load/2`.
  """
  @spec devices() :: [device()]
  def devices, do: NIF.devices()

  @doc "See `Weir.Model.load/2`."
  @spec load_model(Path.t(), keyword()) :: {:ok, Model.t()} | {:error, Weir.Error.t()}
  def load_model(path, opts \\ []), do: Model.load(path, opts)

  @doc """
  Downloads a model's file from a hub, unless it is in the cache, and loads it. Options of
  `Weir.Hub.download/3` and `Weir.Model.load/2`.
  """
  @spec load_model_from_hub(String.t(), String.t() | nil, keyword()) ::
          {:ok, Model.t()} | {:error, Weir.Error.t()}
  def load_model_from_hub(repo, file, opts \\ []) do
    {download, load} = Hub.split(opts)
    # before a download, which may take long
    %{} = Options.read!(load, Options.model())
    with {:ok, path} <- Hub.download(repo, file, download), do: Model.load(path, load)
  end

  # ---- Answers ----

  @impl Weir.Target
  @doc false
  def whole(%Model{} = model, input, opts) do
    {limits, o} = Generation.read!(opts, :infinity)

    with {:ok, [request]} <- Generation.open(model, input, o, :generate, 1, Limits.whole(limits)),
         do: Answer.gather(request)
  end

  @impl Weir.Target
  @doc false
  def chunks(%Model{} = model, input, opts, submission) do
    {limits, o} = Generation.read!(opts, :infinity)

    open = fn ->
      with {:ok, [request]} <- Generation.open(model, input, o, :stream, 1, Limits.stream(limits)),
           do: {:ok, request}
    end

    Answer.chunks(open, &Answer.begun(&1, submission, 0))
  end

  @impl Weir.Target
  @doc false
  def completion(%Model{} = model, messages, opts) do
    {open, limits} = opened(model, messages, opts, :generate, 60_000)
    with {:ok, completion} <- limits |> Limits.whole() |> open.(), do: Completion.whole(completion)
  end

  @impl Weir.Target
  @doc false
  def completion_chunks(%Model{} = model, messages, opts) do
    {open, limits} = opened(model, messages, opts, :stream, :infinity)
    Completion.stream(fn -> limits |> Limits.stream() |> open.() end)
  end

  defp opened(model, messages, opts, mode, timeout) do
    {chat, limits, o} = Completion.read!(opts, &Generation.read!(&1, timeout))

    {fn limits ->
       Completion.open(model, messages, chat, &Generation.open(model, &1, o, mode, chat.n, limits))
     end, limits}
  end

  @impl Weir.Target
  @doc false
  def vectors(%Model{} = model, text_or_texts, opts),
    do: Embedding.vectors(text_or_texts, opts, :infinity, &Embedding.within(model, &1, &2, &3))

  @doc "See `Weir.Embedding.embed_batch/3`."
  @spec embed_batch(Model.t(), [String.t()], keyword()) ::
          {:ok, [[float()]]} | {:error, Weir.Error.t()}
  def embed_batch(model, texts, opts \\ []), do: Embedding.embed_batch(model, texts, opts)
end
