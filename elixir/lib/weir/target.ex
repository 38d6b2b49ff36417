# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Target do
  @moduledoc """
  What answers requests: a model, a server, or one of several models. `Weir`, `Weir.Server` and `Weir.Models` have
  the functions of this module under the same names, for their own targets:

      Weir.chat(model, messages)
      Weir.Server.chat(MyApp.LLM, messages)
      Weir.Models.chat(MyApp.Models, "code", messages)

  Called here, a function takes any of them, so that an application can choose later:

      for target <- [model, MyApp.LLM, {Weir.Models, {MyApp.Models, "code"}}],
          do: Weir.Target.chat(target, messages)

  Other modules can be targets, too, see [below](#module-targets-of-other-packages).

  ## Options of a request

    * `max_tokens` (256; -1: as many as fit), `min_tokens` (0; the answer does not end before)
    * those of `Weir.Sampler.create/2`: `temp`, `seed`, `grammar`, `json_schema` and so on (`Weir.Sampler.options/0`
      lists them)
    * `stop` (texts that end the answer and are not part of it), `stop_tokens` (ids, at most 256, that end the
      answer), `include_stop` (false; true keeps the stop text or token that ended the answer)
    * `allowed_tokens` (ids; no other token comes; []: all may), `bad_words` (at most 128 texts that are not in the
      answer, as far as they are spelled in the model's usual tokens)
    * `timeout` (ms for the whole call, or `:infinity`; unless given, 60_000 ms from the time at which the request
      has a slot; afterwards the error `:timeout`). Of a stream it is the time between two chunks (30_000 ms); if it
      is given, it also limits the wait for the first one, with that in the queue. A `Weir.Model` has no limit
      unless one is given, except in `chat_completion/3`.
    * `queue_timeout` (`:infinity`; ms until it has a slot; afterwards the error `:queue_timeout`),
      `first_token_timeout` (`:infinity`; ms from then to the first token; afterwards the error
      `:first_token_timeout`)
    * `deadline` (ms from now; the text until then is the answer)
    * `priority` (0; -100 to 100, higher first), `tenant` (nil: the salt; slots are shared fairly between tenants),
      `itl_target` (0: the server's; the longest tick to aim at beside this answer)
    * `cache_prompt` (true), `cache_keep_ms` (0; prompt and answer stay cached as if they had been used that much
      later), `cache_salt` (nil; only requests with the same salt share prefixes, and see words of each other's
      prompts in `miss`; where it separates users, it is a secret, such as `:crypto.strong_rand_bytes(16)` for each,
      because who guesses one sees such words)
    * `lora` (see `Weir.Adapter`), `n_draft_max` (-1: the server's)
    * `truncate_prompt` (0; keep the last so many tokens of the prompt; -1: as many as leave room for the answer),
      `add_special` and `parse_special` (true; for the prompt's text), `special` (false; true shows control tokens
      in the answer)
    * `reasoning_budget` (-1: no limit; the most tokens of reasoning, which then ends), `reasoning_start` and
      `reasoning_end` (nil: the chat's; the texts around reasoning)
    * `logprobs` (false), `top_logprobs` (0; 0 to 20), `prompt_logprobs` (false) and `n_prompt_logprobs` (0; 0 to
      20), where they are returned
    * `interval` (1: tokens between two chunks of a stream), `progress` (false; true puts chunks with `progress`
      before those of the answer, see `Weir.Chunk`; not with `share`)

  A model for one caller (`Weir`) also takes `n_ctx` (2048; grows if prompt and answer need more), `n_threads`,
  `n_threads_batch`, `n_batch` and `n_ubatch`. A server also takes `id` (any term, for
  `Weir.Server.cancel/2` and forks; the caller then gets each token at once, as in a stream), `best_of` (1; 1 to 128:
  run this many answers and return the one with the highest mean logprob), `echo` (false; true puts the prompt before
  the answer) and `share` (false; with true, identical greedy or seeded requests share one running generation, which
  cannot be forked).

  A request ends when its caller ends. If the caller is a task and linked to the process that has started it
  (`Task.async/1`, `Task.start_link/1`), it also ends with that process, however that ended. A task that must
  outlive its caller is one of `Task.Supervisor.start_child/2`.

  `Weir.Error` lists the codes of errors.

  ## Targets of other packages

  A module becomes a target by `use Weir.Target` with the name and type of what it needs besides the request, and by
  the callbacks below:

      defmodule MyApp.Nearest do
        use Weir.Target, region: String.t()

        @impl true
        def whole(region, input, opts), do: Weir.Server.whole(server(region), input, opts)
        ...
      end

      MyApp.Nearest.chat("eu", messages)
      Weir.Target.chat({MyApp.Nearest, "eu"}, messages)

  It may call the callbacks of `Weir`, `Weir.Server` and `Weir.Models`. Wrong options raise `ArgumentError` before a
  stream is enumerated; every other failure is a `Weir.Error`. A process that waits for an answer monitors the one
  that has asked for it (`watch/0`).
  """

  alias Weir.{Chat, ChatCompletion, Chunk, Error, Model, Options}
  alias Weir.Server.Courier

  @typedoc """
  A model, a server (by pid or name), or a module that is a target with what it needs. `{name, node}` is a server
  unless a target module of this name is loaded.
  """
  @type t :: Model.t() | GenServer.server() | {module(), term()}

  @typedoc "A text or token ids; a server also continues a running request (a fork), see `t:Weir.Server.prompt/0`."
  @type prompt :: String.t() | [integer()] | tuple()

  @typedoc "A prompt, or a conversation with the options of its template, already read."
  @type input :: prompt() | {:chat, [Chat.message()], template :: map()}

  @typedoc """
  What `submit/3` adds: the `id` of a request without this option, and a function that the stream calls once the
  request is submitted, with the numbers that are known; the others are nil.
  """
  @type submission :: %{
          id: term(),
          started:
            (%{prompt_tokens: non_neg_integer() | nil, queue_position: non_neg_integer() | nil} -> term())
        }

  @doc "The whole answer, for `generate/3`, `complete/3` and `chat/3`."
  @callback whole(where :: term(), input(), keyword()) :: {:ok, Weir.Server.answer()} | {:error, Error.t()}
  @doc """
  A lazy stream of `Weir.Chunk`s, the last of which has a reason; for `stream/3`, `stream_chat/3`, `submit/3` and
  `submit_chat/3`. It reads the options, and the request begins and ends with the enumeration. Not every stream is
  enumerated.
  """
  @callback chunks(where :: term(), input(), keyword(), submission() | nil) :: Enumerable.t()
  @doc "For `chat_completion/3`."
  @callback completion(where :: term(), [Chat.message()], keyword()) ::
              {:ok, ChatCompletion.t()} | {:error, Error.t()}
  @doc "A lazy stream of `Weir.ChatCompletionChunk`s, for `stream_chat_completion/3`."
  @callback completion_chunks(where :: term(), [Chat.message()], keyword()) :: Enumerable.t()
  @doc "The vector of a text, or those of a list of texts, for `embed/3`."
  @callback vectors(where :: term(), String.t() | [String.t()], keyword()) ::
              {:ok, [float()] | [[float()]]} | {:error, Error.t()}

  @emit [emit: {{:in, [:text, :chunks]}, :text}]

  # The functions by the name of their input, with what they return: the list for all targets.
  @functions [
    generate: {:prompt, quote(do: {:ok, String.t()} | {:error, Weir.Error.t()})},
    complete: {:prompt, quote(do: {:ok, Weir.Server.answer()} | {:error, Weir.Error.t()})},
    stream: {:prompt, quote(do: Enumerable.t())},
    chat: {:messages, quote(do: {:ok, String.t()} | {:error, Weir.Error.t()})},
    stream_chat: {:messages, quote(do: Enumerable.t())},
    chat_completion: {:messages, quote(do: {:ok, Weir.ChatCompletion.t()} | {:error, Weir.Error.t()})},
    stream_chat_completion: {:messages, quote(do: Enumerable.t())},
    embed: {:texts, quote(do: {:ok, [float()] | [[float()]]} | {:error, Weir.Error.t()})},
    submit: {:prompt, quote(do: Weir.Request.t())},
    submit_chat: {:messages, quote(do: Weir.Request.t())}
  ]

  @doc "Defines the functions in a module, whose targets are of the types in `named`, a keyword list."
  defmacro __using__(named) do
    arguments = Enum.map(named, fn {name, _type} -> Macro.var(name, __MODULE__) end)
    where = if match?([_], arguments), do: hd(arguments), else: List.to_tuple(arguments)
    inputs = [prompt: quote(do: Weir.Target.prompt()), messages: quote(do: [Weir.Chat.message()])]
    inputs = inputs ++ [texts: quote(do: String.t() | [String.t()])]

    functions =
      for {name, {input, result}} <- @functions do
        given = Macro.var(input, __MODULE__)
        types = Keyword.values(named) ++ [inputs[input]]

        quote do
          @doc "See `Weir.Target.#{unquote(name)}/3`."
          @spec unquote(name)(unquote_splicing(types), keyword()) :: unquote(result)
          def unquote(name)(unquote_splicing(arguments), unquote(given), opts \\ []),
            do: Weir.Target.unquote(name)({__MODULE__, unquote(where)}, unquote(given), opts)
        end
      end

    {:__block__, [], [quote(do: @behaviour(Weir.Target)) | functions]}
  end

  defp of(%Model{} = model), do: {Weir, model}

  defp of({:global, _name} = server), do: {Weir.Server, server}

  # A server's name may be such a pair, too: {name, node}. The code server is asked last, since all callers wait for
  # it.
  defp of({module, where} = pair) when is_atom(module) do
    cond do
      function_exported?(module, :whole, 3) -> pair
      node?(where) -> {Weir.Server, pair}
      Code.ensure_loaded?(module) and function_exported?(module, :whole, 3) -> pair
      true -> raise ArgumentError, "no target module #{inspect(module)}" <> missing(module)
    end
  end

  defp of(server) when is_pid(server) or is_atom(server), do: {Weir.Server, server}
  defp of({:via, _registry, _name} = server), do: {Weir.Server, server}

  defp of(other) do
    raise ArgumentError,
          "a target is a Weir.Model, a server's pid or name, or {module, term}, got: #{inspect(other)}"
  end

  defp node?(where),
    do: is_atom(where) and (where == node() or where |> Atom.to_string() |> String.contains?("@"))

  defp missing(Weir.Cluster), do: " (is its package, weir_cluster, in mix.exs?)"
  defp missing(_module), do: "; it needs the callbacks of Weir.Target"

  @doc "Returns the whole answer to a prompt. Options: see above."
  @spec generate(t(), prompt(), keyword()) :: {:ok, String.t()} | {:error, Error.t()}
  def generate(target, prompt, opts \\ []),
    do: with({:ok, answer} <- complete(target, prompt, opts), do: {:ok, answer.text})

  @doc """
  Like `generate/3`, but returns more than the text: token ids, the finish reason, usage (`prompt_tokens`,
  `cached_tokens`, `generated_tokens`, `drafted_tokens`, `accepted_tokens`, `queue_ms`, `ttft_ms`,
  `duration_ms`, and the rates of `Weir.Server.Telemetry`) and why no more of the prompt was cached
  (`t:Weir.Server.miss/0`). With `logprobs: true` it has a `t:Weir.Chunk.logprob/0` per id but those of a stop
  text, and the mean of all, `score`; with `prompt_logprobs: true` one per token of the prompt; for a fork
  `before`, the source's text up to the fork.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:")
      iex> {:ok, answer} = Weir.Target.complete(server, "hello", max_tokens: 3, temp: 0.0)
      iex> {answer.reason, length(answer.ids), answer.usage.generated_tokens, answer.miss}
      {:length, 3, 3, %{miss: :cold}}
      iex> {:ok, answer} = Weir.Target.complete(server, "hello", max_tokens: 1, prompt_logprobs: true)
      iex> Enum.map(answer.prompt_logprobs, & &1.token)
      ["<s>", "h", "e", "l", "l", "o"]
      iex> {:ok, best} = Weir.Target.complete(server, "hello", max_tokens: 3, best_of: 4)
      iex> best.score <= 0.0
      true
  """
  @spec complete(t(), prompt(), keyword()) :: {:ok, Weir.Server.answer()} | {:error, Error.t()}
  def complete(target, prompt, opts \\ []) do
    {module, where} = of(target)
    module.whole(where, prompt, opts)
  end

  @doc """
  Returns the answer as a lazy stream of non-empty texts, or of `Weir.Chunk`s with `emit: :chunks`. Options: see
  above.

  The request starts when the stream is enumerated. Errors are raised as `Weir.Error`. Ending the stream early
  cancels the request and leaves no message in the mailbox.
  """
  @spec stream(t(), prompt(), keyword()) :: Enumerable.t()
  def stream(target, prompt, opts \\ []) do
    {module, where} = of(target)
    {%{emit: emit}, opts} = Options.split!(opts, @emit)
    chunks = module.chunks(where, prompt, opts, nil)
    if emit == :chunks, do: chunks, else: Chunk.texts(chunks)
  end

  @doc "Returns the answer to a conversation. Options: see above, and those of `Weir.Chat.apply_template/3`."
  @spec chat(t(), [Chat.message()], keyword()) :: {:ok, String.t()} | {:error, Error.t()}
  def chat(target, messages, opts \\ []) do
    {input, opts} = conversation(messages, opts)
    generate(target, input, opts)
  end

  @doc "Like `chat/3`, but returns a stream as `stream/3` does."
  @spec stream_chat(t(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat(target, messages, opts \\ []) do
    {input, opts} = conversation(messages, opts)
    stream(target, input, opts)
  end

  @doc """
  Returns the answer to a conversation in OpenAI's format. Options as in `chat/3`, and:

    * `n` (1; 1 to 128): the number of answers. They run together; each seed is the previous one plus 1. At a
      server, each is a request with its own place in the queue and its own events.
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
  @spec chat_completion(t(), [Chat.message()], keyword()) :: {:ok, ChatCompletion.t()} | {:error, Error.t()}
  def chat_completion(target, messages, opts \\ []) do
    {module, where} = of(target)
    module.completion(where, messages, opts)
  end

  @doc "Streams the answer to a conversation as `Weir.ChatCompletionChunk`s. Options as in `chat_completion/3`; `timeout` as in `stream/3`."
  @spec stream_chat_completion(t(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat_completion(target, messages, opts \\ []) do
    {module, where} = of(target)
    module.completion_chunks(where, messages, opts)
  end

  @doc """
  Returns the embedding of a text, or a list of embeddings for a list of texts. Options: those of
  `Weir.Embedding.embed/3`, and `timeout` (60_000 ms; `Weir.embed/3`: none).
  """
  @spec embed(t(), String.t() | [String.t()], keyword()) ::
          {:ok, [float()] | [[float()]]} | {:error, Error.t()}
  def embed(target, texts, opts \\ []) do
    {module, where} = of(target)
    module.vectors(where, texts, opts)
  end

  @doc """
  Starts a request and returns at once; what comes of it are messages, see `Weir.Request`. Options as in
  `stream/3`, except that `progress` is true unless given. Errors come as messages, too; only wrong options
  raise.

      request = Weir.Server.submit(MyApp.LLM, "Once upon a time")

      def handle_info({:weir, ref, {:text, text}}, %{request: %{ref: ref}} = state), do: ...
      def handle_info({:weir, ref, {:end, last}}, %{request: %{ref: ref}} = state), do: ...
  """
  @spec submit(t(), prompt(), keyword()) :: Weir.Request.t()
  def submit(target, prompt, opts \\ []) do
    {module, where} = of(target)
    {%{emit: emit}, opts} = Options.split!(opts, @emit)
    opts = Keyword.put_new(opts, :progress, true)
    # the request belongs to this server, not to the next one of its name
    server = if module == Weir.Server, do: GenServer.whereis(where) || where
    Courier.start(&module.chunks(server || where, prompt, opts, &1), opts[:id], emit, server)
  end

  @doc "Like `submit/3`, for a conversation. Options as there and in `Weir.Chat.apply_template/3`."
  @spec submit_chat(t(), [Chat.message()], keyword()) :: Weir.Request.t()
  def submit_chat(target, messages, opts \\ []) do
    {input, opts} = conversation(messages, opts)
    submit(target, input, opts)
  end

  @doc """
  Monitors the process that has started this one as a task, while the two are linked: without it nobody gets
  what the task returns. A link would not report a normal end. nil: there is no such process.
  """
  @spec watch() :: reference() | nil
  def watch do
    with [asker | _] when is_pid(asker) <- Process.get(:"$callers"),
         {:links, links} = Process.info(self(), :links),
         true <- asker in links do
      Process.monitor(asker)
    else
      _other -> nil
    end
  end

  @doc "The reverse of `watch/0`."
  @spec unwatch(reference() | nil) :: :ok
  def unwatch(nil), do: :ok

  def unwatch(asker) do
    Process.demonitor(asker, [:flush])
    :ok
  end

  defp conversation(messages, opts) do
    {template, rest} = Chat.split!(opts)
    {{:chat, messages, template}, rest}
  end
end
