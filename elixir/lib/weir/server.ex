# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server do
  @moduledoc """
  One model for many callers: continuous batching behind a `GenServer`.

      children = [{Weir.Server, name: MyApp.LLM, model_path: "model.gguf", n_parallel: 8}]
      Supervisor.start_link(children, strategy: :one_for_one)

      {:ok, text} = Weir.Server.generate(MyApp.LLM, "Once upon a time", max_tokens: 100)
      MyApp.LLM |> Weir.Server.stream("Once upon a time") |> Enum.each(&IO.write/1)

  Requests run together: each tick computes one batch, with a token of each running answer and chunks of prompts. In a
  pool of cells, which is the default, that is one forward pass up to `n_ubatch` tokens; with the layout `:per_slot` a tick
  with prompts takes two or more. What several prompts have in common is computed once. The engine is C and has a thread of its own. Texts go from
  there to the caller's mailbox, not through this process, and at most 16 chunks before the caller has taken some: what
  waits becomes one chunk. A caller that dies frees its slot within a tick.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", n_parallel: 2)
      iex> {:ok, text} = Weir.Server.generate(server, "hello", max_tokens: 8, temp: 0.0)
      iex> text == server |> Weir.Server.stream("hello", max_tokens: 8, temp: 0.0) |> Enum.join()
      true
      iex> Weir.Server.get_stats(server).idle_slots
      2

  ## Options of `start_link/1`

    * `model_path` (a file, or `hf:OWNER/REPO[:QUANTIZATION]`, see `Weir.Hub`), or `model`, a `Weir.Model`. One of them
      is required. A file is loaded before `start_link/1` returns. A model by name, which may have to be downloaded, is
      loaded afterwards: requests wait for it within their `timeout`, `model/1` without one, and `get_stats/1` has
      `state: :loading`. When it cannot be loaded, those who wait get the reason, and the server exits with it. The end
      of the server, or of its supervisor, ends the download.
    * `name`: as `GenServer`'s. It is the id in `child_spec/1` too.
    * of the model: `n_gpu_layers` (99), and `use_mmap`, `main_gpu`, `split_mode`, `tensor_split`, `use_mlock`,
      `use_direct_io` as `Weir.Model.load/2` has them.
    * of the engine: `n_ctx` (8192: tokens of all requests together; with the layout `:per_slot` each has its part),
      `n_parallel` (4 requests at a time), `n_batch` (n_ctx: the most tokens of a tick), `n_ubatch` (0: 512 and one
      for each slot; the most tokens of a forward pass), `chunk_size`
      (512: the most prompt tokens of one request in a tick), `max_queue` (0: no limit; beyond it
      `{:error, :queue_full}`), `batch_strategy` or `strategy` (`:decode_maximal`; see `Weir.Server.BatchStrategy`),
      `itl_target_ms` (50: for `:latency_target`), `n_threads`, `n_threads_batch` (0: the processors), `layout`
      (`:auto`, `:unified`, `:per_slot`), `type_k`, `type_v` (`:f16`, `:f32`, `:bf16`, `:q8_0`, `:q4_0`), `ageing_ms`
      (10_000), `cache_sequences` (-1: as many as there is room for; 0: no prefixes are kept), `cache_bytes` (`:auto`: a
      quarter of the free memory; host memory for prefixes without a sequence, and suspended requests), `cache_dir` (a
      folder in which prefixes outlive the server; it must be the user's own, mode 0700) and `cache_disk_bytes` (4 GiB),
      `n_draft_max` (16: the most tokens of an answer that are guessed and computed at once; 0: none), `prompt_lookup`
      (true: they are guessed from the request's own text), `draft_model` (a path or a `Weir.Model`, smaller, with the
      same vocabulary, or an EAGLE-3 head: they are guessed by that as well) and `mtp` (true: without one, by the model's
      own layers for that, where it has such).
    * what requests get unless they say otherwise: the options of `generate/3` but `timeout`, `id`, `best_of`, `echo` and
      `share`.
    * `drain_timeout` (5_000 ms): how long requests may go on after the supervisor has said stop.

  Options of the wrong name or type raise `ArgumentError`, and so does a server on another node: texts go from the engine
  to a mailbox of its own node, so requests begin there.

  A server that is not there, or that ends meanwhile, is `{:error, {:server_down, reason}}`. Functions without
  `{:error, _}` (streams, `model/1`, `get_stats/1`) raise it as a `Weir.Error`.

  Events for monitoring are in `Weir.Server.Telemetry`.
  """

  alias Weir.{Chat, Chunk, Completion, Deadline, Embedding, Model, Options}
  alias Weir.Server.{Answer, BatchStrategy, Broker, Embedder, Engine, Request}

  @type server :: GenServer.server()
  @typedoc """
  A text, token ids, or a fork: the answer goes on where that of the request with this `id` is, or was when it had `at`
  tokens. A request can be forked until its caller has read its end. What comes is what follows there.
  """
  @type prompt ::
          String.t()
          | [integer()]
          | {:fork, id :: term()}
          | {:fork, id :: term(), at :: integer()}
  @type reason :: :queue_full | :timeout | :cancelled | :stopping | String.t() | term()

  @typedoc "Counts are tokens, times milliseconds."
  @type answer :: %{
          text: String.t(),
          ids: [integer()],
          reason: :end | :length | :stop_words | :deadline,
          usage: map(),
          miss: miss(),
          logprobs: [Chunk.logprob()] | nil,
          prompt_logprobs: [Chunk.logprob()] | nil,
          score: float() | nil,
          before: String.t() | nil
        }

  @typedoc """
  Why not more of the prompt was cached. `miss` is `:none`, `:cold` (never seen), `:evicted`, `:salt` (there without one),
  `:diverged`, `:uncuttable` or `:off`. From `:evicted` to `:uncuttable` there are also `n_matched` (tokens that were known)
  and `text` (all of it in a sentence), and of a prompt that diverged `prompt` and `cached` (the texts around that place),
  `cause` (`:other`, `:tokens`, `:time`, `:tools`, `:reasoning`, `:whitespace`, `:id`), and of a conversation `message`,
  `in_message` and `role`.
  """
  @type miss :: %{required(:miss) => atom(), optional(atom()) => term()}

  # ---- Starting ----

  @doc false
  def child_spec(opts) do
    drain = opts |> Options.keywords!() |> Keyword.get(:drain_timeout, 5_000)

    %{
      id: Keyword.get(opts, :name) || __MODULE__,
      start: {__MODULE__, :start_link, [opts]},
      modules: [Broker],
      # passes that run now end first
      shutdown: if(is_integer(drain), do: drain + 5_000, else: drain)
    }
  end

  @doc "Loads the model and starts. Options above."
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    {name, opts} = opts |> Options.keywords!() |> renamed() |> Keyword.split([:name])
    {source, opts} = Keyword.split(opts, [:model_path, :model])

    o =
      Options.read!(
        opts,
        [drain_timeout: {{:range, 0..0x7FFFFFFF}, 5_000}] ++ model_options() ++ own_options()
      )

    _strategy = BatchStrategy.resolve!(o.batch_strategy)
    _request = Request.to_engine(o)
    source |> source!() |> Broker.start_link(o, name)
  end

  # The tokenizer alone is no server.
  defp model_options do
    Options.model() |> Keyword.delete(:vocab_only) |> Keyword.put(:n_gpu_layers, {:integer, 99})
  end

  # What an engine and a request call alike is the engine's here: the most that a request may have.
  defp own_options, do: Engine.options() ++ Keyword.drop(Request.options(), [:n_draft_max])

  defp renamed(opts) do
    case Keyword.pop(opts, :strategy) do
      {nil, opts} -> opts
      {strategy, opts} -> Keyword.put_new(opts, :batch_strategy, strategy)
    end
  end

  defp source!(model: %Model{} = model), do: model

  defp source!(model_path: path) do
    %{model_path: path} = Options.read!([model_path: path], model_path: {:string, nil})
    path
  end

  defp source!(other) do
    raise ArgumentError,
          "give either :model_path, a text, or :model, a Weir.Model, got: #{inspect(other)}"
  end

  # ---- Requests ----

  @doc """
  The whole answer to a prompt, a text or token ids.

  Options: `max_tokens` (256; -1: as many as fit), `timeout` (60_000 ms from the call to the answer's end, or `:infinity`; then
  `{:error, :timeout}`),
  `temp` (0.8), `top_k` (40), `top_p` (0.95), `min_p` (0.05), `seed` (random), `penalty_repeat` (1.0), `penalty_freq`
  (0.0), `penalty_present` (0.0), `grammar`, `grammar_root` ("root"), `json_schema` (see `Weir.Grammar.from_json_schema/1`), `stop` (texts that end the
  answer, and are not part of it), `priority` (0; -100 to 100: the higher goes first), `deadline` (ms from now; the
  text until then is the answer), `cache_prompt` (true), `cache_salt` (only requests with the same one share prefixes),
  `lora` (see `Weir.Adapter`), `logprobs` (false) and `top_logprobs` (0; 0 to 20), `prompt_logprobs` (false) and `n_prompt_logprobs` (0; 0 to 20), for
  the functions that can tell them, `id` (any term, for `cancel/2` and forks), and those of `Weir.Sampler.create/2`.

  Also `best_of` (1; 1 to 128: so many answers run together, and the one whose tokens are likeliest on the average is the
  answer), `echo` (false; the prompt stands before the answer), `share` (false; identical requests whose answer is the same
  each time, greedy or with a `seed`, share one generation while it runs, which cannot be forked), `interval` (1: a stream
  has a chunk for every so many tokens), `n_draft_max` (-1: as many as the server's), `add_special` and `parse_special`
  (true; of the prompt's text), `special` (false; control tokens appear in the answer).

  Errors: `:queue_full`, `:timeout`, `:cancelled` (by `cancel/2`), `:stopping`, `{:server_down, reason}`, or a text.
  """
  @spec generate(server(), prompt(), keyword()) :: {:ok, String.t()} | {:error, reason()}
  def generate(server, prompt, opts \\ []) do
    with {:ok, answer} <- complete(server, prompt, opts), do: {:ok, answer.text}
  end

  @doc """
  The same with token ids, the reason of the end, usage (`prompt_tokens`, `cached_tokens`, `generated_tokens`,
  `drafted_tokens`, `accepted_tokens`, `queue_ms`, `ttft_ms`, `duration_ms`, and the rates of `Weir.Server.Telemetry`), why
  not more of the prompt was cached (`t:miss/0`), with `logprobs: true` a `t:Weir.Chunk.logprob/0` for each id and their
  mean, `score`, with `prompt_logprobs: true` one for each token of the prompt, and of a fork `before`, the text that it goes
  on from.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:")
      iex> {:ok, answer} = Weir.Server.complete(server, "hello", max_tokens: 3, temp: 0.0)
      iex> {answer.reason, length(answer.ids), answer.usage.generated_tokens, answer.miss}
      {:length, 3, 3, %{miss: :cold}}
      iex> {:ok, answer} = Weir.Server.complete(server, "hello", max_tokens: 1, prompt_logprobs: true)
      iex> Enum.map(answer.prompt_logprobs, & &1.token)
      ["<s>", "h", "e", "l", "l", "o"]
      iex> {:ok, best} = Weir.Server.complete(server, "hello", max_tokens: 3, best_of: 4)
      iex> best.score <= 0.0
      true

  A fork answers a running request's question in another way:

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", temp: 0.0)
      iex> stream = Weir.Server.stream(server, "hello", id: :story, emit: :chunks, max_tokens: 20)
      iex> {:suspended, chunk, _more} = Enumerable.reduce(stream, {:cont, nil}, fn c, _ -> {:suspend, c} end)
      iex> at = length(chunk.ids)
      iex> {:ok, answer} = Weir.Server.complete(server, {:fork, :story, at}, max_tokens: 5)
      iex> answer.before == chunk.text
      true
  """
  @spec complete(server(), prompt(), keyword()) :: {:ok, answer()} | {:error, reason()}
  def complete(server, prompt, opts \\ []),
    do: Answer.whole(server, opts, fn _deadline -> {:ok, prompt} end)

  @doc """
  The answer as a lazy stream of texts, none of them empty. Options as `generate/3`, but `timeout` (30_000 ms) is
  how long the request's begin may take, and then the time between chunks; and `emit: :chunks` for `Weir.Chunk`s.

  Nothing is asked for before the stream is enumerated. Errors are raised as `Weir.Error`, with their reason. Ending
  early cancels the request and leaves no message.
  """
  @spec stream(server(), prompt(), keyword()) :: Enumerable.t()
  def stream(server, prompt, opts \\ []),
    do: Answer.stream(server, opts, fn _deadline -> {:ok, prompt} end)

  @doc "`generate/3` under the name that LlamaCppEx has for token ids."
  @spec generate_tokens(server(), [integer()], keyword()) ::
          {:ok, String.t()} | {:error, reason()}
  def generate_tokens(server, ids, opts \\ []), do: generate(server, ids, opts)

  @doc "`stream/3` under the name that LlamaCppEx has for token ids."
  @spec stream_tokens(server(), [integer()], keyword()) :: Enumerable.t()
  def stream_tokens(server, ids, opts \\ []), do: stream(server, ids, opts)

  @doc """
  Cancels the requests with this `id`, or those of this process. They end within a tick: with `{:error, :cancelled}`,
  in a stream of texts as an exception, in one of chunks as the last chunk's reason.
  """
  @spec cancel(server(), pid() | term()) :: :ok | {:error, :not_found | reason()}
  def cancel(server, pid_or_id), do: Broker.ask(server, {:cancel, pid_or_id}, :infinity)

  # ---- Conversations ----

  @doc "The model, for `Weir.Tokenizer`, `Weir.Chat` and others. Waits until it is loaded."
  @spec model(server()) :: Model.t()
  def model(server), do: server |> fetch_model() |> ok!()

  @doc "The same as `{:ok, model}` or `{:error, reason}`."
  @spec fetch_model(server(), timeout()) :: {:ok, Model.t()} | {:error, reason()}
  def fetch_model(server, timeout \\ :infinity), do: loaded(server, Deadline.at(timeout))

  @doc "`model/1` under LlamaCppEx's name."
  @spec get_model(server()) :: Model.t()
  def get_model(server), do: model(server)

  defp loaded(server, deadline) do
    Broker.here!(server)
    Broker.ask(server, :model, Deadline.left(deadline))
  end

  defp ok!({:ok, value}), do: value
  defp ok!({:error, reason}), do: raise(Weir.Error, reason)

  @doc "The answer to a conversation. Options as `generate/3` and `Weir.Chat.apply_template/3`."
  @spec chat(server(), [Chat.message()], keyword()) :: {:ok, String.t()} | {:error, reason()}
  def chat(server, messages, opts \\ []) do
    {template, rest} = Chat.split_options(opts)

    with {:ok, answer} <- Answer.whole(server, rest, &rendered(server, messages, template, &1)),
         do: {:ok, answer.text}
  end

  defp rendered(server, messages, template, deadline) do
    with {:ok, model} <- loaded(server, deadline),
         do: Chat.tokens(model, messages, template)
  end

  @doc "The same as a stream, see `stream/3`."
  @spec stream_chat(server(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat(server, messages, opts \\ []) do
    {template, rest} = Chat.split_options(opts)
    Answer.stream(server, rest, &rendered(server, messages, template, &1))
  end

  @doc """
  The answer to a conversation in OpenAI's shape. Options as `chat/3` and, as `Weir.chat_completion/3` describes them,
  `n`, `logprobs`, `top_logprobs`, `tools`, `tool_choice`, `parallel_tool_calls`, `prompt_logprobs`. Each of n answers is a
  request, with a place in the queue and events of its own.
  """
  @spec chat_completion(server(), [Chat.message()], keyword()) ::
          {:ok, Weir.ChatCompletion.t()} | {:error, reason()}
  def chat_completion(server, messages, opts \\ []) do
    {open, timeout} = completion(server, messages, opts, :generate, 60_000)
    deadline = Deadline.at(timeout)

    with {:ok, completion} <- open.(deadline),
         do: Completion.whole(completion, fn -> Deadline.left(deadline) end)
  end

  @doc "The answer to a conversation as `Weir.ChatCompletionChunk`s. Options as `stream/3` and `chat_completion/3`."
  @spec stream_chat_completion(server(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat_completion(server, messages, opts \\ []) do
    {open, timeout} = completion(server, messages, opts, :stream, 30_000)
    Completion.stream(fn -> timeout |> Deadline.at() |> open.() end, timeout)
  end

  defp completion(server, messages, opts, mode, timeout) do
    own = Completion.options() ++ Options.template()
    {own_opts, rest} = opts |> Options.keywords!() |> Keyword.split(Keyword.keys(own))
    {timeout, id, given} = Request.given!(rest, timeout)
    {o, given} = own_opts |> Options.read!(own) |> Completion.form(given)

    {fn deadline ->
       how = %{id: id, mode: mode, n: o.n, share: false, deadline: deadline}

       with {:ok, model} <- loaded(server, deadline),
            do: Completion.open(model, messages, o, &Request.start(server, &1, given, how))
     end, timeout}
  end

  # ---- Embeddings ----

  @doc """
  A text as a vector, or a list of texts as a list of vectors, beside generation: in a context of their own, which is
  made by the first call. Options: `timeout` (60_000 ms), and those of `Weir.Embedding.embed/3`.
  """
  @spec embed(server(), String.t() | [String.t()], keyword()) ::
          {:ok, [float()] | [[float()]]} | {:error, reason()}
  def embed(server, text_or_texts, opts \\ []) do
    {timeout, opts} = Deadline.pop!(opts, 60_000)
    o = Embedding.options!(opts)
    texts = if is_list(text_or_texts), do: text_or_texts, else: [text_or_texts]

    if not Enum.all?(texts, &is_binary/1) do
      raise ArgumentError, "expected a text or a list of texts, got: #{inspect(text_or_texts)}"
    end

    deadline = Deadline.at(timeout)

    with {:ok, embedder} <- Broker.ask(server, :embedder, timeout),
         {:ok, vectors} <- Embedder.embed(embedder, texts, o, Deadline.left(deadline)) do
      {:ok, if(is_list(text_or_texts), do: vectors, else: hd(vectors))}
    end
  end

  # ---- The server itself ----

  @doc """
  How it stands: `state` (`:loading`, `:running`, `:stopping`), `active_slots` (prefilling or generating), `idle_slots`, `prefilling_slots`, `generating_slots`,
  `queue_depth`, `n_parallel`, `n_batch`, `requests` (begun and not ended), `n_shared` (that had another one's generation),
  `strategy`, `strategy_failures`, `slots` (what each active one did in the last tick, and how much of its prompt was
  cached), and, once the model is loaded, the engine's counts: see `weir_engine_stats` in the C API. Never waits for a
  forward pass.
  """
  @spec get_stats(server()) :: map()
  def get_stats(server) do
    case Broker.ask(server, :get_stats, :infinity) do
      {:error, reason} -> raise Weir.Error, reason
      stats -> stats
    end
  end

  @doc """
  Changes options while requests run: those that requests get by default, and those of the engine.

  Defaults, and one Elixir strategy for another, hold at once. For what else changes the engine a new one is made:
  requests that have begun end on the former, which is then freed, with the prefixes it knew; until then both take their
  memory. After an error everything is as before.

  What has to be loaded is loaded beside the server, which goes on meanwhile; changes are made one after the other.
  `timeout` (`:infinity`) is how long to wait. The change is made even if nobody waits any more.
  """
  @spec configure(server(), keyword()) :: :ok | {:error, reason()}
  def configure(server, opts) do
    {timeout, opts} = Deadline.pop!(opts, :infinity)
    given = opts |> renamed() |> Options.given!(own_options())
    _strategy = BatchStrategy.resolve!(Map.get(given, :batch_strategy, :balanced))
    Request.one_grammar!(given)
    Broker.ask(server, {:configure, given}, timeout)
  end
end
