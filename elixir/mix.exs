# SPDX-License-Identifier: Apache-2.0
Code.require_file("prebuilt.exs", __DIR__)

defmodule Mix.Tasks.Compile.WeirNif do
  @moduledoc """
  Provides `priv/weir_nif.so`, as a step of `mix compile`: downloaded, if the package lists an archive for this
  machine in `checksum.exs` (packages from Hex do), else built with the C library's own build.

  A download that fails falls back to building where the C library's source is there; one with another SHA-256
  than the package's ends the compilation. Each variable below but `WEIR_NIF_URL` means a build, and so do `CC`,
  `CXX`, `CMAKE_TOOLCHAIN_FILE` and a target of Mix that is not the host.

  Environment:

    * `WEIR_BUILD` – `1` builds in any case
    * `WEIR_NIF_URL` – the address of the folder with the archives, for a mirror
    * `WEIR_DIR` – the C library's source; the folder above this one unless set
    * `WEIR_PRESET` – the build: `release` unless set; `unit` has no llama.cpp, only the model `"fake:"`
    * `LLAMA_BACKEND` – `auto`, `cpu`, `cuda`, `metal` or `vulkan`
    * `LLAMA_CMAKE_ARGS` – further arguments for llama.cpp's cmake

  The last two are remembered with the build, until they are given again. The build runs when a source, one of
  the variables that it reads, or the VM has changed, and with `--force`.
  """
  use Mix.Task.Compiler

  @remembered ["LLAMA_BACKEND", "LLAMA_CMAKE_ARGS"]

  # What a build reads: folders and files below its root, and variables.
  @sources ~w(include src hub cmake scripts elixir/c_src CMakeLists.txt CMakePresets.json LICENSE)
  @variables ~r/^(WEIR_(BACKEND|LLAMA_\w+|WERROR|WITH_\w+)|(CMAKE|CUDA|PKG_CONFIG)_\w+|CUDACXX|CC|CXX|(C|CXX|LD)FLAGS|PATH|HOME|XDG_CACHE_HOME)$/

  # What only a build can follow.
  @shaping ~r/^(WEIR_(DIR|PRESET|BACKEND|LLAMA_(DIR|FLAGS)|WITH_\w+)|LLAMA_(BACKEND|CMAKE_ARGS)|CC|CXX|CMAKE_TOOLCHAIN_FILE)$/

  @impl true
  def run(args), do: prebuilt(args) || build(args)

  # ---- An archive ----

  # nil: it is to be built.
  defp prebuilt(args) do
    with false <- building?(),
         {name, sum} when is_binary(name) <- Weir.Prebuilt.archive(__DIR__, Mix.Project.config()[:version]) do
      if "--force" not in args and (stamped?({name, sum}) or built?()),
        do: {:noop, []},
        else: take(name, sum)
    else
      true -> nil
      {:none, _why} -> nil
    end
  end

  # True if a build was asked for, by name or by a variable that shapes one, now or before.
  defp building? do
    Mix.target() != :host or System.get_env("WEIR_BUILD") not in [nil, "", "0"] or
      Enum.any?(System.get_env(), fn {name, value} -> name =~ @shaping and value != "" end) or
      Enum.any?(asked(Path.join(__DIR__, "../build/release")), fn {_name, value, _from} ->
        value not in ["", "auto"]
      end)
  end

  # True if a build after a download that failed is still what it would be.
  defp built? do
    root = Path.expand("..", __DIR__)

    File.regular?(Path.join(root, "scripts/build.sh")) and
      stamped?(fingerprint(root, "release", asked(Path.join(root, "build/release"))))
  end

  defp take(name, sum) do
    url = Weir.Prebuilt.url(name, Mix.Project.config()[:version], System.get_env("WEIR_NIF_URL"))

    case Weir.Prebuilt.fetch(name, sum, url) do
      {:ok, %{"weir_nif.so" => library, "LICENSES.txt" => licenses}} ->
        _outcome = install_bytes(licenses, Path.join(Path.dirname(target()), "LICENSES.txt"))
        outcome = install_bytes(library, target())
        stamp!({name, sum})
        {outcome, []}

      {:ok, _other_files} ->
        Mix.raise("#{name} has no weir_nif.so and LICENSES.txt")

      {:error, why} ->
        if !File.regular?(Path.join(__DIR__, "../scripts/build.sh")),
          do:
            Mix.raise(
              "the native part of weir cannot be had: #{why}; to build it, set WEIR_DIR to the folder of weir's C library"
            )

        Mix.shell().info("weir: #{why}; the native part is built instead")
        nil
    end
  end

  defp target, do: Path.join([Mix.Project.app_path(), "priv", "weir_nif.so"])

  defp stamp!(known) do
    File.mkdir_p!(Path.dirname(stamp()))
    File.write!(stamp(), stamped(known, target()))
  end

  # ---- A build ----

  defp build(args) do
    root = Path.expand(System.get_env("WEIR_DIR") || "..", __DIR__)
    preset = System.get_env("WEIR_PRESET") || "release"
    build = Path.join([root, "build", preset])
    target = target()
    asked = asked(build)

    if !File.regular?(Path.join(root, "scripts/build.sh")), do: Mix.raise(no_library(root))

    # Another tree of llama.cpp may change at any time.
    known = if System.get_env("WEIR_LLAMA_DIR") in [nil, ""], do: fingerprint(root, preset, asked)

    if known != nil and "--force" not in args and stamped?(known) do
      {:noop, []}
    else
      build!(root, preset, target, asked)
      outcome = install!(build, target)
      remember(build, asked)
      stamp!(known)
      {outcome, []}
    end
  end

  defp no_library(root) do
    if System.get_env("WEIR_DIR"),
      do: "no #{root}/scripts/build.sh: WEIR_DIR must name the folder of weir's C library",
      else:
        "weir's C library is not above the Elixir package (no #{root}/scripts/build.sh): a Git dependency needs " <>
          "the whole repository, so give it subdir: \"elixir\" instead of sparse: \"elixir\"; " <>
          "elsewhere WEIR_DIR must name the library's folder"
  end

  # ---- Whether there is anything to do ----

  defp stamp, do: Path.join(Mix.Project.manifest_path(), "compile.weir_nif")

  defp stamped?(known), do: File.read(stamp()) == {:ok, stamped(known, target())}

  # The library is part of it: somebody may have removed or replaced it.
  defp stamped(known, target) do
    installed = with {:ok, stat} <- File.stat(target, time: :posix), do: {stat.size, stat.mtime}
    :erlang.term_to_binary({known, installed})
  end

  # A hash of all that a build depends on, except the system's own headers and libraries.
  defp fingerprint(root, preset, asked) do
    variables = Enum.filter(System.get_env(), fn {name, _value} -> name =~ @variables end)
    asked = for {name, value, _from} <- asked, do: {name, value}
    sources = for name <- @sources, file <- files(Path.join(root, name)), do: {file, content(file)}
    version = {:erlang.system_info(:version), :code.root_dir()}
    :erlang.md5(:erlang.term_to_binary({root, preset, asked, Enum.sort(variables), version, sources}))
  end

  defp files(path) do
    case File.ls(path) do
      {:ok, names} -> names |> Enum.sort() |> Enum.flat_map(&files(Path.join(path, &1)))
      {:error, _no_folder} -> [path]
    end
  end

  defp content(file), do: with({:ok, bytes} <- File.read(file), do: :erlang.md5(bytes))

  # ---- The build ----

  # The remembered variables, as given now or before: {name, value, :given or :remembered}.
  defp asked(build) do
    before =
      case File.read(memory(build)) do
        {:ok, text} -> for one <- String.split(text, <<0>>, trim: true), do: String.split(one, "=", parts: 2)
        {:error, _none} -> []
      end

    known = Map.new(before, fn [name, value] -> {name, {name, value, :remembered}} end)
    given = for name <- @remembered, value = System.get_env(name), do: {name, {name, value, :given}}
    known |> Map.merge(Map.new(given)) |> Map.values()
  end

  defp memory(build), do: Path.join(build, "asked_by_mix")

  defp remember(build, asked),
    do: File.write!(memory(build), for({name, value, _from} <- asked, do: "#{name}=#{value}" <> <<0>>))

  defp build!(root, preset, target, asked) do
    # The first build takes minutes and shows progress. Later builds print only failures.
    into = if File.exists?(target), do: "", else: IO.stream(:stdio, :line)
    command = [Path.join(root, "scripts/build.sh"), preset, "weir_nif"]

    case System.cmd("bash", command, env: environment(asked), into: into, stderr_to_stdout: true) do
      {_, 0} ->
        :ok

      {output, status} ->
        if is_binary(output), do: IO.write(output)
        Mix.raise("the native part of weir could not be built (status #{status})#{reminder(asked)}")
    end
  end

  defp reminder(asked) do
    for {name, value, :remembered} <- asked, value not in ["", "auto"], into: "" do
      anew = if name == "LLAMA_BACKEND", do: "auto", else: ""
      "; #{name}=#{value} is remembered from an earlier build, #{name}=#{anew} forgets it"
    end
  end

  defp environment(asked) do
    include = Path.join([:code.root_dir(), "usr", "include"])
    asked = for {name, value, _from} <- asked, do: {name, value}

    case List.keyfind(asked, "LLAMA_CMAKE_ARGS", 0) do
      nil -> [{"WEIR_ERLANG_INCLUDE", include} | asked]
      {_name, args} -> [{"WEIR_ERLANG_INCLUDE", include}, {"WEIR_LLAMA_FLAGS", args} | asked]
    end
  end

  defp install!(build, target) do
    # The licenses of linked code require their notices beside the library.
    licenses = Path.join(Path.dirname(target), "LICENSES.txt")
    _outcome = install(Path.join([build, "licenses", "LICENSES.txt"]), licenses)
    install(Path.join([build, "elixir", "c_src", "weir_nif.so"]), target)
  end

  defp install(built, target) do
    case File.read(built) do
      {:ok, new} -> install_bytes(new, target)
      {:error, reason} -> Mix.raise("#{built}: #{:file.format_error(reason)}")
    end
  end

  # Renames a new file over the old one, which a running VM may have mapped.
  defp install_bytes(new, target) do
    if File.read(target) == {:ok, new} do
      :noop
    else
      File.mkdir_p!(Path.dirname(target))
      File.write!(target <> ".new", new)
      File.rename!(target <> ".new", target)
      :ok
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

  # Without the C library: the package from Hex downloads its native part, by checksum.exs; for a build set WEIR_DIR.
  defp package do
    [
      licenses: ["Apache-2.0"],
      # where the sources are published
      links: %{
        "weir" => "https://example.org/weir",
        "llama.cpp" => "https://github.com/ggml-org/llama.cpp"
      },
      files: ~w(lib c_src examples guides mix.exs prebuilt.exs .formatter.exs README.md) ++ checksums()
    ]
  end

  # A release has one (it is no source); without it the package builds.
  defp checksums, do: Enum.filter(["checksum.exs"], &File.regular?(Path.join(__DIR__, &1)))

  # WEIR_DOCS=1 mix docs
  defp docs do
    [
      main: "readme",
      extras: [
        "README.md",
        "guides/live_view.md",
        "guides/livebook.md",
        "guides/coming_from_llama_cpp_ex.md",
        "examples/weir.livemd"
      ],
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
          Weir.JSON,
          Weir.Model,
          Weir.Thinking,
          Weir.Tokenizer
        ],
        "Many callers": ~r/^Weir\.(Server|Request)/,
        "Many models": ~r/^Weir\.Models/,
        "Structured output": [Weir.Grammar, Weir.Schema],
        Models: [Weir.Hub],
        "By hand": [Weir.Context, Weir.Sampler, Weir.NIF]
      ]
    ]
  end
end
