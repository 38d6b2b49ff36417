defmodule Weir.Server.Request do
  @moduledoc false
  # The consumer's side of a request. The server only says which engine to ask; prompt, chunks and their back pressure
  # go between the consumer and that.

  alias Weir.{JSON, NIF, Options}
  alias Weir.Server.Driver

  # Chunks that may be in the mailbox; half of them are asked for again when they were taken.
  @window 16

  # Nobody reads before the end: the engine emits the first token and the end only.
  @interval 1_000_000_000

  @enforce_keys [:server, :key, :monitor, :ref]
  defstruct [:server, :key, :monitor, :ref, taken: 0]

  @doc "Options of one request, as `{type, default}`."
  def options do
    [
      max_tokens: {:integer, 256},
      stop: {{:list, :string}, []},
      priority: {{:range, -100..100}, 0},
      deadline: {{:maybe, {:range, 1..0x7FFFFFFF}}, nil},
      cache_prompt: {:boolean, true},
      cache_salt: {{:maybe, :string}, nil}
    ] ++ Options.sampler()
  end

  @doc "As `NIF.engine_submit/4` wants them. What is nil stays the library's default."
  def to_engine(o) do
    one_grammar!(o)

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
      :json_schema
    ])
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

  @doc """
  Submits. `mode` is `:generate` (one chunk, at the end) or `:stream`.
  """
  def start(server, prompt, given, id, mode) do
    prompt!(prompt)

    case GenServer.call(server, {:begin, mode, id}, :infinity) do
      {:ok, session} -> submit(session, prompt, given, mode)
      {:error, reason} -> {:error, reason}
    end
  end

  defp prompt!(prompt) when is_binary(prompt), do: :ok

  defp prompt!(prompt) do
    if not is_list(prompt) or not Enum.all?(prompt, &is_integer/1) do
      raise ArgumentError, "a prompt is a text or a list of token ids, got: #{inspect(prompt)}"
    end
  end

  defp submit(session, prompt, given, mode) do
    {demand, interval} = if mode == :stream, do: {@window, 1}, else: {:infinity, @interval}
    request = session.defaults |> merge(given) |> to_engine()
    request = Map.merge(request, %{prompt: prompt, interval: interval})

    case NIF.engine_submit(session.engine, request, self(), demand) do
      {:ok, ref} ->
        GenServer.cast(session.server, {:running, session.key, ref})
        Driver.work(session.driver)

        {:ok,
         %__MODULE__{
           server: session.server,
           key: session.key,
           monitor: Process.monitor(session.server),
           ref: ref
         }}

      {:error, reason} ->
        GenServer.cast(session.server, {:ended, session.key, {:error, reason}})
        {:error, reason}
    end
  rescue
    error ->
      GenServer.cast(session.server, {:ended, session.key, {:error, Exception.message(error)}})
      reraise error, __STACKTRACE__
  end

  @doc "What is given replaces the server's; a grammar replaces a schema, and the other way round."
  def merge(defaults, %{grammar: grammar} = given) when grammar != nil,
    do: %{defaults | json_schema: nil} |> Map.merge(given)

  def merge(defaults, %{json_schema: schema} = given) when schema != nil,
    do: %{defaults | grammar: nil} |> Map.merge(given)

  def merge(defaults, given), do: Map.merge(defaults, given)

  @doc """
  What comes next: `{:chunk, ids, text, request}`, `{:done, reason, usage}`, or `{:error, reason}`. After the last two
  the request is over, and has left no message.
  """
  def next(%__MODULE__{ref: ref, monitor: monitor} = request, timeout) do
    receive do
      {^ref, {:chunk, ids, text}} ->
        {:chunk, ids, text, demand(request)}

      {^ref, {:done, reason, usage}} ->
        finish(request, {:done, reason, usage})
        {:done, reason, usage}

      {^ref, {:error, reason}} ->
        finish(request, {:error, reason})
        {:error, reason}

      {:DOWN, ^monitor, :process, _pid, reason} ->
        close(request)
        {:error, {:server_down, reason}}
    after
      timeout ->
        close(request, {:error, :timeout})
        {:error, :timeout}
    end
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

  defp finish(request, outcome) do
    Process.demonitor(request.monitor, [:flush])
    GenServer.cast(request.server, {:ended, request.key, outcome})
  end
end
