defmodule Weir.JSON do
  @moduledoc false
  # Just enough to hand a JSON Schema over: maps, lists, strings, atoms, numbers.

  @spec encode!(term()) :: String.t()
  def encode!(term), do: term |> encode() |> IO.iodata_to_binary()

  defp encode(nil), do: "null"
  defp encode(true), do: "true"
  defp encode(false), do: "false"
  defp encode(text) when is_binary(text), do: string(text)
  defp encode(atom) when is_atom(atom), do: string(Atom.to_string(atom))
  defp encode(number) when is_integer(number), do: Integer.to_string(number)
  defp encode(number) when is_float(number), do: Float.to_string(number)

  defp encode(list) when is_list(list) do
    [?[, list |> Enum.map(&encode/1) |> Enum.intersperse(?,), ?]]
  end

  defp encode(map) when is_map(map) and not is_struct(map) do
    members = Enum.map(map, fn {key, value} -> [string(key(key)), ?:, encode(value)] end)
    [?{, Enum.intersperse(members, ?,), ?}]
  end

  defp encode(term), do: raise(ArgumentError, "no JSON for #{inspect(term)}")

  defp key(key) when is_binary(key), do: key
  defp key(key) when is_atom(key), do: Atom.to_string(key)
  defp key(key), do: raise(ArgumentError, "no key of a JSON object: #{inspect(key)}")

  defp string(text) do
    if !String.valid?(text), do: raise(ArgumentError, "not UTF-8: #{inspect(text)}")
    [?", for(<<char::utf8 <- text>>, do: escape(char)), ?"]
  end

  defp escape(?"), do: "\\\""
  defp escape(?\\), do: "\\\\"

  defp escape(char) when char < 0x20,
    do: ["\\u", String.pad_leading(Integer.to_string(char, 16), 4, "0")]

  defp escape(char), do: <<char::utf8>>
end
