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
  """

  alias Weir.{Chat, ChatCompletion, Completion, Deadline, Embedding, Generation, Hub, Model, NIF, Options}
  alias Weir.Server.{Limits, Request}

  @doc "Does nothing. Kept for programs that call it."
  @spec init() :: :ok
  def init, do: NIF.backend_init()

  @typedoc "`type`: `:cpu`, `:gpu`, `:igpu` (it shares the CPU's memory) or `:accel`. Memory in bytes; 0: unknown."
  @type device :: %{
          name: String.t(),
          description: String.t(),
          type: atom(),
          memory_free: non_neg_integer(),
          memory_total: non_neg_integer()
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

  @doc """
  Returns the whole answer to a prompt.

  Options: `max_tokens` (256; -1: as many as fit), `n_ctx` (2048; grows if prompt and answer need more),
  `n_threads`, `n_threads_batch`, `n_batch`, `n_ubatch`, `lora` (see `Weir.Adapter`), and those of
  `Weir.Sampler.create/2`: `temp`, `seed`, `grammar`, `json_schema` and so on.
  """
  @spec generate(Model.t(), String.t(), keyword()) :: {:ok, String.t()} | {:error, Weir.Error.t()}
  def generate(%Model{} = model, prompt, opts \\ []) do
    Generation.whole(model, prompt, Options.read!(opts, Options.generation()))
  end

  @doc """
  Returns the answer as a lazy stream of non-empty texts, or of `Weir.Chunk`s with `emit: :chunks`. Other
  options as in `generate/3`. Ending the stream early stops the generation and leaves no message in the
  mailbox.
  """
  @spec stream(Model.t(), String.t(), keyword()) :: Enumerable.t()
  def stream(%Model{} = model, prompt, opts \\ []) do
    Generation.stream(model, fn -> {:ok, prompt} end, Options.read!(opts, Options.stream()))
  end

  @doc "Returns the answer to a conversation. Options as in `generate/3` and `Weir.Chat.apply_template/3`."
  @spec chat(Model.t(), [Chat.message()], keyword()) :: {:ok, String.t()} | {:error, Weir.Error.t()}
  def chat(%Model{} = model, messages, opts \\ []) do
    {template, rest} = Chat.split!(opts)

    with {:ok, prompt} <- Chat.tokens(model, messages, template) do
      Generation.whole(model, prompt, Options.read!(rest, Options.generation()))
    end
  end

  @doc "Like `chat/3`, but returns a stream as `stream/3` does."
  @spec stream_chat(Model.t(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat(%Model{} = model, messages, opts \\ []) do
    {template, rest} = Chat.split!(opts)
    prompt = fn -> Chat.tokens(model, messages, template) end
    Generation.stream(model, prompt, Options.read!(rest, Options.stream()))
  end

  @doc """
  Returns the answer to a conversation in OpenAI's format. Options as in `chat/3`, `timeout` (60_000 ms), and:

    * `n` (1; 1 to 128): the number of answers. They run together; each seed is the previous one plus 1.
    * `logprobs` (false), `top_logprobs` (0; 0 to 20): the logprob of each token, and the top alternatives.
      `prompt_logprobs` (false), `n_prompt_logprobs` (0; 0 to 20): the same for the prompt; not in streams.
    * `tools` (a list of maps as in OpenAI's API; their `parameters` may be keyword lists, which keep the
      order), `tool_choice` (`:auto`, `:none`, `:required`, or `%{type: "function", function: %{name: _}}`),
      `parallel_tool_calls` (true). If the model's template does not support tools, a system message describes
      them. With a `json_schema` as well, an answer is either a call or follows the schema. A keyword in a
      tool's schema that cannot be enforced is a warning, or an error if the function is `strict`.

  Reasoning is separated from the content if the template supports it or the answer has `<think>` tags.

      iex> {:ok, model} = Weir.load_model("fake:")
      iex> messages = [%{role: "user", content: "hi"}]
      iex> {:ok, answer} = Weir.chat_completion(model, messages, max_tokens: 4, temp: 0.0, logprobs: true)
      iex> {answer.object, hd(answer.choices).finish_reason, answer.usage.completion_tokens}
      {"chat.completion", "length", 4}
      iex> length(hd(answer.choices).logprobs.content)
      4
  """
  @spec chat_completion(Model.t(), [Chat.message()], keyword()) ::
          {:ok, ChatCompletion.t()} | {:error, Weir.Error.t()}
  def chat_completion(%Model{} = model, messages, opts \\ []) do
    {timeout, opts} = Deadline.pop!(opts, 60_000)
    o = Options.read!(opts, completion_options())
    limits = Limits.until(Deadline.at(timeout))

    with {:ok, completion} <- open(model, messages, o, :generate, limits), do: Completion.whole(completion)
  end

  defp completion_options,
    do: Completion.options() ++ Request.logprobs() ++ Options.template() ++ Options.generation()

  defp open(model, messages, o, mode, limits) do
    {chat, o} = Completion.form(o, o)
    Completion.open(model, messages, chat, &Generation.open(model, &1, o, mode, o.n, limits))
  end

  @doc """
  Streams the answer to a conversation as `Weir.ChatCompletionChunk`s. Options as in `chat_completion/3`,
  except `timeout`.
  """
  @spec stream_chat_completion(Model.t(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat_completion(%Model{} = model, messages, opts \\ []) do
    o = Options.read!(opts, completion_options())
    Completion.stream(fn -> open(model, messages, o, :stream, Limits.until(:infinity)) end)
  end

  @doc "See `Weir.Embedding.embed/3`."
  @spec embed(Model.t(), String.t(), keyword()) :: {:ok, [float()]} | {:error, Weir.Error.t()}
  def embed(model, text, opts \\ []), do: Embedding.embed(model, text, opts)

  @doc "See `Weir.Embedding.embed_batch/3`."
  @spec embed_batch(Model.t(), [String.t()], keyword()) ::
          {:ok, [[float()]]} | {:error, Weir.Error.t()}
  def embed_batch(model, texts, opts \\ []), do: Embedding.embed_batch(model, texts, opts)
end
