# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Thinking do
  @moduledoc """
  Separates `<think>…</think>` from the answer, in complete texts or piece by piece.

      iex> Weir.Thinking.parse("<think>one and one</think>two")
      {"one and one", "two"}
  """

  alias Weir.Options

  @open "<think>"
  @close "</think>"

  @enforce_keys [:thinking]
  defstruct [:thinking, held: ""]
  @opaque t :: %__MODULE__{thinking: boolean(), held: String.t()}
  @type event :: {:thinking | :content, String.t()}

  @doc """
  Returns `{reasoning, content}` of a complete answer. A template may have opened the block already, so text
  before a lone `</think>` is reasoning. White space around the reasoning, and before the content after it, is
  dropped.

      iex> Weir.Thinking.parse("so it is two</think>\\n\\ntwo")
      {"so it is two", "two"}
      iex> Weir.Thinking.parse("two")
      {"", "two"}
  """
  @spec parse(String.t()) :: {String.t(), String.t()}
  def parse(text) do
    text = Options.argument!("the text", :binary, text)
    {events, parser} = feed(stream_parser(thinking: implicit?(text)), text)
    events = events ++ flush(parser)
    joined = fn kind -> for({^kind, part} <- events, into: "", do: part) end
    content = joined.(:content)

    if content == text,
      do: {"", text},
      else: {String.trim(joined.(:thinking)), String.trim_leading(content)}
  end

  defp implicit?(text) do
    case String.split(text, @close, parts: 2) do
      [before, _rest] -> not String.contains?(before, @open)
      [_all] -> false
    end
  end

  @doc "Creates a parser for text in pieces. `thinking: true`: the template has already opened the block."
  @spec stream_parser(keyword()) :: t()
  def stream_parser(opts \\ []) do
    %{thinking: thinking} = Weir.Options.read!(opts, thinking: {:boolean, false})
    %__MODULE__{thinking: thinking}
  end

  @doc """
  Parses the next piece of text. A suffix that may start a tag is held back until `flush/1`.

      iex> parser = Weir.Thinking.stream_parser()
      iex> {[], parser} = Weir.Thinking.feed(parser, "<th")
      iex> {events, _parser} = Weir.Thinking.feed(parser, "ink>hm</think>yes")
      iex> events
      [thinking: "hm", content: "yes"]
  """
  @spec feed(t(), String.t()) :: {[event()], t()}
  def feed(%__MODULE__{} = parser, text), do: split(parser, parser.held <> text, [])

  @doc "Returns the held-back text at the end."
  @spec flush(t()) :: [event()]
  def flush(%__MODULE__{} = parser), do: event(parser.thinking, parser.held, [])

  defp split(%{thinking: thinking} = parser, text, events) do
    tag = if thinking, do: @close, else: @open

    case String.split(text, tag, parts: 2) do
      [before, rest] ->
        split(%{parser | thinking: not thinking}, rest, event(thinking, before, events))

      [text] ->
        keep = held_length(text, tag)
        {show, held} = cut(text, byte_size(text) - keep)
        {Enum.reverse(event(thinking, show, events)), %{parser | held: held}}
    end
  end

  defp cut(text, at) do
    <<first::binary-size(at), rest::binary>> = text
    {first, rest}
  end

  defp event(_thinking, "", events), do: events
  defp event(true, text, events), do: [{:thinking, text} | events]
  defp event(false, text, events), do: [{:content, text} | events]

  # The length of the longest suffix that may start the tag.
  defp held_length(text, tag) do
    longest = min(byte_size(text), byte_size(tag) - 1)
    Enum.find(longest..0//-1, &String.ends_with?(text, binary_part(tag, 0, &1)))
  end
end
