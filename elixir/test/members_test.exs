# SPDX-License-Identifier: Apache-2.0
defmodule Weir.MembersTest do
  # The members of the C structs, as Elixir sees them.
  use ExUnit.Case, async: true
  import Weir.Arguments, only: [resources: 0]
  alias Weir.NIF

  defp member(struct, name), do: Enum.find(NIF.members(struct), &(&1.name == name))

  test "members are described as the headers have them" do
    assert %{type: :float, min: +0.0, max: 100.0, initial: 0.8, choices: nil, or_minus_one: false} =
             member("sampler", :temp)

    assert %{type: :uint32, min: 0, max: 0xFFFFFFFF, initial: 0xFFFFFFFF} = member("sampler", :seed)

    assert %{type: :int32, or_minus_one: true, initial: -1, unit: "layers", help: "layers" <> _} =
             member("model", :n_gpu_layers)

    assert %{type: :uint64, max: 0xFFFFFFFFFFFFFFFF, initial: 0xFFFFFFFFFFFFFFFF} =
             member("engine", :cache_bytes)

    assert %{type: :int64, min: 0, max: 0x7FFFFFFFFFFFFFFF} = member("chat", :now)

    assert %{type: :choice, choices: [:none, :layer, :row], initial: :layer, min: 0} =
             member("model", :split_mode)

    assert %{type: :choice, min: -1, initial: :unspecified} = member("context", :pooling)
    assert %{type: :bool, initial: true, min: nil, max: nil} = member("engine", :mtp)
    assert %{type: :strings, initial: nil} = member("sampler", :dry_breakers)
    assert %{type: :biases} = member("sampler", :logit_bias)
    assert %{type: :other} = member("engine", :draft_model)

    for wrong <- ["", "sample", "sampler\0", :sampler, nil],
        do: assert_raise(ArgumentError, fn -> NIF.members(wrong) end)
  end

  test "a sampler's options are described, and their defaults are allowed" do
    {:ok, model} = Weir.load_model("fake:")
    names = for %{type: type, option: option} <- NIF.members("sampler"), type != :other, do: option
    assert Enum.sort(names) == Weir.Sampler.options() |> Enum.map(& &1.name) |> Enum.sort()
    assert Enum.all?([:temp, :logit_bias, :grammar, :json_schema, :order], &(&1 in names))

    for %{name: name, default: default, min: min, max: max, help: help} <- Weir.Sampler.options() do
      assert {name, {:ok, _sampler}} = {name, Weir.Sampler.create(model, [{name, default}])}
      assert {name, true} == {name, help != "" and (min == nil or min <= max)}
    end
  end

  # A key that is not read may have any value.
  test "every member of a parameter struct is read from a map" do
    {model, _, _, _, engine, _, _, _} = resources()

    calls = %{
      "model" => &NIF.model_load("fake:", &1),
      "context" => &NIF.context_create(model, &1),
      "sampler" => &NIF.sampler_create(model, &1),
      "engine" => &NIF.engine_create(model, &1),
      "request" => &NIF.engine_submit(engine, Map.put(&1, :prompt, "hello"), self(), 1),
      "hub" => &NIF.hub_resolve("x", Map.put(&1, :offline, Map.get(&1, :offline, true))),
      "chat" => &NIF.chat_create(model, &1)
    }

    renamed = %{
      messages_json: :messages,
      tools_json: :tools,
      template_source: :template,
      add_generation_prompt: :add_assistant
    }

    for {struct, call} <- calls,
        %{type: type, name: name} <- NIF.members(struct),
        type != :other do
      key = Map.get(renamed, name, name)

      for wrong <- [self(), {1}, :nonsense, <<0>>, [self()]],
          do: assert_raise(ArgumentError, fn -> {struct, key, call.(%{key => wrong})} end)
    end
  end
end
