# SPDX-License-Identifier: Apache-2.0
exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:llama, :model | exclude], else: exclude

# a build without libcurl returns its error before any connection
{:error, %{message: reason}} = Weir.Hub.list_gguf_files("o/m", endpoint: "http://127.0.0.1:1", n_retries: 0)
exclude = if reason =~ "without libcurl", do: [:curl | exclude], else: exclude

# One seed in each run, so that a suite that passed passes again; `mix test --seed N` takes another one.
# A missing message is an error; on a busy machine a late message or a slow test is not.
ExUnit.start(exclude: exclude, seed: 1, assert_receive_timeout: 120_000, timeout: 850_000)
