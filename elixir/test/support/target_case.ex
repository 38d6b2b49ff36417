# SPDX-License-Identifier: Apache-2.0
defmodule Weir.TargetCase do
  @moduledoc false
  # What holds for every target, also for one of another package. A test module that uses this has in its context:
  #
  #   * `model`: a `Weir.Model` of `"fake:tick_us=500"`, or with the `tick_us` of the test's tag
  #   * `targets`: `{target, place}`, each with the same model, and the queue position that its requests begin with
  #   * `modules`: `{module, arguments}` that have the functions, with a target's arguments
  #   * `idle?`: a function, true when nothing of them runs

  import ExUnit.Assertions
  import Weir.Wait, only: [eventually: 1, mailbox: 0]
  alias Weir.{ChatCompletionChunk, Request, Target}

  @greedy [temp: 0.0, max_tokens: 40]
  @messages [%{role: "user", content: "hi"}]

  defmacro __using__(_opts) do
    quote do
      test("answers are the same", context, do: Weir.TargetCase.answers(context))
      test("submitted requests send their events", context, do: Weir.TargetCase.events_come(context))

      # 4000 tokens last longer than `eventually` waits
      @tag tick_us: 20_000
      test("submitted requests end by cancel, and with their callers", context,
        do: Weir.TargetCase.ends(context)
      )

      @tag tick_us: 20_000
      test("a stream that cannot begin leaves no request", context, do: Weir.TargetCase.cannot_begin(context))

      test("the modules have all functions", context, do: Weir.TargetCase.functions(context))
    end
  end

  def answers(%{model: model, targets: targets}) do
    {:ok, text} = Weir.generate(model, "hello", @greedy)
    {:ok, said} = Weir.chat(model, @messages, @greedy)
    {:ok, %{choices: choices}} = Weir.chat_completion(model, @messages, @greedy)
    {:ok, vector} = Weir.embed(model, "hello")

    for {target, _place} <- targets do
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
    others = for {target, _place} <- targets, target != model, do: target
    for target <- others, do: assert({:error, %{code: :timeout}} = Target.generate(target, "a", endless))
  end

  # The events of a request until its last one.
  defp events(%Request{ref: ref} = request) do
    receive do
      {:weir, ^ref, {kind, _} = event} when kind in [:end, :error] -> [event]
      {:weir, ^ref, event} -> [event | events(request)]
    after
      Weir.Wait.patience() -> flunk("no end")
    end
  end

  def events_come(%{model: model, targets: targets}) do
    {:ok, text} = Weir.generate(model, "hello", @greedy)
    {:ok, said} = Weir.chat(model, @messages, @greedy)

    for {target, place} <- targets do
      request = Target.submit(target, "hello", @greedy)
      assert [{:start, %{id: _, prompt_tokens: _, queue_position: ^place}} | rest] = events(request)
      assert {:end, %{reason: :length, usage: %{generated_tokens: 40}}} = List.last(rest)
      assert for({:text, part} <- rest, into: "", do: part) == text
      assert Enum.any?(rest, &match?({:progress, %{n_prompt: 6}}, &1))
      assert eventually(fn -> Request.status(request) == %{state: :ended} end)

      rest = events(Target.submit_chat(target, @messages, [emit: :chunks] ++ @greedy))
      assert for({:chunk, chunk} <- rest, into: "", do: chunk.text) == said

      assert {:error, %{status: 400, field: "top_p"}} =
               List.last(events(Target.submit(target, "hello", top_p: 7)))

      assert_raise ArgumentError, fn -> Target.submit(target, "hello", top: 7) end
      assert_raise ArgumentError, fn -> Target.stream(target, "hello", top: 7) end
      assert_raise ArgumentError, fn -> Target.submit(target, :hello) |> events() |> raise_wrong() end
      assert mailbox() == []
    end
  end

  # A wrong prompt raises at once, or is an error.
  defp raise_wrong([{:error, %{status: 400} = error}]), do: raise(ArgumentError, error.message)

  def ends(%{targets: targets, idle?: idle?}) do
    for {target, _place} <- targets do
      request = Target.submit(target, "hello", temp: 0.0, max_tokens: 4000)
      assert_receive {:weir, _ref, {:start, _}}
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
      assert eventually(idle?)
    end
  end

  def cannot_begin(%{targets: targets, idle?: idle?}) do
    submission = %{id: :mine, started: fn _numbers -> raise "no" end}

    for {{module, where}, _place} <- targets do
      stream = module.chunks(where, "hello", [temp: 0.0, max_tokens: 4000], submission)
      assert_raise RuntimeError, "no", fn -> Enum.to_list(stream) end
      assert eventually(idle?)
      assert mailbox() == []
    end
  end

  def functions(%{modules: modules}) do
    for {module, n} <- modules, {name, 3} <- Target.__info__(:functions) do
      assert function_exported?(module, name, n + 1)
      assert function_exported?(module, name, n + 2)
    end
  end
end
