# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ThinkingTest do
  use ExUnit.Case, async: true
  alias Weir.{Terms, Thinking}

  test "whole texts" do
    assert Thinking.parse("") == {"", ""}
    assert Thinking.parse(" plain ") == {"", " plain "}
    assert Thinking.parse("<think>\na\n</think>\n\nb") == {"a", "b"}
    assert Thinking.parse("a</think>b") == {"a", "b"}
    assert Thinking.parse("<think>never closed") == {"never closed", ""}
    assert Thinking.parse("<think></think>b") == {"", "b"}
    assert Thinking.parse("x<think>a</think>y<think>b</think>z") == {"ab", "xyz"}
    assert Thinking.parse("a < b <thin") == {"", "a < b <thin"}
  end

  # The parts between tags, computed from the whole text.
  defp naive(text, true) do
    case String.split(text, "</think>", parts: 2) do
      [a, b] -> [{:thinking, a} | naive(b, false)]
      [a] -> [{:thinking, a}]
    end
  end

  defp naive(text, false) do
    case String.split(text, "<think>", parts: 2) do
      [a, b] -> [{:content, a} | naive(b, true)]
      [a] -> [{:content, a}]
    end
  end

  defp merge(events) do
    events
    |> Enum.reject(&(elem(&1, 1) == ""))
    |> Enum.chunk_by(&elem(&1, 0))
    |> Enum.map(fn [{kind, _} | _] = part -> {kind, Enum.map_join(part, &elem(&1, 1))} end)
  end

  test "it does not matter where the text is cut" do
    Terms.sow("thinking")

    for _ <- 1..2000 do
      parts = ["<think>", "</think>", "<", "<th", "</", "think>", "é", "a", "\n", "<<think>"]
      text = for(_ <- 1..:rand.uniform(12), into: "", do: Enum.random(parts))
      opened = Enum.random([true, false])

      {events, parser} =
        text
        |> cut()
        |> Enum.reduce({[], Thinking.stream_parser(thinking: opened)}, fn piece, {events, parser} ->
          {more, parser} = Thinking.feed(parser, piece)
          assert Enum.all?(more, fn {_, text} -> text != "" and String.valid?(text) end)
          {events ++ more, parser}
        end)

      assert merge(events ++ Thinking.flush(parser)) == merge(naive(text, opened)), inspect(text)
    end
  end

  defp cut(""), do: []

  defp cut(text) do
    {first, rest} = String.split_at(text, :rand.uniform(4))
    [first | cut(rest)]
  end
end
