# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Request do
  @moduledoc false
  # The consumer's side of a request. The server only names the engine; the consumer sends it the prompt, and
  # gets the chunks with back pressure. Without a server it has its own engine.

  alias Weir.{Adapter, Deadline, Error, NIF, Options, Target}
  alias Weir.Server.{Broker, Driver, Flight, Limits, Telemetry}

  # The maximum number of chunks in the mailbox. When half of them were taken, as many are demanded again.
  @window 16

  # A caller that waits for the whole answer gets the first token and the rest at the end.
  @interval 1_000_000_000

  # The engine draws one.
  @no_seed 0xFFFFFFFF

  # server, key and monitor: nil without a server. model: of a server, a lease until the request's end. logprobs:
  # whether chunks have scores. flight: the sender; nil: the engine. held: the newest ids with their scores, whose
  # text has not come yet. asker: the monitor of the process without which nobody gets the answer, see
  # Target.watch/0.
  @enforce_keys [:ref, :model, :logprobs, :limits]
  defstruct [
    :ref,
    :model,
    :logprobs,
    :server,
    :key,
    :monitor,
    :flight,
    :asker,
    :limits,
    taken: 0,
    held: []
  ]

  @typedoc "A text, token ids, a `NIF.chat`, or a fork of the request `id` after `at` tokens (-1: all)."
  @type prompt ::
          String.t() | [integer()] | NIF.chat() | {:fork, term()} | {:fork, term(), integer()}

  @logprobs [:logprobs, :prompt_logprobs, :n_prompt_logprobs]
  @texts_and_tokens [:stop, :stop_tokens, :allowed_tokens, :bad_words]

  @doc "Options of one request, as `{type, default}`."
  def options do
    Options.from("request",
      except: [:source_at, :n_logprobs | @logprobs],
      ranges: [
        :priority,
        :n_draft_max,
        :cache_keep_ms,
        :itl_target_ms,
        :reasoning_budget,
        :min_tokens,
        :truncate_prompt
      ],
      defaults: [max_tokens: 256],
      own: [
        deadline: {{:maybe, {:range, 1..0x7FFFFFFF}}, nil},
        interval: {{:range, 1..0x7FFFFFFF}, 1},
        stop: {{:list, :binary, 64}, []},
        stop_tokens: {{:list, :integer, 256}, []},
        allowed_tokens: {{:list, :integer, 1_048_576}, []},
        bad_words: {{:list, :string, 128}, []},
        cache_salt: {{:maybe, :binary}, nil},
        progress: {:boolean, false},
        lora: {:adapters, []}
      ]
    ) ++ logprobs() ++ Options.sampler()
  end

  def logprobs do
    Options.from("request",
      only: [:n_logprobs | @logprobs],
      ranges: [:n_logprobs, :n_prompt_logprobs]
    )
  end

  @typedoc """
  How to run a request: `mode` is `:generate` (one chunk, at the end) or `:stream`; `n` is the number of
  answers, all or none of which start; `share`: another caller may share the answer; `limits`: how long the
  caller waits.
  """
  @type how :: %{
          id: term(),
          mode: :generate | :stream,
          n: pos_integer(),
          share: boolean(),
          limits: Limits.t()
        }

  @doc "The options of the limits, and the given options of a call. `timeout` is the default."
  @spec given!(keyword(), timeout()) :: {Limits.options(), map()}
  def given!(opts, timeout) do
    {limits, opts} = Limits.split!(opts, timeout)
    {limits, Options.given!(opts, options())}
  end

  @doc "The request for `NIF.engine_submit/4`. nil means the library's default."
  def to_engine(o) do
    if o.top_logprobs > 0 and not o.logprobs do
      raise ArgumentError, "option :top_logprobs needs logprobs: true"
    end

    o
    |> Map.take([:cache_salt, :adapters, :progress | @texts_and_tokens ++ Options.names("request")])
    |> Map.put(:n_logprobs, o.top_logprobs)
    |> Map.put(:deadline_ms, o.deadline)
    |> Map.put(:itl_target_ms, o.itl_target)
    |> Map.merge(Options.sampling(o))
    |> Map.reject(fn {_name, value} -> value == nil end)
  end

  @doc "Submits."
  @spec start(GenServer.server(), prompt(), map(), how()) :: {:ok, [struct()]} | {:error, Error.t()}
  def start(server, prompt, given, how) do
    prompt!(prompt)
    Broker.here!(server)
    tag = make_ref()

    fork = if is_tuple(prompt), do: {:id, elem(prompt, 1)}
    asked = %{mode: how.mode, id: how.id, n: how.n, tag: tag, fork: fork}

    case Broker.ask(server, {:begin, asked}, left(how)) do
      {:ok, session} ->
        submit(session, prompt, given, how)

      {:error, error} ->
        if error.code == :timeout, do: GenServer.cast(server, {:forget, tag})
        {:error, error}
    end
  end

  defp left(how), do: how.limits |> Limits.start() |> elem(0) |> Deadline.left()

  @doc "Raises an `ArgumentError` unless the term is a text, token ids or a chat."
  @spec plain!(term()) :: :ok
  def plain!(prompt) do
    if not (is_binary(prompt) or is_reference(prompt) or Options.valid?({:list, :integer}, prompt)) do
      raise ArgumentError, "a prompt is a text or a list of token ids, got: #{inspect(prompt)}"
    end

    :ok
  end

  @doc "Raises an `ArgumentError` unless the term is a prompt."
  @spec prompt!(term()) :: :ok
  def prompt!(prompt) when is_binary(prompt) or is_reference(prompt), do: :ok
  def prompt!({:fork, _id}), do: :ok
  def prompt!({:fork, _id, at}) when is_integer(at) and at >= -1 and at < 0x80000000, do: :ok

  def prompt!(prompt) do
    if not Options.valid?({:list, :integer}, prompt) do
      raise ArgumentError,
            "a prompt is a text, a list of token ids, {:fork, id} or {:fork, id, at}, got: #{inspect(prompt)}"
    end
  end

  # The prompt, or the source of a fork.
  defp prompt({:fork, id}, session), do: prompt({:fork, id, -1}, session)
  defp prompt({:fork, _id, at}, session), do: %{source: session.source, source_at: at}
  defp prompt(prompt, _session), do: %{prompt: prompt}

  defp submit(session, prompt, given, how) do
    case Error.map_ok(session.keys, fn _key -> Broker.lease(session.shared) end) do
      {:ok, models} ->
        submit_with(Map.put(session, :models, models), prompt, merge(session.defaults, given), how)

      error ->
        ended(session.keys, session.server, error)
        error
    end
  end

  defp submit_with(session, prompt, o, how) do
    with {:ok, o} <- adapted(hd(session.models), o),
         {:ok, requests} <- submit_or_join(session, prompt, o, how) do
      {:ok, requests}
    else
      error ->
        failed(session, error)
        error
    end
  rescue
    error ->
      failed(session, {:error, Error.new({:invalid, Exception.message(error)})})
      reraise error, __STACKTRACE__
  end

  defp submit_or_join(session, prompt, o, how) do
    if how.share and how.n == 1 and shareable?(prompt, o),
      do: join(session, prompt, o, how),
      else: submit_alone(session, prompt, o, how)
  end

  defp submit_alone(session, prompt, o, how) do
    prompt = Map.put(prompt(prompt, session), :keep, how.id != nil)

    with {:ok, refs} <- submit_n(session.engine, prompt, o, how.mode, how.n) do
      for {ref, key} <- Enum.zip(refs, session.keys),
          do: GenServer.cast(session.server, {:running, key, ref})

      Driver.work(session.driver)
      {:ok, Enum.zip_with([refs, session.keys, session.models], &request(session, o, how.limits, &1))}
    end
  end

  defp request(session, o, limits, [ref, key, model]) do
    %__MODULE__{
      limits: limits,
      ref: ref,
      model: model,
      logprobs: o.logprobs,
      server: session.server,
      key: key,
      monitor: Process.monitor(session.server),
      asker: Target.watch()
    }
  end

  # The conditions of weir_flight_open: a deterministic answer; no scores of the prompt.
  defp shareable?(prompt, o) do
    (is_binary(prompt) or is_list(prompt)) and deterministic?(o) and not o.prompt_logprobs and
      o.n_prompt_logprobs == 0
  end

  # Greedy without random samplers, or with a seed; no deadline.
  defp deterministic?(o) do
    greedy? =
      o.temp == 0 and
        Enum.all?([:mirostat, :adaptive_target, :order, :xtc_probability], &(o[&1] == nil))

    (greedy? or o.seed != @no_seed) and o.deadline == nil
  end

  defp join(session, prompt, o, how) do
    {demand, _interval} = flow(how.mode, o)
    request = o |> to_engine() |> Map.delete(:progress) |> Map.put(:prompt, prompt)
    %{keys: [key], models: [model]} = session
    ref = Flight.ref()
    call = {:join, session.number, request, key, ref, demand}

    case Broker.ask(session.server, call, left(how)) do
      {:ok, flight} ->
        {:ok, [%{request(session, o, how.limits, [ref, key, model]) | flight: flight}]}

      error ->
        Flight.close(ref)
        flush(ref)
        error
    end
  end

  defp failed(session, error) do
    Enum.each(session.models, &release/1)
    ended(session.keys, session.server, error)
  end

  defp ended(keys, server, outcome), do: Enum.each(keys, &GenServer.cast(server, {:ended, &1, outcome}))

  @doc "A request of the calling process to an engine without a server."
  @spec own(reference(), Weir.Model.t(), boolean(), Limits.t()) :: struct()
  def own(ref, model, logprobs, limits),
    do: opened(%__MODULE__{ref: ref, model: model, logprobs: logprobs, limits: limits, asker: Target.watch()})

  # It has one event of its end, however often it is closed.
  defp opened(%{ref: ref} = request) do
    if Telemetry.heard?(), do: Process.put({__MODULE__, ref}, true)
    request
  end

  @doc "Adds the native adapters for the option :lora."
  def adapted(model, o) do
    with {:ok, adapters} <- Adapter.uses(model, o.lora),
         do: {:ok, Map.put(o, :adapters, adapters)}
  end

  @doc "Submits `%{prompt: _}`, or a fork's source, to an engine for the process `to`."
  def submit_n(engine, prompt, o, mode, n, to \\ self()) do
    # a fork continues what has come in chunks
    {demand, interval} = flow(if(prompt[:keep], do: :stream, else: mode), o)
    request = o |> to_engine() |> Map.merge(prompt) |> Map.put(:interval, interval)
    NIF.engine_submit_n(engine, request, n, to, demand)
  end

  defp flow(:stream, o), do: {@window, o.interval}
  defp flow(:generate, _o), do: {:infinity, @interval}

  @doc "Given options replace the server's. A grammar also replaces a schema, and vice versa."
  def merge(defaults, %{grammar: grammar} = given) when grammar != nil,
    do: %{defaults | json_schema: nil} |> Map.merge(given)

  def merge(defaults, %{json_schema: schema} = given) when schema != nil,
    do: %{defaults | grammar: nil} |> Map.merge(given)

  def merge(defaults, given), do: Map.merge(defaults, given)

  @doc """
  The next event: `{:chunk, ids, text, scored, request}`, `{:prompt, scored}`, `{:progress, map, request}`,
  `{:done, reason, usage}` or `{:error, error}`. After the last two the request has ended and left no message.
  `scored` has the ids whose text has come, with their scores (see `rest/2`); it is nil if no logprobs were
  requested.
  """
  @spec next(struct()) :: tuple()
  def next(%__MODULE__{limits: limits} = request) do
    since = Limits.now()
    next(request, since, Limits.first_wait(limits, since))
  end

  defp next(%{ref: ref, monitor: monitor, asker: asker} = request, since, wait) do
    receive do
      {^ref, message} ->
        took(request, message)

      {:DOWN, ^monitor, :process, _pid, reason} ->
        close(request)
        {:error, Error.new({:server_down, reason})}

      {:DOWN, ^asker, :process, _pid, reason} ->
        close(request, {:exit, reason})
        {:error, Error.new(:cancelled)}
    after
      wait ->
        case Limits.check(request.limits, place(request), since) do
          {:wait, wait} ->
            next(request, since, wait)

          {:over, reason} ->
            error = {:error, Error.new(reason)}
            close(request, error)
            error
        end
    end
  end

  # Nobody waits longer for a shared answer because it began earlier.
  defp place(%{flight: nil} = request), do: place_of(request.ref)

  defp place(request) do
    waited = Limits.now() - request.limits.from

    case Flight.place(request.flight) do
      :queued -> :queued
      {:prefilling, ms} -> {:prefilling, min(ms, waited)}
      {:running, ms, after_first} -> {:running, min(ms, waited), min(after_first, waited)}
    end
  end

  @doc "Where a request of the engine is. It ends as a running one."
  @spec place_of(reference()) :: Limits.place()
  def place_of(ref) do
    progress = NIF.engine_progress(ref)
    usage = NIF.engine_usage(ref)

    case progress do
      %{started: false} -> :queued
      %{prefill_ns: ns} when usage.ttft_ns == 0 -> {:prefilling, ms(ns)}
      _running_or_ended -> {:running, ms(usage.total_ns - usage.queue_ns), after_first(usage)}
    end
  end

  defp after_first(%{ttft_ns: 0}), do: 0
  defp after_first(usage), do: ms(usage.total_ns - usage.ttft_ns)

  defp ms(ns), do: div(ns, 1_000_000)

  defp took(request, {:chunk, ids, text}), do: {:chunk, ids, text, nil, demand(request)}

  defp took(request, {:chunk, ids, text, scores, n_hidden}) do
    scored = request.held ++ Enum.zip(ids, scores)
    {shown, held} = Enum.split(scored, length(scored) - n_hidden)
    {:chunk, ids, text, shown, demand(%{request | held: held})}
  end

  defp took(_request, {:prompt, ids, scores}), do: {:prompt, Enum.zip(ids, scores)}

  defp took(request, {:progress, map}), do: {:progress, map, demand(request)}

  # {:done, reason, usage} or {:error, error}
  defp took(request, outcome) do
    if request.flight, do: Flight.close(request.ref)
    finish(request, outcome)
    outcome
  end

  @doc "The scored ids that come with the end, if there are any: those of a stop text are not the answer's."
  def rest(_request, :stop_words), do: nil
  def rest(%__MODULE__{held: []}, _reason), do: nil
  def rest(%__MODULE__{held: held}, _reason), do: held

  @doc "A set of requests for the next four functions."
  def together(requests), do: Enum.reduce(requests, %{}, &again(&2, &1))

  @doc "Adds or updates a request."
  def again(together, request),
    do: Enum.reduce(keys(request), together, &Map.put(&2, &1, request))

  def without(together, ref), do: Map.drop(together, together |> Map.fetch!(ref) |> keys())

  defp keys(request), do: Enum.reject([request.ref, request.monitor, request.asker], &is_nil/1)

  @doc """
  The next event of any of them: `{ref, event}`, see `next/1`; or `{:error, error}`, after which all have
  ended.
  """
  def next_of(together) do
    since = Limits.now()
    next_of(together, since, for({_key, r} <- together, do: Limits.first_wait(r.limits, since)))
  end

  defp next_of(together, since, waits) do
    receive do
      {ref, message} when is_map_key(together, ref) ->
        case took(Map.fetch!(together, ref), message) do
          {:error, error} ->
            together |> without(ref) |> close_all()
            {:error, error}

          what ->
            {ref, what}
        end

      {:DOWN, monitor, :process, _pid, reason} when is_map_key(together, monitor) ->
        asker? = together[monitor].asker == monitor
        close_all(together)
        {:error, Error.new(if(asker?, do: :cancelled, else: {:server_down, reason}))}
    after
      Enum.min(waits) ->
        checks = for {ref, %{ref: ref} = r} <- together, do: Limits.check(r.limits, place(r), since)

        case Enum.find(checks, &match?({:over, _reason}, &1)) do
          {:over, reason} ->
            error = {:error, Error.new(reason)}
            close_all(together, error)
            error

          nil ->
            next_of(together, since, for({:wait, wait} <- checks, do: wait))
        end
    end
  end

  def close_all(together, outcome \\ {:done, :halted}) do
    for {ref, %{ref: ref} = request} <- together, do: close(request, outcome)
    :ok
  end

  defp demand(%{taken: taken} = request) when taken < div(@window, 2) - 1, do: %{request | taken: taken + 1}

  defp demand(request) do
    n = div(@window, 2)

    if request.flight,
      do: Flight.demand(request.flight, request.ref, n),
      else: NIF.engine_demand(request.ref, n)

    %{request | taken: 0}
  end

  @doc "Ends the request in any state. No message is left, and none follows."
  def close(%__MODULE__{} = request, outcome \\ {:done, :halted}) do
    if request.flight,
      do: Flight.close(request.ref),
      else: native_close(request.ref)

    flush(request.ref)
    finish(request, outcome)
  end

  # These two fail for a handle of a native library that another file has replaced.
  defp native_close(ref) do
    NIF.engine_close(ref)
  rescue
    ArgumentError -> :ok
  end

  defp release(model) do
    NIF.lease_release(model.ref)
  rescue
    ArgumentError -> :ok
  end

  defp flush(ref) do
    receive do
      {^ref, _} -> flush(ref)
    after
      0 -> :ok
    end
  end

  defp finish(request, outcome) do
    Target.unwatch(request.asker)
    leave(request, outcome)
  end

  defp leave(%{server: nil, ref: ref}, outcome) do
    if Process.delete({__MODULE__, ref}) do
      {event, measured, metadata} = Telemetry.outcome(outcome, ref)
      Telemetry.execute([:request, event], measured, metadata)
    end

    :ok
  end

  defp leave(request, outcome) do
    Process.demonitor(request.monitor, [:flush])
    release(request.model)
    ended([request.key], request.server, outcome)
  end
end
