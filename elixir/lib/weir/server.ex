# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server do
  @moduledoc """
  One model for many callers: continuous batching behind a `GenServer`.

      children = [{Weir.Server, name: MyApp.LLM, model_path: "model.gguf", n_parallel: 8}]
      Supervisor.start_link(children, strategy: :one_for_one)

      {:ok, text} = Weir.Server.generate(MyApp.LLM, "Once upon a time", max_tokens: 100)
      MyApp.LLM |> Weir.Server.stream("Once upon a time") |> Enum.each(&IO.write/1)

  All requests run together: each tick computes one batch, with one token of every running answer and prefill
  chunks of prompts. In the layout `:unified`, the default with several slots, that is one forward pass up to
  `n_ubatch` tokens; in `:per_slot` a tick with prompts takes two or more. Requests with a common prefix share
  its prefill. The engine is written in C and has its own thread. It sends text directly to the caller's
  mailbox, not through this process: at most 16 chunks before the caller takes some, after which new chunks
  merge. A caller that dies frees its slot within a tick.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", n_parallel: 2)
      iex> {:ok, text} = Weir.Server.generate(server, "hello", max_tokens: 8, temp: 0.0)
      iex> text == server |> Weir.Server.stream("hello", max_tokens: 8, temp: 0.0) |> Enum.join()
      true
      iex> Weir.Server.get_stats(server).idle_slots
      2

  ## Options of `start_link/1`

    * `model_path` (a file, or `hf:OWNER/REPO[:QUANTIZATION]`, see `Weir.Hub`), or `model`, a `Weir.Model`.
      One of them is required.
    * `await` (true): a file is loaded before `start_link/1` returns, and holds up the application's start.
      With false, and for a model by name, which may need a download, it is loaded afterwards: requests wait
      for it as they wait in the queue, `model/1` waits without a limit, and `get_stats/1` has
      `state: :loading` and `load`, which tells how far it is: `%{stage: :download | :load, done: 0.0..1.0}`.
      If loading fails, waiting callers get the reason and the server exits with it. The end of the server or
      its supervisor ends a download or load.
    * `name`: as for `GenServer`. It is also the id in `child_spec/1`.
    * `replace` (false): true first ends the server that has this name, after its requests (`drain_timeout`). For
      a notebook's cell that is evaluated again, or `iex`; not below a supervisor, which restarts what was ended.
    * model options: `n_gpu_layers` (99), and the others of `Weir.Model.load/2`, except `vocab_only`.
    * engine options: `n_ctx` (8192: tokens of all requests together; in the layout `:per_slot` each has an
      equal part), `n_parallel` (4: requests at a time), `n_batch` (n_ctx: maximum tokens of a tick),
      `n_ubatch` (0: 512 plus one per slot; maximum tokens of a forward pass), `chunk_size` (512: maximum
      prompt tokens of one request in a tick), `max_queue` (256: requests that may wait for a slot, a tenant's at
      most three quarters of them; more get the error `:queue_full`; 0: no limit), `batch_strategy` or `strategy`
      (`:decode_maximal`; see
      `Weir.Server.BatchStrategy`), `itl_target_ms` (50: for `:latency_target`), `n_threads`,
      `n_threads_batch` (0: all processors), `layout` (`:auto`, `:unified`, `:per_slot`), `type_k`, `type_v`
      (`:f16`, `:f32`, `:bf16`, `:q8_0`, `:q4_0`), `ageing_ms` (10_000), `cache_sequences` (-1: as many as
      there is room for; 0: no prefix cache), `cache_bytes` (`:auto`: a quarter of the free memory; host
      memory for the prefix cache and suspended requests), `cache_dir` (a folder for a prefix cache that
      survives restarts; it must belong to the user, with mode 0700) and `cache_disk_bytes` (4 GiB).
      Speculative decoding: `n_draft_max` (16: maximum draft tokens; 0: none), `prompt_lookup` (true: drafts
      from the request's own text), `lookup_bytes` (16 MiB: memory for texts of other requests with the same
      salt, to draft from; 0: none), `draft_model` (a path or a `Weir.Model`: a smaller model with the same
      vocabulary, or an EAGLE-3 head) and `mtp` (true: without a draft model, use the model's own MTP layers
      if it has them).
    * defaults for requests: the options of `generate/3`, except `timeout`, `queue_timeout`,
      `first_token_timeout`, `id`, `best_of`, `echo` and `share`.
    * `drain_timeout` (5_000 ms): how long requests may continue after the supervisor has asked the server to
      stop.

  Unknown options, and options of the wrong type, raise `ArgumentError`. So does a server on another node,
  because the engine sends text only to mailboxes of its own node.

  If the server is not running, or ends during the call, functions return a `Weir.Error` with the code
  `:server_down`. Those without `{:error, _}` (streams, `model/1`, `get_stats/1`) raise it.

  `Weir.Server.Telemetry` lists the events for monitoring.

  `generate/3`, `stream/3`, `chat/3`, `submit/3` and the others that answer are described in `Weir.Target`. A running
  request can be forked:

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", temp: 0.0)
      iex> stream = Weir.Server.stream(server, "hello", id: :story, emit: :chunks, max_tokens: 20)
      iex> {:suspended, chunk, _more} = Enumerable.reduce(stream, {:cont, nil}, fn c, _ -> {:suspend, c} end)
      iex> at = length(chunk.ids)
      iex> {:ok, answer} = Weir.Server.complete(server, {:fork, :story, at}, max_tokens: 5)
      iex> answer.before == chunk.text
      true
  """

  alias Weir.{Chunk, Completion, Deadline, Embedding, Error, Generation, Model, NIF, Options}
  alias Weir.Server.{Answer, BatchStrategy, Broker, Embedder, Engine, Limits, Request}

  use Weir.Target, server: server()

  @type server :: GenServer.server()
  @typedoc """
  A text, token ids, or a fork, which continues the answer of the request with this `id` from its present end
  or from token `at`. A request can be forked until its caller has read its end. The result contains only the
  continuation.
  """
  @type prompt ::
          String.t()
          | [integer()]
          | {:fork, id :: term()}
          | {:fork, id :: term(), at :: integer()}

  @typedoc "Counts are in tokens, times in milliseconds."
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
  Why no more of the prompt was cached. `miss` is `:none`, `:cold` (never seen), `:evicted`, `:salt` (cached
  without a salt), `:diverged`, `:uncuttable` or `:off`. From `:evicted` to `:uncuttable` the map also has
  `n_matched` (known tokens) and `text` (the reason as a sentence). For `:diverged` it has `prompt` and
  `cached`, the texts around that place; in a conversation also `message`, `in_message`, `role`
  and `line` (the beginning of the line that differs).

  Without a `cache_salt` the cached texts may be other callers'. Then `cached` and `line` are nil, and
  `:evicted` and `:uncuttable` become `:cold`: they would reveal more than `cached_tokens` does.
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
      # the running passes end first
      shutdown: if(is_integer(drain), do: drain + 5_000, else: drain)
    }
  end

  @doc "Loads the model and starts the server. Options: see above."
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    {name, opts} = opts |> Options.keywords!() |> renamed() |> Keyword.split([:name])
    {%{replace: replace}, opts} = Options.split!(opts, replace: {:boolean, false})
    {source, opts} = Keyword.split(opts, [:model_path, :model])

    o =
      Options.read!(
        opts,
        [await: {:boolean, true}, drain_timeout: {{:range, 0..0x7FFFFFFF}, 5_000}] ++
          model_options() ++ own_options()
      )

    _strategy = BatchStrategy.resolve!(o.batch_strategy)
    _request = Request.to_engine(o)
    source = source!(source)
    if replace, do: replace!(name)
    Broker.start_link(source, o, name)
  end

  # With :normal, a process that is linked to the former server goes on.
  defp replace!(name: name) when name != nil do
    with former when is_pid(former) <- GenServer.whereis(name), do: GenServer.stop(former)
    :ok
  catch
    # it has just ended
    :exit, _reason -> :ok
  end

  defp replace!(_name),
    do: raise(ArgumentError, "option :replace needs :name, by which the former server is found")

  # Not vocab_only: a server needs the weights.
  defp model_options do
    Options.model() |> Keyword.delete(:vocab_only) |> Keyword.put(:n_gpu_layers, {:integer, 99})
  end

  # Engine and request have an option n_draft_max; here it is the engine's, the maximum for requests.
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

  @impl Weir.Target
  @doc false
  def whole(server, input, opts), do: Answer.whole(server, input, opts)

  @impl Weir.Target
  @doc false
  def chunks(server, input, opts, submission) do
    read = Answer.read!(opts)
    read = if submission, do: update_in(read.own.id, &(&1 || submission.id)), else: read
    if not match?({:chat, _messages, _template}, input), do: Request.prompt!(input)
    Broker.here!(server)

    Answer.chunks(fn -> Answer.open(server, input, read) end, &begun(server, &1, submission))
  end

  defp begun(_server, _opened, nil), do: :ok

  # A shared request that could not be submitted has not begun; its error comes next.
  defp begun(server, opened, submission) do
    :ok = Answer.settled(opened)

    case Broker.ask(server, {:status, self()}, :infinity) do
      {:error, error} -> raise error
      %{state: :starting} -> :ok
      status -> status |> Map.take([:prompt_tokens, :queue_position]) |> submission.started.()
    end
  end

  @doc "`generate/3` under the name that LlamaCppEx has for token ids."
  @spec generate_tokens(server(), [integer()], keyword()) ::
          {:ok, String.t()} | {:error, Error.t()}
  def generate_tokens(server, ids, opts \\ []), do: generate(server, ids, opts)

  @doc "`stream/3` under the name that LlamaCppEx has for token ids."
  @spec stream_tokens(server(), [integer()], keyword()) :: Enumerable.t()
  def stream_tokens(server, ids, opts \\ []), do: stream(server, ids, opts)

  @doc """
  Cancels the requests with this `id`, or those of this process. They end within a tick: with
  an error `:cancelled`, as an exception in a stream of texts, or as the last chunk's reason in a stream of
  chunks.
  """
  @spec cancel(server(), pid() | term()) :: :ok | {:error, Error.t()}
  def cancel(server, pid_or_id), do: Broker.ask(server, {:cancel, pid_or_id}, :infinity)

  # ---- Conversations ----

  @doc """
  Returns the model, for `Weir.Tokenizer`, `Weir.Chat` and others. Waits until it is loaded. A process that has
  it keeps it in memory, also after the server's end, until it is collected.
  """
  @spec model(server()) :: Model.t()
  def model(server), do: server |> fetch_model() |> Error.ok!()

  @doc "Like `model/1`, but returns `{:ok, model}` or `{:error, error}`. `timeout` is in ms."
  @spec fetch_model(server(), timeout()) :: {:ok, Model.t()} | {:error, Error.t()}
  def fetch_model(server, timeout \\ :infinity) do
    timeout = Options.argument!("the timeout", :timeout, timeout)
    Broker.here!(server)
    Broker.ask(server, :model, timeout)
  end

  @doc "`model/1` under LlamaCppEx's name."
  @spec get_model(server()) :: Model.t()
  def get_model(server), do: model(server)

  @impl Weir.Target
  @doc false
  def completion(server, messages, opts) do
    {open, limits} = completion(server, messages, opts, :generate, 60_000)
    with {:ok, completion} <- limits |> Limits.whole() |> open.(), do: Completion.whole(completion)
  end

  @impl Weir.Target
  @doc false
  def completion_chunks(server, messages, opts) do
    {open, limits} = completion(server, messages, opts, :stream, 30_000)
    Completion.stream(fn -> limits |> Limits.stream() |> open.() end)
  end

  defp completion(server, messages, opts, mode, timeout) do
    {id, opts} = Keyword.pop(Options.keywords!(opts), :id)
    {o, options, given} = Completion.read!(opts, &Request.given!(&1, timeout))

    {fn limits ->
       how = %{id: id, mode: mode, n: o.n, share: false, limits: limits}
       server |> opened(messages, o, given, how) |> Limits.started(limits)
     end, options}
  end

  defp opened(server, messages, o, given, how) do
    {deadline, _over} = Limits.start(how.limits)

    with {:ok, model} <- Broker.model(server, deadline) do
      try do
        Completion.open(model, messages, o, &Request.start(server, &1, given, how))
      after
        NIF.lease_release(model.ref)
      end
    end
  end

  # ---- Embeddings ----

  # They are computed in a separate context, which the first call creates.
  @impl Weir.Target
  @doc false
  def vectors(server, text_or_texts, opts) do
    Broker.here!(server)

    Embedding.vectors(text_or_texts, opts, 60_000, fn texts, o, deadline ->
      with {:ok, embedder} <- Broker.ask(server, :embedder, Deadline.left(deadline)) do
        # in a short-lived process, because a context keeps its model in memory
        Generation.elsewhere(fn -> Embedder.embed(embedder, texts, o, deadline) end)
      end
    end)
  end

  # ---- The server itself ----

  @doc """
  Returns the server's state: `state` (`:loading`, `:running`, `:stopping`), `active_slots` (prefilling or
  generating), `idle_slots`, `prefilling_slots`, `generating_slots`, `queue_depth`, `n_parallel`, `n_batch`,
  `max_queue`, `requests` (running), `n_shared` (requests that joined another one's generation), `strategy`,
  `strategy_failures`, `slots` (the work of each active slot in the last tick, the cached part of its prompt, and
  the request's `id` and `seq_id`), and, once the model is loaded, the engine's counters: see `weir_engine_stats` in the C API. Never
  waits for a forward pass. `timeout` is in ms.
  """
  @spec get_stats(server(), timeout()) :: map()
  def get_stats(server, timeout \\ :infinity) do
    case Broker.ask(server, :get_stats, Options.argument!("the timeout", :timeout, timeout)) do
      {:error, error} -> raise error
      stats -> stats
    end
  end

  @doc """
  Returns the present options: those of `start_link/1`, with their defaults and the changes of `configure/2`.

      iex> {:ok, server} = Weir.Server.start_link(model_path: "fake:", temp: 0.5)
      iex> Weir.Server.configure(server, top_k: 7)
      iex> {:ok, %{temp: 0.5, top_k: 7, n_parallel: 4}} = Weir.Server.fetch_options(server)
  """
  @spec fetch_options(server()) :: {:ok, map()} | {:error, Error.t()}
  def fetch_options(server), do: Broker.ask(server, :options, :infinity)

  @doc """
  Changes options while requests run: defaults for requests, and options of the engine.

  Defaults, and a change from one Elixir strategy to another, apply at once. Any other change creates a new
  engine. Running requests end on the old one, which is then freed with its prefix cache; until then both use
  memory. After an error nothing has changed.

  Models and engines are loaded in a separate process while the server continues; changes run one at a time.
  `timeout` (`:infinity`) is how long to wait. The change takes effect even if the caller has given up.
  """
  @spec configure(server(), keyword()) :: :ok | {:error, Error.t()}
  def configure(server, opts) do
    {timeout, opts} = Deadline.pop!(opts, :infinity)
    given = opts |> renamed() |> Options.given!(own_options())
    _strategy = BatchStrategy.resolve!(Map.get(given, :batch_strategy, :balanced))
    Options.one_grammar!(given)
    Broker.ask(server, {:configure, given}, timeout)
  end
end
