# SPDX-License-Identifier: Apache-2.0
defmodule MyApp.MixProject do
  # The code of elixir/guides/live_view.md in a real LiveView, and weir's structs by the real Jason. Needs Hex and its packages,
  # so no other test runs it: `mix deps.get && mix test` in this folder, in the preset that WEIR_PRESET names.
  use Mix.Project

  def project, do: [app: :my_app, version: "1.0.0", deps: deps()]
  def application, do: [extra_applications: [:logger]]

  defp deps do
    [
      {:phoenix, "== 1.7.24"},
      {:phoenix_live_view, "== 0.20.17"},
      {:jason, "== 1.4.5"},
      {:floki, "~> 0.36", only: :test},
      {:weir, path: "../../elixir"}
    ]
  end
end
