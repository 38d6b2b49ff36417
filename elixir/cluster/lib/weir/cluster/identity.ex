# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.Identity do
  @moduledoc false
  # The properties that the servers of a cluster must share, so that the same request has the same answer on
  # each.

  alias Weir.{Model, NIF}

  @type t :: %{version: String.t(), model: String.t(), template: String.t()}

  @spec of(Model.t()) :: t()
  def of(model) do
    %{
      version: version(),
      model: "#{hex(<<Model.fingerprint(model)::64>>)} (#{Model.desc(model)})",
      template: :sha256 |> :crypto.hash(Model.chat_template(model) || "") |> binary_part(0, 8) |> hex()
    }
  end

  @doc "True if it is of this node's version: a node without a server calls only such servers."
  @spec mine?(t()) :: boolean()
  def mine?(identity), do: identity.version == version()

  @doc "The same model on this node's version."
  @spec mine(t()) :: t()
  def mine(identity), do: %{identity | version: version()}

  defp version,
    do: "weir_cluster #{vsn(:weir_cluster)} on weir #{vsn(:weir)} with llama.cpp #{NIF.backend_version()}"

  defp vsn(app), do: Application.spec(app, :vsn)

  defp hex(bytes), do: Base.encode16(bytes, case: :lower)

  @doc "A sentence about what differs from the members' identity, or nil."
  @spec difference(t(), t()) :: String.t() | nil
  def difference(same, same), do: nil

  def difference(identity, members) do
    differences =
      for {key, name} <- [
            version: "version",
            model: "fingerprint of the model",
            template: "chat template"
          ],
          identity[key] != members[key],
          do: "#{name}: #{identity[key]} instead of #{members[key]}"

    "it differs from the cluster's servers in the " <> Enum.join(differences, ", the ")
  end
end
