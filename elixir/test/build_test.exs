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

    on_exit(fn ->
      File.rm_rf!(root)

      for {name, value} <- before,
          do: if(value, do: System.put_env(name, value), else: System.delete_env(name))
    end)

    %{root: root}
  end

  defp script(root, lines),
    do: File.write!(Path.join(root, "scripts/build.sh"), Enum.join(lines, "\n"))

  defp compile(root, environment) do
    Enum.each(@names, &System.delete_env/1)
    System.put_env([{"WEIR_DIR", root} | environment])
    Mix.Tasks.Compile.WeirNif.run([])
  end

  test "environment and arguments reach the build", %{root: root} do
    library = Path.join(:code.priv_dir(:weir), "weir_nif.so")
    licenses = Path.join(:code.priv_dir(:weir), "LICENSES.txt")

    script(root, [
      "cd \"$(dirname \"$0\")/..\"",
      "{ echo \"arguments=$*\"; env; } >asked",
      "mkdir -p build/$1/elixir/c_src build/$1/licenses",
      "cp '#{library}' build/$1/elixir/c_src/",
      "cp '#{licenses}' build/$1/licenses/"
    ])

    asked = fn environment ->
      # the library is the same, so the file is not replaced
      assert {:noop, []} = compile(root, environment)
      root |> Path.join("asked") |> File.read!() |> String.split("\n")
    end

    lines = asked.([{"LLAMA_BACKEND", "vulkan"}, {"LLAMA_CMAKE_ARGS", "-DA=1 -DB=\"x y\""}])
    assert "arguments=release weir_nif" in lines
    assert "LLAMA_BACKEND=vulkan" in lines
    assert "WEIR_LLAMA_FLAGS=-DA=1 -DB=\"x y\"" in lines
    assert Enum.any?(lines, &String.starts_with?(&1, "WEIR_ERLANG_INCLUDE=/"))

    lines = asked.([{"WEIR_PRESET", "unit"}])
    assert "arguments=unit weir_nif" in lines
    refute Enum.any?(lines, &String.starts_with?(&1, "LLAMA_BACKEND="))
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
