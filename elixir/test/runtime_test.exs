defmodule Weir.RuntimeTest do
  # How the native layer lives with the VM. Counts what is there in all, so nothing else may run beside it.
  use ExUnit.Case, async: false
  alias Weir.NIF

  defp eventually(fun, tries \\ 300) do
    cond do
      fun.() -> true
      tries == 0 -> false
      true -> Process.sleep(10) && eventually(fun, tries - 1)
    end
  end

  # What tests before this one have left is freed when it is collected, by another thread.
  defp settled do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
    {live, n} = {NIF.live_handles(), threads()}
    Process.sleep(200)
    if {live, n} == {NIF.live_handles(), threads()}, do: {live, n}, else: settled()
  end

  defp threads, do: "/proc/self/task" |> File.ls!() |> length()

  test "what nobody holds is freed, with its threads" do
    {before, before_threads} = settled()

    {pid, monitor} =
      spawn_monitor(fn ->
        kept =
          for _ <- 1..20 do
            {:ok, model} = Weir.load_model("fake:")
            {:ok, context} = Weir.Context.create(model)
            {:ok, sampler} = Weir.Sampler.create(model)
            {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 2})
            {:ok, ref} = NIF.engine_submit(engine, %{prompt: "a", temp: 0.0}, self(), 1)
            {model, context, sampler, engine, ref, NIF.generate_ref()}
          end

        live = NIF.live_handles()
        for kind <- Map.keys(live), do: ^kind = if(live[kind] - before[kind] == 20, do: kind)
        true = threads() >= before_threads + 20
        exit({:kept, length(kept)})
      end)

    assert_receive {:DOWN, ^monitor, :process, ^pid, {:kept, 20}}, 10_000
    assert eventually(fn -> NIF.live_handles() == before and threads() <= before_threads end)
  end

  test "the module is loaded anew and purged while streams run" do
    {:ok, model} = Weir.load_model("fake:tick_us=500")
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 2})

    {:ok, ref} =
      NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 400}, self(), :infinity)

    {:ok, other} =
      NIF.engine_submit(engine, %{prompt: "hello", temp: 0.0, max_tokens: 400}, self(), 1)

    task =
      Task.async(fn -> Weir.stream(model, "hello", temp: 0.0, max_tokens: 400) |> Enum.join() end)

    for _ <- 1..5 do
      if :code.soft_purge(NIF), do: assert({:module, NIF} = :code.load_file(NIF))
      Process.sleep(10)
    end

    text = Task.await(task, 20_000)
    assert eventually(fn -> :code.soft_purge(NIF) end)
    assert {:module, NIF} = :code.load_file(NIF)
    assert eventually(fn -> :code.soft_purge(NIF) end)
    assert join(ref) == text
    :ok = NIF.engine_demand(other, :infinity)
    assert join(other) == text
    assert {:ok, ^text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 400)
  end

  defp join(ref, text \\ "") do
    receive do
      {^ref, {:chunk, _ids, more}} -> join(ref, text <> more)
      {^ref, {:done, :length, _usage}} -> text
    after
      10_000 -> flunk("no end came")
    end
  end

  # Whether a call of fun leaves the normal schedulers: the dirty ones have the number 0 in traces.
  defp dirty?(fun) do
    me = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        receive do: (:go -> fun.())
      end)

    :erlang.trace(pid, true, [:running, :scheduler_id, {:tracer, me}])
    send(pid, :go)
    assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}, 5000
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

  test "what is long runs on a dirty scheduler, what is short does not" do
    {:ok, %{ref: model}} = Weir.load_model("fake:")
    {:ok, %{ref: context}} = Weir.Context.create(%Weir.Model{ref: model})
    {:ok, %{ref: sampler}} = Weir.Sampler.create(%Weir.Model{ref: model})

    {:ok, %{ref: bound}} =
      Weir.Sampler.create(%Weir.Model{ref: model}, grammar: "root ::= \"yes\"")

    :ok = NIF.decode(context, ~c"hello")
    long = String.duplicate("x", 5000)
    many = List.duplicate(?x, 5000)

    for {expected, name, fun} <- [
          {false, "tokenize", fn -> NIF.tokenize(model, "short", true, true) end},
          {true, "tokenize long", fn -> NIF.tokenize(model, long, true, true) end},
          {false, "detokenize", fn -> NIF.detokenize(model, ~c"short") end},
          {true, "detokenize long", fn -> NIF.detokenize(model, many) end},
          {false, "sampler_accept", fn -> :ok = NIF.sampler_accept(sampler, ?a) end},
          {true, "sampler_accept with a grammar", fn -> :ok = NIF.sampler_accept(bound, ?y) end},
          {false, "sampler_sample", fn -> NIF.sampler_sample(sampler, context) end},
          {true, "sampler_sample with a grammar", fn -> NIF.sampler_sample(bound, context) end},
          {false, "memory_seq_pos_max", fn -> NIF.memory_seq_pos_max(context, 0) end},
          {false, "model_desc", fn -> NIF.model_desc(model) end},
          {true, "decode", fn -> NIF.decode(context, ~c"hello") end}
        ] do
      assert {name, dirty?(fun)} == {name, expected}
    end
  end
end
