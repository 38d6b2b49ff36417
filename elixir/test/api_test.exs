# SPDX-License-Identifier: Apache-2.0
defmodule Weir.APITest do
  # The names, options and defaults that programs rely on. All of them are documented and have a type.
  use ExUnit.Case, async: true
  alias Weir.{NIF, Options}

  @functions %{
    Weir => [
      init: 0,
      devices: 0,
      load_model: 2,
      load_model_from_hub: 3,
      generate: 3,
      stream: 3,
      chat: 3,
      stream_chat: 3,
      chat_completion: 3,
      stream_chat_completion: 3,
      embed: 3,
      embed_batch: 3
    ],
    Weir.Model => [
      load: 2,
      n_ctx_train: 1,
      n_embd: 1,
      desc: 1,
      size: 1,
      n_params: 1,
      chat_template: 1
    ],
    Weir.Context => [create: 2, n_ctx: 1, n_seq_max: 1, clear: 1, decode: 2, generate: 4],
    Weir.Sampler => [create: 2, accept: 2, reset: 1, sample: 2],
    Weir.Tokenizer => [
      encode: 3,
      decode: 2,
      token_to_piece: 2,
      vocab_size: 1,
      bos_token: 1,
      eos_token: 1,
      eog?: 2
    ],
    Weir.Chat => [apply_template: 3],
    Weir.Embedding => [embed: 3, embed_batch: 3],
    Weir.Grammar => [from_json_schema: 1, from_json_schema!: 1],
    Weir.Schema => [to_json_schema: 1],
    Weir.Thinking => [parse: 1, stream_parser: 1, feed: 2],
    Weir.Hub => [
      search: 2,
      list_gguf_files: 1,
      download: 3,
      get_model_info: 2,
      filter_gguf_files: 1,
      build_download_url: 3,
      auth_headers: 1,
      cache_path: 3
    ],
    Weir.Server => [start_link: 1, generate: 3, stream: 3, get_stats: 1, cancel: 2, child_spec: 1],
    Weir.Server.Strategy.DecodeMaximal => [build_batch: 4],
    Weir.Server.Strategy.PrefillPriority => [build_batch: 4],
    Weir.Server.Strategy.Balanced => [build_batch: 4],
    NIF => [
      backend_init: 0,
      backend_free: 0,
      model_load: 10,
      model_n_ctx_train: 1,
      model_n_embd: 1,
      model_desc: 1,
      model_size: 1,
      model_n_params: 1,
      model_chat_template: 1,
      vocab_n_tokens: 1,
      vocab_bos: 1,
      vocab_eos: 1,
      vocab_is_eog: 2,
      tokenize: 4,
      detokenize: 2,
      token_to_piece: 2,
      context_create: 9,
      context_n_ctx: 1,
      context_n_seq_max: 1,
      sampler_init: 11,
      sampler_accept: 2,
      sampler_reset: 1,
      sampler_sample: 2,
      sampler_sample_at: 3,
      decode: 2,
      memory_clear: 1,
      memory_seq_pos_max: 2,
      chat_apply_template: 3,
      chat_apply_template_jinja: 5,
      generate_tokens: 6,
      generate: 4,
      embed_decode: 3,
      get_embeddings: 3,
      prefill: 3,
      decode_token: 4,
      decode_batch: 3,
      batch_eval: 2,
      json_schema_to_grammar_nif: 1
    ]
  }

  test "functions" do
    for {module, functions} <- @functions, {name, arity} <- functions do
      assert {:module, ^module} = Code.ensure_loaded(module)
      assert {module, name, function_exported?(module, name, arity)} == {module, name, true}
    end
  end

  defp defaults(specs), do: Map.new(specs, fn {name, {_type, default}} -> {name, default} end)

  test "options and their defaults" do
    sampling = %{
      temp: 0.8,
      top_k: 40,
      top_p: 0.95,
      min_p: 0.05,
      penalty_repeat: 1.0,
      penalty_freq: 0.0,
      penalty_present: 0.0,
      grammar: nil,
      grammar_root: "root",
      json_schema: nil,
      # random
      seed: 0xFFFFFFFF
    }

    # 0: the library's own choice
    threads = %{n_threads: 0, n_threads_batch: 0, n_batch: 0, n_ubatch: 512}
    # other options have the library's default
    {known, more} = Map.split(defaults(Options.sampler()), Map.keys(sampling))
    assert known == sampling
    assert Enum.all?(more, fn {_name, default} -> default == nil end)

    assert defaults(Options.generation()) == Map.put(threads, :n_ctx, 2048)

    assert defaults(Options.model()) == %{
             n_gpu_layers: -1,
             use_mmap: true,
             main_gpu: 0,
             split_mode: :none,
             tensor_split: [],
             use_mlock: false,
             use_direct_io: false,
             vocab_only: false,
             projector: nil,
             devices: [],
             rpc: nil,
             rpc_timeout_ms: 60_000,
             flash_attn: :auto,
             rope_scaling: :model,
             rope_freq_base: 0.0,
             rope_freq_scale: 0.0,
             yarn_ext_factor: -1.0,
             yarn_attn_factor: -1.0,
             yarn_beta_fast: -1.0,
             yarn_beta_slow: -1.0,
             yarn_orig_ctx: 0
           }

    assert defaults(Options.context()) ==
             Map.merge(threads, %{
               n_ctx: 2048,
               embeddings: false,
               pooling_type: :unspecified,
               n_seq_max: 1
             })

    assert %{
             add_assistant: true,
             enable_thinking: true,
             chat_template_kwargs: [],
             template: nil
           } = defaults(Options.template())

    assert Weir.Embedding.options!([]) ==
             %{n_ctx: 2048, pooling_type: :unspecified, normalize: 2, max_batch_sequences: 32}

    request = defaults(Weir.Server.Request.options())
    assert %{max_tokens: 256, lora: [], cache_prompt: true, priority: 0, stop: []} = request
    assert %{tenant: nil, itl_target: 0} = request
    assert Map.take(request, Map.keys(sampling)) == sampling
  end

  test "a server's options and their defaults" do
    server = start_supervised!({Weir.Server, model_path: "fake:"})

    assert %{
             n_gpu_layers: 99,
             n_ctx: 8192,
             n_parallel: 4,
             chunk_size: 512,
             max_queue: 256,
             cache_prompt: true,
             batch_strategy: :decode_maximal
           } = :sys.get_state(server).options

    # as many as n_ctx
    assert %{n_parallel: 4, n_batch: 8192, strategy: :decode_maximal} = Weir.Server.get_stats(server)
  end

  test "structs" do
    {:ok, model} = Weir.load_model("fake:")
    assert %Weir.Model{ref: ref} = model
    {:ok, context} = Weir.Context.create(model)
    assert %Weir.Context{ref: _, model: ^model} = context
    {:ok, sampler} = Weir.Sampler.create(model)
    assert %Weir.Sampler{ref: _} = sampler
    assert Enum.all?([ref, context.ref, sampler.ref], &is_reference/1)
    {:ok, answer} = Weir.chat_completion(model, [%{role: "user", content: "hi"}], max_tokens: 2)
    assert %Weir.ChatCompletion{object: "chat.completion", choices: [choice]} = answer
    assert is_binary(answer.id) and is_integer(answer.created) and is_binary(answer.model)
    assert choice.index == 0 and choice.finish_reason in ["stop", "length"]
    assert [:content, :reasoning_content, :role] = choice.message |> Map.keys() |> Enum.sort()

    assert [:completion_tokens, :prompt_tokens, :prompt_tokens_details, :total_tokens] =
             answer.usage |> Map.keys() |> Enum.sort()

    [chunk | _] = model |> Weir.stream_chat_completion([{:user, "hi"}]) |> Enum.take(1)
    assert %Weir.ChatCompletionChunk{object: "chat.completion.chunk"} = chunk
  end

  # Callbacks and functions of structs have no documentation of their own.
  @others [
    __struct__: 0,
    __struct__: 1,
    child_spec: 1,
    init: 1,
    handle_call: 3,
    handle_cast: 2,
    handle_info: 2,
    terminate: 2,
    build_batch: 4,
    exception: 1,
    message: 1
  ]

  test "public functions are documented and have types" do
    {:ok, modules} = :application.get_key(:weir, :modules)

    for module <- modules, match?("Elixir.Weir" <> _, Atom.to_string(module)) do
      {:docs_v1, _, _, _, text, _, docs} = Code.fetch_docs(module)

      if text != :hidden and module not in [Weir.Terms, Weir.Wait, Weir.HubServer] do
        assert {module, is_map(text)} == {module, true}
        specs = for({f, _} <- elem(Code.Typespec.fetch_specs(module), 1), do: f)

        for {{:function, name, arity}, _, _, doc, _} <- docs,
            doc != :hidden and {name, arity} not in @others do
          assert {module, name, arity, Enum.member?(specs, {name, arity})} ==
                   {module, name, arity, true}

          # native functions with clear names have a type only
          documented? = is_map(doc) or module == NIF
          assert {module, name, arity, documented?} == {module, name, arity, true}
        end
      end
    end
  end
end
