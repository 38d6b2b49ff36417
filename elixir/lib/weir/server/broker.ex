# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Broker do
  @moduledoc false
  # The process of a server. It says which engine to ask, and keeps account of who is being answered where; what is asked
  # and what is answered go another way, between the callers and the engine.

  use GenServer

  alias Weir.{Adapter, Deadline, Hub, Model, NIF, Options}
  alias Weir.Server.{BatchStrategy, Driver, Embedder, Engine, Flight, Request, Telemetry}

  # The engine's ticks are told so often while there are any.
  @ticks_ms 50

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

  @doc "`source`: a `Weir.Model`, or a path. `o`: all options of a server but its name, which is in `opts`."
  @spec start_link(Model.t() | Path.t(), map(), keyword()) :: GenServer.on_start()
  def start_link(source, o, opts), do: GenServer.start_link(__MODULE__, {source, o}, opts)

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
         do: Model.load(file, o |> Map.take(Keyword.keys(Options.model())) |> Map.to_list())
  end

  # What the server's own option names is loaded once.
  defp with_adapters(model, o) do
    with {:ok, adapters} <- Adapter.loaded(model, o.lora), do: {:ok, %{o | lora: adapters}}
  end

  # ---- Engines ----

  defp add_engine(state, o) do
    with {:ok, draft} <- draft(state, o),
         {:ok, engine} <- Engine.start(state.model, draft, o, state.telemetry) do
      former = state.current
      number = (former || 0) + 1
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
        _told = tell_ticks(state, engine)
        # waits for the pass that runs
        spawn(fn -> Engine.stop(engine) end)
        %{state | engines: Map.delete(state.engines, number)}

      _other ->
        state
    end
  end

  defp configure(state, options) do
    engine = state.engines[state.current]
    changed = for {name, _} <- Engine.options(), options[name] != state.options[name], do: name

    case {changed, BatchStrategy.resolve!(options.batch_strategy)} do
      {[], _strategy} ->
        {:ok, state}

      {[:batch_strategy], {:module, _module, _opts} = strategy} when engine.driver != nil ->
        Driver.strategy(engine.driver, strategy)
        {:ok, state}

      _engine ->
        add_engine(state, options)
    end
  end

  # ---- Messages ----

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

  def handle_call(:get_stats, _from, state) do
    stats =
      Map.merge(Engine.stats(state.engines[state.current]), %{
        requests: map_size(state.requests),
        n_shared: state.n_shared,
        strategy: state.options.batch_strategy
      })

    {:reply, stats, state}
  end

  def handle_call({:configure, given}, _from, state) do
    with {:ok, options} <- with_adapters(state.model, Request.merge(state.options, given)),
         {:ok, state} <- configure(state, options) do
      {:reply, :ok, %{state | options: options}}
    else
      {:error, reason} -> {:reply, {:error, reason}, state}
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
    engines =
      Map.new(state.engines, fn {number, engine} -> {number, tell_ticks(state, engine)} end)

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
    deadline = Deadline.at(state.options.drain_timeout)
    state = if asked?, do: drain(state, deadline), else: state

    # a link does not end it when the reason is :normal
    if state.embedder, do: Process.exit(state.embedder, :shutdown)

    for {_number, engine} <- state.engines do
      _told = tell_ticks(state, engine)
      :ok = Engine.stop(engine)
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
      Deadline.left(deadline) -> state
    end
  end

  # ---- Requests ----

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
  defp poll(%{telemetry: true, polling: false} = state) when map_size(state.requests) > 0 do
    Process.send_after(self(), :ticks, @ticks_ms)
    %{state | polling: true}
  end

  defp poll(state), do: state

  defp tell_ticks(%{telemetry: false}, engine), do: engine
  defp tell_ticks(_state, engine), do: Engine.tell_ticks(engine)
end
