# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Completion do
  @moduledoc false
  # Answers to a conversation in OpenAI's shapes: requests that run together, and a reader for each.

  alias Weir.{ChatCompletion, ChatCompletionChunk, Chat, Logprobs, Model, NIF, Thinking}
  alias Weir.Server.{Request, Telemetry}

  @enforce_keys [:model, :requests, :choices, :logprobs]
  defstruct [:model, :requests, :choices, :logprobs, :prompt_logprobs, :usage]

  @type t :: %__MODULE__{
          model: Model.t(),
          requests: map(),
          choices: map(),
          logprobs: boolean(),
          prompt_logprobs: [Weir.Chunk.logprob()] | nil,
          usage: map() | nil
        }

  # What a step brings to one choice: deltas, the logprobs of tokens since the last delta, how many tokens it had, and in
  # the last step why it ended.
  @typep step :: %{
           index: non_neg_integer(),
           first: boolean(),
           deltas: [map()],
           logprobs: [map()],
           n: non_neg_integer(),
           reason: String.t() | nil
         }

  @doc "What a completion may ask for beside what a request may."
  def options do
    [
      n: {{:range, 1..128}, 1},
      tools: {{:maybe, {:list, :map}}, nil},
      tool_choice: {:any, :auto},
      parallel_tool_calls: {:boolean, true}
    ]
  end

  @doc """
  Where tools may be called, a schema is not the request's but the conversation's: an answer is a call, or has the form.
  So is one that need not be enforced in full.
  """
  @spec form(map(), map()) :: {map(), map()}
  def form(%{tools: [_ | _]} = o, %{json_schema: schema} = given),
    do: {Map.put(o, :json_schema, schema), %{given | json_schema: nil}}

  def form(%{strict_schema: false} = o, %{json_schema: schema} = given) when schema != nil,
    do: {Map.put(o, :json_schema, schema), %{given | json_schema: nil}}

  def form(o, given), do: {Map.put(o, :json_schema, nil), given}

  @doc "`start` renders and submits: `Request`s, all or none, and the `NIF.chat` they answer."
  @spec open(
          Model.t(),
          [Chat.message()],
          map(),
          (NIF.chat() -> {:ok, [struct()]} | {:error, term()})
        ) ::
          {:ok, t()} | {:error, term()}
  def open(model, messages, o, start) do
    with {:ok, chat} <- Chat.create(model, messages, o),
         {:ok, parsers} <- parsers(chat, o.n),
         {:ok, requests} <- start.(chat) do
      choices =
        for {{request, parser}, index} <- requests |> Enum.zip(parsers) |> Enum.with_index(),
            into: %{} do
          {request.ref,
           %{
             index: index,
             parser: parser,
             thinking: Thinking.stream_parser(),
             begun: false,
             n_calls: 0,
             scores: []
           }}
        end

      {:ok,
       %__MODULE__{
         model: model,
         requests: Request.together(requests),
         choices: choices,
         logprobs: hd(requests).logprobs
       }}
    end
  end

  defp parsers(chat, n) do
    Enum.reduce_while(1..n, {:ok, []}, fn _, {:ok, parsers} ->
      case NIF.chat_parser(chat) do
        {:ok, parser} -> {:cont, {:ok, [parser | parsers]}}
        {:error, reason} -> {:halt, {:error, reason}}
      end
    end)
  end

  @doc "Cancels what runs."
  def close(%__MODULE__{requests: requests}), do: Request.close_all(requests)

  # ---- Steps ----

  @doc "The next step; `:over` after the last one. After an error all requests have ended."
  @spec next(t(), timeout()) :: {:ok, step(), t()} | {:error, term()} | :over
  def next(%__MODULE__{requests: requests}, _timeout) when requests == %{}, do: :over

  def next(%__MODULE__{requests: requests} = t, timeout) do
    case Request.next_of(requests, timeout) do
      {ref, {:chunk, ids, text, scores, request}} ->
        entries = Logprobs.entries(t.model, ids, scores) || []
        t = %{t | requests: Request.again(requests, request)}
        read(t, ref, text, entries, length(ids), nil)

      {_ref, {:prompt, ids, scores}} ->
        next(%{t | prompt_logprobs: Logprobs.entries(t.model, ids, scores)}, timeout)

      {ref, {:done, :cancelled, _usage}} ->
        requests |> Request.without(ref) |> Request.close_all()
        {:error, :cancelled}

      {ref, {:done, reason, usage}} ->
        # of several answers the first one's prompt: the others share what it has computed
        first? = t.choices[ref].index == 0
        usage = if first? or t.usage == nil, do: usage, else: t.usage
        t = %{t | requests: Request.without(requests, ref), usage: usage}
        read(t, ref, "", [], 0, reason)

      {:error, reason} ->
        {:error, reason}
    end
  end

  # With a reason nothing more will come.
  defp read(t, ref, text, logprobs, n, reason) do
    choice = t.choices[ref]
    last? = reason != nil

    case NIF.chat_parser_feed(choice.parser, text, last?) do
      {:ok, found} ->
        {deltas, thinking} = Enum.flat_map_reduce(found, choice.thinking, &delta/2)

        deltas = if last?, do: deltas ++ Enum.map(Thinking.flush(thinking), &words/1), else: deltas

        n_calls = choice.n_calls + Enum.count(found, &(elem(&1, 0) == :tool_call))
        # the tokens of what is still held back are told with it
        scores = choice.scores ++ logprobs
        told? = last? or deltas != []

        step = %{
          index: choice.index,
          first: not choice.begun,
          deltas: deltas,
          logprobs: if(told?, do: scores, else: []),
          n: n,
          reason: if(last?, do: finish_reason(reason, n_calls))
        }

        choice = %{
          choice
          | thinking: thinking,
            begun: true,
            n_calls: n_calls,
            scores: if(told?, do: [], else: scores)
        }

        {:ok, step, put_in(t.choices[ref], choice)}

      {:error, reason} ->
        Request.close_all(t.requests)
        {:error, reason}
    end
  end

  # What the template does not know of, the library's parser takes for content: `<think>` in it is reasoning, too.
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

  @doc "Waits for all choices; `left`: how many ms are left."
  @spec whole(t(), (() -> timeout())) :: {:ok, ChatCompletion.t()} | {:error, term()}
  def whole(t, left) do
    empty = %{reasoning: [], content: [], calls: [], logprobs: [], reason: nil}
    gather(t, Map.new(t.choices, fn {_ref, c} -> {c.index, empty} end), 0, left)
  end

  defp gather(t, done, n, left) do
    case next(t, left.()) do
      {:ok, step, t} ->
        gather(t, Map.update!(done, step.index, &add(&1, step)), n + step.n, left)

      :over ->
        choices = for {index, parts} <- Enum.sort(done), do: choice(index, parts, t.logprobs)

        {:ok,
         %ChatCompletion{
           id: id(),
           created: System.os_time(:second),
           model: Model.desc(t.model),
           choices: choices,
           prompt_logprobs: t.prompt_logprobs,
           usage: %{
             prompt_tokens: t.usage.n_prompt,
             completion_tokens: n,
             total_tokens: t.usage.n_prompt + n,
             prompt_tokens_details: %{
               cached_tokens: t.usage.n_cached,
               miss: Telemetry.miss(t.usage)
             }
           }
         }}

      {:error, reason} ->
        {:error, reason}
    end
  end

  defp add(parts, step) do
    parts = Enum.reduce(step.deltas, parts, &add_delta/2)
    %{parts | logprobs: [parts.logprobs | step.logprobs], reason: step.reason}
  end

  defp add_delta(%{content: text}, parts), do: %{parts | content: [parts.content | text]}

  defp add_delta(%{reasoning_content: text}, parts),
    do: %{parts | reasoning: [parts.reasoning | text]}

  # the last one is the first of the list
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
  @spec stream((() -> {:ok, t()} | {:error, term()}), timeout()) :: Enumerable.t()
  def stream(open, timeout) do
    Stream.resource(
      fn ->
        t = ok!(open.())

        {t,
         %ChatCompletionChunk{
           id: id(),
           created: System.os_time(:second),
           model: Model.desc(t.model),
           choices: []
         }}
      end,
      fn {t, answer} ->
        case next(t, timeout) do
          {:ok, step, t} -> {chunks(answer, step), {t, answer}}
          :over -> {:halt, {t, answer}}
          {:error, reason} -> raise Weir.Error, reason
        end
      end,
      fn {t, _answer} -> close(t) end
    )
  end

  defp ok!({:ok, value}), do: value
  defp ok!({:error, reason}), do: raise(Weir.Error, reason)

  # The role comes with the first chunk: what is refused has no delta at all. Logprobs stand in the first delta after it.
  defp chunks(answer, step) do
    role = if step.first, do: [chunk(answer, step, %{role: "assistant"}, nil, [])], else: []
    last = if step.reason, do: [{%{}, step.reason}], else: []
    told = Enum.map(step.deltas, &{&1, nil}) ++ last

    role ++
      for {{delta, reason}, i} <- Enum.with_index(told) do
        chunk(answer, step, delta, reason, if(i == 0, do: step.logprobs, else: []))
      end
  end

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
