# SPDX-License-Identifier: Apache-2.0
defmodule Weir.LogTest do
  # There is one log of the library, so nothing else may run beside it.
  use ExUnit.Case, async: false
  import ExUnit.CaptureLog
  import Weir.Wait
  alias Weir.NIF

  @folder Path.join(System.tmp_dir!(), "weir_log_#{System.pid()}")

  setup do
    # other tests may have changed the receiver
    :ok = NIF.log_to(Process.whereis(Weir.Log), :warning)
    on_exit(fn -> :ok = NIF.log_to(Process.whereis(Weir.Log), :warning) end)
    on_exit(fn -> File.rm_rf!(@folder) end)
  end

  # A damaged file in an engine's folder, for which the library logs a warning.
  defp warn do
    File.mkdir_p!(@folder)
    File.chmod!(@folder, 0o700)
    File.write!(Path.join(@folder, "0123456789abcdef.weirkv"), "damaged")
    {:ok, model} = Weir.load_model("fake:")

    {:ok, _engine} = NIF.engine_create(model.ref, %{n_slots: 1, n_ctx: 256, cache_dir: @folder, manual: true})

    # it has handled all its messages
    _ = :sys.get_state(Weir.Log)
  end

  test "the library's warnings are Logger's" do
    log = capture_log([metadata: [:application]], fn -> warn() end)
    assert log =~ "[warning]" or log =~ "[warn]"
    assert log =~ "0123456789abcdef.weirkv is ignored"
    assert log =~ "application=weir"
  end

  test "those below the level are not" do
    :ok = NIF.log_to(Process.whereis(Weir.Log), :error)
    assert capture_log(fn -> warn() end) == ""
    :ok = NIF.log_to(Process.whereis(Weir.Log), :none)
    assert capture_log(fn -> warn() end) == ""
    :ok = NIF.log_to(Process.whereis(Weir.Log), :debug)
    assert capture_log(fn -> warn() end) =~ "is ignored"
  end

  test "any process may have them" do
    :ok = NIF.log_to(self(), :warning)
    assert capture_log(fn -> warn() end) == ""
    assert_received {:weir_log, :warning, text}
    assert text =~ "is ignored"
    :ok = NIF.log_to(nil, :warning)
    warn()
    refute_received {:weir_log, _, _}
  end

  test "its process has them again after its end" do
    old = Process.whereis(Weir.Log)
    send(old, :stray)
    Process.exit(old, :kill)
    assert eventually(fn -> Process.whereis(Weir.Log) not in [nil, old] end)
    assert capture_log(fn -> warn() end) =~ "is ignored"
  end

  test "wrong arguments" do
    for {pid, level} <- [{self(), :warn}, {self(), nil}, {:weir, :error}, {make_ref(), :error}],
        do: assert_raise(ArgumentError, fn -> NIF.log_to(pid, level) end)
  end
end
