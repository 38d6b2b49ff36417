defmodule Weir.Server do
  @moduledoc """
  One model for many callers: continuous batching behind a `GenServer`.

      children = [{Weir.Server, name: MyApp.LLM, model_path: "model.gguf", n_parallel: 8}]
      Supervisor.start_link(children, strategy: :one_for_one)

      {:ok, text} = Weir.Server.generate(MyApp.LLM, "Once upon a time", max_tokens: 100)
      MyApp.LLM |> Weir.Server.stream("Once upon a time") |> Enum.each(&IO.write/1)

  Requests run together, each tick one forward pass; prompts are computed in chunks between the tokens of others, and
  what several prompts have in common is computed once. The engine is C and has a thread of its own. Texts go from
  there to the caller's mailbox, not through this process, and at most 16 chunks before the caller has taken some: what
  waits becomes one chunk. A caller that dies frees its slot within a tick. Callers are on the server's node.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", n_parallel: 2)
      iex> {:ok, text} = Weir.Server.generate(server, "hello", max_tokens: 8, temp: 0.0)
      iex> text == server |> Weir.Server.stream("hello", max_tokens: 8, temp: 0.0) |> Enum.join()
      true
      iex> Weir.Server.get_stats(server).idle_slots
      2

  ## Options of `start_link/1`

    * `model_path` (a file, or `hf:OWNER/REPO[:QUANTIZATION]`, see `Weir.Hub`), or `model`, a `Weir.Model`. One of them
      is required.
    * `name`: as `GenServer`'s. It is the id in `child_spec/1` too.
    * of the model: `n_gpu_layers` (99), and `use_mmap`, `main_gpu`, `split_mode`, `tensor_split`, `use_mlock`,
      `use_direct_io` as `Weir.Model.load/2` has them.
    * of the engine: `n_ctx` (8192: tokens of all requests together; with the layout `:per_slot` each has its part),
      `n_parallel` (4 requests at a time), `n_batch` (n_ctx: the most tokens of a tick), `n_ubatch` (512), `chunk_size`
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

  Options of the wrong name or type raise `ArgumentError`.

  Events for monitoring are in `Weir.Server.Telemetry`.
  """

  use GenServer

  alias Weir.{Adapter, Chat, Chunk, Completion, Embedding, Hub}
  alias Weir.{Logprobs, Model, NIF, Options, Tokenizer}
  alias Weir.Server.{BatchStrategy, Driver, Embedder, Flight, Request, Telemetry}

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

  # The engine's ticks are told so often while there are any.
  @ticks_ms 50

  @model_options [
    n_gpu_layers: {:integer, 99},
    use_mmap: {:boolean, true},
    main_gpu: {:integer, 0},
    split_mode: {{:in, [:none, :layer, :row]}, :none},
    tensor_split: {{:list, :number}, []},
    use_mlock: {:boolean, false},
    use_direct_io: {:boolean, false}
  ]

  @kv_types [:f16, :f32, :bf16, :q8_0, :q4_0]

  @engine_options [
    n_ctx: {{:range, 1..0x10000000}, 8192},
    n_parallel: {{:range, 1..256}, 4},
    n_batch: {:integer, 0},
    n_ubatch: {:integer, 512},
    chunk_size: {:integer, 512},
    max_queue: {:integer, 0},
    batch_strategy: {:any, :decode_maximal},
    itl_target_ms: {:integer, 50},
    n_threads: {:integer, 0},
    n_threads_batch: {:integer, 0},
    layout: {{:in, [:auto, :unified, :per_slot]}, :auto},
    type_k: {{:in, @kv_types}, :f16},
    type_v: {{:in, @kv_types}, :f16},
    ageing_ms: {:integer, 10_000},
    cache_sequences: {:integer, -1},
    cache_bytes: {:auto_or_bytes, :auto},
    cache_dir: {{:maybe, :string}, nil},
    cache_disk_bytes: {:bytes, 4_294_967_296},
    n_draft_max: {:integer, 16},
    prompt_lookup: {:boolean, true},
    mtp: {:boolean, true},
    draft_model: {{:maybe, :model}, nil}
  ]

  # ---- Starting ----

  @doc false
  def child_spec(opts) do
    drain = Keyword.get(opts, :drain_timeout, 5_000)

    %{
      id: Keyword.get(opts, :name) || __MODULE__,
      start: {__MODULE__, :start_link, [opts]},
      # passes that run now end first
      shutdown: if(is_integer(drain), do: drain + 5_000, else: drain)
    }
  end

  @doc "Loads the model and starts. Options above."
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    {name, opts} = opts |> renamed() |> Keyword.split([:name])
    {source, opts} = Keyword.split(opts, [:model_path, :model])

    o =
      Options.read!(
        opts,
        [drain_timeout: {{:range, 0..0x7FFFFFFF}, 5_000}] ++ @model_options ++ own_options()
      )

    _strategy = BatchStrategy.resolve!(o.batch_strategy)
    _request = Request.to_engine(o)
    GenServer.start_link(__MODULE__, {source!(source), o}, name)
  end

  # What an engine and a request call alike is the engine's here: the most that a request may have.
  defp own_options, do: @engine_options ++ Keyword.drop(Request.options(), [:n_draft_max])

  defp renamed(opts) do
    case Keyword.pop(opts, :strategy) do
      {nil, opts} -> opts
      {strategy, opts} -> Keyword.put_new(opts, :batch_strategy, strategy)
    end
  end

  defp source!(model: %Model{} = model), do: model
  defp source!(model_path: path) when is_binary(path), do: path

  defp source!(other) do
    raise ArgumentError,
          "give either :model_path, a text, or :model, a Weir.Model, got: #{inspect(other)}"
  end

  # ---- Requests ----

  @doc """
  The whole answer to a prompt, a text or token ids.

  Options: `max_tokens` (256; -1: as many as fit), `timeout` (60_000 ms, or `:infinity`; then `{:error, :timeout}`),
  `temp` (0.8), `top_k` (40), `top_p` (0.95), `min_p` (0.05), `seed` (random), `penalty_repeat` (1.0), `penalty_freq`
  (0.0), `penalty_present` (0.0), `grammar`, `grammar_root` ("root"), `json_schema` (a map), `stop` (texts that end the
  answer, and are not part of it), `priority` (0; -100 to 100: the higher goes first), `deadline` (ms from now; the
  text until then is the answer), `cache_prompt` (true), `cache_salt` (only requests with the same one share prefixes),
  `lora` (see `Weir.Adapter`), `logprobs` (false) and `top_logprobs` (0; 0 to 20), `prompt_logprobs` (false) and `n_prompt_logprobs` (0; 0 to 20), for
  the functions that can tell them, `id` (any term, for `cancel/2` and forks), and those of `Weir.Sampler.create/2`.

  Also `best_of` (1; 1 to 128: so many answers run together, and the one whose tokens are likeliest on the average is the
  answer), `echo` (false; the prompt stands before the answer), `share` (false; identical requests whose answer is the same
  each time, greedy or with a `seed`, share one generation while it runs), `interval` (1: a stream has a chunk for every so
  many tokens), `n_draft_max` (-1: as many as the server's), `add_special` and `parse_special` (true; of the prompt's text),
  `special` (false; control tokens appear in the answer).

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
  def complete(server, prompt, opts \\ []) do
    {own, opts} = answer_options!(prompt, opts)
    {timeout, id, given} = split!(opts, 60_000)
    # as weir_generate_best: they are ranked by their logprobs
    asked = if own.best_of > 1, do: Map.put(given, :logprobs, true), else: given

    with {:ok, requests} <-
           Request.start(server, prompt, asked, id, :generate, own.best_of, own.share),
         deadline = until(timeout),
         {:ok, answer} <- best(Enum.map(requests, &gather(&1, deadline, %{}))),
         {:ok, before} <- echo(own.echo, prompt, hd(requests).model) do
      wanted? = Map.get(given, :logprobs, own.best_of == 1)
      logprobs = if wanted?, do: answer.logprobs
      {:ok, %{answer | text: before <> answer.text, logprobs: logprobs}}
    end
  end

  # The likeliest on the average, the first of equals; one that has failed only where all have. The prompt's scores are
  # told with the first one.
  defp best([answer]), do: answer

  defp best(answers) do
    case for {:ok, answer} <- answers, do: answer do
      [] ->
        hd(answers)

      whole ->
        scores = Enum.find_value(whole, & &1.prompt_logprobs)
        {:ok, %{Enum.max_by(whole, & &1.score) | prompt_logprobs: scores}}
    end
  end

  defp echo(false, _prompt, _model), do: {:ok, ""}
  defp echo(true, prompt, _model) when is_binary(prompt), do: {:ok, prompt}
  defp echo(true, ids, model), do: Tokenizer.decode(model, ids)

  defp gather(request, deadline, parts) do
    case Request.next(request, left(deadline)) do
      {:chunk, more, text, scores, request} ->
        entries = Logprobs.entries(request.model, more, scores) || []

        gather(request, deadline, %{
          texts: [Map.get(parts, :texts, []) | text],
          ids: [Map.get(parts, :ids, []) | more],
          logprobs: [Map.get(parts, :logprobs, []) | entries],
          prompt: parts[:prompt]
        })

      {:prompt, ids, scores} ->
        gather(request, deadline, %{prompt: Logprobs.entries(request.model, ids, scores)})

      {:done, :cancelled, _usage} ->
        {:error, :cancelled}

      {:done, reason, usage} ->
        {:ok,
         %{
           text: IO.iodata_to_binary(parts[:texts] || []),
           ids: List.flatten(parts[:ids] || []),
           reason: reason,
           usage: Telemetry.usage(usage),
           miss: Telemetry.miss(usage),
           logprobs: if(request.logprobs, do: List.flatten(parts[:logprobs] || [])),
           prompt_logprobs: parts[:prompt],
           score: if(request.logprobs, do: usage.score),
           before: usage[:before]
         }}

      {:error, reason} ->
        {:error, reason}
    end
  end

  @doc """
  The answer as a lazy stream of texts, none of them empty. Options as `generate/3`, but `timeout` (30_000 ms) is
  between chunks; and `emit: :chunks` for `Weir.Chunk`s.

  Nothing is asked for before the stream is enumerated. Errors are raised as `Weir.Error`, with their reason. Ending
  early cancels the request and leaves no message.
  """
  @spec stream(server(), prompt(), keyword()) :: Enumerable.t()
  def stream(server, prompt, opts \\ []) do
    {emit, opts} = emit!(opts)
    chunks = chunks(server, opts, fn -> {:ok, prompt} end)
    if emit == :chunks, do: chunks, else: Chunk.texts(chunks)
  end

  # `prompt` is computed when the stream is enumerated.
  defp chunks(server, opts, prompt) do
    {own, opts} = answer_options!(nil, opts)
    {timeout, id, given} = split!(opts, 30_000)

    if own.best_of > 1 do
      raise ArgumentError, "option :best_of: the best answer is known at the end; see complete/3"
    end

    Stream.resource(
      fn ->
        with {:ok, prompt} <- prompt.(),
             :ok <- echo!(own.echo, prompt),
             {:ok, [request]} <- Request.start(server, prompt, given, id, :stream, 1, own.share) do
          if own.echo, do: {:echo, prompt, request}, else: request
        else
          {:error, reason} -> raise Weir.Error, reason
        end
      end,
      &next(&1, timeout),
      &close/1
    )
  end

  defp close(:over), do: :ok
  defp close({:echo, _prompt, request}), do: Request.close(request)
  defp close(request), do: Request.close(request)

  defp next(:over, _timeout), do: {:halt, :over}

  defp next({:echo, prompt, request}, _timeout) do
    case echo(true, prompt, request.model) do
      {:ok, text} -> {[%Chunk{text: text}], request}
      {:error, reason} -> raise Weir.Error, reason
    end
  end

  defp next(request, timeout) do
    case Request.next(request, timeout) do
      {:chunk, ids, text, scores, request} ->
        {[chunk(request, ids, text, scores)], request}

      {:prompt, ids, scores} ->
        {[%Chunk{prompt_logprobs: Logprobs.entries(request.model, ids, scores)}], request}

      {:done, reason, usage} ->
        {[%Chunk{reason: reason, usage: Telemetry.usage(usage), miss: Telemetry.miss(usage)}],
         :over}

      # the stream closes the request, which is over: that does nothing
      {:error, reason} ->
        raise Weir.Error, reason
    end
  end

  defp chunk(request, ids, text, scores),
    do: %Chunk{ids: ids, text: text, logprobs: Logprobs.entries(request.model, ids, scores)}

  @doc """
  Cancels the requests with this `id`, or those of this process. They end within a tick: with `{:error, :cancelled}`,
  in a stream of texts as an exception, in one of chunks as the last chunk's reason.
  """
  @spec cancel(server(), pid() | term()) :: :ok | {:error, :not_found}
  def cancel(server, pid_or_id), do: GenServer.call(server, {:cancel, pid_or_id}, :infinity)

  # ---- Conversations ----

  @doc "The model, for `Weir.Tokenizer`, `Weir.Chat` and others."
  @spec model(server()) :: Model.t()
  def model(server), do: GenServer.call(server, :model, :infinity)

  @doc "The answer to a conversation. Options as `generate/3` and `Weir.Chat.apply_template/3`."
  @spec chat(server(), [Chat.message()], keyword()) :: {:ok, String.t()} | {:error, reason()}
  def chat(server, messages, opts \\ []) do
    {template, rest} = Chat.split_options(opts)

    with {:ok, prompt} <- Chat.apply_template(model(server), messages, template),
         do: generate(server, prompt, rest)
  end

  @doc "The same as a stream, see `stream/3`."
  @spec stream_chat(server(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat(server, messages, opts \\ []) do
    {emit, opts} = emit!(opts)
    {template, rest} = Chat.split_options(opts)

    chunks =
      chunks(server, rest, fn -> Chat.apply_template(model(server), messages, template) end)

    if emit == :chunks, do: chunks, else: Chunk.texts(chunks)
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
    deadline = until(timeout)
    with {:ok, completion} <- open.(), do: Completion.whole(completion, fn -> left(deadline) end)
  end

  @doc "The answer to a conversation as `Weir.ChatCompletionChunk`s. Options as `stream/3` and `chat_completion/3`."
  @spec stream_chat_completion(server(), [Chat.message()], keyword()) :: Enumerable.t()
  def stream_chat_completion(server, messages, opts \\ []) do
    {open, timeout} = completion(server, messages, opts, :stream, 30_000)
    Completion.stream(open, timeout)
  end

  defp completion(server, messages, opts, mode, timeout) do
    own = Completion.options() ++ Options.template()
    {own_opts, rest} = Keyword.split(opts, Keyword.keys(own))
    {timeout, id, given} = split!(rest, timeout)
    {o, given} = own_opts |> Options.read!(own) |> Completion.form(given)

    {fn ->
       Completion.open(model(server), messages, o, fn chat ->
         Request.start(server, chat, given, id, mode, o.n)
       end)
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
    {timeout, opts} = Keyword.pop(opts, :timeout, 60_000)
    o = Embedding.options!(opts)
    texts = List.wrap(text_or_texts)

    if not Enum.all?(texts, &is_binary/1) do
      raise ArgumentError, "expected a text or a list of texts, got: #{inspect(text_or_texts)}"
    end

    with {:ok, embedder} <- GenServer.call(server, :embedder, :infinity),
         {:ok, vectors} <- Embedder.embed(embedder, texts, o, timeout) do
      {:ok, if(is_list(text_or_texts), do: vectors, else: hd(vectors))}
    end
  end

  # ---- The server itself ----

  @doc """
  How it stands: `active_slots` (prefilling or generating), `idle_slots`, `prefilling_slots`, `generating_slots`,
  `queue_depth`, `n_parallel`, `n_batch`, `requests` (begun and not ended), `n_shared` (that had another one's generation),
  `strategy`, `strategy_failures`, `slots` (what
  each active one did in the last tick, and how much of its prompt was cached), and the engine's counts: see
  `weir_engine_stats` in the C API. Never waits for a forward pass.
  """
  @spec get_stats(server()) :: map()
  def get_stats(server), do: GenServer.call(server, :get_stats, :infinity)

  @doc """
  Changes options while requests run: those that requests get by default, and those of the engine.

  Defaults, and one Elixir strategy for another, hold at once. For what else changes the engine a new one is made:
  requests that have begun end on the former, which is then freed, with the prefixes it knew; until then both take their
  memory. After an error everything is as before.
  """
  @spec configure(server(), keyword()) :: :ok | {:error, reason()}
  def configure(server, opts) do
    given = opts |> renamed() |> Options.given!(own_options())
    _strategy = BatchStrategy.resolve!(Map.get(given, :batch_strategy, :balanced))
    Request.one_grammar!(given)
    GenServer.call(server, {:configure, given}, :infinity)
  end

  @doc """
  How many tokens two lists begin with alike: what a cached prompt saves.

      iex> Weir.Server.common_prefix_length([1, 2, 3], [1, 2, 4, 5])
      2
  """
  @spec common_prefix_length([integer()], [integer()]) :: non_neg_integer()
  def common_prefix_length(a, b), do: common(a, b, 0)

  defp common([token | a], [token | b], n), do: common(a, b, n + 1)
  defp common(_a, _b, n), do: n

  # ---- Options and time ----

  defp split!(opts, default) do
    {timeout, opts} = Keyword.pop(opts, :timeout, default)
    {id, opts} = Keyword.pop(opts, :id)

    if timeout != :infinity and not (is_integer(timeout) and timeout >= 0) do
      raise ArgumentError,
            "option :timeout must be milliseconds or :infinity, got: #{inspect(timeout)}"
    end

    {timeout, id, Options.given!(opts, Request.options())}
  end

  defp answer_options!(prompt, opts) do
    specs = Request.answer_options()
    {own, opts} = Keyword.split(opts, Keyword.keys(specs))
    own = Options.read!(own, specs)
    :ok = echo!(own.echo, prompt)
    {own, opts}
  end

  defp echo!(true, prompt) when is_tuple(prompt) do
    raise ArgumentError,
          "option :echo: a fork has no prompt of its own; see :before of complete/3"
  end

  defp echo!(_echo, _prompt), do: :ok

  defp emit!(opts) do
    {emit, opts} = Keyword.pop(opts, :emit, :text)
    %{emit: emit} = Options.read!([emit: emit], emit: {{:in, [:text, :chunks]}, :text})
    {emit, opts}
  end

  defp until(:infinity), do: :infinity
  defp until(timeout), do: System.monotonic_time(:millisecond) + timeout

  defp left(:infinity), do: :infinity
  defp left(deadline), do: max(deadline - System.monotonic_time(:millisecond), 0)

  # ---- The process ----

  # current: the engine that requests begin on. engines: by number; those before it are there until their last request
  # has ended. requests: by the monitor of their consumer. flights: those that more readers may join, by engine and
  # request. draft: the model that was last loaded from a path, {path, model}.
  defstruct [
    :model,
    :options,
    :current,
    :embedder,
    telemetry: false,
    draft: nil,
    polling: false,
    seq: 0,
    n_shared: 0,
    engines: %{},
    requests: %{},
    flights: %{}
  ]

  @impl true
  def init({source, o}) do
    Process.flag(:trap_exit, true)

    with {:ok, model} <- load(source, o),
         {:ok, o} <- with_adapters(model, o),
         state = %__MODULE__{model: model, options: o, telemetry: Telemetry.loaded?()},
         {:ok, state} <- add_engine(state, o) do
      {:ok, state}
    else
      {:error, reason} -> {:stop, reason}
    end
  end

  defp load(%Model{} = model, _o), do: {:ok, model}

  defp load(path, o) do
    with {:ok, file} <- Hub.file(path),
         do: Model.load(file, o |> Map.take(Keyword.keys(@model_options)) |> Map.to_list())
  end

  # What the server's own option names is loaded once.
  defp with_adapters(model, o) do
    Enum.reduce_while(Enum.reverse(o.lora), {:ok, %{o | lora: []}}, fn {adapter, scale},
                                                                       {:ok, o} ->
      case Adapter.loaded(model, adapter) do
        {:ok, adapter} -> {:cont, {:ok, %{o | lora: [{adapter, scale} | o.lora]}}}
        {:error, reason} -> {:halt, {:error, reason}}
      end
    end)
  end

  defp add_engine(state, o) do
    strategy = BatchStrategy.resolve!(o.batch_strategy)

    options =
      o
      |> Map.take([
        :n_ubatch,
        :chunk_size,
        :n_threads,
        :n_threads_batch,
        :layout,
        :type_k,
        :type_v,
        :itl_target_ms,
        :ageing_ms,
        :cache_sequences,
        :cache_bytes,
        :cache_dir,
        :cache_disk_bytes,
        :n_draft_max,
        :prompt_lookup,
        :mtp
      ])
      |> Map.merge(%{
        n_slots: o.n_parallel,
        n_ctx: o.n_ctx,
        n_kv: o.n_ctx,
        n_batch: if(o.n_batch == 0, do: max(o.n_ctx, o.n_parallel), else: o.n_batch),
        queue_limit: o.max_queue
      })
      |> Map.merge(
        case strategy do
          {:c, name} -> %{strategy: name}
          {:module, _module, _opts} -> %{manual: true}
        end
      )

    with {:ok, draft} <- draft(state, o),
         options = Map.put(options, :draft_model, draft && draft.ref),
         {:ok, ref} <- NIF.engine_create(state.model.ref, options) do
      number = (state.current || 0) + 1
      failures = :counters.new(1, [])

      driver =
        if options[:manual], do: Driver.start_link(ref, strategy, failures, state.telemetry)

      engine = %{ref: ref, driver: driver, failures: failures, n: 0, tick: 0}
      former = state.current
      engines = Map.put(state.engines, number, engine)
      loaded = if is_binary(o.draft_model), do: {o.draft_model, draft}
      {:ok, retire(%{state | current: number, engines: engines, draft: loaded}, former)}
    end
  end

  defp draft(%{draft: {path, model}}, %{draft_model: path}), do: {:ok, model}
  defp draft(_state, %{draft_model: nil}), do: {:ok, nil}
  defp draft(_state, o), do: load(o.draft_model, o)

  # An engine without requests that is not the current one ends.
  defp retire(state, number) do
    case state.engines do
      %{^number => %{n: 0} = engine} when number != state.current ->
        _told = if state.telemetry, do: tell_ticks(engine)
        if engine.driver, do: Driver.stop(engine.driver)
        # waits for the pass that runs
        spawn(fn -> NIF.engine_stop(engine.ref) end)
        %{state | engines: Map.delete(state.engines, number)}

      _other ->
        state
    end
  end

  @impl true
  def handle_call({:begin, mode, id, n}, {pid, _tag}, state),
    do: begin(state, state.current, mode, id, n, pid, nil)

  def handle_call({:fork, source, mode, id, n}, {pid, _tag}, state) do
    found =
      for {_key, %{id: ^source, ref: ref} = request} when is_reference(ref) <- state.requests,
          source != nil,
          do: request

    case found do
      [] ->
        {:reply, {:error, :not_found}, state}

      found ->
        # of several answers the first
        request = Enum.min_by(found, & &1.seq)
        begin(state, request.engine, mode, id, n, pid, request.ref)
    end
  end

  def handle_call({:join, number, request, key, ref, demand}, {pid, _tag}, state) do
    place = {number, request}
    engine = state.engines[number]

    {flight, state} =
      case state.flights do
        %{^place => flight} ->
          {flight, %{state | n_shared: state.n_shared + 1}}

        flights ->
          flight = Flight.start_link(engine.ref, engine.driver, place, request)
          {flight, %{state | flights: Map.put(flights, place, flight)}}
      end

    Flight.attach(flight, pid, ref, demand)
    {:reply, flight, running(state, key, {flight, ref})}
  end

  def handle_call({:cancel, target}, _from, state) do
    found =
      for {key, %{pid: pid, id: id}} <- state.requests,
          pid == target or (id != nil and id == target),
          do: key

    state = Enum.reduce(found, state, &cancel_request(&2, &1))
    {:reply, if(found == [], do: {:error, :not_found}, else: :ok), state}
  end

  def handle_call(:model, _from, state), do: {:reply, state.model, state}

  def handle_call(:embedder, _from, %{embedder: nil} = state) do
    {:ok, embedder} = Embedder.start_link(state.model)
    {:reply, {:ok, embedder}, %{state | embedder: embedder}}
  end

  def handle_call(:embedder, _from, state), do: {:reply, {:ok, state.embedder}, state}
  def handle_call(:get_stats, _from, state), do: {:reply, stats(state), state}

  def handle_call({:configure, given}, _from, state) do
    options = Request.merge(state.options, given)
    engine = state.engines[state.current]
    changed = for {name, _spec} <- @engine_options, options[name] != state.options[name], do: name

    case {changed, BatchStrategy.resolve!(options.batch_strategy)} do
      {[], _strategy} ->
        {:reply, :ok, %{state | options: options}}

      {[:batch_strategy], {:module, _module, _opts} = strategy} when engine.driver != nil ->
        Driver.strategy(engine.driver, strategy)
        {:reply, :ok, %{state | options: options}}

      _engine ->
        case add_engine(state, options) do
          {:ok, state} -> {:reply, :ok, %{state | options: options}}
          {:error, reason} -> {:reply, {:error, reason}, state}
        end
    end
  end

  @impl true
  def handle_cast({:running, key, ref}, state), do: {:noreply, running(state, key, ref)}

  def handle_cast({:deserted, place, flight}, state) do
    Flight.stop(flight)

    case state.flights do
      %{^place => ^flight} -> {:noreply, %{state | flights: Map.delete(state.flights, place)}}
      _another -> {:noreply, state}
    end
  end

  def handle_cast({:ended, key, outcome}, state) do
    Process.demonitor(key, [:flush])
    {:noreply, ended(state, key, outcome)}
  end

  @impl true
  def handle_info({:DOWN, key, :process, _pid, reason}, state),
    do: {:noreply, ended(state, key, {:exit, reason})}

  def handle_info(:ticks, state) do
    engines = Map.new(state.engines, fn {number, engine} -> {number, tell_ticks(engine)} end)
    {:noreply, poll(%{state | engines: engines, polling: false})}
  end

  def handle_info({:EXIT, _pid, :normal}, state), do: {:noreply, state}

  def handle_info({:EXIT, pid, _reason}, %{embedder: pid} = state),
    do: {:noreply, %{state | embedder: nil}}

  def handle_info({:EXIT, _pid, reason}, state), do: {:stop, reason, state}
  def handle_info(_message, state), do: {:noreply, state}

  # Requests that have begun may end, unless it ends because something has failed; no other begins.
  @impl true
  def terminate(reason, state) do
    asked? = reason in [:normal, :shutdown] or match?({:shutdown, _}, reason)
    state = if asked?, do: drain(state, until(state.options.drain_timeout)), else: state

    for {_number, engine} <- state.engines do
      if engine.driver, do: Driver.stop(engine.driver)
      _told = if state.telemetry, do: tell_ticks(engine)
      NIF.engine_stop(engine.ref)
    end
  end

  defp drain(%{requests: requests} = state, _deadline) when requests == %{}, do: state

  defp drain(state, deadline) do
    receive do
      {:"$gen_call", from, begin} when elem(begin, 0) in [:begin, :fork] ->
        GenServer.reply(from, {:error, :stopping})
        drain(state, deadline)

      {:"$gen_call", from, message} ->
        {:reply, reply, state} = handle_call(message, from, state)
        GenServer.reply(from, reply)
        drain(state, deadline)

      {:"$gen_cast", message} ->
        {:noreply, state} = handle_cast(message, state)
        drain(state, deadline)

      {:DOWN, _, _, _, _} = message ->
        {:noreply, state} = handle_info(message, state)
        drain(state, deadline)
    after
      left(deadline) -> state
    end
  end

  defp begin(state, number, mode, id, n, pid, source) do
    engine = state.engines[number]

    {keys, state} =
      Enum.map_reduce(1..n, state, fn _, state -> begin_one(state, number, mode, id, pid) end)

    session = %{
      server: self(),
      keys: keys,
      model: state.model,
      number: number,
      engine: engine.ref,
      driver: engine.driver,
      source: source,
      defaults: Map.take(state.options, Keyword.keys(Request.options()))
    }

    {:reply, {:ok, session}, poll(state)}
  end

  defp begin_one(state, number, mode, id, pid) do
    key = Process.monitor(pid)
    seq = state.seq + 1

    request = %{
      pid: pid,
      id: id,
      mode: mode,
      seq: seq,
      engine: number,
      ref: nil,
      cancelled: false
    }

    tell(state, request, [:request, :start], %{system_time: System.system_time()}, %{})
    state = %{state | seq: seq, requests: Map.put(state.requests, key, request)}
    {key, update_in(state.engines[number].n, &(&1 + 1))}
  end

  defp running(state, key, ref) do
    case state.requests do
      %{^key => request} ->
        if request.cancelled, do: cancel_ref(ref)
        put_in(state.requests[key], %{request | ref: ref})

      _gone ->
        state
    end
  end

  defp cancel_request(state, key) do
    cancel_ref(state.requests[key].ref)
    put_in(state.requests[key].cancelled, true)
  end

  # nil: not submitted yet
  defp cancel_ref(nil), do: :ok
  defp cancel_ref({flight, ref}), do: Flight.cancel(flight, ref)
  defp cancel_ref(ref), do: NIF.engine_cancel(ref)

  defp ended(state, key, outcome) do
    case Map.pop(state.requests, key) do
      {nil, _requests} ->
        state

      {request, requests} ->
        tell_end(state, request, outcome)
        engine = state.engines[request.engine]
        # what a dead consumer has submitted, or was about to, is to be seen
        Driver.work(engine.driver)
        state = %{state | requests: requests}
        retire(put_in(state.engines[request.engine].n, engine.n - 1), request.engine)
    end
  end

  defp stats(state) do
    engine = state.engines[state.current]
    s = NIF.engine_stats(engine.ref)
    active = s.n_slots_prefilling + s.n_slots_generating

    Map.merge(Map.drop(s, [:n_slots, :n_slots_prefilling, :n_slots_generating]), %{
      active_slots: active,
      idle_slots: s.n_slots - active,
      prefilling_slots: s.n_slots_prefilling,
      generating_slots: s.n_slots_generating,
      n_parallel: s.n_slots,
      requests: map_size(state.requests),
      n_shared: state.n_shared,
      strategy: state.options.batch_strategy,
      strategy_failures: :counters.get(engine.failures, 1),
      slots: if(active > 0, do: NIF.engine_slots(engine.ref), else: [])
    })
  end

  # ---- Events ----

  defp tell(%{telemetry: false}, _request, _event, _measurements, _metadata), do: :ok

  defp tell(_state, request, event, measurements, metadata) do
    known = %{server: self(), seq_id: request.seq, mode: request.mode, id: request.id}
    Telemetry.execute(event, measurements, Map.merge(known, metadata))
  end

  defp tell_end(%{telemetry: false}, _request, _outcome), do: :ok

  defp tell_end(state, request, {:done, reason, usage}),
    do: tell(state, request, [:request, :done], Telemetry.usage(usage), %{reason: reason})

  defp tell_end(state, request, {:done, :halted}),
    do: tell(state, request, [:request, :done], usage(request), %{reason: :halted})

  defp tell_end(state, request, {kind, reason}),
    do:
      tell(state, request, [:request, :exception], usage(request), %{kind: kind, reason: reason})

  defp usage(%{ref: ref}) when not is_reference(ref), do: Telemetry.no_usage()
  defp usage(%{ref: ref}), do: ref |> NIF.engine_usage() |> Telemetry.usage()

  # Once more after the last request has ended: its last tick may be told then.
  defp poll(%{telemetry: true, polling: false} = state)
       when map_size(state.requests) > 0 do
    Process.send_after(self(), :ticks, @ticks_ms)
    %{state | polling: true}
  end

  defp poll(state), do: state

  defp tell_ticks(engine) do
    case NIF.engine_ticks(engine.ref, engine.tick) do
      {_next, []} ->
        engine

      {next, ticks} ->
        Enum.each(ticks, &Telemetry.tick(&1, self()))
        tell_ticks(%{engine | tick: next})
    end
  end
end
