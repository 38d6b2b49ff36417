# SPDX-License-Identifier: Apache-2.0
exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:llama, :model | exclude], else: exclude

# a build without libcurl returns its error before any connection
{:error, %{message: reason}} = Weir.Hub.list_gguf_files("o/m", endpoint: "http://127.0.0.1:1", n_retries: 0)
exclude = if reason =~ "without libcurl", do: [:curl | exclude], else: exclude

# A missing message is an error; on a busy machine a late message or a slow test is not.
ExUnit.start(exclude: exclude, assert_receive_timeout: 20_000, timeout: 600_000)
