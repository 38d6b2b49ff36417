# SPDX-License-Identifier: Apache-2.0
defmodule Weir.TargetTest do
  # The functions of all targets: the same answers, the same errors.
  use Weir.ServerCase, async: true
  use Weir.TargetCase
  alias Weir.{Models, Server, Target}

  @path "fake:tick_us=500"

  setup do
    {:ok, model} = Weir.load_model(@path)
    server = server(model_path: @path)
    models = start_supervised!({Models, models: [[name: "m", model_path: @path]]})

    %{
      model: model,
      # a pool's engine has a queue that nobody asks
      targets: [{model, 0}, {server, 0}, {{Models, {models, "m"}}, nil}],
      modules: [{Weir, 1}, {Server, 1}, {Models, 2}],
      idle?: fn -> idle?(server) and Models.get_stats(models).n_leases == 0 end
    }
  end

  test "a pair that is no target is a server's name" do
    for name <- [{:nobody, node()}, {:global, :nobody}, {Weir.Chunk, node()}],
        do: assert({:error, %{code: :server_down}} = Target.generate(name, "hello"))
  end
end
