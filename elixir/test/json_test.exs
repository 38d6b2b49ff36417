# SPDX-License-Identifier: Apache-2.0
defmodule Weir.JSONTest do
  use ExUnit.Case, async: true
  alias Weir.{JSON, Terms}
  doctest Weir.JSON

  test "values" do
    for {json, value} <- [
          {~s( null ), nil},
          {~s(true), true},
          {~s([]), []},
          {~s({}), %{}},
          {~s([1, -2,3.5 ,1e2, 1E-2,-0]), [1, -2, 3.5, 100.0, 0.01, 0]},
          {~s({"a":{"b":[null,false]} , "c":"d"}), %{"a" => %{"b" => [nil, false]}, "c" => "d"}},
          {~S("\"\\\/\b\f\n\r\tä\u00e4\ud83d\ude00"), "\"\\/\b\f\n\r\tää😀"},
          {~s(123456789012345678901234567890), 123_456_789_012_345_678_901_234_567_890}
        ] do
      assert JSON.decode(json) == {:ok, value}
    end
  end

  test "answers" do
    {:ok, server} = Weir.Server.start_link(model_path: "fake:", temp: 0.0, max_tokens: 3)
    messages = [%{role: "user", content: "hello"}]

    {:ok, completion} =
      Weir.Server.chat_completion(server, messages, logprobs: true, top_logprobs: 1, prompt_logprobs: true)

    chunks =
      (server |> Weir.Server.stream_chat_completion(messages, logprobs: true) |> Enum.to_list()) ++
        (server |> Weir.Server.stream("hello", emit: :chunks, prompt_logprobs: true) |> Enum.to_list())

    assert length(chunks) > 4

    for answer <- [completion | chunks] do
      expected = by_text(answer)
      assert {:ok, ^expected} = answer |> JSON.encode!() |> JSON.decode()
      assert {:ok, ^expected} = answer |> jason!() |> IO.iodata_to_binary() |> JSON.decode()
      assert {:ok, ^expected} = answer |> elixir_json!() |> IO.iodata_to_binary() |> JSON.decode()
    end

    {:ok, answer} = Weir.Server.complete(server, "hello")
    expected = by_text(answer)
    assert {:ok, ^expected} = answer |> JSON.encode!() |> JSON.decode()

    assert_raise ArgumentError, ~r/no JSON for %URI{/, fn -> JSON.encode!(%URI{}) end
  end

  # Where mix looks when it consolidates a protocol.
  test "the implementations are found, whether or not the application has the protocols" do
    ebin = Path.join(:code.lib_dir(:weir), "ebin")

    for protocol <- [Jason.Encoder, :"Elixir.JSON.Encoder"],
        do:
          assert(
            Enum.sort(Protocol.extract_impls(protocol, [ebin])) ==
              [Weir.ChatCompletion, Weir.ChatCompletionChunk, Weir.Chunk]
          )
  end

  # The same with texts as keys, and as in JSON.
  defp by_text(%_{} = struct), do: struct |> Map.from_struct() |> by_text()
  defp by_text(%{} = map), do: Map.new(map, fn {key, value} -> {to_string(key), by_text(value)} end)
  defp by_text(list) when is_list(list), do: Enum.map(list, &by_text/1)
  defp by_text(atom) when is_atom(atom) and atom not in [nil, true, false], do: Atom.to_string(atom)
  defp by_text(value), do: value

  # As these protocols call an implementation: what it passes back is a map of the struct's members. Elixir has
  # its own from 1.18 on.
  defp jason!(%module{} = struct) do
    if not Code.ensure_loaded?(Jason.Encode) do
      body = quote do: def(map(map, {_escape, encode}), do: encode.(map, nil))
      Module.create(Jason.Encode, body, __ENV__)
    end

    Module.concat(Jason.Encoder, module).encode(struct, {nil, fn map, _escape -> JSON.encode!(map) end})
  end

  defp elixir_json!(%module{} = struct) do
    if Code.ensure_loaded?(:"Elixir.JSON") do
      apply(:"Elixir.JSON", :encode!, [struct])
    else
      encoder = fn map, _encoder -> JSON.encode!(map) end
      Module.concat(:"Elixir.JSON.Encoder", module).encode(struct, encoder)
    end
  end

  test "invalid JSON is refused" do
    for json <- [
          "",
          " ",
          "nul",
          "truex",
          "01",
          "1.",
          "+1",
          ".5",
          "1e999",
          "[1,]",
          "[1",
          "[,]",
          "{\"a\"}",
          "{\"a\":1,}",
          "{a:1}",
          "\"a",
          "\"\n\"",
          ~S("\x"),
          ~S("\u12"),
          ~S("\ud800"),
          ~S("\ud800\u0041"),
          ~S("\udc00"),
          <<?", 255, ?">>,
          "1 2",
          String.duplicate("[", 100_000)
        ] do
      assert {:error, %{message: reason}} = JSON.decode(json)
      assert reason =~ "no JSON at byte"
    end
  end

  test "pairs are objects, whose members keep their order" do
    pairs = for i <- 40..1//-1, do: {"key#{i}", i}
    expected = "{" <> Enum.map_join(pairs, ",", fn {key, i} -> ~s("#{key}":#{i}) end) <> "}"
    assert JSON.encode!(pairs) == expected

    assert JSON.encode!(z: [b: 1, a: [[y: 2, x: nil]]]) ==
             ~s({"z":{"b":1,"a":[{"y":2,"x":null}]}})

    assert JSON.encode!([]) == "[]"
    tool = %{function: %{parameters: [type: "object", properties: [b: 1, a: 2]]}}
    assert JSON.encode!([tool]) =~ ~s({"type":"object","properties":{"b":1,"a":2}})

    for wrong <- [[{"a", 1}, :b], [{"a", 1}, {"b", 2, 3}], [{1, 2}], [{"a"}]],
        do: assert_raise(ArgumentError, fn -> JSON.encode!(wrong) end)

    assert JSON.schema!(~s({"b": 1, "a": 2})) == ~s({"b": 1, "a": 2})
    assert JSON.schema!(b: 1, a: 2) == ~s({"b":1,"a":2})
    assert JSON.schema!(nil) == nil
  end

  test "encoded values are decoded" do
    Terms.sow("JSON")

    for _ <- 1..300 do
      value = value(4)
      assert JSON.decode(JSON.encode!(value)) == {:ok, value}
    end
  end

  defp value(depth) do
    case :rand.uniform(if depth > 0, do: 7, else: 5) do
      1 -> Enum.random([nil, true, false])
      2 -> :rand.uniform(1_000_000) - 500_000
      3 -> (:rand.uniform() - 0.5) * :math.pow(10, :rand.uniform(40) - 20)
      n when n <= 5 -> text()
      6 -> for(_ <- 1..:rand.uniform(4), do: value(depth - 1))
      7 -> Map.new(1..:rand.uniform(4), fn _ -> {text(), value(depth - 1)} end)
    end
  end

  defp text,
    do:
      for(
        _ <- 0..:rand.uniform(9),
        into: "",
        do: Enum.random(["a", "\"", "\\", "\n", "é", "😀", "\0"])
      )
end
