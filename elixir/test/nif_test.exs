# SPDX-License-Identifier: Apache-2.0
defmodule Weir.NIFTest do
  use ExUnit.Case, async: true
  alias Weir.{NIF, Terms, Wait}

  defp resources(options \\ "fake:") do
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

  # With a conversation and a reader of its answer.
  defp all_resources(options \\ "fake:") do
    own = resources(options)
    messages = ~S([{"role": "user", "content": "hello"}])
    {:ok, chat} = NIF.chat_create(elem(own, 0), %{messages: messages})
    {:ok, parser} = NIF.chat_parser(chat)
    own |> Tuple.append(chat) |> Tuple.append(parser)
  end

  # How each function's arguments look when they are right, drawn anew each time.
  defp arguments do
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
        bool
      ],
      members: [fn -> Enum.random(["sampler", "engine", "", "sample"]) end],
      model_n_ctx_train: [:model],
      log_to: [
        fn -> Process.whereis(Weir.Log) end,
        fn -> Enum.random([:warning, :none, :bad]) end
      ],
      model_n_embd: [:model],
      model_desc: [:model],
      model_size: [:model],
      model_n_params: [:model],
      model_chat_template: [:model],
      vocab_n_tokens: [:model],
      vocab_bos: [:model],
      vocab_eos: [:model],
      vocab_is_eog: [:model, int],
      tokenize: [:model, text, bool, bool],
      detokenize: [:model, tokens],
      token_to_piece: [:model, int],
      # n_ctx is kept small: memory for many cells is really asked for
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
      adapter_load: [:model, fn -> Enum.random(["fake:1", "fake:", "", "x"]) end],
      context_set_adapters: [:context, &adapters/0],
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
      memory_seq_rm: [:context, int, int, int],
      memory_seq_cp: [:context, int, int, int, int],
      memory_seq_keep: [:context, int],
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
      generate_ref: [],
      generate_stop: [&NIF.generate_ref/0],
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
      engine_drain: [:spent, fn -> Enum.random([0, 1, -1]) end],
      engine_stop: [:spent],
      engine_usage: [:stream],
      engine_close: [:stream],
      engine_ticks: [:engine, fn -> Enum.random([0, 1, 9_223_372_036_854_775_807]) end],
      engine_slots: [:engine],
      # names that are none: no test asks a hub of others' (hub_test.exs has one)
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

  # Mostly right in each place, so that a few hundred draws surely have one that is right in all.
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

  # Some of these keys, each with a value of its own.
  defp draw_some(draws) do
    for {key, draw} <- Enum.take_random(draws, :rand.uniform(20)), into: %{}, do: {key, draw.()}
  end

  defp sampling do
    int = &Terms.integer/0
    num = &Terms.number/0
    part = fn -> Enum.random([0, 0.5, 1.0, num.()]) end

    [
      seed: int,
      temp: num,
      dynatemp_range: num,
      dynatemp_exponent: num,
      top_k: int,
      top_p: num,
      min_p: num,
      typical_p: part,
      top_n_sigma: num,
      xtc_probability: part,
      xtc_threshold: part,
      min_keep: fn -> Enum.random([0, 1, 5, int.()]) end,
      dry_multiplier: part,
      dry_base: num,
      dry_allowed_length: fn -> Enum.random([0, 2, int.()]) end,
      dry_penalty_last_n: fn -> Enum.random([0, 64, int.()]) end,
      dry_breakers: fn -> Enum.random([nil, [], ["a", ""], ["\xff"]]) end,
      penalty_last_n: fn -> Enum.random([0, 64, int.()]) end,
      penalty_repeat: num,
      penalty_freq: num,
      penalty_present: num,
      mirostat: fn -> Enum.random([0, 1, 2, 3]) end,
      mirostat_tau: num,
      mirostat_eta: part,
      adaptive_target: part,
      adaptive_decay: part,
      logit_bias: fn -> Enum.random([nil, [], [{1, 0.5}, {2, -1.0e300}], [{int.(), num.()}]]) end,
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
      add_special: bool,
      parse_special: bool,
      special: bool,
      cache_prompt: bool,
      logprobs: bool,
      n_logprobs: fn -> Enum.random([-1, 0, 1, 20, 21]) end,
      adapters: &adapters/0,
      prompt_logprobs: bool,
      n_prompt_logprobs: fn -> Enum.random([-1, 0, 1, 20, 21]) end,
      n_draft_max: fn -> Enum.random([-1, 0, 5, 33]) end,
      keep: bool
    ]
  end

  # What calls of this process may have: a conversation belongs to one model, a state to one kind of context.
  defp put_shared(own) do
    {:ok, _} = NIF.prefill(elem(own, 1), ~c"hello", 0)
    {:ok, state} = NIF.state_save(elem(own, 1), 0)

    adapter =
      case NIF.adapter_load(elem(own, 0), "fake:1") do
        {:ok, adapter} -> adapter
        # a real model has none here
        {:error, _} -> fake_adapter()
      end

    Process.put(:adapter, adapter)
    Process.put(:chat, elem(own, 8))
    Process.put(:state, state)
  end

  defp own_chat, do: Process.get(:chat)

  defp fake_adapter do
    {:ok, model} = NIF.model_load("fake:", 0, true, 0, 0, [], false, false, false)
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

  defp draw(:model, own), do: elem(own, 0)
  defp draw(:context, own), do: elem(own, Enum.random(1..2))
  defp draw(:sampler, own), do: elem(own, 3)
  defp draw(:engine, own), do: elem(own, 4)
  defp draw(:manual, own), do: elem(own, 5)
  defp draw(:spent, own), do: elem(own, 6)
  defp draw(:stream, own), do: elem(own, 7)
  defp draw(:chat, own), do: elem(own, 8)
  defp draw(fun, _own), do: fun.()

  # What a call may do: give a value, say {:error, text}, or raise ArgumentError.
  defp call(name, args) do
    case apply(NIF, name, args) do
      {:error, reason} when reason in [:queue_full, :timeout] ->
        :refused

      {:error, reason} ->
        assert is_binary(reason) and reason != "" and String.valid?(reason),
               "#{name}: #{inspect(reason)}"

        :refused

      _value ->
        :fine
    end
  rescue
    ArgumentError -> :raised
  end

  test "every function of the module is tried here" do
    exported = for {name, arity} <- NIF.__info__(:functions), name != :load, do: {name, arity}

    assert Enum.sort(exported) ==
             Enum.sort(for {name, args} <- arguments(), do: {name, length(args)})
  end

  # What a native function may get instead of `right`: in its place, and in those within it.
  defp replaced(right, terms) do
    terms ++
      case right do
        %{} ->
          for {key, _} <- right, term <- terms, do: Map.put(right, key, term)

        [{_, _, _, _} = entry | rest] ->
          for i <- 0..3, term <- terms, do: [put_elem(entry, i, term) | rest]

        [{_, _} = entry | rest] ->
          for i <- 0..1, term <- terms, do: [put_elem(entry, i, term) | rest]

        [_ | rest] ->
          for term <- terms, do: [term | rest]

        _ ->
          []
      end
  end

  # A context's size is memory that is really asked for: it is one of those in arguments/0, or refused.
  defp affordable?(:context_create, args),
    do: Enum.at(args, 1) in [-1, 0, 1, 300, 4096] or huge?(Enum.at(args, 1))

  # Nor is a cache's folder made wherever a text leads.
  defp affordable?(:engine_create, [_, %{cache_dir: folder}]) when is_binary(folder),
    do: folder in ["", "/nowhere/at/all"]

  # No test asks a hub of others'.
  defp affordable?(name, [_, options | _])
       when name in [:hub_list, :hub_resolve, :hub_get, :hub_download],
       do: not is_map(options) or Map.get(options, :offline) == true

  defp affordable?(_name, _args), do: true

  # A real model would answer at length; how numbers are read does not depend on it.
  defp quick?(name, [_, _, _, n | _]) when name in [:generate, :generate_tokens],
    do: not is_integer(n) or n in 0..9 or n < -1 or n > 0x7FFFFFFF

  defp quick?(_name, _args), do: true
  defp huge?(n), do: not is_integer(n) or n not in 0..0x40000000

  test "every term in every place", do: every_term("fake:")

  @tag :model
  test "every term in every place, on a real model",
    do: every_term(System.fetch_env!("WEIR_TEST_MODEL"))

  defp every_term(path) do
    Terms.sow("every term, #{path}")
    own = all_resources(path)
    put_shared(own)
    {engine, spent} = {elem(own, 4), elem(own, 6)}

    places =
      for {name, spec} <- Map.merge(arguments(), full(own)), spec != [] do
        {name, Enum.map(spec, &draw(&1, own))}
      end

    {:ok, %{ref: another}} = Weir.load_model("fake:n_vocab=400")
    {:ok, foreign} = NIF.context_create(another, 512, 0, 64, 1, 1, false, -1, 4)
    {:ok, strange} = NIF.sampler_init(another, 7, 0.0, 40, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil)
    others = Enum.filter(Tuple.to_list(own), &(&1 not in [engine, spent]))
    others = others ++ [another, foreign, strange, NIF.generate_ref()]

    for {name, right} <- places, {arg, i} <- Enum.with_index(right) do
      for term <- replaced(arg, Terms.every() ++ others) do
        args = List.replace_at(right, i, term)

        if affordable?(name, args) and (path == "fake:" or quick?(name, args)),
          do: call(name, args)
      end

      flush()
    end

    works_on(own, path)
  end

  # With each field set to something that is right, so that all of them are reached.
  defp every_field do
    %{
      prompt: "hello",
      max_tokens: 1,
      interval: 1,
      priority: 1,
      deadline_ms: 1000,
      cache_salt: "a",
      stop: ["a"],
      add_special: true,
      parse_special: true,
      special: true,
      cache_prompt: true,
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
    %{
      seed: 1,
      temp: 0.5,
      dynatemp_range: 0.1,
      dynatemp_exponent: 1.0,
      top_k: 1,
      top_p: 0.5,
      min_p: 0.5,
      typical_p: 1.0,
      top_n_sigma: -1.0,
      xtc_probability: 0.1,
      xtc_threshold: 0.1,
      min_keep: 0,
      # on, it would look through the vocabulary at each call
      dry_multiplier: 0.0,
      dry_base: 1.75,
      dry_allowed_length: 2,
      dry_penalty_last_n: 64,
      dry_breakers: ["\n"],
      penalty_last_n: 64,
      penalty_repeat: 1.0,
      penalty_freq: 0.0,
      penalty_present: 0.0,
      mirostat: 0,
      mirostat_tau: 5.0,
      mirostat_eta: 0.1,
      adaptive_target: -1.0,
      adaptive_decay: 0.9,
      logit_bias: [{97, 0.5}],
      ignore_eos: false,
      order: nil,
      grammar: nil,
      grammar_root: nil,
      json_schema: nil
    }
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

  defp full(own) do
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
      context_set_adapters: [:context, fn -> [{Process.get(:adapter), 0.5}] end],
      batch_eval: [:context, fn -> [{97, 0, 0, true}] end],
      decode_batch: [:context, :sampler, fn -> [{97, 0, 0, true}] end],
      chat_apply_template: [fn -> "{{ messages[0].role }}" end, pairs, bool],
      chat_apply_template_jinja: [:model, pairs, bool, bool, pairs]
    }
  end

  defp flush do
    receive do
      _ -> flush()
    after
      0 -> :ok
    end
  end

  defp works_on(own, path) do
    {context, sampler} = {elem(own, 1), elem(own, 3)}
    assert :ok = NIF.memory_clear(context)
    assert :ok = NIF.context_set_adapters(context, [])
    assert :ok = NIF.sampler_reset(sampler)
    assert {:ok, text} = NIF.generate(context, sampler, ~c"hello", 5)
    {_, fresh_context, _, fresh_sampler, _, _, _, _} = resources(path)
    assert {:ok, ^text} = NIF.generate(fresh_context, fresh_sampler, ~c"hello", 5)
  end

  test "no arguments bring the VM down" do
    Terms.sow("arguments")
    own = all_resources()
    put_shared(own)
    stray = Tuple.to_list(own) ++ [NIF.generate_ref()]

    for {name, spec} <- arguments(), _ <- 1..300 do
      right = Enum.map(spec, &draw(&1, own))
      # all of them right, one of them something else, or all of them
      args =
        case :rand.uniform(4) do
          1 ->
            right

          n when n <= 3 and right != [] ->
            List.replace_at(right, :rand.uniform(length(right)) - 1, Terms.term(stray))

          _ ->
            Enum.map(right, fn _ -> Terms.term(stray) end)
        end

      if affordable?(name, args), do: call(name, args)
    end

    works_on(own, "fake:")
  end

  test "right arguments reach the library" do
    Terms.sow("right arguments")
    own = all_resources()
    put_shared(own)

    for {name, spec} <- arguments(), spec != [] do
      # drawn until one of them is right in all
      reached? =
        Enum.any?(1..300, fn _ ->
          for i <- 1..2, do: :ok = NIF.memory_clear(elem(own, i))
          :ok = NIF.embed_decode(elem(own, 2), ~c"hello", 0)

          if name in [:sampler_sample, :sampler_sample_at],
            do: :ok = NIF.decode(elem(own, 1), ~c"hello")

          call(name, Enum.map(spec, &draw(&1, own))) == :fine
        end)

      needs_llama =
        NIF.backend_version() == "none" and
          name in [:chat_apply_template, :json_schema_to_grammar_nif]

      needs_hub = name in [:hub_resolve, :hub_get, :hub_download]
      assert reached? or needs_llama or needs_hub, "#{name} never succeeded"
    end
  end

  defp member(struct, name), do: Enum.find(NIF.members(struct), &(&1.name == name))

  test "members are described as weir.h has them" do
    assert %{type: :float, min: +0.0, max: 100.0, initial: 0.8, choices: nil, or_minus_one: false} =
             member("sampler", :temp)

    assert %{type: :uint32, min: 0, max: 0xFFFFFFFF, initial: 0xFFFFFFFF} = member("sampler", :seed)

    assert %{type: :int32, or_minus_one: true, initial: -1, unit: "layers", help: "layers" <> _} =
             member("model", :n_gpu_layers)

    assert %{type: :uint64, max: 0xFFFFFFFFFFFFFFFF, initial: 0xFFFFFFFFFFFFFFFF} =
             member("engine", :cache_bytes)

    assert %{type: :int64, min: -0x8000000000000000, max: 0x7FFFFFFFFFFFFFFF} = member("chat", :now)

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

  # A key that nobody reads may have any value.
  test "every member of a parameter struct is read from a map" do
    {model, _, _, _, engine, _, _, _} = resources()

    calls = %{
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

  test "a resource of one kind is none of another" do
    {model, context, _, sampler, _, _, _, _} = resources()
    assert_raise ArgumentError, fn -> NIF.model_desc(context) end
    assert_raise ArgumentError, fn -> NIF.context_n_ctx(sampler) end
    assert_raise ArgumentError, fn -> NIF.sampler_reset(model) end
    assert_raise ArgumentError, fn -> NIF.generate_stop(model) end
  end

  test "a child keeps its parents, and what nobody holds is freed" do
    parent = self()

    pid =
      spawn(fn ->
        {_model, context, _, sampler, _, _, _, _} = resources()
        send(parent, {context, sampler})
        :timer.sleep(:infinity)
      end)

    assert_receive {context, sampler}
    Process.exit(pid, :kill)
    assert {:ok, text} = NIF.generate(context, sampler, ~c"hello", 5)
    assert String.valid?(text)

    for _ <- 1..50, do: resources()
    :erlang.garbage_collect()
    assert {:ok, ^text} = NIF.generate(context, sampler, ~c"hello", 5)
  end

  test "a token that the grammar refuses is an error" do
    {model, context, _, _, _, _, _, _} = resources()
    grammar = "root ::= \"yes\" | \"no\""

    {:ok, sampler} = NIF.sampler_init(model, 7, 0.8, 40, 0.95, 0.05, 1.0, 0.0, 0.0, grammar, "root")

    assert {:error, reason} = NIF.sampler_accept(sampler, ?x)
    assert reason =~ "grammar"
    assert {:error, _} = NIF.sampler_accept(sampler, NIF.vocab_eos(model))
    assert :ok = NIF.sampler_accept(sampler, ?y)
    assert :ok = NIF.sampler_reset(sampler)
    assert {:ok, text} = NIF.generate(context, sampler, ~c"say", 10)
    assert text in ["yes", "no"]
  end

  test "a batch of two sequences is each alone" do
    {model, context, _, _, _, _, _, _} = resources()

    sampler = fn ->
      elem(NIF.sampler_init(model, 7, 0.0, 40, 0.95, 0.05, 1.0, 0.0, 0.0, nil, nil), 1)
    end

    alone =
      for text <- [~c"one", ~c"other"] do
        :ok = NIF.memory_clear(context)
        :ok = NIF.decode(context, text)
        NIF.sampler_sample(sampler.(), context)
      end

    :ok = NIF.memory_clear(context)

    entries =
      for {text, seq} <- [{~c"one", 1}, {~c"other", 2}],
          {token, pos} <- Enum.with_index(text),
          do: {token, pos, seq, pos == length(text) - 1}

    assert :ok = NIF.batch_eval(context, entries)
    rows = for {{_, _, _, true}, i} <- Enum.with_index(entries), do: i
    assert alone == for(i <- rows, do: NIF.sampler_sample_at(sampler.(), context, i))
    assert {:error, _} = NIF.sampler_sample_at(sampler.(), context, 0)
    assert {NIF.memory_seq_pos_max(context, 1), NIF.memory_seq_pos_max(context, 2)} == {2, 4}

    :ok = NIF.memory_clear(context)
    assert {:ok, sampled} = NIF.decode_batch(context, sampler.(), entries)
    assert Enum.reject(sampled, &is_nil/1) == alone
    assert {:ok, 5} = NIF.prefill(context, ~c"er", 1)
  end

  describe "decode_batch with a sampler for each entry" do
    setup do
      {:ok, %{ref: model}} = Weir.load_model("fake:any=1")
      {:ok, context} = NIF.context_create(model, 1024, 64, 64, 1, 1, false, -1, 4)
      %{model: model, context: context}
    end

    defp drawing(model, seed) do
      {:ok, sampler} = NIF.sampler_create(model, %{seed: seed, temp: 1.5, top_k: 0})
      sampler
    end

    # Sequences of one token each, which differ.
    defp entries(n), do: for(i <- 0..(n - 1), do: {?a + i, 0, i, true})

    test "draws for each sequence what that sampler draws alone", c do
      for seed <- 1..30 do
        alone =
          for {token, pos, _seq, logits} <- entries(4) do
            {:ok, context} = NIF.context_create(c.model, 512, 64, 64, 1, 1, false, -1, 1)
            sampler = drawing(c.model, seed + token)
            {:ok, [first]} = NIF.decode_batch(context, sampler, [{token, pos, 0, logits}])
            {:ok, [next]} = NIF.decode_batch(context, [sampler], [{first, 1, 0, true}])
            {first, next}
          end

        :ok = NIF.memory_clear(c.context)
        samplers = for {token, _, _, _} <- entries(4), do: drawing(c.model, seed + token)
        assert {:ok, first} = NIF.decode_batch(c.context, samplers, entries(4))
        more = for {token, seq} <- Enum.with_index(first), do: {token, 1, seq, true}
        assert {:ok, next} = NIF.decode_batch(c.context, samplers, more)
        assert Enum.zip(first, next) == alone
      end
    end

    test "leaves out entries without one, or without logits", c do
      sampler = drawing(c.model, 1)
      entries = [{?a, 0, 0, true}, {?b, 0, 1, false}, {?c, 0, 2, true}]

      assert {:ok, [nil, nil, token]} = NIF.decode_batch(c.context, [nil, sampler, sampler], entries)

      assert is_integer(token)
      # as with one sampler
      assert NIF.decode_batch(c.context, [], []) == NIF.decode_batch(c.context, sampler, [])
    end

    test "wants as many as there are entries", c do
      sampler = drawing(c.model, 1)

      for wrong <- [
            [],
            [sampler],
            [sampler, sampler, sampler],
            [sampler | sampler],
            [sampler, :no],
            nil
          ] do
        assert_raise ArgumentError, fn -> NIF.decode_batch(c.context, wrong, entries(2)) end
      end

      assert NIF.memory_seq_pos_max(c.context, 0) == -1
    end

    # Each order of two samplers' locks meets the other one.
    test "callers that share samplers do not wait for each other for ever", c do
      samplers = for seed <- 1..4, do: drawing(c.model, seed)

      1..200
      |> Task.async_stream(
        fn i ->
          {:ok, context} = NIF.context_create(c.model, 256, 64, 64, 1, 1, false, -1, 4)
          mine = Enum.at([samplers, Enum.reverse(samplers)], rem(i, 2))
          assert {:ok, [_, _, _, _]} = NIF.decode_batch(context, mine, entries(4))
        end,
        max_concurrency: 16,
        timeout: 20_000
      )
      |> Enum.each(&assert match?({:ok, _}, &1))
    end
  end

  test "the memory of sequences" do
    {_, context, _, sampler, _, _, _, _} = resources()
    assert {:ok, 5} = NIF.prefill(context, ~c"hello", 0)
    assert :ok = NIF.memory_seq_cp(context, 0, 1, -1, -1)
    assert NIF.memory_seq_pos_max(context, 1) == 4
    assert :ok = NIF.memory_seq_rm(context, 1, 3, -1)
    assert NIF.memory_seq_pos_max(context, 1) == 2
    assert :ok = NIF.memory_seq_keep(context, 1)
    assert NIF.memory_seq_pos_max(context, 0) == -1
    assert :ok = NIF.decode_token(context, ?l, 3, 1)
    assert :ok = NIF.decode_token(context, ?o, 4, 1)
    token = NIF.sampler_sample(sampler, context)
    :ok = NIF.memory_clear(context)
    :ok = NIF.decode(context, ~c"hello")
    assert NIF.sampler_sample(sampler, context) == token
  end

  test "processes that share a context take turns" do
    {_, context, _, sampler, _, _, _, _} = resources("fake:tick_us=200")
    {:ok, text} = NIF.generate(context, sampler, ~c"hello", 20)

    1..8
    |> Task.async_stream(fn _ ->
      :ok = NIF.sampler_accept(sampler, ?a)
      assert is_integer(NIF.memory_seq_pos_max(context, 0))
      NIF.generate(context, sampler, ~c"hello", 20)
    end)
    |> Enum.each(&assert &1 == {:ok, {:ok, text}})
  end

  test "a caller that is killed computes no further" do
    {_, context, _, sampler, _, _, _, _} = resources("fake:tick_us=20000")
    pid = spawn(fn -> NIF.generate(context, sampler, ~c"hello", 400) end)
    Wait.until_inside(pid, :generate, 4)
    Process.exit(pid, :kill)
    # waits for the context; 400 passes take 8 s and would end at position 404
    assert NIF.memory_seq_pos_max(context, 0) < 300
  end
end
