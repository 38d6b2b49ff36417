# SPDX-License-Identifier: Apache-2.0
defmodule Weir.GuidesTest do
  # The code of the guides, as it stands there.
  use Weir.ServerCase, async: false
  import ExUnit.CaptureIO
  alias Weir.Server

  @folder Path.expand("../guides", __DIR__)

  defp blocks(guide) do
    text = File.read!(Path.join(@folder, guide))
    for [code] <- Regex.scan(~r/^```elixir\n(.*?)^```$/ms, text, capture: :all_but_first), do: code
  end

  # What the view needs of Phoenix: the package has no dependencies. The view's calls, in their order, are
  # those of a real one; tests/phoenix in the repository has the same with the real packages.
  defp live_view do
    Module.create(
      Phoenix.LiveView,
      quote do
        @callback mount(map(), map(), map()) :: {:ok, map()}
        @callback render(map()) :: term()
        @callback handle_event(String.t(), map(), map()) :: {:noreply, map()}
        @callback handle_info(term(), map()) :: {:noreply, map()}

        defmacro __using__(_opts) do
          quote do
            @behaviour Phoenix.LiveView
            import Phoenix.LiveView
          end
        end

        defmacro sigil_H({:<<>>, _meta, [_text]}, _modifiers), do: quote(do: var!(assigns))
        def assign(socket, values), do: update_in(socket.assigns, &Map.merge(&1, Map.new(values)))
      end,
      Macro.Env.location(__ENV__)
    )

    # a second run of the test defines them again
    on_exit(fn ->
      for module <- [Phoenix.LiveView, MyAppWeb.AskLive],
          do: :code.purge(module) && :code.delete(module)
    end)
  end

  # The process of a view: it applies the callbacks, and tells its assigns after each.
  defp view(view, test) do
    {:ok, socket} = view.mount(%{}, %{}, %{assigns: %{}})
    live(view, test, socket)
  end

  defp live(view, test, socket) do
    send(test, {:shown, view.render(socket.assigns)})

    {:noreply, socket} =
      receive do
        {:event, name, params} -> view.handle_event(name, params, socket)
        message -> view.handle_info(message, socket)
      end

    live(view, test, socket)
  end

  # Waits until the view shows this.
  defp shown(fun) do
    assert_receive {:shown, assigns}
    if fun.(assigns), do: assigns, else: shown(fun)
  end

  test "live_view.md" do
    live_view()
    [code] = blocks("live_view.md")
    Code.compile_string(code, "live_view.md")
    opts = [name: MyApp.LLM, model_path: "fake:tick_us=2000", temp: 0.0, n_parallel: 1, chunk_size: 8]
    server = start_supervised!({Server, [n_batch: 8] ++ opts})
    test = self()
    pid = spawn_link(fn -> view(MyAppWeb.AskLive, test) end)

    send(pid, {:event, "ask", %{"question" => "How are you?"}})
    shown(&(&1.progress > 0.0 and &1.progress < 1.0 and &1.text == ""))
    {:ok, text} = Server.chat(server, [%{role: "user", content: "How are you?"}], max_tokens: 500)
    assert %{text: ^text, error: nil} = shown(&(&1.request == nil and &1.text != ""))

    # a new question replaces the one before, and stop stops it
    send(pid, {:event, "ask", %{"question" => "one"}})
    %{request: first} = shown(&(&1.text != "" and &1.request != nil))
    send(pid, {:event, "ask", %{"question" => "two"}})
    %{request: second} = shown(&(&1.text != "" and &1.request not in [nil, first]))
    assert second.ref != first.ref
    send(pid, {:event, "stop", %{}})
    assert %{text: "" <> _} = shown(&(&1.request == nil))
    assert eventually(fn -> idle?(server) end)

    # errors are sentences, and a view that goes away takes its request along
    send(pid, {:event, "ask", %{"question" => "three"}})
    shown(&(&1.text != "" and &1.request not in [nil, second]))
    Process.unlink(pid)
    Process.exit(pid, :kill)
    assert eventually(fn -> idle?(server) end)

    stop_supervised!(MyApp.LLM)
    pid = spawn_link(fn -> view(MyAppWeb.AskLive, test) end)
    send(pid, {:event, "ask", %{"question" => "four"}})
    assert shown(& &1.error).error =~ "the server is down"
    Process.unlink(pid)
    Process.exit(pid, :kill)
  end

  test "livebook.md: cells that are evaluated again leave one server" do
    run = fn ->
      Enum.reduce(blocks("livebook.md"), {[], []}, fn cell, {_results, binding} ->
        Code.eval_string(cell, binding, file: "livebook.md")
      end)
    end

    {{first, one}, output} = with_io(run)
    # it samples
    assert {text, reason} = first
    assert is_binary(text) and reason in [:length, :end] and output != ""
    server = Process.whereis(MyNotebook.LLM)
    {{{_text, _reason}, _two}, _output} = with_io(run)
    assert one[:request].server == server
    refute Process.alive?(server)
    assert [last] = servers()
    assert last == Process.whereis(MyNotebook.LLM)
    GenServer.stop(last)
  end

  # Those that this process has started.
  defp servers do
    {:links, links} = Process.info(self(), :links)
    for pid <- links, is_pid(pid), match?({Weir.Server.Broker, _, _}, :proc_lib.initial_call(pid)), do: pid
  end

  test "replace: another server of this name ends first, after its requests", %{model: model, long: long} do
    assert_raise ArgumentError, ~r/:replace needs :name/, fn ->
      Server.start_link(model: model, replace: true)
    end

    slow = [name: __MODULE__, model: long, temp: 0.0]
    {:ok, first} = Server.start_link([drain_timeout: 60_000, replace: true] ++ slow)
    assert {:error, {:already_started, ^first}} = Server.start_link(name: __MODULE__, model: model)
    request = Server.submit(__MODULE__, "hello", max_tokens: 20)
    %{ref: ref} = request
    assert_receive {:weir, ^ref, {:start, _}}
    {:ok, second} = Server.start_link(name: __MODULE__, model: model, temp: 0.0, replace: true)
    refute Process.alive?(first)
    assert_receive {:weir, ^ref, {:end, %{reason: :length}}}
    assert Process.whereis(__MODULE__) == second
    # wrong options leave the server as it is
    assert_raise ArgumentError, fn -> Server.start_link(name: __MODULE__, replace: true, n_ctx: :many) end
    assert {:ok, _text} = Server.generate(__MODULE__, "hello", max_tokens: 3)
    GenServer.stop(second)
  end
end
