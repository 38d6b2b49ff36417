# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Arguments do
  @moduledoc false
  # Arguments of the native functions, for tests that try them all.

  alias Weir.{NIF, Terms}

  def resources(options \\ "fake:") do
    {:ok, %{ref: model}} = Weir.load_model(options)
    {:ok, context} = NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4)
    {:ok, embedder} = NIF.context_create(model, 512, 0, 64, 1, 1, true, -1, 4)
    {:ok, sampler} = NIF.sampler_init(model, 7, 0.0, 40, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil)
    {:ok, engine} = NIF.engine_create(model, %{n_slots: 2, n_ctx: 256})
    {:ok, manual} = NIF.engine_create(model, %{n_slots: 2, n_ctx: 256, manual: true})
    {:ok, spent} = NIF.engine_create(model, %{n_slots: 2, n_ctx: 256})
    {:ok, stream} = NIF.engine_submit(manual, %{prompt: "hello", temp: 0.0}, self(), 1)
    {model, context, embedder, sampler, engine, manual, spent, stream}
  end

  # With a conversation and a parser of its answer.
  def all_resources(options \\ "fake:") do
    own = resources(options)
    messages = ~S([{"role": "user", "content": "hello"}])
    {:ok, chat} = NIF.chat_create(elem(own, 0), %{messages: messages})
    {:ok, parser} = NIF.chat_parser(chat)
    List.to_tuple(Tuple.to_list(own) ++ [chat, parser])
  end

  # Correct arguments of each function, drawn at random by each call.
  def arguments do
    int = &Terms.integer/0
    num = &Terms.number/0
    bool = fn -> Enum.random([true, false]) end

    text = fn ->
      Enum.random(["", "hello", "a<|im_end|>", "日本\xff", String.duplicate("long ", 900)])
    end

    grammar = fn -> Enum.random([nil, "root ::= \"yes\" | \"no\"", "root ::= [", "x"]) end
    pairs = fn -> for _ <- 1..Enum.random(0..3)//1, do: {"user", text.()} end

    entries = fn -> Enum.random([a_batch(), wild_batch()]) end
    tokens = &Terms.tokens/0
    few = fn -> Enum.random([-2, -1, 0, 1, 9]) end

    %{
      model_load: [
        fn -> Enum.random(["fake:", "fake:n_vocab=1", "fake:nonsense", "/nowhere", ""]) end,
        int,
        bool,
        int,
        fn -> Enum.random(-1..3) end,
        fn -> for _ <- 1..Enum.random(0..3)//1, do: num.() end,
        bool,
        bool,
        bool,
        fn ->
          Enum.random([
            %{},
            %{projector: "/nowhere"},
            %{devices: "none", flash_attn: :off},
            %{rope_scaling: 1}
          ])
        end
      ],
      devices: [],
      members: [fn -> Enum.random(["sampler", "engine", "", "sample"]) end],
      model_info: [:model],
      model_n_ctx_train: [:model],
      model_n_embd: [:model],
      model_desc: [:model],
      model_size: [:model],
      model_n_params: [:model],
      model_chat_template: [:model],
      vocab_n_tokens: [:model],
      vocab_bos: [:model],
      vocab_eos: [:model],
      log_to: [
        fn -> Process.whereis(Weir.Log) end,
        fn -> Enum.random([:warning, :none, :bad]) end
      ],
      vocab_is_eog: [:model, int],
      tokenize: [:model, text, bool, bool],
      detokenize: [:model, tokens],
      token_to_piece: [:model, int],
      # a small n_ctx, because memory for its cells is allocated
      context_create: [
        :model,
        fn -> Enum.random([-1, 0, 1, 300, 4096]) end,
        int,
        int,
        int,
        int,
        bool,
        few,
        int
      ],
      media_create: [:model, fn -> Enum.random(["", "RIFF", Weir.Sound.wav()]) end],
      adapter_load: [:model, fn -> Enum.random(["fake:1", "fake:", "", "x"]) end],
      context_n_ctx: [:context],
      context_n_seq_max: [:context],
      decode: [:context, tokens],
      prefill: [:context, tokens, int],
      decode_token: [:context, &Terms.token/0, int, int],
      decode_batch: [
        :context,
        :sampler,
        entries
      ],
      batch_eval: [:context, entries],
      memory_clear: [:context],
      memory_seq_pos_max: [:context, int],
      embed_decode: [:context, tokens, int],
      get_embeddings: [:context, int, few],
      embed: [
        :context,
        fn -> Enum.random([[~c"hello"], [~c"a", ~c"b"], [Terms.tokens()], []]) end,
        fn -> Enum.random([2, 2, 0, -1, 5]) end,
        fn -> Enum.random([0, 1000, :infinity, -1]) end
      ],
      sampler_init: [
        :model,
        int,
        num,
        int,
        num,
        num,
        num,
        num,
        num,
        grammar,
        fn -> Enum.random([nil, "root", "x"]) end
      ],
      state_save: [:context, fn -> Enum.random([0, 1, -1, 3]) end],
      state_load: [
        :context,
        fn -> Enum.random([0, 1, -1, 3]) end,
        fn -> Enum.random([Process.get(:state), "", "nonsense"]) end
      ],
      sampler_create: [:model, fn -> draw_some(sampling()) end],
      sampler_accept: [:sampler, int],
      sampler_reset: [:sampler],
      sampler_sample: [:sampler, :context],
      sampler_sample_at: [:sampler, :context, int],
      generate: [:context, :sampler, tokens, few],
      generate_tokens: [:context, :sampler, tokens, few, &self/0, &make_ref/0],
      chat_apply_template: [
        fn -> Enum.random(["{{ messages[0].role }}", "{% for", ""]) end,
        pairs,
        bool
      ],
      chat_apply_template_jinja: [:model, pairs, bool, bool, pairs],
      chat_create: [
        :model,
        fn ->
          Enum.random([
            %{messages: ~S([{"role": "user", "content": "a"}]), enable_thinking: bool.()},
            %{
              messages: ~S([{"role": "user", "content": "a"}]),
              add_assistant: bool.(),
              args: pairs.()
            },
            %{messages: "[", tools: "[]", tool_choice: :required},
            %{tools: "x", template: "{% for", json_schema: "{}"}
          ])
        end
      ],
      chat_prompt: [:chat],
      chat_relaxed: [:chat],
      chat_reshaped: [:chat],
      chat_special_content: [:chat],
      chat_tokens: [:chat],
      chat_parser: [:chat],
      chat_parser_feed: [fn -> elem(NIF.chat_parser(own_chat()), 1) end, text, bool],
      json_schema_to_grammar_nif: [
        fn -> Enum.random(["{}", "[", "{\"type\":\"boolean\"}", "\xff"]) end
      ],
      engine_create: [
        :model,
        fn ->
          Enum.random([
            %{n_slots: 2, n_ctx: 256, manual: true},
            %{n_ctx: 300, n_slots: 1, layout: :unified, prompt_lookup: bool.()},
            %{n_ctx: 300, n_slots: 1, cache_bytes: Enum.random([0, 1, :auto])},
            %{n_batch: -1, cache_dir: "/nowhere/at/all", cache_disk_bytes: 1}
          ])
        end
      ],
      engine_submit: [
        :engine,
        fn ->
          draw_some(request() ++ sampling())
          |> Map.put(:prompt, Enum.random([text.(), tokens.()]))
        end,
        &self/0,
        fn -> Enum.random([0, 1, 5, :infinity]) end
      ],
      engine_submit_n: [
        :engine,
        fn ->
          %{
            prompt: Enum.random([text.(), tokens.(), own_chat()]),
            max_tokens: 2,
            logprobs: bool.()
          }
        end,
        fn -> Enum.random([1, 2, 3, 128]) end,
        &self/0,
        fn -> Enum.random([0, 1, 5, :infinity]) end
      ],
      engine_demand: [
        :stream,
        fn -> Enum.random([0, 1, 9_223_372_036_854_775_807, :infinity]) end
      ],
      engine_cancel: [:stream],
      engine_interval: [:stream, fn -> Enum.random([1, 7, 0x7FFFFFFF]) end],
      engine_progress: [:stream],
      engine_view: [:manual],
      engine_step: [
        :manual,
        fn -> Enum.random([nil, [], [{0, 1}], [{int.(), int.()}, {1, 3}]]) end
      ],
      engine_turn: [
        :manual,
        fn -> Enum.random([nil, [], [{0, 1}], [{int.(), int.()}, {1, 3}]]) end
      ],
      engine_stats: [:engine],
      engine_stop: [:spent],
      engine_destroy: [&own_engine/0],
      engine_usage: [:stream],
      engine_close: [:stream],
      engine_ticks: [:engine, fn -> Enum.random([0, 1, 9_223_372_036_854_775_807]) end],
      engine_slots: [:engine],
      # models without weights, and none that is read
      pool_create: [
        fn ->
          Enum.random([
            %{},
            %{memory_bytes: :auto, queue_limit: int.()},
            %{cache_dir: "", cache_disk_bytes: 1}
          ])
        end
      ],
      pool_set_memory: [&own_pool/0, fn -> %{memory_bytes: Enum.random([0, 1, :auto, 1_000_000_000])} end],
      pool_set: [&own_pool/0, fn -> for _ <- 1..Enum.random(0..3)//1, do: listed() end],
      pool_get: [&own_pool/0, fn -> Enum.random([0, 1, int.()]) end],
      pool_find: [&own_pool/0, fn -> Enum.random(["a", "b", ""]) end],
      pool_stats: [&own_pool/0],
      pool_load: [&own_pool/0, fn -> Enum.random(["a", "b", ""]) end],
      pool_unload: [&own_pool/0, fn -> Enum.random(["a", "b", ""]) end],
      lease_create: [
        &own_pool/0,
        fn -> Enum.random(["a", "a", "b", String.duplicate("long ", 90)]) end,
        fn -> Enum.random([0, 1, -1, int.()]) end,
        &self/0,
        &make_ref/0
      ],
      lease_share: [&ready_lease/0, &self/0],
      model_share: [:model, &self/0],
      lease_adapters: [&own_lease/0],
      lease_release: [&own_lease/0],
      # invalid names: no test contacts a real hub (hub_test.exs has its own)
      hub_list: [fn -> Enum.random([nil, "hf:o", ""]) end, &hub/0],
      hub_resolve: [fn -> Enum.random(["hf:o", "hf:../..", "x"]) end, &hub/0],
      hub_get: [fn -> Enum.random(["", "x", "//y"]) end, &hub/0],
      hub_download: [
        fn -> Enum.random(["hf:o", "hf:", "x"]) end,
        &hub/0,
        fn -> Enum.random([nil, self()]) end,
        &make_ref/0
      ],
      backend_init: [],
      backend_free: [],
      backend_version: [],
      live_handles: []
    }
  end

  defp own_engine do
    {:ok, %{ref: model}} = Weir.load_model("fake:")
    {:ok, engine} = NIF.engine_create(model, %{n_slots: 1, n_ctx: 256})
    engine
  end

  defp own_pool do
    {:ok, pool} = NIF.pool_create(%{memory_bytes: 0, cache_dir: ""})
    :ok = NIF.pool_set(pool, [%{name: "a", path: "fake:"}])
    pool
  end

  defp own_lease(ref \\ make_ref()) do
    {:ok, lease} = NIF.lease_create(own_pool(), "a", -1, self(), ref)
    lease
  end

  defp ready_lease do
    lease = own_lease(ref = make_ref())
    receive do: ({^ref, :ready} -> lease)
  end

  defp listed do
    Enum.random([
      %{name: "a", path: "fake:", pinned: Enum.random([true, false]), idle_ms: Terms.integer()},
      %{
        name: "b",
        aliases: ["c", "d"],
        path: "fake:",
        model: %{tensor_split: [1, 0.5]},
        engine: %{n_slots: 2}
      },
      %{
        name: "b",
        path: "/nowhere",
        draft_path: "/nowhere",
        adapters: ["x"],
        engine: %{strategy: "balanced"}
      },
      %{path: "fake:", engine: %{strategy: "x"}},
      %{}
    ])
  end

  # Mostly correct in each place, so that a few hundred draws have one that is correct in all.
  defp hub do
    %{
      cache_dir: Path.join(System.tmp_dir!(), "weir-no-such-folder"),
      offline: true,
      endpoint: Enum.random(["http://127.0.0.1:1", "ftp://x", nil]),
      revision: Enum.random(["main", "main", nil, nil, "..", ""]),
      token: Enum.random([nil, "", "t", "a\nb"]),
      n_retries: Enum.random([0, 1, 5, -1, 101]),
      timeout_ms: Enum.random([1, 0, 100])
    }
  end

  # Some of these keys, with values.
  defp draw_some(draws) do
    for {key, draw} <- Enum.take_random(draws, :rand.uniform(20)), into: %{}, do: {key, draw.()}
  end

  # Of the rows of the library: its default, the least value, or any.
  defp sampling do
    any = %{float: &Terms.number/0, int32: &Terms.integer/0, uint32: &Terms.integer/0}

    for(
      %{type: type} = m when is_map_key(any, type) <- NIF.members("sampler"),
      do: {m.name, fn -> Enum.random([m.initial, m.min, any[type].()]) end}
    ) ++
      [
        dry_breakers: fn -> Enum.random([nil, [], ["a", ""], ["\xff"]]) end,
        logit_bias: fn ->
          Enum.random([nil, [], [{1, 0.5}, {2, -1.0e300}], [{Terms.integer(), Terms.number()}]])
        end,
        ignore_eos: fn -> Enum.random([true, false]) end,
        order: fn -> Enum.random([nil, "top_k;temperature", "x", ""]) end,
        grammar: fn -> Enum.random([nil, "root ::= \"yes\"", "x"]) end,
        grammar_root: fn -> Enum.random([nil, "root", "x"]) end,
        json_schema: fn -> Enum.random([nil, "{}", "["]) end
      ]
  end

  defp request do
    int = &Terms.integer/0
    bool = fn -> Enum.random([true, false]) end

    [
      max_tokens: fn -> Enum.random([-2, 0, 1, 5]) end,
      interval: int,
      priority: int,
      deadline_ms: int,
      cache_salt: fn -> Enum.random(["", "a", <<0>>]) end,
      stop: fn -> Enum.random([[], ["a"], [""], List.duplicate("b", 65)]) end,
      stop_tokens: fn -> Enum.random([[], [0], [-1, 7], List.duplicate(1, 257)]) end,
      allowed_tokens: fn -> Enum.random([[], [0, 7], [-1], [2_000_000_000]]) end,
      bad_words: fn -> Enum.random([[], ["a"], [""], [" "], [<<0>>], List.duplicate("b", 129)]) end,
      add_special: bool,
      parse_special: bool,
      special: bool,
      cache_prompt: bool,
      cache_keep_ms: int,
      logprobs: bool,
      n_logprobs: fn -> Enum.random([-1, 0, 1, 20, 21]) end,
      adapters: &adapters/0,
      prompt_logprobs: bool,
      n_prompt_logprobs: fn -> Enum.random([-1, 0, 1, 20, 21]) end,
      n_draft_max: fn -> Enum.random([-1, 0, 5, 33]) end,
      min_tokens: fn -> Enum.random([-1, 0, 3, 1_000_000]) end,
      include_stop: bool,
      truncate_prompt: fn -> Enum.random([-2, -1, 0, 3]) end,
      reasoning_budget: fn -> Enum.random([-2, -1, 0, 3]) end,
      reasoning_start: fn -> Enum.random([nil, "<think>", ""]) end,
      reasoning_end: fn -> Enum.random([nil, "</think>", "", String.duplicate("x", 300)]) end,
      keep: bool
    ]
  end

  # Values for the calls of this process: a conversation belongs to one model, a state to one kind of context.
  def put_shared(own) do
    {:ok, _} = NIF.prefill(elem(own, 1), ~c"hello", 0)
    {:ok, state} = NIF.state_save(elem(own, 1), 0)

    adapter =
      case NIF.adapter_load(elem(own, 0), "fake:1") do
        {:ok, adapter} -> adapter
        # a real model has no adapter here
        {:error, _} -> fake_adapter()
      end

    Process.put(:adapter, adapter)
    Process.put(:chat, elem(own, 8))
    Process.put(:state, state)
  end

  defp own_chat, do: Process.get(:chat)

  defp fake_adapter do
    {:ok, model} = NIF.model_load("fake:", 0, true, 0, 0, [], false, false, false, %{})
    {:ok, adapter} = NIF.adapter_load(model, "fake:1")
    adapter
  end

  defp adapters do
    other = fake_adapter()
    own = Process.get(:adapter)

    Enum.random([
      [],
      [{own, 1.0}],
      [{own, Terms.number()}],
      [{own, 1}, {own, 2}],
      [{other, 1.0}],
      List.duplicate({own, 1}, 9)
    ])
  end

  defp a_batch,
    do: for(i <- 0..Enum.random(0..40), do: {:rand.uniform(256) - 1, i, 0, rem(i, 3) == 0})

  defp wild_batch do
    for _ <- 1..Enum.random(0..5)//1 do
      {Terms.token(), Terms.integer(), Terms.integer(), Enum.random([true, false])}
    end
  end

  def draw(:model, own), do: elem(own, 0)
  def draw(:context, own), do: elem(own, Enum.random(1..2))
  def draw(:sampler, own), do: elem(own, 3)
  def draw(:engine, own), do: elem(own, 4)
  def draw(:manual, own), do: elem(own, 5)
  def draw(:spent, own), do: elem(own, 6)
  def draw(:stream, own), do: elem(own, 7)
  def draw(:chat, own), do: elem(own, 8)
  def draw(fun, _own), do: fun.()

  # Each field has a correct value, so that all fields are reached.
  defp every_field do
    %{
      prompt: "hello",
      max_tokens: 1,
      interval: 1,
      priority: 1,
      deadline_ms: 1000,
      cache_salt: "a",
      stop: ["a"],
      stop_tokens: [1],
      allowed_tokens: [1],
      bad_words: ["a"],
      add_special: true,
      parse_special: true,
      special: true,
      cache_prompt: true,
      cache_keep_ms: 1000,
      logprobs: true,
      n_logprobs: 2,
      adapters: [],
      prompt_logprobs: true,
      n_prompt_logprobs: 2,
      n_draft_max: 2,
      keep: true
    }
    |> Map.merge(every_sampling())
  end

  # In place of a prompt.
  defp every_source(own), do: %{source: elem(own, 7), source_at: 0, max_tokens: 1}

  defp every_sampling do
    for(%{name: name, initial: initial} <- NIF.members("sampler"), into: %{}, do: {name, initial})
    |> Map.merge(%{seed: 1, top_k: 1, dry_breakers: ["\n"], logit_bias: [{97, 0.5}]})
  end

  defp every_chat_option do
    %{
      messages: ~S([{"role": "user", "content": "a"}]),
      tools: nil,
      tool_choice: :auto,
      parallel_tool_calls: true,
      json_schema: nil,
      template: nil,
      args: [{"a", "b"}],
      add_assistant: true,
      enable_thinking: true,
      continue_final: false,
      parse_reasoning: true,
      special_content: :trusted,
      now: 0
    }
  end

  defp every_option do
    %{
      n_slots: 2,
      n_ctx: 256,
      n_kv: 512,
      max_tokens: 10,
      n_batch: 16,
      n_ubatch: 16,
      chunk_size: 16,
      n_threads: 1,
      n_threads_batch: 1,
      queue_limit: 1,
      cache_sequences: 1,
      ageing_ms: 1,
      itl_target_ms: 1,
      n_draft_max: 1,
      prompt_lookup: true,
      mtp: true,
      draft_model: nil,
      cache_bytes: :auto,
      cache_dir: nil,
      cache_disk_bytes: 1_000_000,
      manual: true,
      layout: :auto,
      type_k: :f16,
      type_v: :f16,
      strategy: "balanced"
    }
  end

  def full(own) do
    pairs = fn -> [{"user", "a"}] end
    bool = fn -> true end

    %{
      engine_submit: [:engine, &every_field/0, &self/0, fn -> 1 end],
      engine_create: [:model, &every_option/0],
      engine_submit_n: [:manual, fn -> every_source(own) end, fn -> 2 end, &self/0, fn -> 1 end],
      sampler_create: [:model, &every_sampling/0],
      state_load: [:context, fn -> 0 end, fn -> Process.get(:state) end],
      chat_create: [:model, &every_chat_option/0],
      engine_step: [:manual, fn -> [{0, 1}] end],
      engine_turn: [:manual, fn -> [{0, 1}] end],
      batch_eval: [:context, fn -> [{97, 0, 0, true}] end],
      decode_batch: [:context, :sampler, fn -> [{97, 0, 0, true}] end],
      chat_apply_template: [fn -> "{{ messages[0].role }}" end, pairs, bool],
      chat_apply_template_jinja: [:model, pairs, bool, bool, pairs]
    }
  end
end
