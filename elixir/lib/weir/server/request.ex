defmodule Weir.Server.Request do
  @moduledoc false
  # The consumer's side of a request. The server only says which engine to ask; prompt, chunks and their back pressure
  # go between the consumer and that. Without a server, an engine of its own.

  alias Weir.{Adapter, JSON, Model, NIF, Options, Tokenizer}
  alias Weir.Server.Driver

  # Chunks that may be in the mailbox; half of them are asked for again when they were taken.
  @window 16

  # Nobody reads before the end: the engine emits the first token and the end only.
  @interval 1_000_000_000

  # server, key and monitor: nil without a server. logprobs: whether chunks have scores.
  @enforce_keys [:ref, :model, :logprobs]
  defstruct [:ref, :model, :logprobs, :server, :key, :monitor, taken: 0]

  @doc "Options of one request, as `{type, default}`."
  def options do
    [
      max_tokens: {:integer, 256},
      stop: {{:list, :string}, []},
      priority: {{:range, -100..100}, 0},
      deadline: {{:maybe, {:range, 1..0x7FFFFFFF}}, nil},
      cache_prompt: {:boolean, true},
      cache_salt: {{:maybe, :string}, nil},
      lora: {:adapters, []}
    ] ++ logprobs() ++ Options.sampler()
  end

  def logprobs, do: [logprobs: {:boolean, false}, top_logprobs: {{:range, 0..20}, 0}]

  @doc "As `NIF.engine_submit/4` wants them. What is nil stays the library's default."
  def to_engine(o) do
    one_grammar!(o)

    if o.top_logprobs > 0 and not o.logprobs do
      raise ArgumentError, "option :top_logprobs needs logprobs: true"
    end

    o
    |> Map.take([
      :max_tokens,
      :stop,
      :priority,
      :cache_prompt,
      :cache_salt,
      :seed,
      :temp,
      :top_k,
      :top_p,
      :min_p,
      :penalty_repeat,
      :penalty_freq,
      :penalty_present,
      :grammar,
      :json_schema,
      :logprobs
    ])
    |> Map.put(:n_logprobs, o.top_logprobs)
    |> Map.put(:deadline_ms, o.deadline)
    |> Map.put(:grammar_root, o.grammar && o.grammar_root)
    |> Map.update!(:json_schema, &(&1 && JSON.encode!(&1)))
    |> Map.reject(fn {_name, value} -> value == nil end)
  end

  def one_grammar!(o) do
    if o[:grammar] != nil and o[:json_schema] != nil do
      raise ArgumentError, "give either :grammar or :json_schema, not both"
    end
  end

  @doc "Submits. `mode` is `:generate` (one chunk, at the end) or `:stream`."
  def start(server, prompt, given, id, mode) do
    prompt!(prompt)
    with {:ok, [request]} <- start_n(server, prompt, given, id, mode, 1), do: {:ok, request}
  end

  @doc "The same for n answers, all or none; the prompt may be a `NIF.chat`."
  def start_n(server, prompt, given, id, mode, n) do
    case GenServer.call(server, {:begin, mode, id, n}, :infinity) do
      {:ok, session} -> submit(session, prompt, given, mode, n)
      {:error, reason} -> {:error, reason}
    end
  end

  defp prompt!(prompt) when is_binary(prompt), do: :ok

  defp prompt!(prompt) do
    if not is_list(prompt) or not Enum.all?(prompt, &is_integer/1) do
      raise ArgumentError, "a prompt is a text or a list of token ids, got: #{inspect(prompt)}"
    end
  end

  defp submit(session, prompt, given, mode, n) do
    o = merge(session.defaults, given)

    case submit_n(session.model, session.engine, prompt, o, mode, n) do
      {:ok, refs} ->
        for {ref, key} <- Enum.zip(refs, session.keys),
            do: GenServer.cast(session.server, {:running, key, ref})

        Driver.work(session.driver)

        {:ok,
         for {ref, key} <- Enum.zip(refs, session.keys) do
           %__MODULE__{
             ref: ref,
             model: session.model,
             logprobs: o.logprobs,
             server: session.server,
             key: key,
             monitor: Process.monitor(session.server)
           }
         end}

      {:error, reason} ->
        ended(session, {:error, reason})
        {:error, reason}
    end
  rescue
    error ->
      ended(session, {:error, Exception.message(error)})
      reraise error, __STACKTRACE__
  end

  defp ended(session, outcome) do
    Enum.each(session.keys, &GenServer.cast(session.server, {:ended, &1, outcome}))
  end

  defp submit_n(model, engine, prompt, o, mode, n) do
    {demand, interval} = if mode == :stream, do: {@window, 1}, else: {:infinity, @interval}

    with {:ok, adapters} <- Adapter.uses(model, o.lora) do
      own = %{prompt: prompt, interval: interval, adapters: adapters}
      NIF.engine_submit_n(engine, Map.merge(to_engine(o), own), n, self(), demand)
    end
  end

  @doc "Submits to an engine that is made for this. `o` has options of `options/0` and `Options.generation/0`."
  def alone(%Model{} = model, chat, o, mode, n) do
    o = Map.merge(Options.read!([], options()), o)

    with {:ok, tokens} <- Tokenizer.encode(model, NIF.chat_prompt(chat)),
         {:ok, engine} <- NIF.engine_create(model.ref, engine_options(length(tokens), o, n)),
         {:ok, refs} <- submit_n(model, engine, chat, o, mode, n) do
      {:ok, for(ref <- refs, do: %__MODULE__{ref: ref, model: model, logprobs: o.logprobs})}
    end
  end

  defp engine_options(n_prompt, o, n) do
    n_ctx = max(o.n_ctx, n_prompt + max(o.max_tokens, 0))

    o
    |> Map.take([:n_ubatch, :n_threads, :n_threads_batch])
    |> Map.merge(%{
      n_slots: n,
      n_ctx: n_ctx,
      n_batch: max(if(o.n_batch == 0, do: n_ctx, else: o.n_batch), n)
    })
  end

  @doc "What is given replaces the server's; a grammar replaces a schema, and the other way round."
  def merge(defaults, %{grammar: grammar} = given) when grammar != nil,
    do: %{defaults | json_schema: nil} |> Map.merge(given)

  def merge(defaults, %{json_schema: schema} = given) when schema != nil,
    do: %{defaults | grammar: nil} |> Map.merge(given)

  def merge(defaults, given), do: Map.merge(defaults, given)

  @doc """
  What comes next: `{:chunk, ids, text, scores, request}`, `{:done, reason, usage}`, or `{:error, reason}`. After the last
  two the request is over, and has left no message. `scores` are nil where nobody asked for logprobs.
  """
  def next(%__MODULE__{ref: ref, monitor: monitor} = request, timeout) do
    receive do
      {^ref, message} ->
        took(request, message)

      {:DOWN, ^monitor, :process, _pid, reason} ->
        close(request)
        {:error, {:server_down, reason}}
    after
      timeout ->
        close(request, {:error, :timeout})
        {:error, :timeout}
    end
  end

  defp took(request, {:chunk, ids, text}), do: {:chunk, ids, text, nil, demand(request)}

  defp took(request, {:chunk, ids, text, scores}),
    do: {:chunk, ids, text, scores, demand(request)}

  # {:done, reason, usage} or {:error, reason}
  defp took(request, outcome) do
    finish(request, outcome)
    outcome
  end

  @doc "Several requests, for the next four functions."
  def together(requests), do: Enum.reduce(requests, %{}, &again(&2, &1))

  @doc "With a request as it is now; and without one that is over."
  def again(together, %{monitor: nil} = request), do: Map.put(together, request.ref, request)

  def again(together, request),
    do: together |> Map.put(request.ref, request) |> Map.put(request.monitor, request)

  def without(together, ref) do
    {request, together} = Map.pop!(together, ref)
    Map.delete(together, request.monitor)
  end

  @doc """
  What comes next to any of them: `{ref, what}`, see `next/2`; or `{:error, reason}`, and then all are over.
  """
  def next_of(together, timeout) do
    receive do
      {ref, message} when is_map_key(together, ref) ->
        case took(Map.fetch!(together, ref), message) do
          {:error, reason} ->
            together |> without(ref) |> close_all()
            {:error, reason}

          what ->
            {ref, what}
        end

      {:DOWN, monitor, :process, _pid, reason} when is_map_key(together, monitor) ->
        close_all(together)
        {:error, {:server_down, reason}}
    after
      timeout ->
        close_all(together, {:error, :timeout})
        {:error, :timeout}
    end
  end

  def close_all(together, outcome \\ {:done, :halted}) do
    for {ref, %{ref: ref} = request} <- together, do: close(request, outcome)
    :ok
  end

  defp demand(%{taken: taken} = request) when taken < div(@window, 2) - 1,
    do: %{request | taken: taken + 1}

  defp demand(request) do
    NIF.engine_demand(request.ref, div(@window, 2))
    %{request | taken: 0}
  end

  @doc "Ends the request wherever it is. No message is left, and none follows."
  def close(%__MODULE__{} = request, outcome \\ {:done, :halted}) do
    NIF.engine_close(request.ref)
    flush(request.ref)
    finish(request, outcome)
  end

  defp flush(ref) do
    receive do
      {^ref, _} -> flush(ref)
    after
      0 -> :ok
    end
  end

  defp finish(%{server: nil}, _outcome), do: :ok

  defp finish(request, outcome) do
    Process.demonitor(request.monitor, [:flush])
    GenServer.cast(request.server, {:ended, request.key, outcome})
  end
end
