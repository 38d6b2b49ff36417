defmodule Weir.Schema do
  @moduledoc """
  JSON Schema from an Ecto schema, by its reflection: this package does not need Ecto.

  All fields are required and none may be added. Primary keys, and fields that Ecto fills in by itself, are left out.
  """

  @doc "`ArgumentError` when the module is no Ecto schema, or has a type that JSON Schema does not know."
  @spec to_json_schema(module()) :: map()
  def to_json_schema(module) do
    if !(is_atom(module) and Code.ensure_loaded?(module) and
           function_exported?(module, :__schema__, 1) and
           function_exported?(module, :__schema__, 2)) do
      raise ArgumentError, "#{inspect(module)} is not an Ecto schema"
    end

    own = module.__schema__(:primary_key) ++ module.__schema__(:autogenerate_fields)
    fields = module.__schema__(:fields) -- own

    %{
      "type" => "object",
      "properties" => Map.new(fields, &{Atom.to_string(&1), property(module, &1)}),
      "required" => Enum.map(fields, &Atom.to_string/1),
      "additionalProperties" => false
    }
  end

  defp property(module, field) do
    type = module.__schema__(:type, field)

    type(type) ||
      raise ArgumentError,
            "#{inspect(module)}.#{field}: no JSON Schema for the type #{inspect(type)}"
  end

  defp type(t) when t in [:id, :integer], do: %{"type" => "integer"}
  defp type(t) when t in [:float, :decimal], do: %{"type" => "number"}
  defp type(:boolean), do: %{"type" => "boolean"}
  defp type(:string), do: %{"type" => "string"}
  defp type(t) when t in [:binary_id, Ecto.UUID], do: %{"type" => "string", "format" => "uuid"}
  defp type(:date), do: %{"type" => "string", "format" => "date"}
  defp type(t) when t in [:time, :time_usec], do: %{"type" => "string", "format" => "time"}

  defp type(t)
       when t in [:naive_datetime, :naive_datetime_usec, :utc_datetime, :utc_datetime_usec],
       do: %{"type" => "string", "format" => "date-time"}

  defp type(:map), do: %{"type" => "object"}

  defp type({:map, t}),
    do: if(s = type(t), do: %{"type" => "object", "additionalProperties" => s})

  defp type({:array, t}), do: if(s = type(t), do: %{"type" => "array", "items" => s})
  # Ecto 3.12 has put the two into a tuple.
  defp type({:parameterized, {module, params}}), do: parameterized(module, params)
  defp type({:parameterized, module, params}), do: parameterized(module, params)
  defp type(_other), do: nil

  defp parameterized(Ecto.Enum, %{mappings: mappings}) do
    %{"type" => "string", "enum" => Enum.map(mappings, fn {name, _} -> Atom.to_string(name) end)}
  end

  defp parameterized(Ecto.Embedded, %{cardinality: :one, related: module}) do
    to_json_schema(module)
  end

  defp parameterized(Ecto.Embedded, %{cardinality: :many, related: module}) do
    %{"type" => "array", "items" => to_json_schema(module)}
  end

  defp parameterized(_module, _params), do: nil
end
