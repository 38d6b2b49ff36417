# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Broker do
  @moduledoc false
  # The process of a server. It names the engine for each request and records which requests run where.
  # Prompts and answers do not pass through it: callers and engine exchange them directly.

  use GenServer
  require Logger

  alias Weir.{Deadline, Error, Model, NIF}
  alias Weir.Server.{BatchStrategy, Driver, Embedder, Engine, Flight, Loader, Request, Telemetry}

  # between two reports of ticks, while there are requests
  @ticks_ms 50

  # shared: the model for requests, which ends with this process. current: the number of the engine for new requests. engines: by number; a former one stays until its last
  # request has ended. requests: by the monitor of their consumer. flights: those that readers may still join,
  # by engine and request. draft: {path, model} of the last draft model that was loaded from a path. loading:
  # {loader, :start}, or {loader, from} for a change of options. load: the reference of its messages, and how far
  # the first model is. waiting: {from, call} until the model is
  # loaded, newest first. changes: {from, given}, queued behind the one in progress.
  defstruct [
    :model,
    :shared,
    :options,
    :current,
    :embedder,
    :loading,
    :load,
    telemetry: false,
    stopping: false,
    draft: nil,
    polling: false,
    seq: 0,
    n_shared: 0,
    engines: %{},
    requests: %{},
    flights: %{},
    waiting: [],
    changes: :queue.new(),
    # couriers that were cancelled before they began, with their monitors
    doomed: %{}
  ]

  @doc "`source`: a `Weir.Model` or a path. `o`: a server's options, except its name, which is in `opts`."
  @spec start_link(Model.t() | Path.t(), map(), keyword()) :: GenServer.on_start()
  def start_link(source, o, opts), do: GenServer.start_link(__MODULE__, {source, o}, opts)

  @doc "Returns the server's reply, or an error: `:timeout` or `:server_down`."
  @spec ask(GenServer.server(), term(), timeout()) :: term()
  def ask(server, call, timeout) do
    GenServer.call(server, call, timeout)
  catch
    :exit, {:timeout, {GenServer, :call, _}} -> {:error, Error.new(:timeout)}
    :exit, {reason, {GenServer, :call, _}} -> {:error, Error.new({:server_down, reason})}
  end

  @doc """
  The server's model for the calling process, until that calls `NIF.lease_release/1` or ends. What the process
  then still refers to does not keep the model in memory.
  """
  @spec model(GenServer.server(), Deadline.t()) :: {:ok, Model.t()} | {:error, Error.t()}
  def model(server, deadline) do
    here!(server)
    with {:ok, shared} <- ask(server, :shared, Deadline.left(deadline)), do: lease(shared)
  end

  @doc "The same from the model that the server has shared."
  @spec lease(Model.t()) :: {:ok, Model.t()} | {:error, Error.t()}
  def lease(%Model{ref: shared}) do
    with {:ok, ref} <- NIF.lease_share(shared, self()), do: {:ok, %Model{ref: ref}}
  rescue
    # the server has ended
    ArgumentError -> {:error, Error.new(:stopping)}
  end

  @doc "Raises for a server on another node, because models and streams belong to one node."
  @spec here!(GenServer.server()) :: :ok
  def here!(server) do
    case GenServer.whereis(server) do
      nil -> :ok
      pid when is_pid(pid) and node(pid) == node() -> :ok
      pid when is_pid(pid) -> elsewhere!(server, node(pid))
      {_name, node} -> elsewhere!(server, node)
    end
  end

  defp elsewhere!(server, node) do
    raise ArgumentError,
          "the server #{inspect(server)} is on the node #{node}, and its requests begin there; call this " <>
            "function on that node"
  end

  # ---- Starting ----

  @impl true
  def init({source, o}) do
    Process.flag(:trap_exit, true)
    {server, ref} = {self(), make_ref()}
    later? = Loader.remote?(source, o) or not o.await
    tell = if later?, do: {server, ref}
    # before the load, which may hold the last scheduler that the VM finds modules with
    telemetry = Telemetry.loaded?()
    loader = Loader.start_link(fn -> Loader.first(source, o, tell) end)

    state = %__MODULE__{
      options: o,
      telemetry: telemetry,
      loading: {loader, :start},
      load: {ref, nil}
    }

    if later?, do: {:ok, state}, else: await(loader, state)
  end

  # Files are loaded before start_link/1 returns, so that it can return their errors, unless it shall not wait.
  defp await(loader, state) do
    receive do
      {:loaded, ^loader, {:ok, loaded}} ->
        {:ok, begun(state, loaded)}

      {:loaded, ^loader, {:error, reason}} ->
        {:stop, reason}

      {:EXIT, ^loader, reason} ->
        {:stop, reason}

      # the parent, the only other linked process
      {:EXIT, _pid, reason} ->
        Process.exit(loader, :kill)
        {:stop, reason}
    end
  end

  defp begun(state, loaded) do
    {:ok, ref} = NIF.model_share(loaded.model.ref, self())
    emit_load(state, %{stage: :ready, done: 1.0})
    adopt(%{state | model: loaded.model, shared: %Model{ref: ref}, loading: nil}, loaded)
  end

  # Handles the calls that waited for the model, oldest first.
  defp resume(state) do
    Enum.reduce(Enum.reverse(state.waiting), %{state | waiting: []}, fn {from, call}, state ->
      {:reply, reply, state} = handle_call(call, from, state)
      GenServer.reply(from, reply)
      state
    end)
  end

  defp refuse(state, error) do
    for {from, _call} <- state.waiting ++ :queue.to_list(state.changes),
        do: GenServer.reply(from, {:error, error})

    %{state | waiting: [], changes: :queue.new()}
  end

  defp abandon(%{loading: nil} = state), do: refuse(state, Error.new(:stopping))

  defp abandon(%{loading: {loader, from}} = state) do
    Process.exit(loader, :kill)
    if from != :start, do: GenServer.reply(from, {:error, Error.new(:stopping)})
    abandon(%{state | loading: nil})
  end

  # ---- Engines ----

  # The loader's result takes effect.
  defp adopt(state, %{engine: nil} = loaded), do: %{state | options: loaded.options}

  defp adopt(state, loaded) do
    former = state.current
    number = (former || 0) + 1
    engine = Engine.start(loaded.engine, loaded.options, state.telemetry)

    retire(
      %{
        state
        | current: number,
          engines: Map.put(state.engines, number, engine),
          options: loaded.options,
          draft: loaded.draft
      },
      former
    )
  end

  # Stops an engine that is not the current one and has no requests.
  defp retire(state, number) do
    case state.engines do
      %{^number => %{n: 0} = engine} when number != state.current ->
        _told = tell_ticks(state, engine)
        # waits for the running pass
        spawn(fn -> Engine.stop(engine) end)
        %{state | engines: Map.delete(state.engines, number)}

      _other ->
        state
    end
  end

  # Starts the next change of options. Each runs in its own process, one at a time.
  defp change(%{loading: nil} = state) do
    case :queue.out(state.changes) do
      {{:value, {from, given}}, changes} ->
        %{model: model, draft: draft, options: options} = state
        engine? = &new_engine?(options, &1)
        loader = Loader.start_link(fn -> Loader.changed(model, draft, options, given, engine?) end)
        %{state | loading: {loader, from}, changes: changes}

      {:empty, _changes} ->
        state
    end
  end

  defp change(state), do: state

  # True if changed options need a new engine. A driver takes another strategy without one.
  defp new_engine?(former, options) do
    case for {name, _} <- Engine.options(), options[name] != former[name], do: name do
      [] -> false
      [:batch_strategy] -> Enum.any?([former, options], &match?({:c, _name}, strategy(&1)))
      _other -> true
    end
  end

  defp strategy(o), do: BatchStrategy.resolve!(o.batch_strategy)

  defp changed(state, {:ok, loaded}) do
    driver = state.engines[state.current].driver

    if loaded.engine == nil and loaded.options.batch_strategy != state.options.batch_strategy,
      do: Driver.strategy(driver, strategy(loaded.options))

    {:ok, adopt(state, loaded)}
  end

  defp changed(state, {:error, reason}), do: {{:error, reason}, state}

  defp loaded(%{loading: {_loader, :start}} = state, {:ok, loaded}),
    do: {:noreply, state |> begun(loaded) |> resume() |> change()}

  defp loaded(%{loading: {_loader, :start}} = state, {:error, error}),
    do: {:stop, error, refuse(%{state | loading: nil}, Error.of_load(error))}

  defp loaded(%{loading: {_loader, from}} = state, result) do
    {reply, state} = changed(%{state | loading: nil}, result)
    GenServer.reply(from, reply)
    {:noreply, change(state)}
  end

  # ---- Messages ----

  @impl true
  def handle_call({:begin, _asked}, {pid, _}, %{doomed: doomed} = state) when is_map_key(doomed, pid) do
    {monitor, doomed} = Map.pop!(doomed, pid)
    Process.demonitor(monitor, [:flush])
    {:reply, {:error, Error.new(:cancelled)}, %{state | doomed: doomed}}
  end

  def handle_call({name, _}, _from, %{stopping: true} = state) when name in [:configure, :begin],
    do: {:reply, {:error, Error.new(:stopping)}, state}

  def handle_call({:begin, %{fork: nil, n: n}} = call, from, %{model: nil} = state) do
    if state.options.max_queue > 0 and n_waiting(state) + n > state.options.max_queue,
      do: {:reply, {:error, Error.new({:queue_full, state.options.max_queue})}, state},
      else: {:noreply, %{state | waiting: [{from, call} | state.waiting]}}
  end

  def handle_call(call, from, %{model: nil} = state) when call in [:model, :shared, :embedder],
    do: {:noreply, %{state | waiting: [{from, call} | state.waiting]}}

  def handle_call({:begin, %{fork: nil} = asked}, {pid, _}, state),
    do: begin(state, state.current, asked, pid, nil)

  def handle_call({:begin, %{fork: {:id, id}} = asked}, {pid, _}, state) do
    found =
      for {_key, %{id: ^id, ref: ref} = request} when is_reference(ref) <- state.requests,
          id != nil,
          do: request

    # the first of several answers
    case Enum.min_by(found, & &1.seq, fn -> nil end) do
      nil -> {:reply, not_found(), state}
      source -> begin(state, source.engine, asked, pid, source.ref)
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

    Flight.attach(flight, key, pid, ref, demand)
    {:reply, {:ok, flight}, running(state, key, {flight, ref})}
  end

  def handle_call({:cancel, target}, _from, state) do
    found =
      for {key, %{pid: pid, id: id}} <- state.requests,
          pid == target or (id != nil and id == target),
          do: key

    state = Enum.reduce(found, state, &cancel_request(&2, &1))
    {n, state} = cancel_waiting(state, target)
    {:reply, if(found == [] and n == 0, do: not_found(), else: :ok), state}
  end

  # A courier renders its prompt, or waits for the model, before it begins.
  def handle_call({:cancel_courier, pid}, from, state) do
    case handle_call({:cancel, pid}, from, state) do
      {:reply, {:error, _not_found} = reply, state} ->
        if Process.alive?(pid), do: {:reply, :ok, doom(state, pid)}, else: {:reply, reply, state}

      reply ->
        reply
    end
  end

  def handle_call({:status, pid}, _from, state) do
    case find(state, pid) do
      {_key, request} -> {:reply, status(state, request), state}
      nil -> {:reply, not_found(), state}
    end
  end

  def handle_call({:interval, pid, n}, _from, state) do
    case find(state, pid) do
      {_key, %{ref: {_flight, _ref}}} ->
        {:reply, {:error, Error.new(:shared)}, state}

      {key, request} ->
        if request.ref, do: NIF.engine_interval(request.ref, n)
        {:reply, :ok, put_in(state.requests[key].interval, n)}

      nil ->
        {:reply, not_found(), state}
    end
  end

  def handle_call(:model, _from, state), do: {:reply, {:ok, state.model}, state}
  def handle_call(:shared, _from, state), do: {:reply, {:ok, state.shared}, state}

  def handle_call(:embedder, _from, %{embedder: nil} = state) do
    {:ok, embedder} = Embedder.start_link(state.shared)
    {:reply, {:ok, embedder}, %{state | embedder: embedder}}
  end

  def handle_call(:embedder, _from, state), do: {:reply, {:ok, state.embedder}, state}
  def handle_call(:get_stats, _from, state), do: {:reply, stats(state), state}
  def handle_call(:options, _from, state), do: {:reply, {:ok, state.options}, state}

  def handle_call({:configure, given}, from, state),
    do: {:noreply, change(%{state | changes: :queue.in({from, given}, state.changes)})}

  def handle_call(call, _from, state) do
    unknown(:call, call)
    {:reply, {:error, Error.new(:unknown_call)}, state}
  end

  @impl true
  def handle_cast({:running, key, ref}, state),
    do: {:noreply, state |> running(key, ref) |> computed_by(key, ref)}

  def handle_cast({:computed_by, key, ref}, state), do: {:noreply, computed_by(state, key, ref)}

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

  # The caller has given up. Its request may have begun, or may be waiting.
  def handle_cast({:forget, tag}, state) do
    keys = for {key, %{tag: ^tag}} <- state.requests, do: key
    waiting = Enum.reject(state.waiting, &match?({_from, {:begin, %{tag: ^tag}}}, &1))
    state = Enum.reduce(keys, %{state | waiting: waiting}, &ended(&2, &1, {:error, Error.new(:timeout)}))
    Enum.each(keys, &Process.demonitor(&1, [:flush]))
    {:noreply, state}
  end

  def handle_cast(cast, state) do
    unknown(:cast, cast)
    {:noreply, state}
  end

  @impl true
  def handle_info({:loaded, loader, result}, %{loading: {loader, _for}} = state), do: loaded(state, result)

  def handle_info({ref, {:progress, told}}, %{load: {ref, _load}, model: nil} = state) do
    load = load(told)
    emit_load(state, load)
    {:noreply, %{state | load: {ref, load}}}
  end

  def handle_info({:EXIT, loader, reason}, %{loading: {loader, _for}} = state),
    do:
      loaded(
        state,
        {:error, Error.new({:failed, "the loading has failed: " <> Exception.format_exit(reason)})}
      )

  def handle_info({:DOWN, key, :process, pid, _reason}, state) when :erlang.map_get(pid, state.doomed) == key,
    do: {:noreply, %{state | doomed: Map.delete(state.doomed, pid)}}

  def handle_info({:DOWN, key, :process, _pid, reason}, state),
    do: {:noreply, ended(state, key, {:exit, reason})}

  def handle_info(:ticks, state) do
    engines = Map.new(state.engines, fn {number, engine} -> {number, tell_ticks(state, engine)} end)

    {:noreply, poll(%{state | engines: engines, polling: false})}
  end

  def handle_info({:EXIT, _pid, :normal}, state), do: {:noreply, state}

  def handle_info({:EXIT, pid, _reason}, %{embedder: pid} = state), do: {:noreply, %{state | embedder: nil}}

  def handle_info({:EXIT, _pid, reason}, state), do: {:stop, reason, state}
  def handle_info(_message, state), do: {:noreply, state}

  # Running requests may end, unless the server stops because of a failure. No new ones begin.
  @impl true
  def terminate(reason, state) do
    state = abandon(%{state | stopping: true})
    asked? = reason in [:normal, :shutdown] or match?({:shutdown, _}, reason)
    state = if asked?, do: drain(state, Deadline.at(state.options.drain_timeout)), else: state

    # with the reason :normal its link would not end it
    if state.embedder, do: Process.exit(state.embedder, :shutdown)

    for {_number, engine} <- state.engines do
      _told = tell_ticks(state, engine)
      :ok = Engine.stop(engine)
    end
  end

  defp drain(%{requests: requests} = state, _deadline) when requests == %{}, do: state

  defp drain(state, deadline) do
    receive do
      {:"$gen_call", from, call} ->
        {:reply, reply, state} = handle_call(call, from, state)
        GenServer.reply(from, reply)
        drain(state, deadline)

      {:"$gen_cast", message} ->
        {:noreply, state} = handle_cast(message, state)
        drain(state, deadline)

      {:DOWN, _, _, _, _} = message ->
        {:noreply, state} = handle_info(message, state)
        drain(state, deadline)
    after
      Deadline.left(deadline) -> state
    end
  end

  # ---- Requests ----

  defp begin(state, number, asked, pid, source) do
    engine = state.engines[number]

    {keys, state} =
      Enum.map_reduce(1..asked.n, state, fn _, state -> begin_one(state, number, asked, pid) end)

    session = %{
      server: self(),
      keys: keys,
      shared: state.shared,
      number: number,
      engine: engine.ref,
      driver: engine.driver,
      source: source,
      max_queue: state.options.max_queue,
      defaults: Map.take(state.options, Keyword.keys(Request.options()))
    }

    {:reply, {:ok, session}, poll(state)}
  end

  defp begin_one(state, number, asked, pid) do
    key = Process.monitor(pid)
    seq = state.seq + 1

    known = %{pid: pid, seq: seq, engine: number, system_time: System.system_time()}
    later = %{ref: nil, engine_ref: nil, number: nil, n_prompt: nil, interval: nil, cancelled: false}
    request = asked |> Map.merge(known) |> Map.merge(later)

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

  # The event of the start follows the submit, which has counted the prompt's tokens.
  defp computed_by(state, key, ref) do
    case state.requests do
      %{^key => request} ->
        # not that of a shared answer
        if request.interval && is_reference(request.ref), do: NIF.engine_interval(ref, request.interval)
        number = with %{request: number} <- NIF.engine_progress(ref), do: number, else: (_ended -> nil)
        n_prompt = NIF.engine_usage(ref).n_prompt
        emit_start(state, request, n_prompt)
        request = %{request | engine_ref: ref, number: number, n_prompt: n_prompt}
        put_in(state.requests[key], request)

      _gone ->
        state
    end
  end

  defp cancel_request(state, key) do
    cancel_ref(state.requests[key].ref)
    put_in(state.requests[key].cancelled, true)
  end

  defp cancel_waiting(state, target) do
    {cancelled, waiting} =
      Enum.split_with(state.waiting, fn
        {{pid, _}, {:begin, %{id: id}}} -> pid == target or (id != nil and id == target)
        _other -> false
      end)

    for {from, _call} <- cancelled, do: GenServer.reply(from, {:error, Error.new(:cancelled)})
    {length(cancelled), %{state | waiting: waiting}}
  end

  defp n_waiting(state), do: Enum.sum(for {_from, {:begin, %{n: n}}} <- state.waiting, do: n)

  # nil: not submitted yet
  defp doom(state, pid),
    do: %{state | doomed: Map.put_new_lazy(state.doomed, pid, fn -> Process.monitor(pid) end)}

  defp cancel_ref(nil), do: :ok
  defp cancel_ref({flight, ref}), do: Flight.cancel(flight, ref)
  defp cancel_ref(ref), do: NIF.engine_cancel(ref)

  defp ended(state, key, outcome) do
    case Map.pop(state.requests, key) do
      {nil, _requests} ->
        state

      {request, requests} ->
        # it was never submitted, or another one's answer ended before
        if request.n_prompt == nil, do: emit_start(state, request, n_prompt(outcome))
        emit_end(state, request, outcome)
        with {flight, ref} <- request.ref, do: Flight.leave(flight, ref)
        engine = state.engines[request.engine]
        # the driver must notice the requests of a dead consumer
        Driver.work(engine.driver)
        state = %{state | requests: requests}
        retire(put_in(state.engines[request.engine].n, engine.n - 1), request.engine)
    end
  end

  # ---- Statistics and events ----

  defp not_found, do: {:error, Error.new({:not_found, "the server has no such request"})}

  defp find(state, pid), do: Enum.find(state.requests, fn {_key, request} -> request.pid == pid end)

  defp status(_state, %{engine_ref: nil}), do: %{state: :starting}

  defp status(state, request) do
    progress = NIF.engine_progress(request.engine_ref)
    usage = NIF.engine_usage(request.engine_ref)

    Map.merge(
      %{
        id: request.id,
        seq_id: request.seq,
        prompt_tokens: request.n_prompt,
        generated_tokens: usage.n_generated,
        cancelled: request.cancelled
      },
      phase(progress, usage, state, request)
    )
  end

  # The caller has not read its end yet.
  defp phase(:ended, usage, _state, _request),
    do: %{state: :ended, queue_position: 0, cached_tokens: usage.n_cached, processed_tokens: usage.n_prompt}

  defp phase(progress, usage, state, request) do
    %{
      state: phase(progress, usage),
      queue_position: if(progress.started, do: 0, else: place(state, request)),
      cached_tokens: progress.n_cached,
      processed_tokens: progress.n_processed,
      interval: progress.interval
    }
  end

  defp phase(%{started: false}, _usage), do: :queued
  defp phase(_progress, %{ttft_ns: 0}), do: :prefilling
  defp phase(_progress, _usage), do: :generating

  # Its place in the queue: 0 while a slot is free for it, and if it has got one since.
  defp place(state, %{engine: at, number: number} = request) do
    engine = NIF.engine_stats(state.engines[at].ref)
    idle = engine.n_slots - engine.n_slots_prefilling - engine.n_slots_generating

    # a shared answer counts once; nil is no smaller number
    earlier =
      for {_key, %{engine: ^at, number: n} = r} <- state.requests,
          n < number,
          into: %{},
          do: {n, r.engine_ref}

    waits? = &match?(%{started: false}, NIF.engine_progress(&1))
    ahead = Enum.count(earlier, fn {_n, ref} -> waits?.(ref) end)
    if waits?.(request.engine_ref), do: max(ahead + 1 - idle, 0), else: 0
  end

  # Whose work is in a slot of the current engine.
  defp named(slots, %{requests: requests, current: current}) do
    known =
      for {_key, %{engine: ^current, number: n} = r} <- requests,
          n != nil,
          into: %{},
          do: {n, %{id: r.id, seq_id: r.seq}}

    Enum.map(slots, &Map.merge(&1, Map.get(known, &1.request, %{id: nil, seq_id: nil})))
  end

  defp stats(state) do
    {known, engine} =
      if state.model,
        do: Engine.stats(state.engines[state.current], state.options),
        else: {:loading, Map.merge(Engine.no_stats(state.options), loading_stats(state))}

    Map.merge(engine, %{
      slots: named(engine.slots, state),
      max_queue: state.options.max_queue,
      state: if(state.stopping, do: :stopping, else: known),
      requests: map_size(state.requests),
      n_shared: state.n_shared,
      strategy: state.options.batch_strategy
    })
  end

  defp loading_stats(%{load: {_ref, nil}} = state), do: %{queue_depth: n_waiting(state)}
  defp loading_stats(%{load: {_ref, load}} = state), do: %{queue_depth: n_waiting(state), load: load}

  # Of a model that is downloaded, then loaded.
  defp load(%{done: done, total: total} = file) do
    share = if total > 0, do: done / total, else: 0.0
    %{stage: :download, done: (file.shard - 1 + share) / file.n_shards}
  end

  defp load(done), do: %{stage: :load, done: done}

  defp emit_load(%{telemetry: false}, _load), do: :ok

  defp emit_load(_state, %{stage: stage, done: done}),
    do: Telemetry.execute([:server, :load], %{done: done}, %{server: self(), stage: stage})

  defp unknown(kind, message) do
    Logger.warning("#{inspect(self())} got a #{kind} that no server knows: #{inspect(message)}")
  end

  defp emit_event(%{telemetry: false}, _request, _event, _measurements, _metadata), do: :ok

  defp emit_event(_state, request, event, measurements, metadata) do
    known = %{server: self(), seq_id: request.seq, mode: request.mode, id: request.id}
    Telemetry.execute([:server | event], measurements, Map.merge(known, metadata))
  end

  defp emit_start(state, request, n_prompt) do
    measured = %{system_time: request.system_time, prompt_tokens: n_prompt}
    emit_event(state, request, [:request, :start], measured, %{})
  end

  defp n_prompt({:done, _reason, usage}), do: usage.n_prompt
  defp n_prompt(_outcome), do: 0

  defp emit_end(state, request, outcome) do
    {event, measured, metadata} = Telemetry.outcome(outcome, request.ref)
    emit_event(state, request, [:request, event], measured, metadata)
  end

  # Polls once more after the last request has ended, for its last tick.
  defp poll(%{telemetry: true, polling: false} = state) when map_size(state.requests) > 0 do
    Process.send_after(self(), :ticks, @ticks_ms)
    %{state | polling: true}
  end

  defp poll(state), do: state

  defp tell_ticks(%{telemetry: false}, engine), do: engine
  defp tell_ticks(_state, engine), do: Engine.tell_ticks(engine)
end
