defmodule Weir.Completion do
  @moduledoc false
  # Answers in OpenAI's shapes, of texts and chunks from anywhere.

  alias Weir.{ChatCompletion, ChatCompletionChunk, Chunk, Model, Thinking}

  @doc "A whole answer. `counts` has prompt_tokens and completion_tokens."
  @spec whole(Model.t(), String.t(), String.t(), Chunk.reason(), map()) :: ChatCompletion.t()
  def whole(model, prompt, text, reason, counts) do
    {reasoning, content} = Thinking.parse(opened(prompt) <> text)

    %ChatCompletion{
      id: id(),
      created: System.os_time(:second),
      model: Model.desc(model),
      choices: [
        %{
          index: 0,
          message: %{role: "assistant", content: content, reasoning_content: none(reasoning)},
          finish_reason: finish_reason(reason)
        }
      ],
      usage: Map.put(counts, :total_tokens, counts.prompt_tokens + counts.completion_tokens)
    }
  end

  @doc "A stream of chunks as completion chunks. All three functions are called when it is enumerated."
  @spec stream(
          (() -> Model.t()),
          (Model.t() -> {:ok, String.t()} | {:error, term()}),
          (Model.t(), String.t() -> Enumerable.t())
        ) :: Enumerable.t()
  def stream(model, prompt, chunks) do
    Stream.flat_map([:once], fn :once ->
      model = model.()
      prompt = prompt!(prompt.(model))

      answer = %ChatCompletionChunk{
        id: id(),
        created: System.os_time(:second),
        model: Model.desc(model),
        choices: []
      }

      parser = Thinking.stream_parser(thinking: opened(prompt) != "")

      chunks.(model, prompt)
      |> Stream.transform({:first, parser}, &deltas/2)
      |> Stream.map(fn {delta, reason} -> choice(answer, delta, reason) end)
    end)
  end

  @doc "The prompt, or `Weir.Error`."
  def prompt!({:ok, prompt}), do: prompt
  def prompt!({:error, reason}), do: raise(Weir.Error, reason)

  # The role comes with the first chunk: what is refused has no delta at all.
  defp deltas(chunk, {:first, parser}) do
    {deltas, parser} = deltas(chunk, parser)
    {[{%{role: "assistant"}, nil} | deltas], parser}
  end

  defp deltas(%Chunk{reason: nil, text: text}, parser) do
    {events, parser} = Thinking.feed(parser, text)
    {Enum.map(events, &{delta(&1), nil}), parser}
  end

  defp deltas(%Chunk{reason: :cancelled}, _parser), do: raise(Weir.Error, :cancelled)

  defp deltas(%Chunk{reason: reason}, parser) do
    rest = parser |> Thinking.flush() |> Enum.map(&{delta(&1), nil})
    {rest ++ [{%{}, finish_reason(reason)}], parser}
  end

  defp delta({:thinking, text}), do: %{reasoning_content: text}
  defp delta({:content, text}), do: %{content: text}

  defp choice(answer, delta, reason) do
    %{answer | choices: [%{index: 0, delta: delta, finish_reason: reason}]}
  end

  # Some templates open the block of thoughts themselves.
  defp opened(prompt) do
    if prompt |> String.trim_trailing() |> String.ends_with?("<think>"), do: "<think>", else: ""
  end

  defp finish_reason(:end), do: "stop"
  defp finish_reason(:stop_words), do: "stop"
  defp finish_reason(reason), do: Atom.to_string(reason)

  defp none(""), do: nil
  defp none(text), do: text

  defp id, do: "chatcmpl-" <> Base.encode16(:crypto.strong_rand_bytes(12), case: :lower)
end
