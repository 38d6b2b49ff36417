# SPDX-License-Identifier: Apache-2.0
defmodule Weir.SchedulersTest do
  # One caller's work does not block another's. It occupies all dirty schedulers, so nothing may run beside
  # it.
  use ExUnit.Case, async: false
  import Weir.Wait
  alias Weir.{NIF, Server}

  @messages [%{role: "user", content: "hello"}]
  # at 20 ms per token, far longer than the rest of the test
  @long [temp: 0.0, ignore_eos: true, max_tokens: 400]

  setup_all do
    {:ok, slow} = Weir.load_model("fake:tick_us=20000")
    {:ok, fast} = Weir.load_model("fake:")
    %{slow: slow, fast: fast}
  end

  # A generating process per dirty CPU scheduler.
  defp occupy(fun) do
    me = self()

    generators =
      for _ <- 1..:erlang.system_info(:dirty_cpu_schedulers) do
        spawn_monitor(fn ->
          fun.(fn -> send(me, {:generates, self()}) end)
          exit(:finished)
        end)
      end

    for {pid, _} <- generators, do: assert_receive({:generates, ^pid})
    generators
  end

  # None of them has ended during the others' work.
  defp release(generators) do
    for {pid, monitor} <- generators do
      refute_received {:DOWN, ^monitor, :process, ^pid, _}
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}
    end
  end

  # One call of each function that runs on a dirty scheduler.
  defp work_of_others(fast, server) do
    assert {:ok, _} = Weir.Chat.apply_template(fast, @messages)
    {:ok, chat} = NIF.chat_create(fast.ref, %{messages: Weir.JSON.encode!(@messages)})
    {:ok, parser} = NIF.chat_parser(chat)
    assert {:ok, _} = NIF.chat_parser_feed(parser, "hello", true)
    assert {:ok, _} = Weir.Tokenizer.encode(fast, String.duplicate("long ", 1000))
    assert {:ok, _} = Server.chat(server, @messages, temp: 0.0, max_tokens: 4)
    assert {:ok, _} = Server.chat_completion(server, @messages, temp: 0.0, max_tokens: 4)
  end

  for {name, index} <- Enum.with_index(~w(stream stream_chat stream_chat_completion)a) do
    test "as many #{name} as there are dirty schedulers leave these to others", c do
      server = start_supervised!({Server, model: c.fast, n_parallel: 2})
      input = if unquote(index) == 0, do: "hello", else: @messages

      generators =
        occupy(fn begun ->
          apply(Weir, unquote(name), [c.slow, input, @long]) |> Enum.each(fn _ -> begun.() end)
        end)

      work_of_others(c.fast, server)
      release(generators)
    end
  end

  for {name, index} <- Enum.with_index(~w(generate chat chat_completion)a) do
    test "as many #{name} as there are dirty schedulers, too", c do
      server = start_supervised!({Server, model: c.fast, n_parallel: 2})
      input = if unquote(index) == 0, do: "hello", else: @messages

      generators =
        occupy(fn begun ->
          begun.()
          apply(Weir, unquote(name), [c.slow, input, @long])
        end)

      # until each of them generates
      for {pid, _} <- generators, do: assert(eventually(fn -> computes?(pid) end))
      work_of_others(c.fast, server)
      release(generators)
    end
  end

  # A killed caller per dirty scheduler, each inside a pass of a minute: the passes end.
  test "calls of a killed process end", c do
    {:ok, slow} = Weir.load_model("fake:tick_us=60000000")
    tokens = for _ <- 1..400, do: ?a
    entries = for i <- 0..399, do: {?a, i, 0, i == 399}

    calls = [
      prefill: &NIF.prefill(&1, tokens, 0),
      decode_batch: &NIF.decode_batch(&1, greedy(slow), entries),
      generate: &NIF.generate(&1, greedy(slow), tokens, 5),
      embed_decode: &NIF.embed_decode(&1, tokens, 0)
    ]

    for {name, call} <- calls do
      embeds = name == :embed_decode
      arity = arity(name)

      contexts =
        for _ <- 1..:erlang.system_info(:dirty_cpu_schedulers) do
          {:ok, context} = NIF.context_create(slow.ref, 512, 512, 512, 1, 1, embeds, -1, 1)
          pid = spawn(fn -> call.(context) end)
          until_inside(pid, name, arity)
          Process.exit(pid, :kill)
          context
        end

      assert {:ok, _} = Weir.Chat.apply_template(c.fast, @messages)
      # waits for the context
      for context <- contexts, do: assert(NIF.memory_seq_pos_max(context, 0) == -1)
    end
  end

  # A template may take more steps for longer messages: these would be hours of work.
  @tag :llama
  test "templates of callers that have died leave the schedulers to others", c do
    endless = %{
      messages: ~s([{"role": "user", "content": "#{String.duplicate("a", 8_000_000)}"}]),
      template: """
      {% for m in messages %}{% if m.content|length > 1000000 %}
      {% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}
      {% endif %}{% endfor %}
      """
    }

    for _ <- 1..:erlang.system_info(:dirty_cpu_schedulers) do
      pid = spawn(fn -> NIF.chat_create(c.fast.ref, endless) end)
      until_inside(pid, :chat_create, 2)
      Process.exit(pid, :kill)
    end

    assert {:ok, _} = Weir.Chat.apply_template(c.fast, @messages)
  end

  defp greedy(model) do
    {:ok, sampler} = NIF.sampler_create(model.ref, %{temp: 0.0})
    sampler
  end

  defp arity(name), do: NIF.__info__(:functions) |> Keyword.fetch!(name)

  # It waits for a thread that computes, or computes by itself.
  defp computes?(pid) do
    info = Process.info(pid, [:status, :current_function])
    info[:status] == :waiting or match?({Weir.NIF, :generate, _}, info[:current_function])
  end
end
