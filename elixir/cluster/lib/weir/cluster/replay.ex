# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Replay do
  @moduledoc false
  # The part of an answer that a consumer already has. When another node generates the answer again, that part
  # is compared and skipped: the consumer gets each token and each byte once. Pure.

  alias Weir.{ChatCompletionChunk, Chunk}

  # texts, ids: delivered, the newest first; n_scores: delivered. text_left, ids_left, scores_left: the part of
  # them that the present node has not generated again yet. n_processed: of the prompt, as delivered.
  defstruct texts: [],
            n_processed: -1,
            ids: [],
            n_scores: 0,
            prompt?: false,
            text_left: "",
            ids_left: [],
            scores_left: 0

  @type t :: %__MODULE__{}

  @doc "True if the consumer has nothing yet."
  @spec empty?(t()) :: boolean()
  def empty?(replay), do: replay.texts == [] and replay.ids == [] and not replay.prompt?

  @doc "The text that the consumer has."
  @spec text(t()) :: String.t()
  def text(replay), do: replay.texts |> Enum.reverse() |> IO.iodata_to_binary()

  @doc "How many tokens the consumer has."
  @spec n_ids(t()) :: non_neg_integer()
  def n_ids(replay), do: replay.ids |> Enum.map(&length/1) |> Enum.sum()

  @doc "Another node begins from the start."
  @spec again(t()) :: t()
  def again(replay),
    do: %{
      replay
      | text_left: text(replay),
        ids_left: replay.ids |> Enum.reverse() |> Enum.concat(),
        scores_left: replay.n_scores
    }

  @doc """
  The part of a node's chunk that the consumer does not have: nil if it has all of it. `:diverged` if the
  answer is not the one that the consumer has begun to read.
  """
  @spec take(t(), struct()) :: {:ok, struct() | nil, t()} | :diverged
  def take(replay, %Chunk{prompt_logprobs: [_ | _]} = chunk),
    do: {:ok, if(not replay.prompt?, do: chunk), %{replay | prompt?: true}}

  # What its chunks would be compared with is not kept: another node cannot continue it.
  def take(replay, %ChatCompletionChunk{} = chunk), do: {:ok, chunk, %{replay | prompt?: true}}

  def take(replay, %Chunk{progress: %{n_processed: n}} = chunk) do
    new? = replay.ids == [] and n >= replay.n_processed
    {:ok, if(new?, do: chunk), %{replay | n_processed: max(n, replay.n_processed)}}
  end

  def take(replay, chunk) do
    with {:ok, ids, ids_left} <- skip_ids(chunk.ids, replay.ids_left),
         {:ok, text, text_left} <- skip_text(chunk.text, replay.text_left),
         true <- chunk.reason == nil or (ids_left == [] and text_left == "") do
      {logprobs, scores_left} = skip_scores(chunk.logprobs, replay.scores_left)
      replay = %{replay | ids_left: ids_left, text_left: text_left, scores_left: scores_left}
      new = %{chunk | ids: ids, text: text, logprobs: logprobs}

      if ids == [] and text == "" and logprobs in [nil, []] and chunk.reason == nil,
        do: {:ok, nil, replay},
        else: {:ok, new, delivered(replay, new)}
    else
      _different -> :diverged
    end
  end

  defp skip_ids([id | ids], [id | left]), do: skip_ids(ids, left)
  defp skip_ids([_ | _], [_ | _]), do: :diverged
  defp skip_ids(ids, left), do: {:ok, ids, left}

  defp skip_text(text, left) do
    n = min(byte_size(text), byte_size(left))
    <<again::binary-size(n), new::binary>> = text

    case left do
      <<^again::binary-size(n), left::binary>> -> {:ok, new, left}
      _other -> :diverged
    end
  end

  # A chunk's may belong to ids of chunks before it.
  defp skip_scores(nil, left), do: {nil, left}

  defp skip_scores(scores, left) do
    n = min(length(scores), left)
    {Enum.drop(scores, n), left - n}
  end

  defp delivered(replay, %Chunk{ids: ids, text: text, logprobs: logprobs}) do
    ids = if ids == [], do: replay.ids, else: [ids | replay.ids]
    texts = if text == "", do: replay.texts, else: [text | replay.texts]
    %{replay | ids: ids, texts: texts, n_scores: replay.n_scores + length(logprobs || [])}
  end
end
