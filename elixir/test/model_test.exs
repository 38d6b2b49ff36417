# SPDX-License-Identifier: Apache-2.0
defmodule Weir.RealModelTest do
  use ExUnit.Case, async: false
  @moduletag :model

  setup_all do
    {:ok, model} = Weir.load_model(System.fetch_env!("WEIR_TEST_MODEL"))
    %{model: model}
  end

  test "generate and stream agree", %{model: model} do
    opts = [temp: 0.0, max_tokens: 12]
    {:ok, text} = Weir.generate(model, "The capital of France is", opts)
    assert text =~ "Paris"
    assert Enum.join(Weir.stream(model, "The capital of France is", opts)) == text
    assert [_, _] = Enum.take(Weir.stream(model, "The capital of France is", opts), 2)
    assert {:messages, []} = Process.info(self(), :messages)
  end

  test "structured output", %{model: model} do
    schema = %{
      type: "object",
      properties: %{answer: %{type: "boolean"}},
      required: ["answer"],
      additionalProperties: false
    }

    messages = [%{role: "user", content: "Is water wet?"}]
    {:ok, text} = Weir.chat(model, messages, json_schema: schema, max_tokens: 60, temp: 0.0)
    assert text =~ ~r/^\s*\{\s*"answer"\s*:\s*(true|false)\s*\}\s*$/
  end

  test "a token that the grammar refuses is an error", %{model: model} do
    {:ok, sampler} = Weir.Sampler.create(model, grammar: "root ::= \"yes\"")
    {:ok, [no]} = Weir.Tokenizer.encode(model, "no", add_special: false)
    assert {:error, _} = Weir.Sampler.accept(sampler, no)
    assert {:error, _} = Weir.Sampler.accept(sampler, Weir.Tokenizer.eos_token(model))
  end

  test "any number of texts of any size, with each pooling", %{model: model} do
    for n <- [2, 3, 5], pooling <- [:mean, :cls, :last], n_ctx <- [100, 1001] do
      texts = for i <- 1..n, do: "text number #{i}"
      {:ok, vectors} = Weir.embed_batch(model, texts, pooling_type: pooling, n_ctx: n_ctx)
      assert length(vectors) == n
    end
  end

  test "embeddings of like texts are near each other", %{model: model} do
    texts = ["A cat sat on the mat.", "A cat is sitting on a mat.", "Interest rates rose in May."]
    {:ok, [a, b, c]} = Weir.embed_batch(model, texts, pooling_type: :mean)
    dot = fn x, y -> Enum.sum(Enum.map(Enum.zip(x, y), fn {p, q} -> p * q end)) end
    assert dot.(a, b) > dot.(a, c)
  end

  test "devices are chosen by their names" do
    path = System.fetch_env!("WEIR_TEST_MODEL")
    assert Enum.any?(Weir.devices(), &(&1.type == :cpu))
    assert {:ok, _model} = Weir.load_model(path, devices: ["none"])
    assert {:error, %{message: reason}} = Weir.load_model(path, devices: ["none", "GPU99"])
    assert reason =~ ~s(devices names "none"; expected: GPUs)
    assert {:error, %{message: reason}} = Weir.load_model(path, devices: ["GPU99", "GPU98"])
    assert reason =~ "GPU99"
  end

  # Another scale of positions gives another text; the model's own values give the same.
  test "positions and attention", %{model: model} do
    path = System.fetch_env!("WEIR_TEST_MODEL")
    prompt = "Three rivers of Europe are the Danube, the Rhine and the"

    text = fn model ->
      {:ok, text} = Weir.generate(model, prompt, temp: 0.0, max_tokens: 24)
      text
    end

    loaded = fn opts ->
      {:ok, model} = Weir.load_model(path, opts)
      text.(model)
    end

    own = [rope_scaling: :none, rope_freq_scale: 1.0, yarn_orig_ctx: 8192, flash_attn: :on]
    assert loaded.(own) == text.(model)
    assert loaded.(rope_scaling: :linear, rope_freq_scale: 0.25) != text.(model)
    assert loaded.(rope_freq_base: 100.0) != text.(model)
    assert loaded.(rope_scaling: :yarn, rope_freq_scale: 0.25, yarn_attn_factor: 2.0) != text.(model)
    assert is_binary(loaded.(flash_attn: :off))
  end

  test "a server's positions are not its draft model's" do
    path = System.fetch_env!("WEIR_TEST_MODEL")
    opts = [model_path: path, draft_model: path, rope_scaling: :linear, rope_freq_scale: 0.25]

    {:ok, server} =
      Weir.Server.start_link([n_ctx: 512, n_parallel: 1, temp: 0.0, prompt_lookup: false] ++ opts)

    {:ok, answer} = Weir.Server.complete(server, "Three rivers of Europe are the", max_tokens: 24)
    {:ok, alike} = Weir.load_model(path, rope_scaling: :linear, rope_freq_scale: 0.25)
    {:ok, text} = Weir.generate(alike, "Three rivers of Europe are the", temp: 0.0, max_tokens: 24)
    assert answer.text == text
    assert answer.usage.accepted_tokens < answer.usage.drafted_tokens
  end

  test "the chat template", %{model: model} do
    {:ok, prompt} = Weir.Chat.apply_template(model, [%{role: "user", content: "hi"}])
    assert prompt =~ "<|im_start|>user\nhi<|im_end|>"

    {:ok, answer} = Weir.chat_completion(model, [%{role: "user", content: "Say hi."}], max_tokens: 5)

    assert answer.usage.completion_tokens in 0..5
  end
end
