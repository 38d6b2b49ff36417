# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HaltedWork do
  @moduledoc false
  # Work during which a VM is halted; test/halt_test.exs runs it in separate VMs.

  alias Weir.{Context, Server}

  @text "The capital of France is Paris, and the capital of Italy is"
  @endless [temp: 0.0, ignore_eos: true]

  @kinds [:streams, :tokens, :load, :contexts]
  def kinds, do: @kinds

  @doc "Ends with the status `ms` after work has begun. `way`: `:halt` at once, or `:stop` like a release."
  def halt(kind, way, status, ms, path) do
    {:ok, model} = Weir.load_model(path)
    work = work(kind, path, model)
    me = self()

    for _ <- 1..2 do
      spawn(fn ->
        work.(fn -> send(me, :begun) end)
        # the halt should have come first
        System.halt(1)
      end)
    end

    receive do
      :begun -> Process.sleep(ms)
    after
      120_000 -> System.halt(2)
    end

    if way == :halt, do: System.halt(status), else: System.stop(status)
  end

  # A function that calls its argument during the work, and then works for ever.
  defp work(:streams, _path, model) do
    {:ok, server} = Server.start_link(model: model, n_ctx: 1024, n_parallel: 2)

    each(fn ->
      Server.stream(server, @text, [max_tokens: 200, cache_prompt: false] ++ @endless)
    end)
  end

  defp work(:tokens, _path, model),
    do: each(fn -> Weir.stream(model, @text, [n_ctx: 256, max_tokens: 100] ++ @endless) end)

  defp work(:load, path, _model), do: again(fn -> {:ok, _model} = Weir.load_model(path) end)

  defp work(:contexts, _path, model) do
    again(fn ->
      {:ok, _context} = Context.create(model, n_ctx: 256)
      :erlang.garbage_collect()
    end)
  end

  defp each(stream) do
    fn begun ->
      again(fn -> Enum.each(stream.(), fn _text -> begun.() end) end).(fn -> :ok end)
    end
  end

  defp again(fun) do
    fn begun ->
      fun.()
      begun.()
      again(fun).(begun)
    end
  end
end
