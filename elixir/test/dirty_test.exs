# SPDX-License-Identifier: Apache-2.0
defmodule Weir.DirtyTest do
  # The scheduler that each native function runs on. It counts the work of all schedulers, so nothing may run
  # beside it.
  use ExUnit.Case, async: false
  alias Weir.NIF

  # Whether a call of fun moves to a dirty scheduler. These have the number 0 in traces.
  defp dirty?(fun) do
    me = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        receive do: (:go -> fun.())
      end)

    :erlang.trace(pid, true, [:running, :scheduler_id, {:tracer, me}])
    send(pid, :go)
    assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}
    delivered = :erlang.trace_delivered(pid)
    assert_receive {:trace_delivered, ^pid, ^delivered}
    0 in traced(pid)
  end

  defp traced(pid) do
    receive do
      {:trace, ^pid, _in_or_out, _mfa, scheduler} -> [scheduler | traced(pid)]
    after
      0 -> []
    end
  end

  test "each function runs on the scheduler that the table names" do
    {:ok, %{ref: model}} = Weir.load_model("fake:")
    {:ok, context} = NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4)
    {:ok, wide} = NIF.context_create(model, 512, 0, 64, 1, 1, true, -1, 1)
    {:ok, large} = NIF.context_create(model, 70_000, 64, 64, 1, 1, false, -1, 1)

    init = fn grammar ->
      NIF.sampler_init(model, 7, 0.8, 40, 0.95, 0.05, 1.0, 0.0, 0.0, grammar, nil)
    end

    {:ok, sampler} = init.(nil)
    {:ok, bound} = init.("root ::= \"yes\"")
    {:ok, engine} = NIF.engine_create(model, %{n_slots: 2})
    {:ok, manual} = NIF.engine_create(model, %{n_slots: 2, manual: true})
    {:ok, stream} = NIF.engine_submit(manual, %{prompt: "hello", keep: true}, self(), 1)
    {:ok, chat} = NIF.chat_create(model, %{messages: ~S([{"role": "user", "content": "a"}])})
    {:ok, parser} = NIF.chat_parser(chat)
    long = String.duplicate("x", 5000)
    many = List.duplicate(?x, 5000)

    submit = fn request ->
      NIF.engine_submit(manual, Map.merge(%{prompt: "hi"}, request), self(), 1)
    end

    hub = %{offline: true, cache_dir: "/nowhere"}
    {:ok, pool} = NIF.pool_create(%{})
    listed = [%{name: "a", path: "fake:"}]
    :ok = NIF.pool_set(pool, listed)
    {:ok, lease} = NIF.lease_create(pool, "a", -1, self(), ready = make_ref())
    assert_receive {^ready, :ready}

    io = [
      model_load: fn -> NIF.model_load("fake:", 0, true, 0, 0, [], false, false, false, %{}) end,
      devices: fn -> NIF.devices() end,
      adapter_load: fn -> NIF.adapter_load(model, "fake:1") end,
      engine_stop: fn -> NIF.engine_stop(engine) end,
      engine_destroy: fn -> NIF.engine_destroy(engine) end,
      hub_list: fn -> NIF.hub_list(nil, hub) end,
      hub_resolve: fn -> NIF.hub_resolve("hf:o/m", hub) end,
      hub_get: fn -> NIF.hub_get("x", hub) end,
      hub_download: fn -> NIF.hub_download("hf:o/m", hub, nil, make_ref()) end,
      pool_create: fn -> {:ok, _} = NIF.pool_create(%{}) end
    ]

    cpu = [
      context_create: fn -> NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4) end,
      media_create: fn -> {:error, _} = NIF.media_create(model, "RIFF") end,
      decode: fn -> :ok = NIF.decode(context, ~c"hello") end,
      state_save: fn -> {:ok, _} = NIF.state_save(context, 0) end,
      state_load: fn -> NIF.state_load(context, 0, "x") end,
      generate: fn -> NIF.generate(context, sampler, ~c"hello", 5) end,
      generate_tokens: fn ->
        NIF.generate_tokens(context, sampler, ~c"hello", 5, self(), make_ref())
      end,
      prefill: fn -> NIF.prefill(context, ~c"hello", 1) end,
      embed_decode: fn -> :ok = NIF.embed_decode(wide, ~c"hello", 0) end,
      embed: fn -> {:ok, [_]} = NIF.embed(wide, [~c"hello"], 2, :infinity) end,
      batch_eval: fn -> NIF.batch_eval(context, [{?a, 0, 2, true}]) end,
      decode_token: fn -> NIF.decode_token(context, ?a, 0, 3) end,
      decode_batch: fn -> NIF.decode_batch(context, sampler, [{?a, 1, 2, true}]) end,
      chat_apply_template: fn -> NIF.chat_apply_template("a", [{"user", "a"}], true) end,
      chat_apply_template_jinja: fn ->
        NIF.chat_apply_template_jinja(model, [{"user", "a"}], true, true, [])
      end,
      chat_create: fn -> NIF.chat_create(model, %{messages: "[]"}) end,
      chat_tokens: fn -> {:ok, _} = NIF.chat_tokens(chat) end,
      chat_parser: fn -> NIF.chat_parser(chat) end,
      chat_parser_feed: fn -> {:ok, _} = NIF.chat_parser_feed(parser, "a", false) end,
      json_schema_to_grammar_nif: fn -> NIF.json_schema_to_grammar_nif("{}") end,
      engine_create: fn -> NIF.engine_create(model, %{manual: true}) end,
      engine_view: fn -> NIF.engine_view(manual) end,
      engine_step: fn -> NIF.engine_step(manual, nil) end,
      engine_turn: fn -> NIF.engine_turn(manual, nil) end,
      pool_set: fn -> :ok = NIF.pool_set(pool, listed) end
    ]

    normal = [
      pool_get: fn -> {:ok, _} = NIF.pool_get(pool, 0) end,
      pool_find: fn -> {:ok, _} = NIF.pool_find(pool, "a") end,
      pool_stats: fn -> NIF.pool_stats(pool) end,
      pool_set_memory: fn -> NIF.pool_set_memory(pool, %{memory_bytes: 0}) end,
      pool_load: fn -> :ok = NIF.pool_load(pool, "a") end,
      pool_unload: fn -> :ok = NIF.pool_unload(pool, "a") end,
      lease_create: fn -> {:ok, _} = NIF.lease_create(pool, "a", 0, self(), make_ref()) end,
      model_share: fn -> {:ok, _} = NIF.model_share(model, self()) end,
      lease_share: fn -> {:ok, _} = NIF.lease_share(lease, self()) end,
      lease_adapters: fn -> [] = NIF.lease_adapters(lease) end,
      lease_release: fn -> :ok = NIF.lease_release(lease) end,
      backend_init: fn -> NIF.backend_init() end,
      backend_free: fn -> NIF.backend_free() end,
      backend_version: fn -> NIF.backend_version() end,
      live_handles: fn -> NIF.live_handles() end,
      members: fn -> NIF.members("sampler") end,
      log_to: fn -> :ok = NIF.log_to(Process.whereis(Weir.Log), :warning) end,
      model_n_ctx_train: fn -> NIF.model_n_ctx_train(model) end,
      model_n_embd: fn -> NIF.model_n_embd(model) end,
      model_desc: fn -> NIF.model_desc(model) end,
      model_info: fn -> NIF.model_info(model) end,
      model_size: fn -> NIF.model_size(model) end,
      model_n_params: fn -> NIF.model_n_params(model) end,
      model_chat_template: fn -> NIF.model_chat_template(model) end,
      vocab_n_tokens: fn -> NIF.vocab_n_tokens(model) end,
      vocab_bos: fn -> NIF.vocab_bos(model) end,
      vocab_eos: fn -> NIF.vocab_eos(model) end,
      vocab_is_eog: fn -> NIF.vocab_is_eog(model, 1) end,
      tokenize: fn -> NIF.tokenize(model, "short", true, true) end,
      detokenize: fn -> NIF.detokenize(model, ~c"short") end,
      token_to_piece: fn -> NIF.token_to_piece(model, ?a) end,
      context_n_ctx: fn -> NIF.context_n_ctx(context) end,
      context_n_seq_max: fn -> NIF.context_n_seq_max(context) end,
      sampler_init: fn -> init.(nil) end,
      sampler_create: fn -> {:ok, _} = NIF.sampler_create(model, %{temp: 0.5, mirostat: 1}) end,
      sampler_accept: fn -> :ok = NIF.sampler_accept(sampler, ?a) end,
      sampler_reset: fn -> :ok = NIF.sampler_reset(sampler) end,
      sampler_sample: fn -> NIF.sampler_sample(sampler, context) end,
      sampler_sample_at: fn -> NIF.sampler_sample_at(sampler, context, -1) end,
      get_embeddings: fn -> NIF.get_embeddings(wide, 0, 2) end,
      memory_seq_pos_max: fn -> NIF.memory_seq_pos_max(context, 0) end,
      memory_clear: fn -> NIF.memory_clear(context) end,
      chat_prompt: fn -> NIF.chat_prompt(chat) end,
      chat_relaxed: fn -> NIF.chat_relaxed(chat) end,
      chat_reshaped: fn -> NIF.chat_reshaped(chat) end,
      chat_special_content: fn -> NIF.chat_special_content(chat) end,
      engine_submit: fn -> {:ok, _} = submit.(%{}) end,
      engine_submit_n: fn ->
        {:ok, _} = NIF.engine_submit_n(manual, %{prompt: "a"}, 2, self(), 1)
      end,
      engine_demand: fn -> NIF.engine_demand(stream, 1) end,
      engine_cancel: fn -> NIF.engine_cancel(stream) end,
      engine_interval: fn -> NIF.engine_interval(stream, 2) end,
      engine_progress: fn -> NIF.engine_progress(stream) end,
      engine_stats: fn -> NIF.engine_stats(manual) end,
      engine_usage: fn -> NIF.engine_usage(stream) end,
      engine_close: fn -> NIF.engine_close(stream) end,
      engine_ticks: fn -> NIF.engine_ticks(manual, 0) end,
      engine_slots: fn -> NIF.engine_slots(manual) end
    ]

    # The same functions when they take longer than a normal scheduler should give.
    moved = [
      tokenize: fn -> NIF.tokenize(model, long, true, true) end,
      detokenize: fn -> NIF.detokenize(model, many) end,
      sampler_init: fn -> init.("root ::= \"yes\"") end,
      sampler_create: fn -> {:ok, _} = NIF.sampler_create(model, %{dry_multiplier: 0.5}) end,
      sampler_accept: fn -> :ok = NIF.sampler_accept(bound, ?y) end,
      sampler_reset: fn -> :ok = NIF.sampler_reset(bound) end,
      sampler_sample: fn -> NIF.sampler_sample(bound, context) end,
      sampler_sample_at: fn -> NIF.sampler_sample_at(bound, context, -1) end,
      memory_clear: fn -> NIF.memory_clear(large) end,
      engine_submit: fn -> submit.(%{prompt: long}) end,
      engine_submit: fn -> submit.(%{prompt: many}) end,
      engine_submit: fn -> submit.(%{cache_salt: long}) end,
      engine_submit: fn -> submit.(%{stop: [long]}) end,
      engine_submit: fn -> submit.(%{allowed_tokens: many}) end,
      engine_submit: fn -> submit.(%{stop_tokens: many}) end,
      engine_submit: fn -> submit.(%{bad_words: ["a"]}) end,
      engine_submit: fn -> submit.(%{grammar: "root ::= \"yes\""}) end,
      engine_submit: fn -> {:ok, _} = submit.(%{prompt: chat}) end,
      engine_submit: fn -> {:ok, _} = submit.(%{source: stream}) end,
      engine_submit: fn -> {:ok, _} = submit.(%{logit_bias: [{1, 0.5}]}) end,
      engine_submit_n: fn -> NIF.engine_submit_n(manual, %{prompt: "a"}, 20, self(), 1) end
    ]

    tried = Keyword.keys(io ++ cpu ++ normal)
    functions = NIF.__info__(:functions) |> Keyword.keys() |> Enum.uniq()
    assert Enum.sort(tried) == Enum.sort(functions -- [:load])
    for {name, fun} <- normal, do: assert({name, dirty?(fun)} == {name, false})
    for {name, fun} <- cpu ++ moved ++ io, do: assert({name, dirty?(fun)} == {name, true})

    # The kind of dirty scheduler: its threads have worked meanwhile.
    for {kind, funs} <- [dirty_io_scheduler: io, dirty_cpu_scheduler: cpu], {name, fun} <- funs do
      before = worked(kind)
      fun.()
      assert {name, worked(kind) > before} == {name, true}
    end
  after
    :erlang.system_flag(:microstate_accounting, false)
  end

  # The first vocabulary is small enough for any chain.
  test "a draw runs where its chain's cost allows" do
    for {n_vocab, large?} <- [{320, false}, {49_152, true}] do
      {:ok, %{ref: model}} = Weir.load_model("fake:n_vocab=#{n_vocab}")
      {:ok, context} = NIF.context_create(model, 512, 0, 64, 1, 1, false, -1, 4)
      :ok = NIF.decode(context, ~c"hello")

      # chains with few candidates, or without any
      few = [
        %{},
        %{temp: 0.0, top_k: 0},
        %{temp: 0.0, mirostat: 1},
        %{top_k: 256},
        %{typical_p: 0.9},
        %{xtc_probability: 0.5},
        %{dynatemp_range: 0.5},
        %{adaptive_target: 0.5},
        %{penalty_repeat: 1.1, penalty_last_n: 0},
        %{temp: 0.0, top_n_sigma: 1.0},
        %{top_k: 0, temp: 0.0, typical_p: 1.0}
      ]

      # chains that sort all candidates, or look at each of them more than once
      all = [
        %{top_k: 0},
        %{top_k: 257},
        %{penalty_repeat: 1.1},
        %{penalty_freq: 0.5},
        %{penalty_present: -0.5},
        %{temp: 0.0, penalty_repeat: 0.9, penalty_last_n: 1},
        %{top_n_sigma: 1.0},
        %{top_k: 0, typical_p: 0.9},
        %{top_k: 0, xtc_probability: 0.5},
        %{top_k: 0, dynatemp_range: 0.5},
        %{top_k: 0, adaptive_target: 0.5},
        %{mirostat: 1},
        %{mirostat: 2},
        %{temp: 0.0, top_k: 0, typical_p: 0.9},
        %{temp: 0.0, top_k: 0, xtc_probability: 0.5}
      ]

      for {sort?, chains} <- [{false, few}, {large?, all}], chain <- chains do
        {:ok, sampler} = NIF.sampler_create(model, chain)
        sample = fn -> NIF.sampler_sample(sampler, context) end
        assert {chain, dirty?(sample)} == {chain, sort?}
        sample_at = fn -> NIF.sampler_sample_at(sampler, context, -1) end
        assert {chain, dirty?(sample_at)} == {chain, sort?}
        refute dirty?(fn -> NIF.sampler_accept(sampler, ?a) end)
        refute dirty?(fn -> NIF.sampler_reset(sampler) end)
      end

      init = fn temp, top_k, repeat ->
        {:ok, sampler} = NIF.sampler_init(model, 1, temp, top_k, 0.95, 0.05, repeat, 0.0, 0.0, nil, nil)

        dirty?(fn -> NIF.sampler_sample(sampler, context) end)
      end

      assert {init.(0.8, 40, 1.0), init.(0.8, 0, 1.0), init.(0.0, 0, 1.0)} == {false, large?, false}
      assert init.(0.8, 40, 1.1) == large?
    end
  end

  defp worked(kind) do
    :erlang.system_flag(:microstate_accounting, true)

    Enum.sum(
      for %{type: ^kind, counters: counters} <- :erlang.statistics(:microstate_accounting),
          {state, time} <- counters,
          state != :sleep,
          do: time
    )
  end
end
