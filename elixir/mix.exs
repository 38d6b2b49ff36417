# SPDX-License-Identifier: Apache-2.0
defmodule Mix.Tasks.Compile.WeirNif do
  @moduledoc """
  Builds `priv/weir_nif.so` with the C library's own build, as a step of `mix compile`.

  Environment:

    * `WEIR_DIR` – the C library's source; the folder above this one unless set
    * `WEIR_PRESET` – the build: `release` unless set; `unit` has no llama.cpp, only the model `"fake:"`
    * `LLAMA_BACKEND` – `auto`, `cpu`, `cuda`, `metal` or `vulkan`
    * `LLAMA_CMAKE_ARGS` – further arguments for llama.cpp's cmake
  """
  use Mix.Task.Compiler

  @impl true
  def run(_args) do
    root = Path.expand(System.get_env("WEIR_DIR") || "..", __DIR__)
    script = Path.join(root, "scripts/build.sh")
    preset = System.get_env("WEIR_PRESET") || "release"
    target = Path.join([Mix.Project.app_path(), "priv", "weir_nif.so"])

    if !File.regular?(script) do
      Mix.raise("no #{script}: WEIR_DIR must name the folder of weir's C library")
    end

    # The first build takes minutes and shows progress. Later builds print only failures.
    into = if File.exists?(target), do: "", else: IO.stream(:stdio, :line)

    case System.cmd("bash", [script, preset, "weir_nif"],
           env: environment(),
           into: into,
           stderr_to_stdout: true
         ) do
      {_, 0} ->
        build = Path.join([root, "build", preset])
        # The licenses of linked code require their notices beside the library.
        licenses = Path.join(Path.dirname(target), "LICENSES.txt")

        with {_, []} <- install(Path.join([build, "licenses", "LICENSES.txt"]), licenses),
             do: install(Path.join([build, "elixir", "c_src", "weir_nif.so"]), target)

      {output, status} ->
        if is_binary(output), do: IO.write(output)
        Mix.raise("the native part of weir could not be built (status #{status})")
    end
  end

  defp environment do
    include = Path.join([:code.root_dir(), "usr", "include"])

    case System.get_env("LLAMA_CMAKE_ARGS") do
      nil -> [{"WEIR_ERLANG_INCLUDE", include}]
      args -> [{"WEIR_ERLANG_INCLUDE", include}, {"WEIR_LLAMA_FLAGS", args}]
    end
  end

  # Renames a new file over the old one, which a running VM may have mapped.
  defp install(built, target) do
    with {:ok, new} <- File.read(built), true <- File.read(target) != {:ok, new} do
      File.mkdir_p!(Path.dirname(target))
      File.write!(target <> ".new", new)
      File.rename!(target <> ".new", target)
      {:ok, []}
    else
      false -> {:noop, []}
      {:error, reason} -> Mix.raise("#{built}: #{:file.format_error(reason)}")
    end
  end
end

defmodule Weir.MixProject do
  use Mix.Project

  @version "0.1.0"

  def project do
    [
      app: :weir,
      version: @version,
      elixir: "~> 1.14",
      elixirc_paths: if(Mix.env() == :test, do: ["lib", "test/support"], else: ["lib"]),
      compilers: [:weir_nif | Mix.compilers()],
      start_permanent: Mix.env() == :prod,
      deps: deps(),
      name: "weir",
      description: "Language models in the BEAM: llama.cpp behind lazy streams and a server that batches",
      package: package(),
      docs: docs()
    ]
  end

  def application do
    [mod: {Weir.Application, []}, extra_applications: [:logger, :crypto]]
  end

  # No package is needed, except to build the documentation. :telemetry and Ecto are used if the application has them.
  defp deps do
    if System.get_env("WEIR_DOCS"),
      do: [{:ex_doc, "~> 0.29", only: :dev, runtime: false}],
      else: []
  end

  # Without the C library: to compile the package from Hex, set WEIR_DIR to its source.
  defp package do
    [
      licenses: ["Apache-2.0"],
      # where the sources are published
      links: %{
        "weir" => "https://example.org/weir",
        "llama.cpp" => "https://github.com/ggml-org/llama.cpp"
      },
      files: ~w(lib c_src examples guides mix.exs .formatter.exs README.md)
    ]
  end

  # WEIR_DOCS=1 mix docs
  defp docs do
    [
      main: "readme",
      extras: ["README.md", "guides/coming_from_llama_cpp_ex.md", "examples/weir.livemd"],
      groups_for_modules: [
        "One caller": [
          Weir,
          Weir.Adapter,
          Weir.Chat,
          Weir.ChatCompletion,
          Weir.ChatCompletionChunk,
          Weir.Chunk,
          Weir.Embedding,
          Weir.Error,
          Weir.Model,
          Weir.Thinking,
          Weir.Tokenizer
        ],
        "Many callers": ~r/^Weir\.Server/,
        "Many nodes": ~r/^Weir\.Cluster/,
        "Many models": ~r/^Weir\.Models/,
        "Structured output": [Weir.Grammar, Weir.Schema],
        Models: [Weir.Hub],
        "By hand": [Weir.Context, Weir.Sampler, Weir.NIF]
      ]
    ]
  end
end
