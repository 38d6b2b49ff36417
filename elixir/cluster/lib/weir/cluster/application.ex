# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Application do
  @moduledoc false
  use Application

  @impl true
  def start(_type, _args) do
    if Application.get_env(:weir, :cluster_silence) do
      raise ArgumentError,
            "`config :weir, cluster_silence: ms` has no effect any more; write `config :weir_cluster, silence: ms`"
    end

    # the groups of all clusters, one scope on each node
    groups = %{id: Weir.Cluster, start: {:pg, :start_link, [Weir.Cluster]}}
    Supervisor.start_link([groups], strategy: :one_for_one, name: Weir.Cluster.Supervisor)
  end
end
