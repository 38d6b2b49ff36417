# SPDX-License-Identifier: Apache-2.0
defmodule Weir.TargetTest do
  # The functions of all targets: the same answers, the same errors.
  use Weir.ServerCase, async: true
  alias Weir.{ChatCompletionChunk, Cluster, Models, Request, Server, Target}

  @messages [%{role: "user", content: "hi"}]

  # Slow enough that what is cancelled has not ended.
  setup do
    path = "fake:tick_us=500"
    {:ok, model} = Weir.load_model(path)
    server = server(model_path: path)
    models = start_supervised!({Models, models: [[name: "m", model_path: path]]})
    name = :"target_#{System.unique_integer([:positive])}"
    start_supervised!({Cluster, name: name, server: server})
    assert eventually(fn -> Cluster.members(name) != [] end)
    %{targets: [model, server, {Models, {models, "m"}}, {Cluster, name}], models: models, name: name}
  end

  test "answers are the same", %{targets: [model | others] = targets} do
    {:ok, text} = Weir.generate(model, "hello", @greedy)
    {:ok, said} = Weir.chat(model, @messages, @greedy)
    {:ok, %{choices: choices}} = Weir.chat_completion(model, @messages, @greedy)
    {:ok, vector} = Weir.embed(model, "hello")

    for target <- targets do
      assert Target.generate(target, "hello", @greedy) == {:ok, text}
      assert {:ok, %{text: ^text, reason: :length}} = Target.complete(target, "hello", @greedy)
      assert target |> Target.stream("hello", @greedy) |> Enum.join() == text
      assert Target.chat(target, @messages, @greedy) == {:ok, said}
      assert target |> Target.stream_chat(@messages, @greedy) |> Enum.join() == said
      assert {:ok, %{choices: ^choices}} = Target.chat_completion(target, @messages, @greedy)
      chunks = target |> Target.stream_chat_completion(@messages, @greedy) |> Enum.to_list()
      assert %ChatCompletionChunk{usage: %{completion_tokens: 40}} = List.last(chunks)
      assert Enum.map_join(chunks, &(hd(&1.choices).delta[:content] || "")) == hd(choices).message.content
      assert Target.embed(target, "hello") == {:ok, vector}
      assert Target.embed(target, ["hello", "hello"]) == {:ok, [vector, vector]}
      assert mailbox() == []
    end

    endless = [temp: 0.0, max_tokens: 3000, ignore_eos: true, timeout: 50]
    for target <- others, do: assert({:error, %{code: :timeout}} = Target.generate(target, "a", endless))
  end

  # The events of a request until its last one.
  defp events(%Request{ref: ref} = request) do
    receive do
      {:weir, ^ref, {kind, _} = event} when kind in [:end, :error] -> [event]
      {:weir, ^ref, event} -> [event | events(request)]
    after
      20_000 -> flunk("no end")
    end
  end

  test "submitted requests send their events", %{targets: [model | _] = targets} do
    {:ok, text} = Weir.generate(model, "hello", @greedy)
    {:ok, said} = Weir.chat(model, @messages, @greedy)

    for target <- targets do
      request = Target.submit(target, "hello", @greedy)
      assert [{:start, %{id: _, prompt_tokens: _, queue_position: place}} | rest] = events(request)
      # the engine of a pool or of another node has a queue that nobody asks
      assert place == if(match?({module, _} when module in [Models, Cluster], target), do: nil, else: 0)
      assert {:end, %{reason: :length, usage: %{generated_tokens: 40}}} = List.last(rest)
      assert for({:text, part} <- rest, into: "", do: part) == text
      assert Enum.any?(rest, &match?({:progress, %{n_prompt: 6}}, &1))
      assert eventually(fn -> Request.status(request) == %{state: :ended} end)

      rest = events(Target.submit_chat(target, @messages, [emit: :chunks] ++ @greedy))
      assert for({:chunk, chunk} <- rest, into: "", do: chunk.text) == said

      assert {:error, %{status: 400, field: "top_p"}} =
               List.last(events(Target.submit(target, "hello", top_p: 7)))

      assert_raise ArgumentError, fn -> Target.submit(target, "hello", top: 7) end
      assert_raise ArgumentError, fn -> Target.submit(target, :hello) |> events() |> raise_wrong() end
      assert mailbox() == []
    end
  end

  # A wrong prompt raises at once, or is an error.
  defp raise_wrong([{:error, %{status: 400} = error}]), do: raise(ArgumentError, error.message)

  test "submitted requests end by cancel, and with their callers",
       %{targets: [_, server | _] = targets} = context do
    for target <- targets do
      request = Target.submit(target, "hello", temp: 0.0, max_tokens: 4000)
      assert_receive {:weir, _ref, {:start, _}}, 5_000
      assert %{state: state} = Request.status(request)
      assert state in [:running, :queued, :prefilling, :generating]
      assert Request.cancel(request) == :ok
      last = List.last(events(request))
      assert match?({:error, %{code: :cancelled}}, last) or match?({:end, %{reason: :cancelled}}, last)

      me = self()

      caller =
        spawn(fn ->
          request = Target.submit(target, "hello", temp: 0.0, max_tokens: 4000)
          send(me, {:submitted, request.pid})
          Process.sleep(:infinity)
        end)

      assert_receive {:submitted, pid}
      Process.exit(caller, :kill)
      assert eventually(fn -> not Process.alive?(pid) end)
      assert eventually(fn -> idle?(server) end)
      assert eventually(fn -> Models.get_stats(context.models).n_leases == 0 end)
    end
  end

  test "the modules have all of them", %{targets: [model, server, {_, {models, "m"}}, {_, cluster}]} do
    for {module, target} <- [
          {Weir, [model]},
          {Server, [server]},
          {Models, [models, "m"]},
          {Cluster, [cluster]}
        ],
        {name, 3} <- Target.__info__(:functions) do
      assert function_exported?(module, name, length(target) + 1)
      assert function_exported?(module, name, length(target) + 2)
    end
  end
end
