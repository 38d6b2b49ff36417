# SPDX-License-Identifier: Apache-2.0
defmodule MyAppWeb.Router do
  use Phoenix.Router
  import Phoenix.LiveView.Router

  pipeline :browser do
    plug(:accepts, ["html"])
    plug(:fetch_session)
    plug(:put_root_layout, false)
  end

  scope "/" do
    pipe_through(:browser)
    live("/", MyAppWeb.AskLive)
  end
end

defmodule MyAppWeb.Endpoint do
  use Phoenix.Endpoint, otp_app: :my_app
  @session [store: :cookie, key: "session", signing_salt: "of the test"]

  socket("/live", Phoenix.LiveView.Socket, websocket: [connect_info: [session: @session]])
  plug(Plug.Session, @session)
  plug(MyAppWeb.Router)
end

# The guide's view, as it stands there.
guide = Path.expand("../../../elixir/guides/live_view.md", __DIR__)
[[_, code]] = Regex.scan(~r/^```elixir\n(.*?)^```$/ms, File.read!(guide))
Code.compile_string(code, guide)
