# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ExamplesTest do
  # Each example runs on the fake model, and on a real one if there is one.
  use ExUnit.Case, async: false
  import ExUnit.CaptureIO

  @folder Path.expand("../examples", __DIR__)
  @on_the_fake ~w(generation streaming chat server embeddings)

  defp run(name, arguments) do
    before = System.argv()
    System.argv(arguments)
    on_exit(fn -> System.argv(before) end)
    capture_io(fn -> Code.eval_file(Path.join(@folder, name <> ".exs")) end)
  end

  test "all are here" do
    here = for file <- Path.wildcard(@folder <> "/*.exs"), do: Path.basename(file, ".exs")
    assert Enum.sort(here) == Enum.sort(["structured_output", "sse" | @on_the_fake])
  end

  for name <- @on_the_fake do
    test name do
      output = run(unquote(name), [])
      assert output != ""
      assert {:messages, []} = Process.info(self(), :messages)
    end

    @tag :model
    test "#{name}, with a model" do
      output = run(unquote(name), [System.fetch_env!("WEIR_TEST_MODEL")])
      assert String.valid?(output)
      if unquote(name) == "generation", do: assert(output =~ "Paris")
    end
  end

  @tag :model
  test "structured_output" do
    output = run("structured_output", [System.fetch_env!("WEIR_TEST_MODEL")])
    {json, [answer]} = output |> String.trim() |> String.split("\n") |> Enum.split(-1)
    {:ok, person} = json |> Enum.join("\n") |> Weir.JSON.decode()
    assert %{"name" => _, "age" => age, "likes" => likes} = person
    assert is_integer(age) and Enum.all?(likes, &(&1 in ["tea", "coffee", "water"]))
    assert answer in ["yes", "no"]
  end

  test "sse" do
    output = run("sse", ["fake:tick_us=1000", "0"])
    [port] = Regex.run(~r/:(\d+)\//, output, capture: :all_but_first)
    port = String.to_integer(port)

    body = ask(port, "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
    ["HTTP/1.1 200 OK" <> _, events] = String.split(body, "\r\n\r\n", parts: 2)
    events = events |> String.split("\n\n", trim: true) |> Enum.map(&String.trim(&1, "data: "))
    {chunks, ["[DONE]"]} = Enum.split(events, -1)

    deltas =
      for chunk <- chunks do
        {:ok, %{"object" => "chat.completion.chunk", "choices" => [choice]}} = Weir.JSON.decode(chunk)

        choice
      end

    assert %{"delta" => %{"role" => "assistant"}} = hd(deltas)
    assert %{"finish_reason" => reason} = List.last(deltas)
    assert reason in ["stop", "length"]
    text = Enum.map_join(deltas, &(&1["delta"]["content"] || ""))
    # a sampled answer may end before its first word
    assert String.valid?(text) and (text != "" or reason == "stop")

    assert ask(port, "GET / HTTP/1.1\r\n\r\n") =~ "400"
    assert ask(port, "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n") =~ "400"
    assert ask(port, "nonsense\r\n\r\n") =~ "400"

    # a client that has left gets no more events
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false])
    :ok = :gen_tcp.send(socket, "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
    {:ok, _begin} = :gen_tcp.recv(socket, 0)
    :gen_tcp.close(socket)
    assert ask(port, "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello") =~ "[DONE]"
  end

  defp ask(port, request) do
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false])
    :ok = :gen_tcp.send(socket, request)
    all(socket, "")
  end

  defp all(socket, done) do
    case :gen_tcp.recv(socket, 0, 10_000) do
      {:ok, more} -> all(socket, done <> more)
      {:error, :closed} -> done
    end
  end

  # The cells of the Livebook as one script.
  defp livebook(path) do
    file = Path.join(@folder, "weir.livemd")
    System.put_env("WEIR_MODEL", path)
    on_exit(fn -> System.delete_env("WEIR_MODEL") end)
    cells = Regex.scan(~r/^```elixir\n(.*?)^```$/ms, File.read!(file), capture: :all_but_first)

    {{result, binding}, output} =
      with_io(fn ->
        Enum.reduce(cells, {nil, []}, fn [cell], {_result, binding} ->
          Code.eval_string(cell, binding, file: file)
        end)
      end)

    assert output != ""
    assert %{n_ticks: ticks, n_generated_tokens: n} = result
    assert ticks > 0 and n >= 30
    assert [%{at_once: 1}, %{at_once: 2}, %{at_once: 4}] = binding[:rates]
    GenServer.stop(binding[:server])
  end

  test "the Livebook", do: livebook("fake:")

  @tag :model
  test "the Livebook, with a model", do: livebook(System.fetch_env!("WEIR_TEST_MODEL"))
end
