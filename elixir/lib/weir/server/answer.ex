# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Answer do
  @moduledoc false
  # The answer to a request: the whole of it, the best of several, or a stream.

  alias Weir.{Chat, Chunk, Error, Generation, Logprobs, NIF, Options, Tokenizer}
  alias Weir.Server.{Broker, Flight, Limits, Request, Telemetry}

  # Options that concern the caller only, not the engine.
  @options [
    id: {:any, nil},
    best_of: {{:range, 1..128}, 1},
    echo: {:boolean, false},
    share: {:boolean, false}
  ]

  # ---- Whole ----

  @doc "See `Weir.Target.complete/3`."
  @spec whole(GenServer.server(), Weir.Target.input(), keyword()) ::
          {:ok, Weir.Server.answer()} | {:error, Error.t()}
  def whole(server, input, opts) do
    {own, opts} = Options.split!(opts, @options)
    {limits, given} = Request.given!(opts, 60_000)
    limits = Limits.whole(limits)
    how = %{id: own.id, mode: :generate, n: own.best_of, share: own.share, limits: limits}
    # logprobs rank the answers, as in weir_generate_best
    requested = if own.best_of > 1, do: Map.put(given, :logprobs, true), else: given

    with {:ok, prompt, requests} <- start(server, input, own.echo, requested, how),
         before = echo(own.echo, prompt, hd(requests).model),
         {:ok, answer} <- best(Enum.map(requests, &gather/1)),
         {:ok, before} <- before do
      wanted? = Map.get(given, :logprobs, own.best_of == 1)
      {:ok, %{answer | text: before <> answer.text, logprobs: if(wanted?, do: answer.logprobs)}}
    end
  end

  # The prompt, and the requests for its answers.
  defp start(server, input, echo, given, how) do
    {deadline, _over} = Limits.start(how.limits)

    with {:ok, prompt} <- server |> rendered(input, deadline) |> Limits.started(how.limits),
         :ok <- echo!(echo, prompt),
         {:ok, requests} <- Limits.started(Request.start(server, prompt, given, how), how.limits),
         do: {:ok, prompt, requests}
  end

  # The answer with the highest mean logprob, the first of equal ones. A failed one only if all have failed.
  # The scores of the prompt come with the first answer only.
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

  @doc "Waits for the end of a request."
  @spec gather(struct()) :: {:ok, Weir.Server.answer()} | {:error, Error.t()}
  def gather(request), do: gather(request, {[], [], [], nil})

  defp gather(request, {texts, ids, logprobs, prompt} = parts) do
    case Request.next(request) do
      {:chunk, more, text, scored, request} ->
        entries = Logprobs.entries(request.model, scored) || []
        gather(request, {[texts | text], [ids | more], [logprobs | entries], prompt})

      {:prompt, scored} ->
        gather(request, put_elem(parts, 3, Logprobs.entries(request.model, scored)))

      {:progress, _map, request} ->
        gather(request, parts)

      {:done, :cancelled, _usage} ->
        {:error, Error.new(:cancelled)}

      {:done, reason, usage} ->
        rest = Logprobs.entries(request.model, Request.rest(request, reason)) || []

        {:ok,
         %{
           text: IO.iodata_to_binary(texts),
           ids: List.flatten(ids),
           reason: reason,
           usage: Telemetry.usage(usage),
           miss: Telemetry.miss(usage),
           logprobs: if(request.logprobs, do: List.flatten([logprobs | rest])),
           prompt_logprobs: prompt,
           score: if(request.logprobs, do: usage.score),
           before: usage[:before]
         }}

      {:error, error} ->
        {:error, error}
    end
  end

  # ---- Streams ----

  @typedoc "The options of a stream."
  @type read :: %{own: map(), limits: Limits.options(), given: map()}

  # A request, before which the prompt may come.
  @typep opened :: struct() | {:echo, Request.prompt(), struct()}

  @doc "Reads the options of a stream."
  @spec read!(keyword()) :: read()
  def read!(opts) do
    {own, opts} = Options.split!(opts, @options)
    {limits, given} = Request.given!(opts, 30_000)

    if own.best_of > 1 do
      raise ArgumentError, "option :best_of: the best answer is known at the end; see complete/3"
    end

    %{own: own, limits: limits, given: given}
  end

  @doc "Starts the request of a stream, for `chunks/2`."
  @spec open(GenServer.server(), Weir.Target.input(), read()) :: {:ok, opened()} | {:error, Error.t()}
  def open(server, input, %{own: own} = read) do
    how = %{id: own.id, mode: :stream, n: 1, share: own.share, limits: Limits.stream(read.limits)}

    with {:ok, prompt, [request]} <- start(server, input, own.echo, read.given, how),
         do: {:ok, if(own.echo, do: {:echo, prompt, request}, else: request)}
  end

  @doc "Returns once the server knows where the request is computed."
  @spec settled(opened()) :: :ok
  def settled({:echo, _prompt, request}), do: settled(request)

  def settled(request) do
    # the flight has told it before it answers this
    _place = if request.flight, do: Flight.place(request.flight)
    :ok
  end

  # The prompt for a server's model. It is made in a short-lived process, because a conversation keeps its model in
  # memory.
  defp rendered(server, {:chat, _messages, _template} = input, deadline) do
    Generation.elsewhere(fn ->
      with {:ok, model} <- Broker.model(server, deadline), do: Chat.prompt(model, input)
    end)
  end

  defp rendered(_server, prompt, _deadline), do: {:ok, prompt}

  @doc """
  A lazy stream of `Weir.Chunk`s. When it is enumerated, it calls `open`, which returns a request, and then `begun`
  with this. When the enumeration ends, in whatever way, the request has ended and no message is left.
  """
  @spec chunks((() -> {:ok, opened()} | {:error, Error.t()}), (opened() -> term())) :: Enumerable.t()
  def chunks(open, begun \\ fn _opened -> :ok end),
    do: Stream.resource(fn -> open.() |> Error.ok!() |> begin(begun) end, &next/1, &close/1)

  # A stream that cannot begin closes what it has opened.
  defp begin(opened, begun) do
    begun.(opened)
    opened
  catch
    kind, reason ->
      close(opened)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  @doc "Says that a request without a server has begun. `place`: in the queue of its engine; nil: not known."
  @spec begun(struct(), Weir.Target.submission() | nil, 0 | nil) :: term()
  def begun(_request, nil, _place), do: :ok

  def begun(request, submission, place),
    do: submission.started.(%{prompt_tokens: NIF.engine_usage(request.ref).n_prompt, queue_position: place})

  defp close(:over), do: :ok
  defp close({:echo, _prompt, request}), do: Request.close(request)
  defp close(request), do: Request.close(request)

  # The next chunk of a request; `:over` follows the last one.
  defp next(:over), do: {:halt, :over}

  defp next({:echo, prompt, request}) do
    text = true |> echo(prompt, request.model) |> Error.ok!()
    {[%Chunk{text: text}], request}
  end

  defp next(request) do
    case Request.next(request) do
      {:chunk, ids, text, scored, request} ->
        logprobs = Logprobs.entries(request.model, scored)
        {[%Chunk{ids: ids, text: text, logprobs: logprobs}], request}

      {:prompt, scored} ->
        {[%Chunk{prompt_logprobs: Logprobs.entries(request.model, scored)}], request}

      {:progress, map, request} ->
        {[%Chunk{progress: map}], request}

      {:done, reason, usage} ->
        {[last(request, reason, usage)], :over}

      # the stream then closes the request, which has no effect any more
      {:error, error} ->
        raise error
    end
  rescue
    # the request's handle belongs to another native library
    ArgumentError -> raise Error, {:failed, "the native library was replaced by another file's"}
  end

  defp last(request, reason, usage) do
    %Chunk{
      reason: reason,
      usage: Telemetry.usage(usage),
      miss: Telemetry.miss(usage),
      logprobs: Logprobs.entries(request.model, Request.rest(request, reason))
    }
  end

  # ---- The prompt before the answer ----

  defp echo!(true, prompt) when is_tuple(prompt) do
    raise ArgumentError, "option :echo: a fork has no prompt of its own; see :before of complete/3"
  end

  defp echo!(_echo, _prompt), do: :ok

  defp echo(false, _prompt, _model), do: {:ok, ""}
  defp echo(true, prompt, _model) when is_binary(prompt), do: {:ok, prompt}
  defp echo(true, ids, model), do: Tokenizer.decode(model, ids)
end
