# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ReloadTest do
  # Modules that are reloaded, purged or replaced while streams run. Nothing may run beside it.
  use ExUnit.Case, async: false
  import Weir.Wait
  alias Weir.{NIF, Server}

  test "a server and its answers survive two reloads of its modules" do
    modules = [
      Server,
      Server.Broker,
      Server.Driver,
      Server.Guard,
      Server.Flight,
      Server.Request,
      Server.Answer,
      Server.Strategy,
      Server.Strategy.Balanced
    ]

    for strategy <- [:balanced, Server.Strategy.Balanced] do
      server =
        start_supervised!(
          {Server, model_path: "fake:tick_us=2000", temp: 0.0, batch_strategy: strategy},
          id: make_ref()
        )

      {:ok, text} = Server.generate(server, "hello", max_tokens: 400)
      # two streams that run meanwhile, one from the engine and one from a flight
      tasks =
        for share <- [false, true],
            do: {share, Server.stream(server, "hello", max_tokens: 400, share: share)}

      tasks =
        for {_share, stream} <- tasks do
          {:suspended, first, rest} =
            Enumerable.reduce(stream, {:cont, ""}, fn text, _ -> {:suspend, text} end)

          {first, rest}
        end

      for _ <- 1..2, module <- modules do
        :code.purge(module)
        {:module, _} = :code.load_file(module)
      end

      for {first, rest} <- tasks, do: assert(first <> all(rest) == text)
      assert {:ok, ^text} = Server.generate(server, "hello", max_tokens: 400)
      assert eventually(fn -> Server.get_stats(server).requests == 0 end)
    end
  end

  defp all(rest) do
    case rest.({:cont, ""}) do
      {:suspended, text, rest} -> text <> all(rest)
      {_done_or_halted, ""} -> ""
    end
  end

  # Streams of each kind for one text, and that text.
  defp streams do
    {:ok, model} = Weir.load_model("fake:tick_us=500")
    {:ok, engine} = NIF.engine_create(model.ref, %{n_slots: 4})
    {:ok, text} = Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)

    submit = fn demand ->
      request = %{prompt: "hello", temp: 0.0, max_tokens: 100}
      elem(NIF.engine_submit(engine, request, self(), demand), 1)
    end

    me = self()

    {pid, _} =
      reader =
      spawn_monitor(fn ->
        try do
          model
          |> Weir.stream("hello", temp: 0.0, max_tokens: 100)
          |> Enum.map_join(&(send(me, {:begun, self()}) && &1))
        rescue
          Weir.Error -> exit(:told)
        else
          text -> exit({:text, text})
        end
      end)

    assert_receive {:begun, ^pid}

    all = submit.(:infinity)
    %{model: model, engine: engine, text: text, all: all, one: submit.(1), reader: reader}
  end

  defp outcome({pid, monitor}) do
    assert_receive {:DOWN, ^monitor, :process, ^pid, outcome}
    begun(pid)
    outcome
  end

  defp begun(pid) do
    receive do
      {:begun, ^pid} -> begun(pid)
    after
      0 -> :ok
    end
  end

  test "the module is reloaded while streams run, and nothing is lost" do
    for _ <- 1..5 do
      s = streams()

      for _ <- 1..5 do
        if :code.soft_purge(NIF), do: assert({:module, NIF} = :code.load_file(NIF))
        Process.sleep(5)
      end

      assert outcome(s.reader) == {:text, s.text}
      assert eventually(fn -> :code.soft_purge(NIF) end)
      assert join(s.all) == s.text
      :ok = NIF.engine_demand(s.one, :infinity)
      assert join(s.one) == s.text
      assert {:ok, s.text} == Weir.generate(s.model, "hello", temp: 0.0, max_tokens: 100)
    end

    assert {:messages, []} = Process.info(self(), :messages)
  end

  test "the module is purged, with what runs in it, while streams run" do
    for i <- 1..20 do
      s = streams()
      Process.sleep(rem(i, 5) * 3)
      :code.purge(NIF)
      true = :code.delete(NIF)
      :code.purge(NIF)
      # the engine's messages need no module
      assert join(s.all) == s.text

      # a purge kills a process that is inside a native function: the reader itself, or its generator
      assert outcome(s.reader) in [{:text, s.text}, :told, :killed]
      {:ok, model} = Weir.load_model("fake:")
      assert {:ok, s.text} == Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)
    end

    drain_messages()
  end

  # Like the upgrade of a release: the application in another folder.
  test "another file of the library: handles belong to the one that made them" do
    here = to_string(:code.lib_dir(:weir))
    base = Path.join(System.tmp_dir!(), "weir_upgrade_#{System.pid()}")
    on_exit(fn -> File.rm_rf!(base) end)

    for i <- 1..3 do
      s = streams()
      there = Path.join(base, "weir-9.#{i}")
      File.mkdir_p!(there)
      for part <- ["ebin", "priv"], do: File.cp_r!(Path.join(here, part), Path.join(there, part))
      ebin = to_charlist(Path.join(there, "ebin"))
      true = :code.add_patha(ebin)
      :code.purge(NIF)
      :persistent_term.put({NIF, "of the former one"}, [])
      assert {:module, NIF} = :code.load_file(NIF)
      assert :persistent_term.get({NIF, "of the former one"}, nil) == nil
      assert_raise ArgumentError, fn -> NIF.engine_stats(s.engine) end
      assert_raise ArgumentError, fn -> NIF.engine_demand(s.one, 1) end
      assert NIF.live_handles().weir_engine == 0
      {:ok, model} = Weir.load_model("fake:")
      assert {:ok, s.text} == Weir.generate(model, "hello", temp: 0.0, max_tokens: 100)
      # running streams continue
      assert join(s.all) == s.text
      assert outcome(s.reader) in [{:text, s.text}, :told, :killed]
      assert eventually(fn -> :code.soft_purge(NIF) end)
      true = :code.del_path(ebin)
    end

    assert {:module, NIF} = :code.load_file(NIF)
    drain_messages()
  end

  # The first messages of streams from which no more could be demanded.
  defp drain_messages do
    receive do
      {_ref, {:chunk, _ids, _text}} -> drain_messages()
    after
      0 -> assert {:messages, []} = Process.info(self(), :messages)
    end
  end
end
