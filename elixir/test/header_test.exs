# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HeaderTest do
  # Each member of the C API's structs has an Elixir option of the same name, or is listed here with the
  # reason. A new member of a header fails here until it has one or the other.
  use ExUnit.Case, async: true
  alias Weir.Server

  @headers Path.wildcard(Path.expand("../../include/weir/*.h", __DIR__))

  # The members of a struct, in order.
  defp members(struct) do
    text = Enum.map_join(@headers, &File.read!/1)
    [_all, body] = Regex.run(~r/typedef struct #{struct} \{(.*?)\n\} #{struct};/s, text)

    body
    |> String.replace(~r"/\*.*?\*/"s, "")
    |> String.split(";", trim: true)
    |> Enum.flat_map(&names/1)
  end

  # "const char *name", "int32_t a, b", "bool (*fn)(void *user)"
  defp names(declaration) do
    if declaration =~ ~r/\(\*\w+\)/ do
      [_all, name] = Regex.run(~r/\(\*(\w+)\)/, declaration)
      [name]
    else
      for part <- String.split(declaration, ","),
          name = Regex.run(~r/(\w+)\s*(\[\w+\])?\s*$/, part, capture: :all_but_first),
          do: hd(name)
    end
  end

  # The options of a function, from its error for an unknown one.
  defp options(fun) do
    error = assert_raise ArgumentError, fun
    [_all, known] = Regex.run(~r/known are (.*)$/, error.message)
    known |> String.split(", ") |> MapSet.new(&String.to_atom/1)
  end

  # renamed: options with another name. left_out: members without an option, with the reason.
  defp compare(struct, options, renamed, left_out) do
    members = members(struct)
    assert length(members) > 3, "#{struct} was not read"

    for name <- members, name != "size" do
      name = String.to_atom(name)
      option = Map.get(renamed, name, name)

      assert option in options or Map.has_key?(left_out, name),
             "#{struct}.#{name} is in a header: make it an option (here: #{inspect(option)}), or say here why there is none"

      refute option in options and Map.has_key?(left_out, name),
             "#{struct}.#{name} is there: it is not left out"
    end

    for name <- Map.keys(renamed) ++ Map.keys(left_out) do
      assert Atom.to_string(name) in members, "#{struct} has no #{name}"
    end
  end

  test "weir_engine_params: options of a server" do
    compare(
      "weir_engine_params",
      options(fn -> Server.start_link(model_path: "fake:", nonsense: 1) end),
      %{n_slots: :n_parallel, queue_limit: :max_queue, strategy: :batch_strategy},
      %{
        n_kv: "n_ctx is all cells here",
        cache_block: "no function reads the events",
        manual: "a strategy that is a module makes the engine so"
      }
    )
  end

  test "weir_request: options of a request" do
    {:ok, server} = Server.start_link(model_path: "fake:")

    compare(
      "weir_request",
      options(fn -> Server.generate(server, "hello", nonsense: 1) end),
      %{n_logprobs: :top_logprobs, deadline_ms: :deadline, itl_target_ms: :itl_target, adapters: :lora},
      Map.merge(
        Map.new(
          [:chat, :tokens, :text, :media, :source, :source_at],
          &{&1, "what the prompt is made of"}
        ),
        %{
          n_tokens: "a list's own",
          text_length: "a binary's own",
          sampler: "its members are options themselves",
          stop_length: "a binary's own",
          n_stop: "a list's own",
          n_adapters: "a list's own",
          n_media: "a list's own",
          cache_salt_length: "a binary's own",
          n_stop_tokens: "a list's own",
          n_allowed_tokens: "a list's own",
          n_bad_words: "a list's own",
          prediction: "a field of OpenAI's requests; drafts come from the prompt here",
          prediction_length: "a binary's own"
        }
      )
    )
  end

  @list_lengths %{n_dry_breakers: "a list's own", n_logit_bias: "a list's own"}

  test "weir_sampler_params: options of a sampler, of a request and of one caller" do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, server} = Server.start_link(model: model)

    for fun <- [
          fn -> Weir.Sampler.create(model, nonsense: 1) end,
          fn -> Server.generate(server, "hello", nonsense: 1) end,
          fn -> Weir.generate(model, "hello", nonsense: 1) end
        ] do
      compare("weir_sampler_params", options(fun), %{}, @list_lengths)
    end
  end

  test "weir_pool_params and weir_pool_model: options of several models" do
    {:ok, models} = Weir.Models.start_link([])

    compare(
      "weir_pool_params",
      options(fn -> Weir.Models.start_link(nonsense: 1) end),
      %{memory_bytes: :memory, queue_limit: :max_queue},
      Map.new([:leaving, :leaving_user], &{&1, "values of a lease are the VM's to free"})
    )

    compare(
      "weir_pool_model",
      options(fn -> Weir.Models.set(models, [[nonsense: 1]]) end),
      %{path: :model_path, draft_path: :draft_model, adapters: :lora, idle_ms: :idle},
      %{
        n_aliases: "a list's own",
        n_adapters: "a list's own",
        model: "its members are options themselves",
        engine: "its members are options themselves",
        template_source: "a chat brings its own template, which Weir.Chat parses"
      }
    )
  end

  test "weir_model_params: options of a model" do
    compare(
      "weir_model_params",
      options(fn -> Weir.load_model("fake:", nonsense: 1) end),
      %{},
      %{
        n_tensor_split: "a list's own",
        progress: "a load is a call that returns",
        progress_user: "of progress",
        optimized: "a file beside the model's is found by its name"
      }
    )
  end

  test "weir_context_params: options of a context" do
    {:ok, model} = Weir.load_model("fake:")

    compare(
      "weir_context_params",
      options(fn -> Weir.Context.create(model, nonsense: 1) end),
      %{pooling: :pooling_type},
      Map.new(
        [:layout, :type_k, :type_v],
        &{&1, "a server's: this is the low level, as other packages have it"}
      )
    )
  end

  test "weir_chat_params: options of a conversation" do
    options = MapSet.new(Keyword.keys(Weir.Completion.options() ++ Weir.Options.template()) ++ [:json_schema])

    compare(
      "weir_chat_params",
      options,
      %{
        tools_json: :tools,
        template_source: :template,
        args: :chat_template_kwargs,
        add_generation_prompt: :add_assistant
      },
      %{
        messages_value: "for programs that link libjansson",
        tools_value: "likewise",
        messages: "an argument",
        n_messages: "a list's own",
        messages_json: "an argument",
        n_args: "a list's own",
        media: "parts of messages",
        n_media: "a list's own"
      }
    )
  end

  test "weir_hub_params: options of a download" do
    compare(
      "weir_hub_params",
      options(fn -> Weir.Hub.download("o/m", "f.gguf", nonsense: 1) end),
      %{timeout_ms: :timeout},
      %{progress: "of download/3 alone, which has it", progress_user: "a closure's own"}
    )
  end

  # ---- Results ----

  defp compare_keys(struct, keys, left_out) do
    keys = MapSet.new(keys)
    compare(struct, keys, %{}, left_out)
  end

  @histograms "telemetry's handlers make their own"

  test "weir_engine_stats, weir_usage, weir_miss_info: what functions tell" do
    {:ok, server} = Server.start_link(model_path: "fake:", temp: 0.0)
    {:ok, _} = Server.generate(server, "It is 10:20 now. Hello there", max_tokens: 3)
    {:ok, answer} = Server.complete(server, "It is 10:21 now. Hello there", max_tokens: 3)
    assert answer.miss.miss == :diverged
    compare_keys("weir_miss_info", Map.keys(answer.miss), %{})

    {:ok, model} = Weir.load_model("fake:")
    {:ok, engine} = Weir.NIF.engine_create(model.ref, %{})
    {:ok, ref} = Weir.NIF.engine_submit(engine, %{prompt: "hello"}, self(), 1)
    compare_keys("weir_usage", Map.keys(Weir.NIF.engine_usage(ref)), %{})

    compare_keys(
      "weir_engine_stats",
      Map.keys(Weir.NIF.engine_stats(engine)),
      Map.new(
        ~w(queue_seconds ttft_seconds itl_seconds tpot_seconds tick_seconds batch_tokens passes)a,
        &{&1, @histograms}
      )
    )
  end

  test "weir_view, weir_slot_view, weir_cost, weir_report, weir_tick, weir_tick_slot: what a strategy and a server see" do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, engine} = Weir.NIF.engine_create(model.ref, %{manual: true})
    # greedy: a random token may end the answer at once
    {:ok, _ref} = Weir.NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0}, self(), 1)
    {:ok, %{slots: [slot]} = view} = Weir.NIF.engine_view(engine)
    compare_keys("weir_view", Map.keys(view), %{n_slots: "a list's own"})
    compare_keys("weir_cost", Map.keys(view.cost), %{})
    compare_keys("weir_slot_view", Map.keys(slot), %{})
    {:ok, report} = Weir.NIF.engine_step(engine, nil)
    compare_keys("weir_report", Map.keys(report), %{})
    {1, [tick]} = Weir.NIF.engine_ticks(engine, 0)
    compare_keys("weir_tick", Map.keys(tick), %{})
    [part] = Weir.NIF.engine_slots(engine)
    compare_keys("weir_tick_slot", Map.keys(part), %{})
  end
end
