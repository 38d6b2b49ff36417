# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HaltTest do
  # A VM may halt in the middle of anything, while native threads and dirty schedulers work on: it ends with the status
  # that it was given (docs/adr/0024). Each is a process of its own, which ends after a time that is drawn.
  use ExUnit.Case, async: false
  alias Weir.{Amid, Terms}

  @status 7

  defp halted(kind, way, ms, path) do
    ebin = to_string(:code.lib_dir(:weir)) <> "/ebin"

    call = "Weir.Amid.halt(#{inspect(kind)}, #{inspect(way)}, #{@status}, #{ms}, #{inspect(path)})"

    # not in the process that evaluates: its end would be one with a status of its own
    arguments = ["--no-halt", "-pa", ebin, "-e", "spawn(fn -> #{call} end)"]
    System.cmd("elixir", arguments, stderr_to_stdout: true)
  end

  defp all_halted(rounds, path) do
    for({kind, way} <- rounds, do: {kind, way, :rand.uniform(200)})
    |> Task.async_stream(
      fn {kind, way, ms} -> {kind, way, ms, halted(kind, way, ms, path)} end,
      max_concurrency: 2,
      timeout: 60_000
    )
    |> Enum.each(fn {:ok, {kind, way, ms, {output, status}}} ->
      assert status == @status, "#{way} amid #{kind}, #{ms} ms: status #{status}\n#{output}"
    end)
  end

  test "amid the fake model's work" do
    Terms.sow("halted")
    all_halted(Enum.map(Amid.kinds(), &{&1, Enum.random([:halt, :stop])}), "fake:tick_us=1000")
  end

  @tag :model
  test "amid a real model's work" do
    Terms.sow("halted, with a model")
    rounds = for kind <- Amid.kinds(), way <- [:halt, :stop], do: {kind, way}
    all_halted(rounds, System.fetch_env!("WEIR_TEST_MODEL"))
  end
end
