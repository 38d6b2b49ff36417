# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Completion do
  @moduledoc false
  # Answers to a conversation in OpenAI's format: requests that run together, each with a parser.

  alias Weir.{Chat, ChatCompletion, ChatCompletionChunk, Error, Logprobs, Model, NIF, Options, Thinking}
  alias Weir.Server.{Request, Telemetry}

  # model: its description. n: tokens of all answers so far. usage: of the first answer
  @enforce_keys [:model, :requests, :choices, :logprobs]
  defstruct [:model, :requests, :choices, :logprobs, :prompt_logprobs, :usage, n: 0]

  @type t :: %__MODULE__{
          model: String.t(),
          requests: map(),
          choices: map(),
          logprobs: boolean(),
          prompt_logprobs: [Weir.Chunk.logprob()] | nil,
          usage: map() | nil,
          n: non_neg_integer()
        }

  # One step of one choice: deltas, the logprobs of the tokens since the last delta, and in the last step the
  # finish reason.
  @typep step :: %{
           index: non_neg_integer(),
           first: boolean(),
           deltas: [map()],
           logprobs: [map()],
           reason: String.t() | nil
         }

  @doc "Options of a completion in addition to those of a request."
  def options do
    [
      n: {{:range, 1..128}, 1},
      tools: {{:maybe, {:list, :map}}, nil},
      tool_choice: {:any, :auto},
      parallel_tool_calls: {:boolean, true}
    ]
  end

  @doc "Splits off these options and those of the template. `read` reads the others: the limits, and the request's."
  @spec read!(keyword(), (keyword() -> {limits, map()})) :: {map(), limits, map()} when limits: term()
  def read!(opts, read) do
    {o, rest} = Options.split!(opts, options() ++ Options.template())
    {limits, given} = read.(rest)
    {o, given} = form(o, given)
    {o, limits, given}
  end

  # With tools, a schema belongs to the conversation instead of the request: an answer is a call or follows the
  # schema. The same holds for a schema that need not be enforced in full.
  defp form(%{tools: [_ | _]} = o, %{json_schema: schema} = given),
    do: {Map.put(o, :json_schema, schema), %{given | json_schema: nil}}

  defp form(%{strict_schema: false} = o, %{json_schema: schema} = given) when schema != nil,
    do: {Map.put(o, :json_schema, schema), %{given | json_schema: nil}}

  defp form(o, given), do: {Map.put(o, :json_schema, nil), given}

  @doc "Renders the conversation. `start` submits its `NIF.chat` as `Request`s, all or none."
  @spec open(
          Model.t(),
          [Chat.message()],
          map(),
          (NIF.chat() -> {:ok, [struct()]} | {:error, Error.t()})
        ) ::
          {:ok, t()} | {:error, Error.t()}
  def open(model, messages, o, start) do
    with {:ok, chat} <- Chat.create(model, messages, o),
         {:ok, parsers} <- Error.map_ok(1..o.n, fn _ -> NIF.chat_parser(chat) end),
         {:ok, requests} <- start.(chat) do
      choices =
        for {{request, parser}, index} <- requests |> Enum.zip(parsers) |> Enum.with_index(),
            into: %{} do
          choice = %{index: index, parser: parser, begun: false, n_calls: 0, scores: []}
          {request.ref, Map.put(choice, :thinking, Thinking.stream_parser())}
        end

      {:ok,
       %__MODULE__{
         model: Model.desc(model),
         requests: Request.together(requests),
         choices: choices,
         logprobs: hd(requests).logprobs
       }}
    end
  end

  @doc "Cancels the running requests."
  def close(%__MODULE__{requests: requests}), do: Request.close_all(requests)

  # ---- Steps ----

  @doc "The next step; `:over` after the last one. After an error all requests have ended."
  @spec next(t()) :: {:ok, step(), t()} | {:error, Error.t()} | :over
  def next(%__MODULE__{requests: requests}) when requests == %{}, do: :over

  def next(%__MODULE__{requests: requests} = t) do
    case Request.next_of(requests) do
      {ref, {:chunk, ids, text, scored, request}} ->
        entries = Logprobs.entries(request.model, scored) || []
        t = %{t | requests: Request.again(requests, request), n: t.n + length(ids)}
        read(t, ref, text, entries, nil)

      {ref, {:prompt, scored}} ->
        next(%{t | prompt_logprobs: Logprobs.entries(requests[ref].model, scored)})

      {_ref, {:progress, _map, request}} ->
        next(%{t | requests: Request.again(requests, request)})

      {ref, {:done, :cancelled, _usage}} ->
        requests |> Request.without(ref) |> Request.close_all()
        {:error, Error.new(:cancelled)}

      {ref, {:done, reason, usage}} ->
        # the usage of the first answer, which computed the prompt for the others
        first? = t.choices[ref].index == 0
        usage = if first? or t.usage == nil, do: usage, else: t.usage
        request = requests[ref]
        entries = Logprobs.entries(request.model, Request.rest(request, reason)) || []
        t = %{t | requests: Request.without(requests, ref), usage: usage}
        read(t, ref, "", entries, reason)

      {:error, error} ->
        {:error, error}
    end
  end

  # With a reason it is the last text.
  defp read(t, ref, text, logprobs, reason) do
    choice = t.choices[ref]
    last? = reason != nil

    case NIF.chat_parser_feed(choice.parser, text, last?) do
      {:ok, found} ->
        {deltas, thinking} = Enum.flat_map_reduce(found, choice.thinking, &delta/2)

        deltas = if last?, do: deltas ++ Enum.map(Thinking.flush(thinking), &words/1), else: deltas

        n_calls = choice.n_calls + Enum.count(found, &(elem(&1, 0) == :tool_call))
        # logprobs of held-back text come with that text
        scores = choice.scores ++ logprobs
        shown? = last? or deltas != []

        step = %{
          index: choice.index,
          first: not choice.begun,
          deltas: deltas,
          logprobs: if(shown?, do: scores, else: []),
          reason: if(last?, do: finish_reason(reason, n_calls))
        }

        choice = %{choice | thinking: thinking, begun: true, n_calls: n_calls}
        {:ok, step, put_in(t.choices[ref], %{choice | scores: if(shown?, do: [], else: scores)})}

      {:error, reason} ->
        Request.close_all(t.requests)
        {:error, reason}
    end
  end

  # If the template has no reasoning, the library's parser leaves `<think>` tags in the content.
  defp delta({:content, text}, thinking) do
    {events, thinking} = Thinking.feed(thinking, text)
    {Enum.map(events, &words/1), thinking}
  end

  defp delta({:reasoning, text}, thinking), do: {[%{reasoning_content: text}], thinking}

  defp delta({:tool_call, index, id, name}, thinking) do
    call = %{index: index, id: id, type: "function", function: %{name: name, arguments: ""}}
    {[%{tool_calls: [call]}], thinking}
  end

  defp delta({:arguments, index, text}, thinking),
    do: {[%{tool_calls: [%{index: index, function: %{arguments: text}}]}], thinking}

  defp words({:thinking, text}), do: %{reasoning_content: text}
  defp words({:content, text}), do: %{content: text}

  defp finish_reason(reason, _n_calls) when reason in [:length, :deadline], do: "length"
  defp finish_reason(_reason, n_calls) when n_calls > 0, do: "tool_calls"
  defp finish_reason(_reason, _n_calls), do: "stop"

  # ---- Whole answers ----

  @doc "Waits for all choices."
  @spec whole(t()) :: {:ok, ChatCompletion.t()} | {:error, Error.t()}
  def whole(t) do
    empty = %{reasoning: [], content: [], calls: [], logprobs: [], reason: nil}
    gather(t, Map.new(t.choices, fn {_ref, c} -> {c.index, empty} end))
  end

  defp gather(t, done) do
    case next(t) do
      {:ok, step, t} ->
        gather(t, Map.update!(done, step.index, &add(&1, step)))

      :over ->
        choices = for {index, parts} <- Enum.sort(done), do: choice(index, parts, t.logprobs)

        {:ok,
         %ChatCompletion{
           id: id(),
           created: System.os_time(:second),
           model: t.model,
           choices: choices,
           prompt_logprobs: t.prompt_logprobs,
           usage: usage(t)
         }}

      error ->
        error
    end
  end

  defp usage(%{usage: usage, n: n}) do
    %{
      prompt_tokens: usage.n_prompt,
      completion_tokens: n,
      total_tokens: usage.n_prompt + n,
      prompt_tokens_details: %{
        cached_tokens: usage.n_cached,
        image_tokens: usage.n_image_tokens,
        audio_tokens: usage.n_audio_tokens,
        miss: Telemetry.miss(usage)
      }
    }
  end

  defp add(parts, step) do
    parts = Enum.reduce(step.deltas, parts, &add_delta/2)
    %{parts | logprobs: [parts.logprobs | step.logprobs], reason: step.reason}
  end

  defp add_delta(%{content: text}, parts), do: %{parts | content: [parts.content | text]}

  defp add_delta(%{reasoning_content: text}, parts), do: %{parts | reasoning: [parts.reasoning | text]}

  # the newest is first in the list
  defp add_delta(%{tool_calls: [%{id: _} = call]}, parts),
    do: %{parts | calls: [Map.delete(call, :index) | parts.calls]}

  defp add_delta(%{tool_calls: [%{function: %{arguments: more}}]}, parts) do
    [call | before] = parts.calls
    %{parts | calls: [update_in(call.function.arguments, &(&1 <> more)) | before]}
  end

  defp choice(index, parts, logprobs?) do
    {reasoning, content} = text(IO.iodata_to_binary(parts.reasoning), IO.iodata_to_binary(parts.content))

    content = if content == "" and parts.calls != [], do: nil, else: content
    message = %{role: "assistant", content: content, reasoning_content: reasoning}

    %{
      index: index,
      message:
        if(parts.calls == [],
          do: message,
          else: Map.put(message, :tool_calls, Enum.reverse(parts.calls))
        ),
      logprobs: if(logprobs?, do: logprobs(List.flatten(parts.logprobs))),
      finish_reason: parts.reason
    }
  end

  defp text("", content), do: {nil, content}
  defp text(reasoning, content), do: {String.trim(reasoning), String.trim_leading(content)}

  defp logprobs(entries), do: %{content: entries, refusal: nil}

  # ---- Streams ----

  @doc "A lazy stream of completion chunks. `open` is called when it is enumerated."
  @spec stream((() -> {:ok, t()} | {:error, Error.t()})) :: Enumerable.t()
  def stream(open) do
    Stream.resource(
      fn ->
        t = Error.ok!(open.())

        {t,
         %ChatCompletionChunk{
           id: id(),
           created: System.os_time(:second),
           model: t.model,
           choices: []
         }}
      end,
      fn {t, answer} ->
        case next(t) do
          {:ok, step, t} -> {answer |> chunks(step) |> with_usage(t), {t, answer}}
          :over -> {:halt, {t, answer}}
          {:error, error} -> raise error
        end
      end,
      fn {t, _answer} -> close(t) end
    )
  end

  # The role comes with the first chunk, because a refusal has no delta at all. Logprobs are in the first
  # delta after it.
  defp chunks(answer, step) do
    role = if step.first, do: [chunk(answer, step, %{role: "assistant"}, nil, [])], else: []
    last = if step.reason, do: [{%{}, step.reason}], else: []
    deltas = Enum.map(step.deltas, &{&1, nil}) ++ last

    role ++
      for {{delta, reason}, i} <- Enum.with_index(deltas) do
        chunk(answer, step, delta, reason, if(i == 0, do: step.logprobs, else: []))
      end
  end

  # The last chunk of all choices has the usage.
  defp with_usage(chunks, %{requests: requests} = t) when requests == %{},
    do: List.update_at(chunks, -1, &%{&1 | usage: usage(t)})

  defp with_usage(chunks, _t), do: chunks

  defp chunk(answer, step, delta, reason, logprobs) do
    choice = %{
      index: step.index,
      delta: delta,
      logprobs: if(logprobs != [], do: logprobs(logprobs)),
      finish_reason: reason
    }

    %{answer | choices: [choice]}
  end

  defp id, do: "chatcmpl-" <> Base.encode16(:crypto.strong_rand_bytes(12), case: :lower)
end
