defmodule Weir.SchemaTest do
  use ExUnit.Case, async: true
  alias Weir.Schema

  # What Ecto's `schema` macro defines, as far as it is asked for.
  defmodule Address do
    def __schema__(:fields), do: [:id, :street]
    def __schema__(:primary_key), do: [:id]
    def __schema__(:autogenerate_fields), do: []
    def __schema__(:type, :id), do: :binary_id
    def __schema__(:type, :street), do: :string
  end

  defmodule Person do
    @types [
      id: :id,
      name: :string,
      age: :integer,
      height: :float,
      worth: :decimal,
      alive: :boolean,
      born: :date,
      seen: :utc_datetime,
      tags: {:array, :string},
      scores: {:map, :integer},
      colour: {:parameterized, {Ecto.Enum, %{mappings: [red: "red", green: "g"]}}},
      shade: {:parameterized, Ecto.Enum, %{mappings: [dark: 1]}},
      home: {:parameterized, {Ecto.Embedded, %{cardinality: :one, related: Address}}},
      others: {:parameterized, Ecto.Embedded, %{cardinality: :many, related: Address}},
      inserted_at: :naive_datetime
    ]
    def __schema__(:fields), do: Keyword.keys(@types)
    def __schema__(:primary_key), do: [:id]
    def __schema__(:autogenerate_fields), do: [:inserted_at]
    def __schema__(:type, field), do: @types[field]
  end

  defmodule Odd do
    def __schema__(:fields), do: [:thing]
    def __schema__(:primary_key), do: []
    def __schema__(:autogenerate_fields), do: []
    def __schema__(:type, :thing), do: My.Own.Type
  end

  @address %{
    "type" => "object",
    "properties" => %{"street" => %{"type" => "string"}},
    "required" => ["street"],
    "additionalProperties" => false
  }

  test "each type" do
    schema = Schema.to_json_schema(Person)
    assert schema["additionalProperties"] == false
    assert "id" not in schema["required"] and "inserted_at" not in schema["required"]
    assert Enum.sort(schema["required"]) == Enum.sort(Map.keys(schema["properties"]))

    assert schema["properties"] == %{
             "name" => %{"type" => "string"},
             "age" => %{"type" => "integer"},
             "height" => %{"type" => "number"},
             "worth" => %{"type" => "number"},
             "alive" => %{"type" => "boolean"},
             "born" => %{"type" => "string", "format" => "date"},
             "seen" => %{"type" => "string", "format" => "date-time"},
             "tags" => %{"type" => "array", "items" => %{"type" => "string"}},
             "scores" => %{
               "type" => "object",
               "additionalProperties" => %{"type" => "integer"}
             },
             "colour" => %{"type" => "string", "enum" => ["red", "green"]},
             "shade" => %{"type" => "string", "enum" => ["dark"]},
             "home" => @address,
             "others" => %{"type" => "array", "items" => @address}
           }
  end

  @tag :llama
  test "it makes a grammar" do
    assert {:ok, gbnf} = Weir.Grammar.from_json_schema(Schema.to_json_schema(Person))
    assert gbnf =~ "green"
  end

  test "what is no schema" do
    assert_raise ArgumentError, ~r/not an Ecto schema/, fn -> Schema.to_json_schema(Enum) end
    assert_raise ArgumentError, ~r/not an Ecto schema/, fn -> Schema.to_json_schema("x") end
    assert_raise ArgumentError, ~r/Odd.thing.*My.Own.Type/, fn -> Schema.to_json_schema(Odd) end
  end
end
