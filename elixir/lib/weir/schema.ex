# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Schema do
  @moduledoc """
  Converts Ecto schemas to JSON Schema by reflection, and answers to their structs. The package itself does
  not depend on Ecto.

      defmodule Person do
        use Ecto.Schema

        embedded_schema do
          field :name, :string
          field :born, :date
        end
      end

      {:ok, %Person{}} = Weir.Schema.chat(model, [%{role: "user", content: "Invent somebody."}], Person)

  All fields are required, and no others are allowed. Primary keys, and fields that Ecto fills in, are left
  out.
  """

  alias Weir.{Chat, Error, JSON, Options, Target}

  @doc """
  Returns the JSON Schema of an Ecto schema. Raises `ArgumentError` if the module is not an Ecto schema or has
  a type that JSON Schema does not support. A map does not keep the order of the fields; with `ordered: true`
  the properties are lists of pairs, which every option `json_schema` accepts.
  """
  @spec to_json_schema(module(), keyword()) :: map()
  def to_json_schema(module, opts \\ []) do
    o = Options.read!(opts, ordered: {:boolean, false})
    if o.ordered, do: schema(module), else: module |> schema() |> unordered()
  end

  defp unordered([{_, _} | _] = pairs), do: pairs |> Map.new() |> unordered()
  defp unordered(list) when is_list(list), do: Enum.map(list, &unordered/1)

  defp unordered(map) when is_map(map), do: Map.new(map, fn {key, value} -> {key, unordered(value)} end)

  defp unordered(other), do: other

  defp schema(module) do
    if !(is_atom(module) and Code.ensure_loaded?(module) and
           function_exported?(module, :__schema__, 1) and
           function_exported?(module, :__schema__, 2)) do
      raise ArgumentError, "#{inspect(module)} is not an Ecto schema"
    end

    own = module.__schema__(:primary_key) ++ module.__schema__(:autogenerate_fields)
    fields = module.__schema__(:fields) -- own

    %{
      "type" => "object",
      "properties" => fields |> Enum.map(&{Atom.to_string(&1), property(module, &1)}) |> members(),
      "required" => Enum.map(fields, &Atom.to_string/1),
      "additionalProperties" => false
    }
  end

  @doc """
  Returns the answer to a conversation as a struct. A grammar enforces the schema, with the fields in order.
  The target is any of `Weir.Target`; options as in `Weir.Target.chat/3`. An
  answer that `max_tokens` cut off is not valid JSON: the error `:invalid_answer`.
  """
  @spec chat(Target.t(), [Chat.message()], module(), keyword()) :: {:ok, struct()} | {:error, Error.t()}
  def chat(target, messages, module, opts \\ []) do
    opts = Keyword.put(opts, :json_schema, to_json_schema(module, ordered: true))
    with {:ok, text} <- Target.chat(target, messages, opts), do: load(module, text)
  end

  @doc """
  Converts JSON, or a decoded map, to the schema's struct by `Ecto.embedded_load/3`. Raises `ArgumentError`
  without Ecto.
  """
  @spec load(module(), String.t() | map()) :: {:ok, struct()} | {:error, Error.t()}
  def load(module, json) when is_binary(json) do
    case JSON.decode(json) do
      {:ok, map} when is_map(map) -> load(module, map)
      {:ok, other} -> invalid("no object: #{inspect(other)}")
      {:error, error} -> invalid(error.message)
    end
  end

  def load(module, map) when is_map(map) do
    if !(Code.ensure_loaded?(Ecto) and function_exported?(Ecto, :embedded_load, 3)) do
      raise ArgumentError, "structs are loaded by Ecto, which this application does not have"
    end

    try do
      # This package compiles without Ecto.
      {:ok, apply(Ecto, :embedded_load, [module, map, :json])}
    rescue
      error in ArgumentError -> invalid(error.message)
    end
  end

  defp invalid(text), do: {:error, Error.new({:invalid_answer, text})}

  # an empty list would be an array
  defp members([]), do: %{}
  defp members(pairs), do: pairs

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

  defp type({:map, t}), do: if(s = type(t), do: %{"type" => "object", "additionalProperties" => s})

  defp type({:array, t}), do: if(s = type(t), do: %{"type" => "array", "items" => s})
  # since Ecto 3.12
  defp type({:parameterized, {module, params}}), do: parameterized(module, params)
  defp type({:parameterized, module, params}), do: parameterized(module, params)
  defp type(_other), do: nil

  defp parameterized(Ecto.Enum, %{mappings: mappings}) do
    %{"type" => "string", "enum" => Enum.map(mappings, fn {name, _} -> Atom.to_string(name) end)}
  end

  defp parameterized(Ecto.Embedded, %{cardinality: :one, related: module}) do
    schema(module)
  end

  defp parameterized(Ecto.Embedded, %{cardinality: :many, related: module}) do
    %{"type" => "array", "items" => schema(module)}
  end

  defp parameterized(_module, _params), do: nil
end
