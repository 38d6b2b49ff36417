# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Cluster.MixProject do
  use Mix.Project

  @version "0.1.0"

  def project do
    [
      app: :weir_cluster,
      version: @version,
      elixir: "~> 1.14",
      elixirc_paths: if(Mix.env() == :test, do: ["lib", "test/support"], else: ["lib"]),
      start_permanent: Mix.env() == :prod,
      deps: [weir() | docs_deps()],
      name: "weir_cluster",
      description: "Servers of weir on several connected nodes behind one call",
      package: package(),
      docs: docs()
    ]
  end

  def application do
    [mod: {Weir.Cluster.Application, []}, extra_applications: [:logger, :crypto]]
  end

  # In the repository, and in a checkout of it that a Git dependency is, the package weir is the folder above. The
  # tests use its helpers.
  defp weir do
    if File.regular?(Path.expand("../c_src/nif.h", __DIR__)),
      do: {:weir, path: "..", env: Mix.env()},
      else: {:weir, "~> #{@version}"}
  end

  defp docs_deps do
    if System.get_env("WEIR_DOCS"),
      do: [{:ex_doc, "~> 0.29", only: :dev, runtime: false}],
      else: []
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      # where the sources are published
      links: %{"weir" => "https://example.org/weir"},
      files: ~w(lib mix.exs .formatter.exs README.md)
    ]
  end

  # WEIR_DOCS=1 mix docs
  defp docs, do: [main: "readme", extras: ["README.md"]]
end
