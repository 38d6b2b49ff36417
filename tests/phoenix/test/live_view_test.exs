# SPDX-License-Identifier: Apache-2.0
defmodule MyApp.LiveViewTest do
  use ExUnit.Case
  import Phoenix.ConnTest
  import Phoenix.LiveViewTest
  alias Weir.{Request, Server}

  @endpoint MyAppWeb.Endpoint

  setup_all do
    start_supervised!({Phoenix.PubSub, name: MyApp.PubSub})
    start_supervised!(MyAppWeb.Endpoint)
    :ok
  end

  # Waits until the view shows this.
  defp shown(view, fun) do
    html = render(view)
    if fun.(html), do: html, else: Process.sleep(2) && shown(view, fun)
  end

  defp idle do
    case Server.get_stats(MyApp.LLM) do
      %{requests: 0, active_slots: 0} -> :ok
      _busy -> Process.sleep(2) && idle()
    end
  end

  defp ask(view, question), do: view |> form("form", %{question: question}) |> render_submit()
  defp streams?(html), do: html =~ "Stop" and not (html =~ "<progress")
  defp text(html), do: html |> Floki.parse_fragment!() |> Floki.find("p") |> Floki.text()

  test "live_view.md" do
    Process.flag(:trap_exit, true)

    opts = [
      name: MyApp.LLM,
      model_path: "fake:tick_us=2000",
      temp: 0.0,
      n_parallel: 1,
      chunk_size: 8,
      n_batch: 8
    ]

    server = start_supervised!({Server, opts})
    {:ok, view, html} = live(build_conn(), "/")
    assert html =~ "Ask"
    refute html =~ "Stop"

    # the progress, and the whole answer
    assert ask(view, "How are you?") =~ "Stop"
    shown(view, &(&1 =~ ~r/<progress value="0\.[1-9]/))
    answer = shown(view, &(not (&1 =~ "Stop")))
    {:ok, expected} = Server.chat(server, [%{role: "user", content: "How are you?"}], max_tokens: 500)
    escaped = expected |> Phoenix.HTML.html_escape() |> Phoenix.HTML.safe_to_string()
    assert text(answer) == text("<p>#{escaped}</p>")

    # a place in the queue
    other = Server.submit(server, "x", max_tokens: 400)
    assert_receive {:weir, _ref, {:text, _text}}, 60_000
    ask(view, "How are you?")
    shown(view, &(&1 =~ "Number 1 in the queue"))
    Request.cancel(other)
    shown(view, &streams?/1)

    # a new question replaces the one before, and stop stops it
    ask(view, "two")
    view |> element("button", "Stop") |> render_click()
    refute render(view) =~ "Stop"
    idle()

    # the socket goes, and with it the request
    ask(view, "three")
    shown(view, &streams?/1)
    GenServer.stop(view.pid, :shutdown)
    idle()

    stop_supervised!(MyApp.LLM)
    {:ok, view, _html} = live(build_conn(), "/")
    ask(view, "four")
    assert shown(view, &(not (&1 =~ "Stop"))) =~ "the server is down"
  end

  test "Jason encodes answers and chunks as weir does" do
    server = start_supervised!({Server, model_path: "fake:", temp: 0.0, max_tokens: 3})
    messages = [%{role: "user", content: "hello"}]
    {:ok, answer} = Server.chat_completion(server, messages, logprobs: true, top_logprobs: 2)
    chunks = server |> Server.stream_chat_completion(messages) |> Enum.to_list()
    more = server |> Server.stream("hello", emit: :chunks) |> Enum.to_list()
    assert length(chunks) > 2 and length(more) > 2

    for struct <- [answer | chunks ++ more] do
      expected = struct |> Weir.JSON.encode!() |> Jason.decode!()
      assert struct |> Jason.encode!() |> Jason.decode!() == expected
      assert %{data: [struct]} |> Jason.encode!(pretty: true) |> Jason.decode!() == %{"data" => [expected]}
    end
  end
end
