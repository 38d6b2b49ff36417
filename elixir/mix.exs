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

    # The first build takes minutes and shows that it is alive; the next ones say something when they fail.
    into = if File.exists?(target), do: "", else: IO.stream(:stdio, :line)

    case System.cmd("bash", [script, preset, "weir_nif"],
           env: environment(),
           into: into,
           stderr_to_stdout: true
         ) do
      {_, 0} ->
        install(Path.join([root, "build", preset, "elixir", "c_src", "weir_nif.so"]), target)

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

  # By a new file under the old name: a running VM may have the old one mapped.
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
      deps: [],
      description: "A streaming inference engine on llama.cpp",
      package: [licenses: ["Apache-2.0"], links: %{}],
      docs: [main: "Weir"]
    ]
  end

  def application do
    [extra_applications: [:logger, :crypto]]
  end
end
