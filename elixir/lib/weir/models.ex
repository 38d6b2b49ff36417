# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Models do
  @moduledoc """
  Several models by name that share a memory budget.

      children = [
        {Weir.Models,
         name: MyApp.Models,
         memory: 8_000_000_000,
         models: [
           [name: "chat", model_path: "chat.gguf", aliases: ["default"], pinned: true],
           [name: "code", model_path: "hf:owner/repo:Q4_K_M", n_ctx: 32_768, idle: 300_000],
           [name: "search", model_path: "embeddings.gguf"]
         ]}
      ]

      {:ok, text} = Weir.Models.generate(MyApp.Models, "code", "def add(", max_tokens: 40)
      {:ok, vector} = Weir.Models.embed(MyApp.Models, "search", "two words")

  The budget covers weights, KV cells, buffers, adapters and cached prefixes of all loaded models. A request
  for a model that is not loaded loads it. If memory is short, unused models are put to sleep, the least
  recently used first, but never pinned ones. The cached prefixes of a sleeping model are kept in a folder, so
  the next turn of a conversation finds them. Models in use stay loaded; requests that wait for memory are
  served in order of arrival.

      iex> {:ok, models} = Weir.Models.start_link(models: [[name: "a", model_path: "fake:", aliases: ["b"]]])
      iex> {:ok, text} = Weir.Models.generate(models, "a", "hello", max_tokens: 8, temp: 0.0)
      iex> text == models |> Weir.Models.stream("b", "hello", max_tokens: 8, temp: 0.0) |> Enum.join()
      true
      iex> {:ok, %{state: :loaded, n_loads: 1}} = Weir.Models.info(models, "a")
      iex> {:error, error} = Weir.Models.generate(models, "c", "hello")
      iex> {error.status, error.code}
      {404, :not_found}

  ## Options of `start_link/1`

    * `name`: as for `GenServer`
    * `models` ([]): the list, see below
    * `memory` (`:auto`: nine tenths of the available memory, and less when less is available later; 0: no
      limit): the budget in bytes
    * `cache_dir` (nil: a private folder that is removed at the end; `""`: none): for prefixes of models that
      sleep. It must belong to the user, with mode 0700.
    * `cache_disk_bytes` (4 GiB): maximum size of these files
    * `max_queue` (256; 0: no limit): leases that may wait; more get the error `:model_busy`

  ## The list

  Each model is a keyword list:

    * `name` and `model_path` (a file, or an `hf:` name that is already in the cache, see `Weir.Hub`), required
    * `aliases` ([]): other names
    * `pinned` (false): loaded at once, and never put to sleep
    * `idle` (0 ms: when memory is needed): put to sleep after so long without use
    * options of the model, of its engine and defaults for its requests, as those of `Weir.Server.start_link/1`,
      with these differences: `batch_strategy` is one of the names, `draft_model` and `lora` are paths, and the
      folder for prefixes is that of all models. `cache_bytes` (`:auto`) is a quarter of the rest of the model.

  ## Leases

  A lease keeps a model in memory for a process: see `lease/3`. The other functions take one for each call. A
  lease ends when it is released or its process ends. The model can sleep when the streams that were submitted
  with the lease have ended, too.

  `generate/4`, `stream/4`, `chat/4` and the others that answer are those of `Weir.Target` with a name. They take a
  lease for the call, of a stream when it is enumerated. Unless `timeout` is given, the model must be loaded within
  60_000 ms, for a stream 30_000 ms.

  Functions that take a `name` also take a lease. Codes of errors of models (`Weir.Error` lists all):
  `:not_found` (no model has this name), `:load_failed` (the message says why),
  `:too_large` (for the budget) and `:model_busy` (too many wait).

  When this process ends, waiting requests end with the error `:server_down`, and running answers go on to their
  ends; then the memory is freed.
  """

  use GenServer

  alias Weir.{Completion, Deadline, Embedding, Error, Generation, NIF, Options}
  alias Weir.Models.{Entry, Lease, Telemetry}
  alias Weir.Server.{Answer, Broker, Limits, Request}

  use Weir.Target, models: models(), name: name()

  @type models :: GenServer.server()
  @type name :: String.t() | Lease.t()

  @typedoc """
  A model. `state`: `:unloaded`, `:loading` (`progress` from 0.0 to 1.0), `:loaded`, `:sleeping`, `:leaving` or
  `:failed`, with the reason in `message`; the next request tries again. `kind`: `:text`, `:embedding` or
  `:ranking`, by its file; `:unknown` until that has been read. `n_bytes` of the budget, or what it
  would take; `n_leases`, `n_waiting`; `n_loads`, `n_failures`; `load_ms` of the last load; `n_ctx`; `pinned`.
  """
  @type info :: %{required(atom()) => term()}

  # ---- Starting ----

  @doc false
  def child_spec(opts) do
    %{
      id: opts |> Options.keywords!() |> Keyword.get(:name, __MODULE__),
      start: {__MODULE__, :start_link, [opts]}
    }
  end

  @doc "Starts the process. It loads the pinned models; the others are loaded when they are needed. Options: above."
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    {name, opts} = opts |> Options.keywords!() |> Keyword.split([:name])
    o = Options.read!(opts, [models: {:any, []}] ++ options())

    with {:ok, entries} <- Entry.read_all(o.models),
         do: GenServer.start_link(__MODULE__, {o, entries}, name)
  end

  defp options do
    Options.from("pool",
      ranges: [:queue_limit],
      own: [memory: {:auto_or_bytes, :auto}]
    )
  end

  # ---- The list ----

  @doc """
  Replaces the list. Unchanged models stay loaded. Other models of the former list get no new requests, and
  are unloaded when the present ones have ended. After an error nothing has changed.
  """
  @spec set(models(), [keyword()]) :: :ok | {:error, Error.t()}
  def set(models, list) do
    with {:ok, entries} <- Entry.read_all(list), do: Broker.ask(models, {:set, entries}, :infinity)
  end

  @doc "Pins a model, which loads it, or lets it sleep again."
  @spec pin(models(), String.t(), boolean()) :: :ok | {:error, Error.t()}
  def pin(models, name, pinned? \\ true) when is_boolean(pinned?),
    do: Broker.ask(models, {:pin, Lease.name!(name), pinned?}, :infinity)

  @doc "Loads a model as soon as there is memory for it, and returns at once. `info/2` has the progress."
  @spec load(models(), String.t()) :: :ok | {:error, Error.t()}
  def load(models, name), do: by_name(models, :pool_load, name)

  @doc """
  Unloads a model, also a pinned one, when its present leases have ended. Until then its state is `:leaving`, and
  new leases wait for its next load. Returns at once.
  """
  @spec unload(models(), String.t()) :: :ok | {:error, Error.t()}
  def unload(models, name), do: by_name(models, :pool_unload, name)

  @doc """
  Replaces the budget (`memory` of `start_link/1`). While the models exceed a smaller budget, unused ones are
  put to sleep, the least recently used first, but never pinned ones, and none is loaded.

      iex> {:ok, models} = Weir.Models.start_link(models: [[name: "a", model_path: "fake:"]])
      iex> Weir.Models.set_memory(models, 2_000_000_000)
      :ok
      iex> Weir.Models.get_stats(models).memory_bytes
      2_000_000_000
  """
  @spec set_memory(models(), non_neg_integer() | :auto) :: :ok | {:error, Error.t()}
  def set_memory(models, memory) do
    %{memory: memory} = Options.read!([memory: memory], memory: {:auto_or_bytes, :auto})
    Broker.ask(models, {:set_memory, memory}, :infinity)
  end

  @doc "All models, in the order of the list."
  @spec list(models()) :: [info()]
  def list(models), do: models |> Broker.ask(:list, :infinity) |> Error.ok!()

  @doc "The model with this name or alias."
  @spec info(models(), String.t()) :: {:ok, info()} | {:error, Error.t()}
  def info(models, name), do: by_name(models, :pool_find, name)

  defp by_name(models, function, name),
    do: Broker.ask(models, {:by_name, function, Lease.name!(name)}, :infinity)

  @doc """
  Counts of all models: `memory_bytes` (the budget) and `used_bytes`, `n_models`, `n_loaded`, `n_leases`,
  `n_waiting`, `n_loads`, `n_failures`, `n_sleeps`.
  """
  @spec get_stats(models()) :: map()
  def get_stats(models), do: models |> Broker.ask(:get_stats, :infinity) |> Error.ok!()

  # ---- Leases ----

  @doc """
  Waits until a model is loaded, and keeps it in memory for the calling process. `timeout` (60_000 ms, or
  `:infinity`): afterwards the error `:timeout`. A process that waits for a lease while it has another one may
  block itself until then, because its own lease may occupy the memory.

      iex> {:ok, models} = Weir.Models.start_link(models: [[name: "a", model_path: "fake:"]])
      iex> {:ok, lease} = Weir.Models.lease(models, "a")
      iex> {:ok, ids} = Weir.Tokenizer.encode(lease.model, "hi")
      iex> {:ok, _text} = Weir.Models.generate(models, lease, ids, max_tokens: 2)
      iex> Weir.Models.release(lease)
      :ok
  """
  @spec lease(models(), String.t(), keyword()) :: {:ok, Lease.t()} | {:error, Error.t()}
  def lease(models, name, opts \\ []) do
    {timeout, opts} = Deadline.pop!(opts, 60_000)
    %{} = Options.read!(opts, [])
    Lease.take(models, name, Deadline.at(timeout))
  end

  @doc """
  Ends a lease. Afterwards its model raises `ArgumentError`. Calls of this module and streams that started with
  the lease continue to their ends.
  """
  @spec release(Lease.t()) :: :ok
  def release(%Lease{ref: ref}), do: NIF.lease_release(ref)

  # ---- Texts ----

  @impl Weir.Target
  @doc false
  # In a short-lived process, which holds the lease: what was made of the model ends with it.
  def whole({models, name}, input, opts) do
    {options, given} = Request.given!(opts, 60_000)
    limits = Limits.whole(options)

    Generation.elsewhere(fn ->
      Lease.use(models, name, limits, fn lease ->
        with {:ok, [request]} <- Lease.submit(lease, input, given, :generate, 1, limits),
             do: Answer.gather(request)
      end)
    end)
  end

  @impl Weir.Target
  @doc false
  def chunks({models, name}, input, opts, submission) do
    {options, given} = Request.given!(opts, 30_000)
    Broker.here!(models)

    Lease.stream(models, name, options, fn lease, limits ->
      open = fn ->
        with {:ok, [request]} <- Lease.submit(lease, input, given, :stream, 1, limits), do: {:ok, request}
      end

      Answer.chunks(open, &Answer.begun(&1, submission, nil))
    end)
  end

  @impl Weir.Target
  @doc false
  def completion({models, name}, messages, opts) do
    {o, options, given} = Completion.read!(opts, &Request.given!(&1, 60_000))
    limits = Limits.whole(options)

    Generation.elsewhere(fn ->
      Lease.use(models, name, limits, fn lease ->
        with {:ok, completion} <- open(lease, messages, o, given, :generate, limits),
             do: Completion.whole(completion)
      end)
    end)
  end

  @impl Weir.Target
  @doc false
  def completion_chunks({models, name}, messages, opts) do
    {o, options, given} = Completion.read!(opts, &Request.given!(&1, 30_000))

    Lease.stream(models, name, options, fn lease, limits ->
      Completion.stream(fn -> open(lease, messages, o, given, :stream, limits) end)
    end)
  end

  defp open(lease, messages, o, given, mode, limits) do
    Completion.open(lease.model, messages, o, fn chat ->
      Lease.submit(lease, chat, given, mode, o.n, limits)
    end)
  end

  # The context of the call is not part of the budget.
  @impl Weir.Target
  @doc false
  def vectors({models, name}, text_or_texts, opts) do
    Embedding.vectors(text_or_texts, opts, 60_000, fn texts, o, deadline ->
      compute = &Embedding.within(&1.model, texts, o, deadline)
      Generation.elsewhere(fn -> Lease.use(models, name, Limits.until(deadline), compute) end)
    end)
  end

  # ---- The process ----

  # entries: in the order of the list. The native pool is freed when this process and all leases have ended.
  @impl true
  def init({o, entries}) do
    given = %{memory_bytes: o.memory, queue_limit: o.max_queue}

    with {:ok, pool} <- NIF.pool_create(Map.merge(given, Map.take(o, [:cache_dir, :cache_disk_bytes]))),
         :ok <- set_native(pool, entries) do
      {:ok, %{pool: pool, entries: entries, telemetry: Telemetry.start()}}
    else
      {:error, error} -> {:stop, error}
    end
  end

  # Others wait for this process and its models: no message of a caller may end it.
  @impl true
  def handle_call(call, _from, state) do
    answer(call, state)
  rescue
    error ->
      {:reply, {:error, Error.new({:invalid, "the call is invalid: " <> Exception.message(error)})}, state}
  end

  @impl true
  def handle_cast(_other, state), do: {:noreply, state}

  @impl true
  def handle_info({Telemetry, :look}, state),
    do:
      {:noreply,
       %{state | telemetry: Telemetry.look(state.telemetry, infos(state), NIF.pool_stats(state.pool))}}

  def handle_info(_other, state), do: {:noreply, state}

  defp answer({:lease, name, timeout, pid, ref}, state) do
    case NIF.lease_create(state.pool, name, timeout, pid, ref) do
      {:ok, lease} -> {:reply, {:ok, lease, Entry.find(state.entries, name)}, state}
      error -> {:reply, error, state}
    end
  end

  defp answer({:set, entries}, state), do: set_all(state, entries)

  defp answer({:pin, name, pinned?}, state) do
    case Entry.find(state.entries, name) do
      nil -> {:reply, {:error, Error.new({:not_found, "no model has this name"}, "name")}, state}
      found -> set_all(state, Enum.map(state.entries, &if(&1 == found, do: Entry.pin(&1, pinned?), else: &1)))
    end
  end

  defp answer({:by_name, function, name}, state) when function in [:pool_load, :pool_unload, :pool_find],
    do: {:reply, apply(NIF, function, [state.pool, name]), state}

  defp answer({:set_memory, memory}, state),
    do: {:reply, NIF.pool_set_memory(state.pool, %{memory_bytes: memory}), state}

  defp answer(:list, state), do: {:reply, {:ok, infos(state)}, state}

  defp answer(:get_stats, state), do: {:reply, {:ok, NIF.pool_stats(state.pool)}, state}
  defp answer(_other, state), do: {:reply, {:error, Error.new(:unknown_call)}, state}

  defp infos(state) do
    for {_entry, i} <- Enum.with_index(state.entries),
        {:ok, info} <- [NIF.pool_get(state.pool, i)],
        do: info
  end

  defp set_all(state, entries) do
    case set_native(state.pool, entries) do
      :ok -> {:reply, :ok, %{state | entries: entries}}
      error -> {:reply, error, state}
    end
  end

  defp set_native(pool, entries) do
    NIF.pool_set(pool, Enum.map(entries, fn %Entry{native: native} -> native end))
  end
end
