# SPDX-License-Identifier: Apache-2.0
defmodule Weir.TargetTest do
  # The functions of all targets: the same answers, the same errors.
  use Weir.ServerCase, async: true
  use Weir.TargetCase
  alias Weir.{Chunk, Error, Models, Request, Server, Target}

  @path "fake:tick_us=500"

  # A target as another package may have it: it passes requests on.
  defmodule Other do
    use Weir.Target, server: GenServer.server()
    @impl true
    defdelegate whole(server, input, opts), to: Server
    @impl true
    defdelegate chunks(server, input, opts, submission), to: Server
    @impl true
    defdelegate completion(server, messages, opts), to: Server
    @impl true
    defdelegate completion_chunks(server, messages, opts), to: Server
    @impl true
    defdelegate vectors(server, texts, opts), to: Server
  end

  # One whose streams are given.
  defmodule Given do
    def whole(_chunks, _input, _opts), do: {:error, Error.exception(:stopping)}
    def chunks(chunks, _input, _opts, _submission), do: chunks
  end

  setup do
    {:ok, model} = Weir.load_model(@path)
    server = server(model_path: @path)
    models = start_supervised!({Models, models: [[name: "m", model_path: @path]]})

    %{
      model: model,
      # a pool's engine has a queue that nobody asks
      targets: [{model, 0}, {server, 0}, {{Models, {models, "m"}}, nil}, {{Other, server}, 0}],
      modules: [{Weir, 1}, {Server, 1}, {Models, 2}, {Other, 1}],
      idle?: fn -> idle?(server) and Models.get_stats(models).n_leases == 0 end
    }
  end

  test "a submitted stream may end in any way" do
    text = %Chunk{text: "a"}
    fail = &Stream.map([text, &1], fn what -> if is_function(what), do: what.(), else: what end)

    for {chunks, events} <- [
          {[text, %Chunk{reason: :end, usage: %{}}],
           [{:text, "a"}, {:end, %{reason: :end, usage: %{}, miss: nil, logprobs: nil}}]},
          {fail.(fn -> raise Error, :stopping end), [{:text, "a"}, {:error, :stopping}]},
          {fail.(fn -> raise "no" end), [{:text, "a"}, {:error, :invalid}]},
          {fail.(fn -> exit(:no) end), [{:text, "a"}, {:error, :failed}]},
          {[text], [{:text, "a"}, {:error, :invalid}]},
          {[:no_chunk], [{:error, :invalid}]}
        ] do
      request = Target.submit({Given, chunks}, "hello", temp: 0.0)
      assert read(request, length(events)) == events
      assert eventually(fn -> Request.status(request) == %{state: :ended} end)
      assert Weir.Wait.mailbox() == []
    end
  end

  defp read(%{ref: ref}, n) do
    for _ <- 1..n//1 do
      receive do
        {:weir, ^ref, {:error, %Error{code: code}}} -> {:error, code}
        {:weir, ^ref, event} -> event
      after
        20_000 -> :none
      end
    end
  end

  test "a pair that is no target is a server's name" do
    for name <- [{:nobody, node()}, {:global, :nobody}, {Weir.Chunk, node()}],
        do: assert({:error, %{code: :server_down}} = Target.generate(name, "hello"))
  end
end
