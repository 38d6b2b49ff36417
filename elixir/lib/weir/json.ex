# SPDX-License-Identifier: Apache-2.0
defmodule Weir.JSON do
  @moduledoc """
  JSON (RFC 8259), for applications that have no other package for it.

  An endpoint that streams in OpenAI's format sends each chunk so:

      ["data: ", Weir.JSON.encode!(chunk), "\\n\\n"]

  Jason and Elixir's own `JSON` encode `Weir.ChatCompletion`, `Weir.ChatCompletionChunk` and `Weir.Chunk`, too.
  OTP's `:json` knows no structs: give it `&JSON.protocol_encode/2` as its encoder.
  """

  @depth 512

  @structs [Weir.ChatCompletion, Weir.ChatCompletionChunk, Weir.Chunk]

  @doc false
  # Encodes a schema, a map or pairs. JSON text and nil stay as they are.
  @spec schema!(map() | [{atom() | String.t(), term()}] | String.t() | nil) :: String.t() | nil
  def schema!(nil), do: nil
  def schema!(text) when is_binary(text), do: text
  def schema!(schema), do: encode!(schema)

  @doc """
  Encodes maps, lists, texts, atoms, numbers and this package's answers. A list of pairs is an object whose
  members keep their order. Raises `ArgumentError` for other terms.

      iex> Weir.JSON.encode!(a: [1, nil, "b"], c: :d)
      ~S({"a":[1,null,"b"],"c":"d"})
  """
  @spec encode!(term()) :: String.t()
  def encode!(term), do: term |> encode() |> IO.iodata_to_binary()

  defp encode(nil), do: "null"
  defp encode(true), do: "true"
  defp encode(false), do: "false"
  defp encode(text) when is_binary(text), do: string(text)
  defp encode(atom) when is_atom(atom), do: string(Atom.to_string(atom))
  defp encode(number) when is_integer(number), do: Integer.to_string(number)
  defp encode(number) when is_float(number), do: Float.to_string(number)

  # length/1 fails for an improper list, so these guards are false
  defp encode([pair | _] = pairs) when is_tuple(pair) and length(pairs) > 0, do: object(pairs)

  defp encode(list) when is_list(list) and length(list) >= 0 do
    [?[, list |> Enum.map(&encode/1) |> Enum.intersperse(?,), ?]]
  end

  defp encode(map) when is_map(map) and not is_struct(map), do: object(map)
  defp encode(%module{} = struct) when module in @structs, do: struct |> Map.from_struct() |> object()

  defp encode(term), do: raise(ArgumentError, "no JSON for #{inspect(term)}")

  defp object(members) do
    members =
      Enum.map(members, fn
        {key, value} -> [string(key(key)), ?:, encode(value)]
        other -> raise ArgumentError, "no member of a JSON object: #{inspect(other)}"
      end)

    [?{, Enum.intersperse(members, ?,), ?}]
  end

  defp key(key) when is_binary(key), do: key
  defp key(key) when is_atom(key), do: Atom.to_string(key)
  defp key(key), do: raise(ArgumentError, "no key of a JSON object: #{inspect(key)}")

  defp string(text) do
    if !String.valid?(text), do: raise(ArgumentError, "not UTF-8: #{inspect(text)}")
    [?", for(<<char::utf8 <- text>>, do: escape(char)), ?"]
  end

  defp escape(?"), do: "\\\""
  defp escape(?\\), do: "\\\\"

  defp escape(char) when char < 0x20, do: ["\\u", String.pad_leading(Integer.to_string(char, 16), 4, "0")]

  defp escape(char), do: <<char::utf8>>

  @doc "Returns the error `:invalid` for invalid JSON and for more than #{@depth} levels of nesting."
  @spec decode(binary()) :: {:ok, term()} | {:error, Weir.Error.t()}
  def decode(json) when is_binary(json) do
    {value, rest} = value(space(json), @depth)

    case space(rest) do
      "" -> {:ok, value}
      more -> no_json(more)
    end
  catch
    {:no_json, rest} ->
      {:error, Weir.Error.new({:invalid, "no JSON at byte #{byte_size(json) - byte_size(rest)}"})}
  end

  defp value("null" <> rest, _depth), do: {nil, rest}
  defp value("true" <> rest, _depth), do: {true, rest}
  defp value("false" <> rest, _depth), do: {false, rest}
  defp value("\"" <> rest, _depth), do: text(rest, [])

  defp value("[" <> rest = all, depth) do
    if depth == 0, do: no_json(all)

    case space(rest) do
      "]" <> rest -> {[], rest}
      rest -> elements(rest, [], depth)
    end
  end

  defp value("{" <> rest = all, depth) do
    if depth == 0, do: no_json(all)

    case space(rest) do
      "}" <> rest -> {%{}, rest}
      rest -> members(rest, %{}, depth)
    end
  end

  defp value(json, _depth), do: number(json)

  defp elements(json, done, depth) do
    {value, rest} = value(json, depth - 1)

    case space(rest) do
      "," <> rest -> elements(space(rest), [value | done], depth)
      "]" <> rest -> {Enum.reverse([value | done]), rest}
      rest -> no_json(rest)
    end
  end

  defp members("\"" <> rest, done, depth) do
    {key, rest} = text(rest, [])

    with ":" <> rest <- space(rest),
         {value, rest} = value(space(rest), depth - 1),
         done = Map.put(done, key, value) do
      case space(rest) do
        "," <> rest -> members(space(rest), done, depth)
        "}" <> rest -> {done, rest}
        rest -> no_json(rest)
      end
    else
      rest -> no_json(rest)
    end
  end

  defp members(json, _done, _depth), do: no_json(json)

  defp text("\"" <> rest, done), do: {done |> Enum.reverse() |> IO.iodata_to_binary(), rest}
  defp text("\\u" <> rest = all, done), do: unicode(rest, all, done)

  for {letter, char} <-
        [{?", "\""}, {?\\, "\\"}, {?/, "/"}, {?b, "\b"}, {?f, "\f"}] ++
          [{?n, "\n"}, {?r, "\r"}, {?t, "\t"}] do
    defp text(<<?\\, unquote(letter), rest::binary>>, done), do: text(rest, [unquote(char) | done])
  end

  defp text(<<char::utf8, rest::binary>>, done) when char >= 0x20 and char != ?\\,
    do: text(rest, [<<char::utf8>> | done])

  defp text(json, _done), do: no_json(json)

  # A character is one or, with surrogates, two escapes of UTF-16. A lone surrogate is an error.
  defp unicode(json, all, done) do
    {units, rest} =
      case unit(json, all) do
        {<<0b110110::6, _::10>> = high, "\\u" <> rest} ->
          {low, rest} = unit(rest, all)
          {high <> low, rest}

        single ->
          single
      end

    case :unicode.characters_to_binary(units, {:utf16, :big}) do
      char when is_binary(char) -> text(rest, [char | done])
      _lone -> no_json(all)
    end
  end

  defp unit(<<digits::binary-size(4), rest::binary>>, all) do
    case Base.decode16(digits, case: :mixed) do
      {:ok, unit} -> {unit, rest}
      :error -> no_json(all)
    end
  end

  defp unit(_short, all), do: no_json(all)

  defp number(json) do
    case Regex.run(~r/^-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/, json) do
      nil -> no_json(json)
      [all] -> {String.to_integer(all), after_match(json, all)}
      [all | _parts] -> {float(all, json), after_match(json, all)}
    end
  end

  defp float(text, json) do
    # Erlang requires a point before the exponent
    text = if text =~ ".", do: text, else: String.replace(text, ~r/[eE]/, ".0e")
    String.to_float(text)
  rescue
    ArgumentError -> no_json(json)
  end

  defp after_match(json, match), do: binary_part(json, byte_size(match), byte_size(json) - byte_size(match))

  defp space(<<char, rest::binary>>) when char in ~c" \t\n\r", do: space(rest)
  defp space(json), do: json

  @spec no_json(binary()) :: no_return()
  defp no_json(rest), do: throw({:no_json, rest})
end
