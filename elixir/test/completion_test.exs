# SPDX-License-Identifier: Apache-2.0
defmodule Weir.CompletionTest do
  # Answers in OpenAI's format. A model and a server must give the same.
  use ExUnit.Case, async: true
  import Weir.Wait, only: [eventually: 1, mailbox: 0]
  alias Weir.{NIF, Server, Tokenizer}

  @messages [%{role: "user", content: "hello"}]
  @greedy [temp: 0.0, max_tokens: 20]

  setup_all do
    {:ok, model} = Weir.load_model("fake:any=1")
    %{model: model}
  end

  setup %{model: model} do
    server = start_supervised!({Server, model: model, n_parallel: 2, max_tokens: 20})
    %{server: server, ways: [{Weir, model}, {Server, server}]}
  end

  defp whole({module, who}, opts),
    do: module.chat_completion(who, opts[:messages] || @messages, Keyword.delete(opts, :messages))

  # The deltas of each choice, after checks that apply to all.
  defp streamed({module, who}, opts) do
    {messages, opts} = Keyword.pop(opts, :messages, @messages)
    chunks = who |> module.stream_chat_completion(messages, opts) |> Enum.to_list()
    assert [_one] = chunks |> Enum.map(&{&1.id, &1.created, &1.model, &1.object}) |> Enum.uniq()
    assert Enum.all?(chunks, &match?([_one], &1.choices))

    chunks
    |> Enum.map(&hd(&1.choices))
    |> Enum.group_by(& &1.index)
    |> Map.new(fn {index, choices} ->
      assert hd(choices).delta == %{role: "assistant"}
      assert %{delta: %{}, finish_reason: reason} = List.last(choices)
      assert is_binary(reason) and Enum.count(choices, & &1.finish_reason) == 1
      assert Enum.count(choices, & &1.delta[:role]) == 1
      {index, choices}
    end)
  end

  defp content(choices), do: Enum.map_join(choices, &(&1.delta[:content] || ""))

  describe "usage" do
    test "comes with the last chunk of a stream, and is that of the whole answer", %{ways: ways} do
      for {module, who} = way <- ways, n <- [1, 3] do
        opts = [n: n, seed: 7, max_tokens: 9]
        {:ok, answer} = whole(way, opts)
        chunks = who |> module.stream_chat_completion(@messages, opts) |> Enum.to_list()
        {others, [last]} = Enum.split(chunks, -1)
        assert Enum.all?(others, &(&1.usage == nil))
        assert [%{finish_reason: "length"}] = last.choices
        # the prompt may be cached by then
        known = [:prompt_tokens, :completion_tokens, :total_tokens]
        assert Map.take(last.usage, known) == Map.take(answer.usage, known)
        assert last.usage.completion_tokens == 9 * n
        assert Map.keys(last.usage) == Map.keys(answer.usage)
      end
    end
  end

  describe "logprobs" do
    test "are those of the text, not of the stop text", %{server: server} do
      opts = [logprobs: true] ++ @greedy
      {:ok, all} = Server.complete(server, "hello", opts)
      stop = String.slice(all.text, 6, 3)
      [text | _] = String.split(all.text, stop)

      for {stop, text, reason} <- [
            {stop, text, :stop_words},
            {String.slice(all.text, -2, 2) <> "\u2603", all.text, :length}
          ] do
        {:ok, cut} = Server.complete(server, "hello", [stop: [stop]] ++ opts)
        assert {cut.text, cut.reason} == {text, reason}
        n = length(cut.logprobs)
        assert cut.logprobs == Enum.take(all.logprobs, n)
        assert if(reason == :stop_words, do: n < length(cut.ids), else: n == length(cut.ids))

        chunks = server |> Server.stream("hello", [stop: [stop], emit: :chunks] ++ opts) |> Enum.to_list()
        assert Enum.flat_map(chunks, &(&1.logprobs || [])) == cut.logprobs
        assert Enum.flat_map(chunks, & &1.ids) == cut.ids
        assert hd(chunks).logprobs != nil
      end
    end

    test "are told for each token, whole and streamed", %{
      ways: ways,
      model: model,
      server: server
    } do
      {:ok, expected} = Server.complete(server, "hello", [logprobs: true, top_logprobs: 4] ++ @greedy)

      assert length(expected.logprobs) == 20

      for {entry, id} <- Enum.zip(expected.logprobs, expected.ids) do
        bytes = Tokenizer.token_to_piece(model, id)
        assert entry.bytes == :binary.bin_to_list(bytes)

        assert entry.token ==
                 if(String.valid?(bytes),
                   do: bytes,
                   else: "bytes:\\x" <> Base.encode16(bytes, case: :lower)
                 )

        # greedy: the most probable token
        assert [%{token: token, logprob: logprob, bytes: _} | _] = top = entry.top_logprobs
        assert {token, logprob} == {entry.token, entry.logprob}
        assert length(top) == 4 and Enum.sort_by(top, & &1.logprob, :desc) == top
        assert Enum.all?(top, &(&1.logprob <= 0.0 and not is_map_key(&1, :top_logprobs)))
        assert top |> Enum.map(&:math.exp(&1.logprob)) |> Enum.sum() <= 1.0 + 1.0e-6
      end

      for way <- ways do
        {:ok, plain} = whole(way, @greedy)
        assert [%{logprobs: nil}] = plain.choices
        opts = [logprobs: true, top_logprobs: 2] ++ @greedy
        assert {:ok, %{choices: [choice]}} = whole(way, opts)
        assert %{content: entries, refusal: nil} = choice.logprobs
        assert length(entries) == 20 and Enum.all?(entries, &(length(&1.top_logprobs) == 2))
        assert choice.message == hd(plain.choices).message

        assert %{0 => choices} = streamed(way, opts)
        assert Enum.flat_map(choices, &(&1.logprobs || %{content: []}).content) == entries
        assert content(choices) == choice.message.content

        assert {:ok, %{choices: [%{logprobs: %{content: [%{top_logprobs: []} | _]}}]}} =
                 whole(way, [logprobs: true] ++ @greedy)
      end

      assert mailbox() == []
    end

    test "of a server's answers and streams", %{server: server} do
      opts = [logprobs: true, top_logprobs: 1] ++ @greedy
      {:ok, answer} = Server.complete(server, "hello", opts)
      chunks = server |> Server.stream("hello", [emit: :chunks] ++ opts) |> Enum.to_list()
      assert Enum.flat_map(chunks, &(&1.logprobs || [])) == answer.logprobs
      assert List.last(chunks).logprobs == nil
      assert {:ok, %{logprobs: nil}} = Server.complete(server, "hello", @greedy)
      assert server |> Server.stream("hello", opts) |> Enum.join() == answer.text
      :ok = Server.configure(server, logprobs: true)
      assert {:ok, %{logprobs: [_ | _]}} = Server.complete(server, "hello", @greedy)
    end
  end

  describe "n" do
    test "answers are those of seeds in a row, whole and streamed", %{ways: ways} do
      for way <- ways do
        opts = [seed: 40, temp: 1.0, max_tokens: 30]

        alone =
          for i <- 0..2 do
            {:ok, answer} = whole(way, Keyword.put(opts, :seed, 40 + i))
            answer
          end

        expected = Enum.map(alone, &hd(&1.choices).message)
        assert length(Enum.uniq(expected)) == 3
        assert {:ok, answer} = whole(way, [n: 3] ++ opts)
        assert Enum.map(answer.choices, & &1.index) == [0, 1, 2]
        assert Enum.map(answer.choices, & &1.message) == expected
        sum = fn key -> alone |> Enum.map(& &1.usage[key]) |> Enum.sum() end
        assert answer.usage.completion_tokens == sum.(:completion_tokens)
        assert answer.usage.prompt_tokens == hd(alone).usage.prompt_tokens
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + sum.(:completion_tokens)

        choices = streamed(way, [n: 3] ++ opts)
        assert Enum.map(0..2, &content(choices[&1])) == Enum.map(expected, & &1.content)
      end

      assert mailbox() == []
    end

    test "streams that are left, and consumers that die, leave nothing" do
      {:ok, slow} = Weir.load_model("fake:tick_us=20000")
      server = start_supervised!({Server, model: slow, n_parallel: 2}, id: :slow)
      opts = [n: 5, temp: 0.0, max_tokens: 400]

      for {module, who} = way <- [{Weir, slow}, {Server, server}] do
        assert [_, _, _] = who |> module.stream_chat_completion(@messages, opts) |> Enum.take(3)
        assert mailbox() == []
        assert {:error, %{code: :timeout}} = whole(way, [timeout: 20] ++ opts)
        assert mailbox() == []
        {pid, monitor} = spawn_monitor(fn -> whole(way, opts) end)
        Process.sleep(10)
        Process.exit(pid, :kill)
        assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}
      end

      assert eventually(fn ->
               stats = Server.get_stats(server)
               stats.active_slots + stats.queue_depth + stats.requests == 0
             end)

      task = Task.async(fn -> {whole({Server, server}, [id: :five] ++ opts), mailbox()} end)
      assert eventually(fn -> Server.get_stats(server).requests == 5 end)
      assert eventually(fn -> Server.get_stats(server).active_slots == 2 end)
      assert :ok = Server.cancel(server, :five)
      assert {{:error, %{code: :cancelled}}, []} = Task.await(task, Weir.Wait.patience())

      # an error of one answer is the error of all
      task = Task.async(fn -> {whole({Server, server}, opts), mailbox()} end)
      assert eventually(fn -> Server.get_stats(server).active_slots == 2 end)
      %{engines: engines} = :sys.get_state(server)
      for {_number, engine} <- engines, do: NIF.engine_stop(engine.ref)
      assert {{:error, %{code: :stopping}}, []} = Task.await(task, Weir.Wait.patience())
    end

    test "are begun together or not at all", %{model: model} do
      small = start_supervised!({Server, model: model, n_parallel: 1, max_queue: 1}, id: :small)
      assert {:error, _} = Server.chat_completion(small, @messages, [n: 3] ++ @greedy)
      assert eventually(fn -> Server.get_stats(small).requests == 0 end)
      assert Server.get_stats(small).n_submitted == 0

      assert {:ok, %{choices: [_, _]}} = Server.chat_completion(small, @messages, [n: 2] ++ @greedy)
    end

    test "a server that goes away is an error", %{model: model} do
      Process.flag(:trap_exit, true)
      {:ok, slow} = Weir.load_model("fake:tick_us=20000")
      {:ok, server} = Server.start_link(model: slow)
      stream = Server.stream_chat_completion(server, @messages, n: 2, max_tokens: 400, temp: 0.0)

      assert_raise Weir.Error, fn ->
        Enum.each(stream, fn _ -> Process.exit(server, :kill) end)
      end

      assert_receive {:EXIT, ^server, :killed}
      assert mailbox() == []
      assert {:ok, _} = Weir.chat_completion(model, @messages, @greedy)
    end
  end

  describe "reasoning" do
    # With a grammar of one literal the fake model generates that text.
    defp says(text), do: [grammar: "root ::= #{inspect(text)}", max_tokens: 100]

    test "in tags that the template knows nothing of", %{ways: ways} do
      for way <- ways do
        opts = says("<think>one and one</think>two")
        assert {:ok, %{choices: [choice]}} = whole(way, opts)

        assert choice.message == %{
                 role: "assistant",
                 content: "two",
                 reasoning_content: "one and one"
               }

        assert choice.finish_reason == "stop"
        %{0 => choices} = streamed(way, [logprobs: true] ++ opts)
        assert content(choices) == "two"
        # including the tokens of tags, which are in no delta
        bytes = for %{logprobs: %{content: entries}} <- choices, entry <- entries, do: entry.bytes
        assert IO.iodata_to_binary(bytes) == "<think>one and one</think>two"
        assert Enum.map_join(choices, &(&1.delta[:reasoning_content] || "")) == "one and one"
      end
    end

    test "that is none: what might have been a tag is content", %{ways: ways} do
      for way <- ways do
        assert {:ok, %{choices: [%{message: message}]}} = whole(way, says("a < b <thin"))
        assert message == %{role: "assistant", content: "a < b <thin", reasoning_content: nil}
        assert %{0 => choices} = streamed(way, says("a < b <thin"))
        assert content(choices) == "a < b <thin"
      end
    end

    @thinks ~S"""
    {%- for m in messages %}<|im_start|>{{ m.role }}
    {%- if m.reasoning_content %}
    <think>
    {{ m.reasoning_content }}
    </think>

    {% endif %}
    {{ m.content }}<|im_end|>
    {% endfor %}
    {%- if add_generation_prompt %}<|im_start|>assistant
    <think>
    {% endif %}
    """

    @tag :llama
    test "that the template has opened", %{ways: ways} do
      for way <- ways do
        opts = [template: @thinks] ++ says("one and one\n</think>\n\ntwo")
        assert {:ok, %{choices: [%{message: message}]}} = whole(way, opts)
        assert %{content: "two", reasoning_content: "one and one"} = message
        %{0 => choices} = streamed(way, opts)
        assert String.trim(content(choices)) == "two"
        reasoning = Enum.map_join(choices, &(&1.delta[:reasoning_content] || ""))
        assert String.trim(reasoning) == "one and one"
      end
    end
  end

  describe "tools" do
    @tools [
      %{
        type: "function",
        function: %{
          name: "get_weather",
          description: "The weather at a place.",
          parameters: %{
            type: "object",
            properties: %{city: %{type: "string", enum: ["Paris", "Rome"]}},
            required: ["city"]
          }
        }
      },
      %{
        type: "function",
        function: %{name: "get_time", parameters: %{type: "object", properties: %{}}}
      }
    ]

    @calls ~S"""
    {%- if tools %}<|im_start|>system
    Tools: {% for tool in tools %}{{ tool | tojson }} {% endfor %}
    To call one, write <tool_call>
    {"name": the name, "arguments": its arguments}
    </tool_call><|im_end|>
    {% endif %}
    {%- for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content or '' }}
    {%- for call in m.tool_calls or [] %}
    <tool_call>
    {"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
    </tool_call>
    {%- endfor %}<|im_end|>
    {% endfor %}
    {%- if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
    """

    defp call(arguments) do
      function = %{name: "get_weather", arguments: arguments}
      call = %{id: "call_1", type: "function", function: function}
      %{role: "assistant", content: nil, tool_calls: [call]}
    end

    defp chat(model, opts) do
      defaults = Weir.Options.read!([], Weir.Completion.options() ++ Weir.Options.template())
      given = Map.new([template: @calls, tools: @tools] ++ opts)
      Weir.Chat.create(model, @messages, Map.merge(defaults, given))
    end

    @tag :llama
    test "are rendered, and an answer's calls are read piece by piece", %{model: model} do
      {:ok, chat} = chat(model, [])
      assert NIF.chat_prompt(chat) =~ "get_weather"

      answer =
        "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"

      for size <- [1, 3, 1000] do
        {:ok, parser} = NIF.chat_parser(chat)

        pieces =
          for chars <- answer |> String.graphemes() |> Enum.chunk_every(size),
              do: Enum.join(chars)

        deltas =
          Enum.flat_map(pieces, fn piece ->
            {:ok, deltas} = NIF.chat_parser_feed(parser, piece, false)
            deltas
          end)

        {:ok, rest} = NIF.chat_parser_feed(parser, "", true)
        deltas = deltas ++ rest
        words = for {:content, text} <- deltas, into: "", do: text
        assert String.trim(words) == "Let me see."

        assert [{:tool_call, 0, id, "get_weather"}] = Enum.filter(deltas, &(elem(&1, 0) == :tool_call))

        assert id != ""
        arguments = for {:arguments, 0, text} <- deltas, into: "", do: text
        assert Weir.JSON.decode(arguments) == {:ok, %{"city" => "Rome"}}
        assert {:error, _} = NIF.chat_parser_feed(parser, "more", false)
      end
    end

    @tag :llama
    test "one by name is the only one", %{model: model} do
      {:ok, chat} = chat(model, tool_choice: %{type: "function", function: %{name: "get_time"}})
      refute NIF.chat_prompt(chat) =~ "get_weather"
      {:ok, chat} = chat(model, tool_choice: "none")
      {:ok, parser} = NIF.chat_parser(chat)
      assert {:ok, _} = NIF.chat_parser_feed(parser, "hello", true)
    end

    @tag :llama
    test "have answers in a conversation", %{model: model} do
      messages = [
        {:user, "The weather in Rome?"},
        call(~S({"city": "Rome"})),
        %{"role" => "tool", "tool_call_id" => "call_1", "content" => "sunny"}
      ]

      assert {:ok, prompt} = Weir.Chat.apply_template(model, messages, template: @calls)
      assert prompt =~ ~S({"name": "get_weather", "arguments": {"city": "Rome"}})
      assert prompt =~ "sunny"
    end

    test "wrong ones are refused", %{ways: ways} do
      for way <- ways do
        for {opts, message} <- [
              {[tools: [:hello]], ~r/:tools must be/},
              {[tools: @tools, tool_choice: :always], ~r/:tool_choice must be/},
              {[tools: @tools, tool_choice: %{function: %{name: "fly"}}], ~r/no tool "fly"/},
              {[n: 0], ~r/:n must be/},
              {[top_logprobs: 2], ~r/:top_logprobs needs/},
              {[top_logprobs: 21, logprobs: true], ~r/:top_logprobs must be/},
              {[tool: @tools], ~r/unknown option :tool/}
            ] do
          assert_raise ArgumentError, message, fn -> whole(way, opts) end
        end

        # without templates in this build
        case whole(way, tools: @tools) do
          {:ok, _completion} -> :ok
          {:error, error} -> assert error.status == 400
        end

        for content <- [<<255>>, "a\0b"] do
          assert {:error, %{message: reason}} = whole(way, messages: [{:user, content}])
          assert reason =~ "messages[0].content"
        end
      end

      assert mailbox() == []
    end

    @tag :llama
    test "are described where the template knows of none", %{model: model} do
      {:ok, chat} = chat(model, template: nil)
      assert NIF.chat_prompt(chat) =~ "You can call these functions"
      {:ok, parser} = NIF.chat_parser(chat)
      answer = ~S({"name": "get_weather", "arguments": {"city": "Rome"}})
      {:ok, deltas} = NIF.chat_parser_feed(parser, answer, true)
      assert [{:tool_call, 0, _id, "get_weather"} | rest] = deltas
      assert Enum.map_join(rest, fn {:arguments, 0, text} -> text end) == ~S({"city": "Rome"})
      # a call, or an answer by the schema
      {:ok, chat} = chat(model, template: nil, json_schema: %{enum: ["yes", "no"]})
      assert NIF.chat_prompt(chat) =~ "JSON Schema"
      {:ok, parser} = NIF.chat_parser(chat)

      assert {:ok, [{:content, ~S("yes")}]} = NIF.chat_parser_feed(parser, ~S({"response": "yes"}), true)
    end

    @tag :llama
    test "that cannot be enforced in full are a warning, and an error where they are strict", %{
      model: model
    } do
      schema = %{type: "object", properties: %{n: %{type: "array", uniqueItems: true}}}
      function = %{name: "f", parameters: schema}
      tools = fn function -> [%{type: "function", function: function}] end

      for opts <- [[], [template: nil], [tools: [], json_schema: schema, strict_schema: false]] do
        log =
          ExUnit.CaptureLog.capture_log(fn ->
            assert {:ok, _chat} = chat(model, [tools: tools.(function)] ++ opts)
          end)

        assert log =~ "/properties/n: uniqueItems"
      end

      strict = tools.(Map.put(function, :strict, true))
      assert {:error, %{message: reason}} = chat(model, tools: strict)
      assert reason =~ "uniqueItems"
      assert {:error, %{message: reason}} = chat(model, tools: [], json_schema: schema)
      assert reason =~ "uniqueItems"
      # a tool that may not be called needs no grammar; other tests may log meanwhile
      log =
        ExUnit.CaptureLog.capture_log(fn ->
          assert {:ok, _chat} = chat(model, tools: strict, tool_choice: :none)
        end)

      refute log =~ "uniqueItems"
    end

    test "a schema is enforced in full where no parser reads the answer", %{model: model} do
      opts = [json_schema: %{type: "object"}, strict_schema: false]

      for chat <- [
            &Weir.chat(model, [], &1),
            &Weir.stream_chat(model, [], &1),
            &Weir.Server.chat(self(), [], &1),
            &Weir.Server.stream_chat(self(), [], &1),
            &Weir.Models.chat(self(), "a", [], &1),
            &Weir.Models.stream_chat(self(), "a", [], &1)
          ],
          do: assert_raise(ArgumentError, ~r/:strict_schema/, fn -> chat.(opts) end)
    end

    @tag :model
    test "are called by a model whose template knows of none" do
      {:ok, model} = Weir.load_model(System.fetch_env!("WEIR_TEST_MODEL"))
      server = start_supervised!({Server, model: model}, id: :real)
      schema = %{type: "object", properties: %{sum: %{type: "integer"}}, required: ["sum"]}
      opts = [tools: @tools, max_tokens: 60, temp: 0.0]

      for way <- [{Weir, model}, {Server, server}] do
        required = [tool_choice: :required, messages: [{:user, "The weather in Paris?"}]] ++ opts
        assert {:ok, %{choices: [choice]}} = whole(way, required)
        assert %{finish_reason: "tool_calls", message: %{tool_calls: [call]}} = choice
        assert call.function.name in ["get_weather", "get_time"]
        assert {:ok, %{}} = Weir.JSON.decode(call.function.arguments)
        %{0 => choices} = streamed(way, required)
        calls = Enum.flat_map(choices, &(&1.delta[:tool_calls] || []))
        assert Enum.map_join(calls, & &1.function.arguments) == call.function.arguments

        # with a schema, too: a call, or an answer by the schema
        either = [json_schema: schema, messages: [{:user, "What is 2 + 2?"}]] ++ opts
        assert {:ok, %{choices: [%{message: message}]}} = whole(way, either)

        case message do
          %{tool_calls: [_call]} -> :ok
          %{content: json} -> assert {:ok, %{"sum" => _}} = Weir.JSON.decode(json)
        end
      end
    end

    @tag :model
    test "are called by a model" do
      {:ok, model} = Weir.load_model(System.fetch_env!("WEIR_TEST_MODEL"))
      server = start_supervised!({Server, model: model}, id: :real)

      # A small model tends to answer in text, so it gets an example of a call.
      shown =
        for city <- ["Rome", "Paris", "Rome"],
            message <- [{:user, city}, call(~s({"city": "#{city}"}))],
            do: message

      opts = [
        messages: shown ++ [{:user, "Paris"}],
        template: @calls,
        tools: @tools,
        tool_choice: %{type: "function", function: %{name: "get_weather"}},
        max_tokens: 60,
        temp: 0.0
      ]

      for way <- [{Weir, model}, {Server, server}] do
        assert {:ok, %{choices: [choice]}} = whole(way, opts)

        assert %{finish_reason: "tool_calls", message: %{role: "assistant", tool_calls: [call]}} = choice

        assert %{id: id, type: "function", function: %{name: "get_weather", arguments: json}} = call

        assert {:ok, %{"city" => city}} = Weir.JSON.decode(json)
        assert id != "" and city == "Paris"

        %{0 => choices} = streamed(way, opts)
        calls = Enum.flat_map(choices, &(&1.delta[:tool_calls] || []))
        assert [%{index: 0, type: "function", function: %{name: "get_weather"}} | more] = calls
        assert Enum.map_join([hd(calls) | more], & &1.function.arguments) == json
        assert List.last(choices).finish_reason == "tool_calls"
      end
    end
  end
end
