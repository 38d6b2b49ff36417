# SPDX-License-Identifier: Apache-2.0
Application.put_env(:phoenix, :json_library, Jason)

Application.put_env(:my_app, MyAppWeb.Endpoint,
  secret_key_base: String.duplicate("a", 64),
  live_view: [signing_salt: "of the test"],
  pubsub_server: MyApp.PubSub
)

Logger.configure(level: :warning)
ExUnit.start()
