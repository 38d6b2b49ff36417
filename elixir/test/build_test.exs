# SPDX-License-Identifier: Apache-2.0
defmodule Weir.BuildTest do
  # How `mix compile` calls the C library's build, which here records the call and returns existing files.
  use ExUnit.Case, async: false
  import ExUnit.CaptureIO

  @names ~w(WEIR_DIR WEIR_PRESET LLAMA_BACKEND LLAMA_CMAKE_ARGS)

  setup do
    before = for name <- @names, do: {name, System.get_env(name)}
    root = Path.join(System.tmp_dir!(), "weir build #{System.pid()}")
    File.mkdir_p!(Path.join(root, "scripts"))
    # What the package's own build remembers is not for these tests.
    stamp = Path.join(Mix.Project.manifest_path(), "compile.weir_nif")
    stamped = File.read(stamp)

    on_exit(fn ->
      File.rm_rf!(root)
      with {:ok, bytes} <- stamped, do: File.write!(stamp, bytes)

      for {name, value} <- before,
          do: if(value, do: System.put_env(name, value), else: System.delete_env(name))
    end)

    %{root: root}
  end

  defp script(root, lines),
    do: File.write!(Path.join(root, "scripts/build.sh"), Enum.join(lines, "\n"))

  defp compile(root, environment, args \\ []) do
    Enum.each(@names, &System.delete_env/1)
    System.put_env([{"WEIR_DIR", root} | environment])
    Mix.Tasks.Compile.WeirNif.run(args)
  end

  # Records its arguments and environment, and copies the library that is there.
  defp recorder do
    priv = :code.priv_dir(:weir)

    [
      "cd \"$(dirname \"$0\")/..\"",
      "{ echo \"arguments=$*\"; env; } >asked",
      "mkdir -p build/$1/elixir/c_src build/$1/licenses",
      "cp '#{priv}/weir_nif.so' build/$1/elixir/c_src/",
      "cp '#{priv}/LICENSES.txt' build/$1/licenses/"
    ]
  end

  # The lines that the recorder wrote, or nil if it was not called.
  defp asked(root, environment, args \\ []) do
    record = Path.join(root, "asked")
    _gone = File.rm(record)
    # the library is the same, so the file is not replaced
    assert {:noop, []} = compile(root, environment, args)
    with {:ok, text} <- File.read(record), do: String.split(text, "\n"), else: (_none -> nil)
  end

  test "environment and arguments reach the build", %{root: root} do
    script(root, recorder())

    lines = asked(root, [{"LLAMA_BACKEND", "vulkan"}, {"LLAMA_CMAKE_ARGS", "-DA=1 -DB=\"x y\""}])
    assert "arguments=release weir_nif" in lines
    assert "LLAMA_BACKEND=vulkan" in lines
    assert "WEIR_LLAMA_FLAGS=-DA=1 -DB=\"x y\"" in lines
    assert Enum.any?(lines, &String.starts_with?(&1, "WEIR_ERLANG_INCLUDE=/"))

    lines = asked(root, [{"WEIR_PRESET", "unit"}])
    assert "arguments=unit weir_nif" in lines
    refute Enum.any?(lines, &String.starts_with?(&1, "LLAMA_BACKEND="))
  end

  test "nothing is built unless something has changed", %{root: root} do
    script(root, recorder())
    source = Path.join(root, "src/a.c")
    File.mkdir_p!(Path.dirname(source))
    File.write!(source, "int a;")

    assert asked(root, [])
    refute asked(root, [])
    assert asked(root, [], ["--force"])
    refute asked(root, [])

    # of equal size, and whatever the clock says
    File.write!(source, "int b;")
    File.touch!(source, 0)
    assert asked(root, [])
    refute asked(root, [])
    File.touch!(source)
    refute asked(root, [])

    File.write!(Path.join(root, "src/b.c"), "")
    assert asked(root, [])
    File.rm!(source)
    assert asked(root, [])
    assert asked(root, [{"WEIR_PRESET", "unit"}])
    assert asked(root, [])
    refute asked(root, [])

    assert asked(root, [{"LLAMA_BACKEND", "cpu"}])
    refute asked(root, [{"LLAMA_BACKEND", "cpu"}])
  end

  test "another tree of llama.cpp is looked at each time", %{root: root} do
    script(root, recorder())
    System.put_env("WEIR_LLAMA_DIR", root)
    on_exit(fn -> System.delete_env("WEIR_LLAMA_DIR") end)
    assert asked(root, [])
    assert asked(root, [])
  end

  test "a build that failed is tried again", %{root: root} do
    script(root, recorder())
    assert asked(root, [])
    script(root, ["exit 3"])

    for _time <- 1..2,
        do: capture_io(fn -> assert_raise Mix.Error, ~r/status 3/, fn -> compile(root, []) end end)
  end

  test "the backend and the arguments are remembered", %{root: root} do
    script(root, recorder())
    args = "-DA=1\n-DB=2=3"
    assert asked(root, [{"LLAMA_BACKEND", "vulkan"}, {"LLAMA_CMAKE_ARGS", args}])
    refute asked(root, [])
    refute asked(root, [{"LLAMA_BACKEND", "vulkan"}])

    lines = asked(root, [], ["--force"])
    assert "LLAMA_BACKEND=vulkan" in lines
    assert ["WEIR_LLAMA_FLAGS=-DA=1", "-DB=2=3"] -- lines == []

    # a failure names them; it is not remembered
    script(root, ["exit 3"])

    capture_io(fn ->
      assert_raise Mix.Error,
                   ~r/LLAMA_BACKEND=vulkan is remembered.*LLAMA_BACKEND=auto forgets/s,
                   fn -> compile(root, []) end

      assert_raise Mix.Error, fn -> compile(root, [{"LLAMA_BACKEND", "cuda"}]) end
    end)

    script(root, recorder())
    lines = asked(root, [{"LLAMA_CMAKE_ARGS", ""}])
    assert "LLAMA_BACKEND=vulkan" in lines
    refute Enum.any?(lines, &String.starts_with?(&1, "WEIR_LLAMA_FLAGS=-"))
    assert "LLAMA_BACKEND=auto" in asked(root, [{"LLAMA_BACKEND", "auto"}])
    assert "LLAMA_BACKEND=auto" in asked(root, [], ["--force"])
  end

  # A project whose dependency is weir, of which a repository has the Elixir part and a script for the rest.
  defp dependent(root, where) do
    script(root, recorder())
    File.mkdir_p!(Path.join(root, "elixir"))
    File.cp_r!("lib", Path.join(root, "elixir/lib"))

    for file <- ["mix.exs", "prebuilt.exs", ".formatter.exs"],
        do: File.cp!(file, Path.join([root, "elixir", file]))

    git = fn args -> {_, 0} = System.cmd("git", ["-C", root | args], stderr_to_stdout: true) end
    git.(["init", "-q"])
    git.(["add", "."])
    git.(~w(-c user.name=weir -c user.email=weir@localhost -c commit.gpgsign=false commit -qm weir))

    project = Path.join(root, "project")
    File.mkdir_p!(project)

    File.write!(Path.join(project, "mix.exs"), """
    defmodule Project.MixProject do
      use Mix.Project
      def project, do: [app: :project, version: "1.0.0", deps: deps()]
      def application, do: [extra_applications: [:logger]]
      defp deps, do: [{:weir, git: "file://#{URI.encode(root)}", #{where}}]
    end
    """)

    project
  end

  # mix as a user calls it, without what this test's own mix and preset have set.
  defp mix(project, args) do
    unset = for name <- @names ++ ~w(MIX_ENV MIX_BUILD_PATH MIX_TARGET), do: {name, nil}

    System.cmd("mix", args,
      cd: project,
      env: [{"LC_ALL", "C.UTF-8"} | unset],
      stderr_to_stdout: true
    )
  end

  test "a Git dependency with subdir is fetched, built and used", %{root: root} do
    project = dependent(root, "subdir: \"elixir\"")
    assert {_output, 0} = mix(project, ["deps.get"])

    call =
      "{:ok, m} = Weir.load_model(\"fake:\"); {:ok, t} = Weir.generate(m, \"hi\", temp: 0.0); IO.puts(\"> \" <> t)"

    {output, status} = mix(project, ["run", "-e", call])
    assert status == 0, output
    assert output =~ ~r/^> ./m
    assert File.exists?(Path.join(project, "deps/weir/asked"))
  end

  test "a sparse Git dependency says what to write instead", %{root: root} do
    project = dependent(root, "sparse: \"elixir\"")
    assert {_output, 0} = mix(project, ["deps.get"])
    {output, status} = mix(project, ["compile"])
    assert status != 0
    assert output =~ "give it subdir: \"elixir\" instead of sparse: \"elixir\""
  end

  @tag skip: if(System.find_executable("readelf"), do: false, else: "no readelf")
  test "the README names the libraries that a release needs beside the native part" do
    {output, 0} = System.cmd("readelf", ["-dS", "--wide", Path.join(:code.priv_dir(:weir), "weir_nif.so")])
    names = for [_, name] <- Regex.scan(~r/NEEDED.*\[(lib[\w+-]+)\.so/, output), do: name
    beside = names -- ~w(libc libm libdl libpthread)
    readme = File.read!("README.md")
    # a sanitizer's build is no release: its runtime needs the C++ one
    sanitized? = System.get_env("WEIR_SANITIZED") != nil
    for name <- beside, not sanitized?, do: assert(readme =~ "`#{name}`", "the README does not name #{name}")
    # what only a debugger reads is in debug builds
    if Weir.NIF.backend_version() != "none" and not sanitized?,
      do: refute(output =~ ".debug_info"),
      else: assert(output =~ ".debug_info")
  end

  test "the license and the notices of what is inside lie beside the library" do
    notices = File.read!(Path.join(:code.priv_dir(:weir), "LICENSES.txt"))
    assert notices =~ "Apache License"
    if Weir.NIF.backend_version() != "none", do: assert(notices =~ "The ggml authors")
  end

  test "a build that fails shows what it said", %{root: root} do
    script(root, ["echo 'no compiler here'", "exit 3"])

    output =
      capture_io(fn ->
        assert_raise Mix.Error, ~r/status 3/, fn -> compile(root, []) end
      end)

    assert output =~ "no compiler here"
  end

  test "a folder that is not the library's is named", %{root: root} do
    assert_raise Mix.Error, ~r/WEIR_DIR must name/, fn -> compile(root, []) end
  end
end
