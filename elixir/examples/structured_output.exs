# mix run examples/structured_output.exs MODEL.gguf: answers that are JSON of a schema, or one of some words.
# SPDX-License-Identifier: Apache-2.0
path = List.first(System.argv()) || raise "give a model: the fake one knows no JSON Schema"
{:ok, model} = Weir.load_model(path)

schema = %{
  type: "object",
  properties: %{
    name: %{type: "string", maxLength: 20},
    age: %{type: "integer", minimum: 0, maximum: 120},
    likes: %{type: "array", items: %{enum: ["tea", "coffee", "water"]}, maxItems: 3}
  },
  required: ["name", "age", "likes"],
  additionalProperties: false
}

messages = [%{role: "user", content: "Invent a person, as JSON."}]
{:ok, json} = Weir.chat(model, messages, json_schema: schema, max_tokens: 200, temp: 0.0)
IO.puts(json)

# A grammar (GBNF) does the same for other languages.
messages = [%{role: "user", content: "Is water wet?"}]
{:ok, answer} = Weir.chat(model, messages, grammar: ~S(root ::= "yes" | "no"))
IO.puts(answer)

# Applications with Ecto get structs: see Weir.Schema.
