# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Grammar do
  @moduledoc "JSON Schema as a grammar (GBNF) that answers are held to."

  alias Weir.{JSON, NIF, Options}

  @doc """
  Converts a JSON Schema to GBNF. Keys and values may be strings or atoms. Answers have properties in the
  schema's order, which a map does not keep: use a keyword list or JSON text where it matters (`reasoning`
  before `answer`). A keyword that cannot be enforced is an error: the grammar is never weaker than the
  schema.

      iex> {:ok, gbnf} = Weir.Grammar.from_json_schema(%{type: "boolean"})
      iex> gbnf =~ "true"
      true
  """
  @spec from_json_schema(map() | keyword() | String.t()) ::
          {:ok, String.t()} | {:error, Weir.Error.t()}
  def from_json_schema(schema) do
    "the schema" |> Options.argument!(:schema, schema) |> JSON.schema!() |> NIF.json_schema_to_grammar_nif()
  end

  @doc "Like `from_json_schema/1`, but raises `Weir.Error`."
  @spec from_json_schema!(map() | keyword() | String.t()) :: String.t()
  def from_json_schema!(schema), do: schema |> from_json_schema() |> Weir.Error.ok!()
end
