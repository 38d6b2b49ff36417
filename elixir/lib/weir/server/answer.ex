# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Server.Answer do
  @moduledoc false
  # What comes of a request at a server: the whole answer, the best of several, or a stream.

  alias Weir.{Chunk, Deadline, Logprobs, Options, Tokenizer}
  alias Weir.Server.{Request, Telemetry}

  # What the caller makes of it, and no engine knows of.
  @options [
    best_of: {{:range, 1..128}, 1},
    echo: {:boolean, false},
    share: {:boolean, false}
  ]

  @emit [emit: {{:in, [:text, :chunks]}, :text}]

  defp own!(opts, specs) do
    {own, opts} = opts |> Options.keywords!() |> Keyword.split(Keyword.keys(specs))
    {Options.read!(own, specs), opts}
  end

  # ---- Whole ----

  @typedoc "A prompt that may have to be rendered first, until the deadline."
  @type prompt :: (Deadline.t() -> {:ok, Request.prompt()} | {:error, term()})

  @doc "See `Weir.Server.complete/3`."
  @spec whole(GenServer.server(), keyword(), prompt()) ::
          {:ok, Weir.Server.answer()} | {:error, Weir.Server.reason()}
  def whole(server, opts, prompt) do
    {own, opts} = own!(opts, @options)
    {timeout, id, given} = Request.given!(opts, 60_000)
    deadline = Deadline.at(timeout)
    how = %{id: id, mode: :generate, n: own.best_of, share: own.share, deadline: deadline}
    # as weir_generate_best: they are ranked by their logprobs
    asked = if own.best_of > 1, do: Map.put(given, :logprobs, true), else: given

    with {:ok, prompt} <- prompt.(deadline),
         :ok <- echo!(own.echo, prompt),
         {:ok, requests} <- Request.start(server, prompt, asked, how),
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

  defp gather(request, deadline, parts) do
    case Request.next(request, Deadline.left(deadline)) do
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

  # ---- Streams ----

  @doc "See `Weir.Server.stream/3`. `prompt` is computed when the stream is enumerated."
  @spec stream(GenServer.server(), keyword(), prompt()) :: Enumerable.t()
  def stream(server, opts, prompt) do
    {own, opts} = own!(opts, @options ++ @emit)
    {timeout, id, given} = Request.given!(opts, 30_000)

    if own.best_of > 1 do
      raise ArgumentError, "option :best_of: the best answer is known at the end; see complete/3"
    end

    chunks =
      Stream.resource(
        fn ->
          deadline = Deadline.at(timeout)
          how = %{id: id, mode: :stream, n: 1, share: own.share, deadline: deadline}

          with {:ok, prompt} <- prompt.(deadline),
               :ok <- echo!(own.echo, prompt),
               {:ok, [request]} <- Request.start(server, prompt, given, how) do
            if own.echo, do: {:echo, prompt, request}, else: request
          else
            {:error, reason} -> raise Weir.Error, reason
          end
        end,
        &next(&1, timeout),
        &close/1
      )

    if own.emit == :chunks, do: chunks, else: Chunk.texts(chunks)
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
        logprobs = Logprobs.entries(request.model, ids, scores)
        {[%Chunk{ids: ids, text: text, logprobs: logprobs}], request}

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

  # ---- The prompt before the answer ----

  defp echo!(true, prompt) when is_tuple(prompt) do
    raise ArgumentError,
          "option :echo: a fork has no prompt of its own; see :before of complete/3"
  end

  defp echo!(_echo, _prompt), do: :ok

  defp echo(false, _prompt, _model), do: {:ok, ""}
  defp echo(true, prompt, _model) when is_binary(prompt), do: {:ok, prompt}
  defp echo(true, ids, model), do: Tokenizer.decode(model, ids)
end
