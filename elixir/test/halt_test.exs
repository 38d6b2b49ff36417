# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HaltTest do
  # A VM may halt during any work of native threads and dirty schedulers, and ends with the status that it was
  # given (docs/adr/0024). Each VM is a separate process, which halts after a random time.
  use ExUnit.Case, async: false
  alias Weir.{HaltedWork, Terms}

  @status 7

  defp halted(kind, way, ms, path) do
    ebin = to_string(:code.lib_dir(:weir)) <> "/ebin"

    call = "Weir.HaltedWork.halt(#{inspect(kind)}, #{inspect(way)}, #{@status}, #{ms}, #{inspect(path)})"

    # not in the process that evaluates, whose end would set another status
    arguments = ["--no-halt", "-pa", ebin, "-e", "spawn(fn -> #{call} end)"]
    System.cmd("elixir", arguments, stderr_to_stdout: true)
  end

  defp all_halted(rounds, path) do
    # soon after the begin, a first call of the work is still running
    for({kind, way} <- rounds, do: {kind, way, :rand.uniform(Enum.random([5, 200]))})
    |> Task.async_stream(
      fn {kind, way, ms} -> {kind, way, ms, halted(kind, way, ms, path)} end,
      max_concurrency: 2,
      timeout: Weir.Wait.patience()
    )
    |> Enum.each(fn {:ok, {kind, way, ms, {output, status}}} ->
      assert status == @status, "#{way} during #{kind}, #{ms} ms: status #{status}\n#{output}"
    end)
  end

  test "during the fake model's work" do
    Terms.sow("halted")
    all_halted(Enum.map(HaltedWork.kinds(), &{&1, Enum.random([:halt, :stop])}), "fake:tick_us=1000")
  end

  @tag :model
  test "during a real model's work" do
    Terms.sow("halted, with a model")
    rounds = for kind <- HaltedWork.kinds(), way <- [:halt, :stop], do: {kind, way}
    all_halted(rounds, System.fetch_env!("WEIR_TEST_MODEL"))
  end
end
