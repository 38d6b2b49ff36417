# SPDX-License-Identifier: Apache-2.0
defmodule Weir.TargetTest do
  # The functions of all targets: the same answers, the same errors.
  use Weir.ServerCase, async: true
  use Weir.TargetCase
  alias Weir.{Chunk, Error, Models, Request, Server, Target}

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

  # One whose streams are given. Each says twice that it has been submitted, as one that tries two servers.
  defmodule Given do
    def whole(_chunks, _input, _opts), do: {:error, Error.exception(:stopping)}
    def chunks(chunks, _input, _opts, nil), do: chunks

    def chunks(chunks, _input, _opts, submission) do
      for _ <- 1..2, do: submission.started.(%{prompt_tokens: nil, queue_position: nil})
      chunks
    end
  end

  setup context do
    path = "fake:tick_us=#{context[:tick_us] || 500}"
    {:ok, model} = Weir.load_model(path)
    server = server(model_path: path)
    models = start_supervised!({Models, models: [[name: "m", model_path: path]]})

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
          {[%Chunk{text: "b", reason: :end}],
           [{:text, "b"}, {:end, %{reason: :end, usage: nil, miss: nil, logprobs: nil}}]},
          {fail.(fn -> raise Error, :stopping end), [{:text, "a"}, {:error, :stopping}]},
          {fail.(fn -> raise ArgumentError, "no" end), [{:text, "a"}, {:error, :invalid}]},
          {fail.(fn -> raise "no" end), [{:text, "a"}, {:error, :failed}]},
          {fail.(fn -> exit(:no) end), [{:text, "a"}, {:error, :failed}]},
          {fail.(fn -> exit({:shutdown, {:error, :no}}) end), [{:text, "a"}, {:error, :failed}]},
          {[text], [{:text, "a"}, {:error, :failed}]},
          {[:no_chunk], [{:error, :failed}]}
        ] do
      request = Target.submit({Given, chunks}, "hello", temp: 0.0)
      assert [{:start, %{prompt_tokens: nil, queue_position: nil}} | rest] = read(request, length(events) + 1)
      assert rest == events
      assert Request.status(request) == %{state: :ended}
      assert mailbox() == []
    end
  end

  test "the last chunk's ids come before the end, and a stream without one has failed" do
    last = %Chunk{text: "b", ids: [7], reason: :end, logprobs: [%{}]}
    %{ref: ref} = Target.submit({Given, [last]}, "hello", emit: :chunks)
    assert_receive {:weir, ^ref, {:chunk, %Chunk{text: "b", ids: [7], reason: nil, logprobs: nil}}}
    assert_receive {:weir, ^ref, {:end, %{reason: :end, logprobs: [%{}]}}}

    %{ref: ref} = Target.submit({Given, []}, "hello")
    assert_receive {:weir, ^ref, {:error, %Error{status: 500, message: message}}}
    assert message =~ "without a last chunk"
  end

  defp read(%{ref: ref}, n) do
    for _ <- 1..n//1 do
      receive do
        {:weir, ^ref, {:error, %Error{code: code}}} -> {:error, code}
        {:weir, ^ref, event} -> event
      after
        Weir.Wait.patience() -> :none
      end
    end
  end

  test "a pair with a node is a server's name" do
    for name <- [
          {:nobody, node()},
          {:global, :nobody},
          {Weir.Chunk, node()},
          {:via, :global, :nobody},
          :nobody
        ],
        do: assert({:error, %{code: :server_down}} = Target.generate(name, "hello"))

    assert_raise ArgumentError, ~r/on the node other@host/, fn ->
      Target.generate({:nobody, :other@host}, "hello")
    end
  end

  test "what is no target is refused by its name" do
    for {target, said} <- [
          {{Weir.Cluster, :llama}, ~r/Weir\.Cluster .*weir_cluster.* mix\.exs/},
          {{Typo, "eu"}, ~r/no target module Typo/},
          {{Weir.Chunk, nil}, ~r/no target module Weir\.Chunk/},
          {"server", ~r/a target is .* "server"/}
        ],
        fun <- [:generate, :stream, :submit, :chat_completion, :embed],
        do: assert_raise(ArgumentError, said, fn -> apply(Target, fun, [target, "hello", []]) end)
  end
end
