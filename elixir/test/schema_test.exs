# SPDX-License-Identifier: Apache-2.0
defmodule Weir.SchemaTest do
  use ExUnit.Case, async: true
  alias Weir.Schema

  # The functions of Ecto's `schema` macro that are used.
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

  # more fields than a small map, which is ordered
  defmodule Wide do
    @fields for i <- 1..40, do: :"field#{rem(i * 17, 41)}"
    def fields, do: @fields
    def __schema__(:fields), do: @fields
    def __schema__(:primary_key), do: []
    def __schema__(:autogenerate_fields), do: []

    def __schema__(:type, :field17),
      do: {:parameterized, {Ecto.Embedded, %{cardinality: :many, related: Weir.SchemaTest.Pair}}}

    def __schema__(:type, _field), do: :boolean
  end

  defmodule Pair do
    def __schema__(:fields), do: [:reasoning, :answer]
    def __schema__(:primary_key), do: []
    def __schema__(:autogenerate_fields), do: []
    def __schema__(:type, _field), do: :string
  end

  test "fields in their order" do
    ordered = Schema.to_json_schema(Wide, ordered: true)
    assert Enum.map(ordered["properties"], &elem(&1, 0)) == Enum.map(Wide.fields(), &to_string/1)
    {"field17", many} = List.keyfind(ordered["properties"], "field17", 0)
    assert Enum.map(many["items"]["properties"], &elem(&1, 0)) == ["reasoning", "answer"]
    assert {:ok, plain} = Weir.JSON.decode(Weir.JSON.encode!(ordered))
    assert plain == Schema.to_json_schema(Wide)

    assert_raise ArgumentError, ~r/:ordered must be/, fn ->
      Schema.to_json_schema(Wide, ordered: 1)
    end
  end

  # The rule of an object names its properties in order.
  defp order(schema) do
    {:ok, gbnf} = Weir.Grammar.from_json_schema(schema)
    Regex.scan(~r/field\d+|reasoning|answer/, gbnf) |> List.flatten() |> Enum.uniq()
  end

  @tag :llama
  test "answers have properties in the schema's order, of pairs and of text" do
    pairs = [
      type: "object",
      properties: [reasoning: %{type: "boolean"}, answer: %{type: "boolean"}],
      required: ["answer", "reasoning"],
      additionalProperties: false
    ]

    for schema <- [pairs, Weir.JSON.encode!(pairs)],
        do: assert(order(schema) == ["reasoning", "answer"])

    turned = Keyword.update!(pairs, :properties, &Enum.reverse/1)
    assert order(turned) == ["answer", "reasoning"]

    {:ok, model} = Weir.load_model("fake:")
    assert {:error, _} = Weir.Grammar.from_json_schema("{")

    for wrong <- [1, :map, [:a], "nul \0"] do
      assert_raise ArgumentError, ~r/:json_schema must be/, fn ->
        Weir.generate(model, "a", json_schema: wrong)
      end
    end
  end

  @tag :model
  test "a model's answer has them in that order" do
    {:ok, model} = Weir.load_model(System.fetch_env!("WEIR_TEST_MODEL"))

    schema = [
      type: "object",
      properties: [reasoning: %{enum: ["a"]}, answer: %{enum: ["b"]}],
      required: ["answer", "reasoning"],
      additionalProperties: false
    ]

    expected = ~r/"reasoning".*"answer"/s
    opts = [json_schema: schema, max_tokens: 60, temp: 0.0]
    {:ok, text} = Weir.generate(model, "Answer:", opts)
    assert text =~ expected
    {:ok, server} = Weir.Server.start_link(model: model, n_ctx: 512, n_parallel: 1)
    {:ok, text} = Weir.Server.chat(server, [{:user, "Answer."}], opts)
    assert text =~ expected
  end

  test "modules without a schema are refused" do
    assert_raise ArgumentError, ~r/not an Ecto schema/, fn -> Schema.to_json_schema(Enum) end
    assert_raise ArgumentError, ~r/not an Ecto schema/, fn -> Schema.to_json_schema("x") end
    assert_raise ArgumentError, ~r/Odd.thing.*My.Own.Type/, fn -> Schema.to_json_schema(Odd) end
  end

  describe "load" do
    test "needs Ecto" do
      refute Code.ensure_loaded?(Ecto)
      assert_raise ArgumentError, ~r/Ecto/, fn -> Schema.load(Person, %{"name" => "x"}) end
      assert_raise ArgumentError, ~r/Ecto/, fn -> Schema.load(Person, "{}") end
    end
  end
end

defmodule Weir.SchemaLoadTest do
  # Defines the part of Ecto that is used, and removes it again, so nothing may run beside it.
  use ExUnit.Case, async: false
  alias Weir.{Schema, SchemaLoadTest.Pet}

  defmodule Pet do
    defstruct [:name, :age]
    def __schema__(:fields), do: [:name, :age]
    def __schema__(:primary_key), do: []
    def __schema__(:autogenerate_fields), do: []
    def __schema__(:type, :name), do: :string
    def __schema__(:type, :age), do: :integer
  end

  setup do
    {:module, Ecto, _, _} =
      Module.create(
        Ecto,
        quote do
          def embedded_load(module, data, :json) do
            fields =
              for field <- module.__schema__(:fields) do
                value = data[Atom.to_string(field)]

                if module.__schema__(:type, field) == :integer and not is_integer(value),
                  do: raise(ArgumentError, "cannot load `#{inspect(value)}` as type :integer")

                {field, value}
              end

            struct!(module, fields)
          end
        end,
        Macro.Env.location(__ENV__)
      )

    on_exit(fn ->
      :code.purge(Ecto)
      :code.delete(Ecto)
      :code.purge(Ecto)
    end)
  end

  test "load" do
    assert Schema.load(Pet, ~S({"name":"Rex","age":3})) == {:ok, %Pet{name: "Rex", age: 3}}
    assert Schema.load(Pet, %{"name" => "Rex", "age" => 3}) == {:ok, %Pet{name: "Rex", age: 3}}
    assert {:error, %{message: reason}} = Schema.load(Pet, ~S({"name":"Rex","age":"old"}))
    assert reason =~ "integer"
    assert {:error, _} = Schema.load(Pet, "[]")
    assert {:error, _} = Schema.load(Pet, ~S({"name":"Re))
  end

  @tag :model
  test "an answer as a struct, of any target" do
    path = System.fetch_env!("WEIR_TEST_MODEL")
    {:ok, model} = Weir.load_model(path)
    server = start_supervised!({Weir.Server, model: model})
    messages = [%{role: "user", content: "Invent a dog, as JSON."}]
    opts = [max_tokens: 200, temp: 0.0]

    models = start_supervised!({Weir.Models, models: [[name: "dog", model_path: path]]})

    for from <- [model, server, {Weir.Models, {models, "dog"}}] do
      assert {:ok, %Pet{name: name, age: age}} = Schema.chat(from, messages, Pet, opts)
      assert is_binary(name) and is_integer(age)
    end

    assert {:error, %{message: reason}} = Schema.chat(model, messages, Pet, max_tokens: 2)
    assert reason =~ "JSON"
  end
end
