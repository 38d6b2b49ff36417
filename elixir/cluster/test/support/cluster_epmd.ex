# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ClusterEpmd do
  @moduledoc false
  # Stands in for epmd on test nodes: a node's port is the number in its name, `weir40001@127.0.0.1`.

  def start_link, do: :ignore
  def register_node(name, port), do: register_node(name, port, :inet)
  def register_node(_name, _port, _family), do: {:ok, :rand.uniform(3)}
  def address_please(_name, host, family), do: :inet.getaddr(host, family)
  def port_please(name, host), do: port_please(name, host, :infinity)
  def port_please(name, _host, _timeout), do: {:port, port(name), 6}
  def listen_port_please(name, _host), do: {:ok, port(name)}
  def names(_host), do: {:error, :address}

  defp port(name) do
    [digits] = Regex.run(~r/[0-9]+/, to_string(name))
    String.to_integer(digits)
  end
end
